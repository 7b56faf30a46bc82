package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// switchSource is a file of the package under test: its name, and the number of mutants. mutant reports whether a
// mutant is switched on, and can note which ones are asked for.
const switchSource = `package %s

import (
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
)

var (
	mutantOn, _ = strconv.Atoi(os.Getenv("MUTANT"))
	mutantAsked [%d]atomic.Bool
	mutantLog   = func() *os.File {
		file, err := os.OpenFile(os.Getenv("MUTANT_LOG"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			return nil
		}
		return file
	}()
)

func mutant(id int) bool {
	if mutantLog != nil && !mutantAsked[id].Swap(true) {
		fmt.Fprintln(mutantLog, id)
	}
	return mutantOn == id
}
`

// testCost is a test of the package in the folder, and how long it takes alone.
type testCost struct {
	Folder, Name string
	Took         time.Duration
}

// compile builds the tests of the package in the folder with these texts instead of the files.
func (m *mutation) compile(ctx context.Context, folder string, changed map[string]string) error {
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	tags := ""
	if folder == m.simulation() {
		tags = "sim"
		list, err := os.ReadFile(m.simulate)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(list, &overlay); err != nil {
			return fmt.Errorf("%s: %w", m.simulate, err)
		}
	}
	for file, text := range changed {
		full, err := filepath.Abs(file)
		if err != nil {
			return err
		}
		copied := filepath.Join(m.tmp, flat(file))
		overlay.Replace[full] = copied
		if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
			return err
		}
	}
	list, err := json.Marshal(overlay)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(m.tmp, "overlay.json"), list, 0o600); err != nil {
		return err
	}
	if _, err := os.Stat(m.binary(folder)); err == nil {
		_ = os.Remove(m.binary(folder))
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags", "-s -w", "-tags", tags, "-overlay",
		filepath.Join(m.tmp, "overlay.json"), "-o", m.binary(folder), "./"+folder)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compiling the tests: %w\n%s", err, out)
	}
	return nil
}

func (m *mutation) binary(folder string) string { return filepath.Join(m.tmp, flat(folder)+".test") }

// flat makes a path one name.
func flat(path string) string { return strings.ReplaceAll(path, string(filepath.Separator), "_") }

// simulation is the folder of the simulation.
func (m *mutation) simulation() string { return filepath.Join(m.folder, "internal", "proof", "sim") }

// command runs the compiled tests of the package in the folder with these arguments, as go test does.
func (m *mutation) command(ctx context.Context, folder string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, m.binary(folder), args...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	return cmd
}

// list returns the tests of the compiled package in the folder; none if it has no tests.
func (m *mutation) list(ctx context.Context, folder string) (tests []testCost, err error) {
	if _, err := os.Stat(m.binary(folder)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	out, err := m.command(ctx, folder, "-test.list", ".").Output()
	if err != nil {
		return nil, fmt.Errorf("listing the tests of %s: %w", folder, err)
	}
	for name := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(name, "Test") {
			tests = append(tests, testCost{Folder: folder, Name: name})
		}
	}
	return tests, nil
}

// reach runs each test alone. It returns the tests, the quick ones first, and sets those of each mutant that reach it.
func (m *mutation) reach(ctx context.Context, folders []string, mutants []mutant) (tests []testCost, err error) {
	type watched struct {
		testCost
		ids []int // of the mutants that it reaches
		err error
	}
	var all []*watched
	for _, folder := range folders {
		some, err := m.list(ctx, folder)
		if err != nil {
			return nil, err
		}
		for _, t := range some {
			all = append(all, &watched{testCost: t})
		}
	}
	each(m.jobs, all, func(w *watched) { w.ids, w.Took, w.err = m.watch(ctx, w.testCost) })
	slices.SortFunc(all, func(a, b *watched) int { return cmp.Compare(a.Took, b.Took) })
	byID := map[int]*mutant{}
	for i := range mutants {
		byID[mutants[i].ID] = &mutants[i]
	}
	for i, w := range all {
		tests, err = append(tests, w.testCost), errors.Join(err, w.err)
		for _, id := range w.ids {
			byID[id].Tests = append(byID[id].Tests, i)
		}
	}
	return tests, err
}

// watch runs a test alone. It returns the ids of the mutants that the test reaches.
func (m *mutation) watch(ctx context.Context, t testCost) (ids []int, took time.Duration, err error) {
	file := m.binary(t.Folder) + "." + t.Name + ".log"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return nil, 0, err
	}
	defer func() { _ = os.Remove(file) }()
	start := time.Now()
	cmd := m.command(ctx, t.Folder, "-test.run", "^"+t.Name+"$")
	cmd.Env = append(cmd.Env, "MUTANT_LOG="+file)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, 0, fmt.Errorf("%s fails without a mutant: %w\n%s", t.Name, err, out)
	}
	took = time.Since(start)
	log, err := os.ReadFile(file)
	for line := range strings.FieldsSeq(string(log)) {
		id, wrong := strconv.Atoi(line)
		ids, err = append(ids, id), errors.Join(err, wrong)
	}
	return ids, took, err
}

// passSimulation reports whether the regressions of the simulation and its seeds pass with the mutant.
func (m *mutation) passSimulation(ctx context.Context, id int) bool {
	cmd := m.command(ctx, m.simulation(), "-test.run", "^("+regressions+"|TestSim)$", "-test.failfast", "-test.timeout", "0",
		"-seeds", strconv.Itoa(m.seeds), "-shrink", "0", "-until")
	cmd.Env = append(cmd.Env, "MUTANT="+strconv.Itoa(id))
	return cmd.Run() == nil
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
		cmd := m.command(ctx, folder, "-test.failfast", "-test.run", "^("+strings.Join(names, "|")+")$")
		cmd.Env = append(cmd.Env, "MUTANT="+strconv.Itoa(id))
		if cmd.Run() != nil {
			return false
		}
	}
	return true
}
