package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// namedMutant is a change that a person has written down:
//
//	= what is broken
//	file.go
//	- lines that are replaced, exactly once in the file
//	+ lines in their place; none: the lines are left out
//	! TestThatMustFail
type namedMutant struct {
	name, file string
	old, with  []string
	tests      []string
}

// parseNamed reads the text of a file of named mutants. Lines that begin with # are comments.
func parseNamed(text string) (all []namedMutant, err error) {
	for number, line := range strings.Split(text, "\n") {
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		kind, rest := line[:1], strings.TrimPrefix(line[1:], " ")
		if kind == "=" {
			all = append(all, namedMutant{name: rest})
			continue
		}
		if len(all) == 0 {
			return nil, fmt.Errorf("line %d: %q comes before the first name: start with =", number+1, line)
		}
		m := &all[len(all)-1]
		switch kind {
		case "-":
			m.old = append(m.old, rest)
		case "+":
			m.with = append(m.with, rest)
		case "!":
			m.tests = append(m.tests, rest)
		default:
			m.file = line
		}
	}
	for _, m := range all {
		if m.file == "" || len(m.old) == 0 || len(m.tests) == 0 {
			return nil, fmt.Errorf("%q must have a file, lines with \"-\" and a test with \"!\"", m.name)
		}
	}
	return all, nil
}

// apply returns the source with the mutant.
func (n *namedMutant) apply(source string) (string, error) {
	old, with := strings.Join(n.old, "\n")+"\n", ""
	if len(n.with) > 0 {
		with = strings.Join(n.with, "\n") + "\n"
	}
	if count := strings.Count(source, old); count != 1 {
		return "", fmt.Errorf("%s has the lines of %q %d times, want once: correct them", n.file, n.name, count)
	}
	return strings.Replace(source, old, with, 1), nil
}

// replay makes sure that each named mutant is noticed by each test that it names.
func (m *mutation) replay(ctx context.Context, list string) (err error) {
	if m.tmp, err = os.MkdirTemp("", "mutate"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(m.tmp) }()
	text, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	all, err := parseNamed(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", list, err)
	}
	wrong := 0
	for _, n := range all {
		problem := m.try(ctx, n)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if problem != nil {
			wrong++
			fmt.Printf("%s: %v\n", n.name, problem)
			continue
		}
		fmt.Printf("noticed: %s (%s)\n", n.name, strings.Join(n.tests, ", "))
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d named mutants are not noticed as they should be", wrong, len(all))
	}
	fmt.Printf("all %d named mutants are noticed\n", len(all))
	return nil
}

// try returns an error if a test that should notice the mutant does not.
func (m *mutation) try(ctx context.Context, n namedMutant) error {
	file := filepath.Join(m.folder, n.file)
	source, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	changed, err := n.apply(string(source))
	if err != nil {
		return err
	}
	if err := m.compile(ctx, map[string]string{file: changed}); err != nil {
		return err
	}
	listed, err := m.command(ctx, "-test.list", ".").Output()
	if err != nil {
		return err
	}
	for _, test := range n.tests {
		if !slices.Contains(strings.Fields(string(listed)), test) {
			return fmt.Errorf("there is no test %s", test)
		}
		if m.pass(ctx, 0, []testCost{{name: test, took: slowTest}}) {
			return fmt.Errorf("SURVIVES: %s does not fail", test)
		}
	}
	return nil
}
