package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// switchSource is a file of a package with mutants: its name, and the greatest number of a mutant. The variable MUTANT is the number of
// the mutant that is switched on, or the file into which the numbers of those are written that are asked for.
const switchSource = `package %s

import (
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
)

var (
	mutantOn, _  = strconv.Atoi(os.Getenv("MUTANT"))
	mutantLog, _ = os.OpenFile(os.Getenv("MUTANT"), os.O_APPEND|os.O_WRONLY, 0)
	mutantAsked  [%d + 1]atomic.Bool
)

func mutant(id int) bool {
	if mutantLog != nil && !mutantAsked[id].Swap(true) {
		fmt.Fprintln(mutantLog, id)
	}
	return mutantOn == id
}
`

var packageName = regexp.MustCompile(`(?m)^package (\w+)`)

// testCost is a test of the package in the folder, how long it takes alone, and the ids of the mutants that it reaches.
type testCost struct {
	Folder, Name string
	Took         time.Duration
	reaches      []int
}

// compile builds the tests of the packages with these texts instead of the files, and the switches of their mutants.
func (m *mutation) compile(ctx context.Context, folders []string, changed map[string]string, mutants int) error {
	replace := map[string]string{}
	put := func(file, text string) error {
		full, err := filepath.Abs(file)
		replace[full] = filepath.Join(m.tmp, flat(file))
		return errors.Join(err, os.WriteFile(replace[full], []byte(text), 0o600))
	}
	for file, text := range changed {
		name := packageName.FindStringSubmatch(text)[1]
		switches := fmt.Sprintf(switchSource, name, mutants)
		if err := errors.Join(put(file, text), put(filepath.Join(filepath.Dir(file), "mutant_switch.go"), switches)); err != nil {
			return err
		}
	}
	slices.Sort(folders)
	for _, folder := range slices.Compact(folders) {
		overlay, tags := struct{ Replace map[string]string }{maps.Clone(replace)}, ""
		if folder == m.simulation() {
			tags = "sim"
			list, err := os.ReadFile(m.simulate)
			if err = errors.Join(err, json.Unmarshal(list, &overlay)); err != nil { // it adds to the map
				return fmt.Errorf("the overlay of the simulation: %w", err)
			}
		}
		list, err := json.Marshal(overlay)
		file := filepath.Join(m.tmp, "overlay.json")
		if err = errors.Join(err, os.WriteFile(file, list, 0o600)); err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags", "-s -w", "-tags", tags, "-overlay", file,
			"-o", m.binary(folder), "./"+folder)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("compiling the tests of %s: %w\n%s", folder, err, out)
		}
	}
	return nil
}

func (m *mutation) binary(folder string) string { return filepath.Join(m.tmp, flat(folder)+".test") }

// flat makes a path one name.
func flat(path string) string { return strings.ReplaceAll(path, string(filepath.Separator), "_") }

// simulation is the folder of the simulation.
func (m *mutation) simulation() string { return filepath.Join(m.folder, "internal", "proof", "sim") }

// run runs compiled tests of the package in the folder, as go test does, and returns what they print. set is the variable MUTANT.
func (m *mutation) run(ctx context.Context, folder, set, tests string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, m.binary(folder), append([]string{"-test.failfast", "-test.run", tests}, args...)...)
	cmd.Dir, cmd.WaitDelay = folder, time.Second
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "MUTANT="+set)
	return cmd.CombinedOutput()
}

// seeds is how many seeds of the simulation judge.
const seeds = 300

// runSeeds runs tests of the simulation with a mutant, until a seed fails.
func (m *mutation) runSeeds(ctx context.Context, id int, tests string) ([]byte, error) {
	return m.run(ctx, m.simulation(), strconv.Itoa(id), tests,
		"-test.timeout", "0", "-seeds", strconv.Itoa(seeds), "-shrink", "0", "-until")
}

var testName = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// tests returns the tests in the files.
func tests(all []source) (found []testCost) {
	for _, s := range all {
		for _, match := range testName.FindAllStringSubmatch(s.text, -1) {
			if folder, name := filepath.Dir(s.file), match[1]; strings.HasSuffix(s.file, "_test.go") && name != "TestMain" {
				found = append(found, testCost{Folder: folder, Name: name})
			}
		}
	}
	return found
}

// reach runs each test alone. It sorts them, the quick ones first, and sets those of each mutant that reach it.
func (m *mutation) reach(ctx context.Context, p prepared) error {
	err := m.each(len(p.Tests), func(i int) error { return m.watch(ctx, &p.Tests[i]) })
	slices.SortStableFunc(p.Tests, func(a, b testCost) int { return cmp.Compare(a.Took, b.Took) })
	for i, t := range p.Tests {
		for _, id := range t.reaches {
			p.Mutants[id-1].Tests = append(p.Mutants[id-1].Tests, i)
		}
	}
	return err
}

// watch runs a test alone, and notes how long that takes and what the test reaches.
func (m *mutation) watch(ctx context.Context, t *testCost) error {
	file := m.binary(t.Folder) + "." + t.Name + ".log"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return err
	}
	defer func() { _ = os.Remove(file) }()
	start := time.Now()
	if out, err := m.run(ctx, t.Folder, file, "^"+t.Name+"$"); err != nil {
		return fmt.Errorf("%s fails without a mutant: %w\n%s", t.Name, err, out)
	}
	t.Took = time.Since(start)
	log, err := os.ReadFile(file)
	for line := range strings.FieldsSeq(string(log)) {
		id, wrong := strconv.Atoi(line)
		t.reaches, err = append(t.reaches, id), errors.Join(err, wrong)
	}
	slices.Sort(t.reaches) // packages and programs of one test note their own
	t.reaches = slices.Compact(t.reaches)
	return err
}

// pass reports whether the tests pass with the mutant. Tests that take very much longer than without it do not.
func (m *mutation) pass(ctx context.Context, id int, tests []testCost) bool {
	names := map[string][]string{} // by folder
	var usual time.Duration
	for _, t := range tests {
		names[t.Folder], usual = append(names[t.Folder], t.Name), usual+t.Took
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second+10*usual)
	defer cancel()
	for folder, names := range names {
		if _, err := m.run(ctx, folder, strconv.Itoa(id), "^("+strings.Join(names, "|")+")$"); err != nil {
			return false
		}
	}
	return true
}
