package main

import (
	"bytes"
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
	"sync"
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

// test is a test of the package in the folder.
type test struct{ folder, name string }

// testCost is a test, and how long it takes alone.
type testCost struct {
	test
	took time.Duration
}

// compile builds the tests of the package in the folder with these texts instead of the files.
func (m *mutation) compile(ctx context.Context, folder string, changed map[string]string) error {
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	if m.simulate != "" {
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
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags", "-s -w", "-tags", m.tags(), "-overlay",
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

func (m *mutation) tags() string {
	if m.simulate != "" {
		return "sim"
	}
	return ""
}

// command runs the compiled tests of the package in the folder with these arguments, as go test does.
func (m *mutation) command(ctx context.Context, folder string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, m.binary(folder), args...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	return cmd
}

// list returns the tests of the compiled package in the folder; none if it has no tests.
func (m *mutation) list(ctx context.Context, folder string) (tests []test, err error) {
	if _, err := os.Stat(m.binary(folder)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	out, err := m.command(ctx, folder, "-test.list", ".").Output()
	if err != nil {
		return nil, fmt.Errorf("listing the tests of %s: %w", folder, err)
	}
	for name := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(name, "Test") {
			tests = append(tests, test{folder, name})
		}
	}
	return tests, nil
}

// reach runs each test alone. It returns the tests that reach each mutant, and sets tests.
func (m *mutation) reach(ctx context.Context, folders []string) (map[int]map[test]bool, error) {
	var all []test
	for _, folder := range folders {
		tests, err := m.list(ctx, folder)
		if err != nil {
			return nil, err
		}
		all = append(all, tests...)
	}
	reached := map[int]map[test]bool{}
	var mu sync.Mutex
	var errs []error
	each(m.jobs, all, func(t test) {
		file := m.binary(t.folder) + "." + t.name + ".log"
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			errs = append(errs, err)
			return
		}
		start := time.Now()
		cmd := m.command(ctx, t.folder, "-test.run", "^"+t.name+"$")
		cmd.Env = append(cmd.Env, "MUTANT_LOG="+file)
		out, err := cmd.CombinedOutput()
		took := time.Since(start)
		log, readErr := os.ReadFile(file)
		mu.Lock()
		defer mu.Unlock()
		if err != nil || readErr != nil {
			errs = append(errs, fmt.Errorf("%s fails without a mutant: %w\n%s", t.name, errors.Join(err, readErr), out))
		}
		m.tests = append(m.tests, testCost{t, took})
		for line := range bytes.Lines(log) {
			id, err := strconv.Atoi(strings.TrimSpace(string(line)))
			if err != nil {
				errs = append(errs, err)
			}
			if reached[id] == nil {
				reached[id] = map[test]bool{}
			}
			reached[id][t] = true
		}
	})
	slices.SortFunc(m.tests, func(a, b testCost) int { return int(a.took - b.took) })
	return reached, errors.Join(errs...)
}

// pass reports whether the tests pass with the mutant. Tests that take very much longer than without it do not.
func (m *mutation) pass(ctx context.Context, id int, tests []testCost) bool {
	names := map[string][]string{} // by folder
	var usual time.Duration
	for _, t := range tests {
		names[t.folder], usual = append(names[t.folder], t.name), usual+t.took
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
