package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// namedMutant is a change that a person has written down:
//
//	= what is broken
//	internal/plan/file.go, in the folder of the package
//	- lines that are replaced, exactly once in the file
//	+ lines in their place; none: the lines are left out
//	! TestThatMustFail
//
// More files with lines may follow the first ones. If the simulation judges, ! names a rule by which it notices the mutant.
type namedMutant struct {
	name    string
	changes []textChange
	judges  []string
}

// textChange is a change in one file.
type textChange struct {
	file      string
	old, with []string
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
		if len(m.changes) == 0 || !slices.Contains([]string{"-", "+", "!"}, kind) {
			m.changes = append(m.changes, textChange{})
		}
		c := &m.changes[len(m.changes)-1]
		switch kind {
		case "-":
			c.old = append(c.old, rest)
		case "+":
			c.with = append(c.with, rest)
		case "!":
			m.judges = append(m.judges, rest)
		default:
			c.file = line
		}
	}
	for _, m := range all {
		incomplete := func(c textChange) bool { return c.file == "" || len(c.old) == 0 }
		if len(m.changes) == 0 || slices.ContainsFunc(m.changes, incomplete) || len(m.judges) == 0 {
			return nil, fmt.Errorf("%q must have files, each with lines with \"-\", and a test or rule with \"!\"", m.name)
		}
	}
	return all, nil
}

// apply returns the source with the change.
func (c *textChange) apply(source string) (string, error) {
	old, with := strings.Join(c.old, "\n")+"\n", ""
	if len(c.with) > 0 {
		with = strings.Join(c.with, "\n") + "\n"
	}
	if count := strings.Count(source, old); count != 1 {
		return "", fmt.Errorf("%s has the lines %q %d times, want once: correct them", c.file, c.old[0], count)
	}
	return strings.Replace(source, old, with, 1), nil
}

// apply changes the texts of the files that the mutant changes. REVERTED in them becomes the switch with the number id.
func (n *namedMutant) apply(folder string, id int, texts map[string]string) error {
	for _, c := range n.changes {
		file := filepath.Join(folder, c.file)
		if _, again := texts[file]; !again {
			source, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			texts[file] = string(source)
		}
		text, err := c.apply(texts[file])
		if err != nil {
			return err
		}
		texts[file] = strings.ReplaceAll(text, "REVERTED", fmt.Sprintf("mutant(%d)", id))
	}
	return nil
}

// replay makes sure that each named mutant is noticed by each test that it names, or by the simulation.
func (m *mutation) replay(ctx context.Context, list string, only string) (err error) {
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
	if m.simulate != "" {
		if err := m.compileAll(ctx, all); err != nil {
			return err
		}
	}
	tried, wrong := 0, 0
	for i, n := range all {
		if !strings.Contains(n.name, only) {
			continue
		}
		tried++
		by, problem := m.try(ctx, i+1, n)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if problem != nil {
			wrong++
			fmt.Printf("%s: %v\n", n.name, problem)
			continue
		}
		fmt.Printf("noticed: %s (%s)\n", n.name, by)
	}
	if tried == 0 {
		return fmt.Errorf("no named mutant's name contains %q: choose a part of one in %s", only, list)
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d named mutants are not noticed as they should be", wrong, tried)
	}
	fmt.Printf("all %d named mutants that were tried are noticed\n", tried)
	return nil
}

// compileAll compiles all mutants at once, each with its switch.
func (m *mutation) compileAll(ctx context.Context, all []namedMutant) error {
	texts := map[string]string{}
	for i, n := range all {
		if err := n.apply(m.folder, i+1, texts); err != nil {
			return err
		}
	}
	addSwitches(texts, len(all)+1)
	return m.compile(ctx, m.simulation(), texts)
}

// try returns what notices the mutant with the number id, and an error if something that should does not.
func (m *mutation) try(ctx context.Context, id int, n namedMutant) (by string, err error) {
	if m.simulate != "" {
		return m.simulated(ctx, id, n)
	}
	texts := map[string]string{}
	if err := n.apply(m.folder, id, texts); err != nil {
		return "", err
	}
	folders, err := m.packages()
	if err != nil {
		return "", err
	}
	for _, name := range n.judges {
		i := slices.IndexFunc(folders, func(folder string) bool { return hasTest(folder, name) })
		if i < 0 {
			return "", fmt.Errorf("there is no test %s", name)
		}
		if err := m.compile(ctx, folders[i], texts); err != nil {
			return "", err
		}
		if m.pass(ctx, 0, []testCost{{test{folders[i], name}, slowTest}}) {
			return "", fmt.Errorf("SURVIVES: %s does not fail", name)
		}
	}
	return strings.Join(n.judges, ", "), nil
}

// hasTest reports whether a test of this name is in the folder.
func hasTest(folder, name string) bool {
	files, _ := filepath.Glob(filepath.Join(folder, "*_test.go"))
	return slices.ContainsFunc(files, func(file string) bool {
		source, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(source), "\nfunc "+name+"(")
	})
}

// failedSeed is a line of the simulation about a seed that has failed.
var failedSeed = regexp.MustCompile(`seed (\d+): ([a-z ]+): `)

// simulated runs seeds of the simulation until one fails, and returns the rule that was broken and the number of seeds.
func (m *mutation) simulated(ctx context.Context, id int, n namedMutant) (by string, err error) {
	cmd := m.command(ctx, m.simulation(), "-test.run", "^TestSim$", "-test.timeout", "0", "-seeds", strconv.Itoa(m.seeds), "-shrink", "0", "-until")
	cmd.Env = append(cmd.Env, "MUTANT="+strconv.Itoa(id))
	out, err := cmd.CombinedOutput()
	if err == nil {
		return "", fmt.Errorf("SURVIVES: no rule is broken in %d seeds", m.seeds)
	}
	first, rule := 0, ""
	for _, match := range failedSeed.FindAllStringSubmatch(string(out), -1) {
		if seed, err := strconv.Atoi(match[1]); err == nil && (first == 0 || seed < first) {
			first, rule = seed, match[2]
		}
	}
	if !slices.Contains(n.judges, rule) {
		return "", fmt.Errorf("seed %d breaks the rule %q, want one of %q:\n%s", first, rule, n.judges, out)
	}
	return fmt.Sprintf("rule %q, %d seeds", rule, first), nil
}
