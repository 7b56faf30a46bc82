package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
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

// testCost is a test, and how long it takes alone.
type testCost struct {
	name string
	took time.Duration
}

func packageName(source []byte) (string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), "", source, parser.PackageClauseOnly)
	if err != nil {
		return "", err
	}
	return file.Name.Name, nil
}

// compile builds the package's tests with these texts instead of the files.
func (m *mutation) compile(ctx context.Context, changed map[string]string) error {
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
		copied := filepath.Join(m.tmp, filepath.Base(file))
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
	if _, err := os.Stat(m.binary()); err == nil {
		_ = os.Remove(m.binary())
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags", "-s -w", "-tags", m.tags(), "-overlay", filepath.Join(m.tmp, "overlay.json"), "-o", m.binary(), "./"+m.tested())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compiling the tests: %w\n%s", err, out)
	}
	return nil
}

func (m *mutation) binary() string { return filepath.Join(m.tmp, "package.test") }

// tested is the folder whose tests judge, and tags are their build tags.
func (m *mutation) tested() string {
	if m.simulate != "" {
		return filepath.Join(m.folder, "sim")
	}
	return m.folder
}

func (m *mutation) tags() string {
	if m.simulate != "" {
		return "sim"
	}
	return ""
}

// command runs the compiled tests with these arguments, as go test does.
func (m *mutation) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, m.binary(), args...)
	cmd.Dir = m.tested()
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	return cmd
}

// reach runs each test alone. It returns the tests that reach each mutant, and sets tests.
func (m *mutation) reach(ctx context.Context) (map[int]map[string]bool, error) {
	out, err := m.command(ctx, "-test.list", ".").Output()
	if err != nil {
		return nil, fmt.Errorf("listing the tests: %w", err)
	}
	reached := map[int]map[string]bool{}
	var mu sync.Mutex
	var errs []error
	each(m.jobs, strings.Fields(string(out)), func(name string) {
		if !strings.HasPrefix(name, "Test") {
			return
		}
		file := filepath.Join(m.tmp, name+".log")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			errs = append(errs, err)
			return
		}
		start := time.Now()
		cmd := m.command(ctx, "-test.run", "^"+name+"$")
		cmd.Env = append(cmd.Env, "MUTANT_LOG="+file)
		out, err := cmd.CombinedOutput()
		took := time.Since(start)
		log, readErr := os.ReadFile(file)
		mu.Lock()
		defer mu.Unlock()
		if err != nil || readErr != nil {
			errs = append(errs, fmt.Errorf("%s fails without a mutant: %w\n%s", name, errors.Join(err, readErr), out))
		}
		m.tests = append(m.tests, testCost{name, took})
		for line := range bytes.Lines(log) {
			id, err := strconv.Atoi(strings.TrimSpace(string(line)))
			if err != nil {
				errs = append(errs, err)
			}
			if reached[id] == nil {
				reached[id] = map[string]bool{}
			}
			reached[id][name] = true
		}
	})
	slices.SortFunc(m.tests, func(a, b testCost) int { return int(a.took - b.took) })
	return reached, errors.Join(errs...)
}

// pass reports whether the tests pass with the mutant. Tests that take very much longer than without it do not.
func (m *mutation) pass(ctx context.Context, id int, tests []testCost) bool {
	if len(tests) == 0 {
		return true
	}
	var names []string
	var usual time.Duration
	for _, t := range tests {
		names, usual = append(names, t.name), usual+t.took
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second+10*usual)
	defer cancel()
	cmd := m.command(ctx, "-test.failfast", "-test.run", "^("+strings.Join(names, "|")+")$")
	cmd.Env = append(cmd.Env, "MUTANT="+strconv.Itoa(id))
	return cmd.Run() == nil
}
