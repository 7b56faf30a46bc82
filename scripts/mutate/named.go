package main

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// namedMutant is a change in a list:
//
//	= the fault
//	Type.method, or the name of a function
//	- a part of its body that is replaced, and is there exactly once
//	+ Go in its place, where OLD stands for the part; none: it is left out
//	! TestThatMustFail, or package.TestThatMustFail
//
// Line breaks and comments between words do not matter, nor does the file of the function. More changes may follow the first. A judge may
// also be a regression of the simulation (TestRegressions/its name), or a rule that its seeds must break; one of several rules suffices.
type namedMutant struct {
	name    string
	changes []codeChange
	judges  []string
}

// codeChange is a change in one function.
type codeChange struct{ function, old, with string }

var (
	commentLine = regexp.MustCompile(`(?m)^#.*$`)
	changeLines = regexp.MustCompile(`(?m)^([\w.]+)\n((?:-.*\n)+)((?:\+.*\n)*)`)
	judgeLine   = regexp.MustCompile(`(?m)^! (.+)$`)
	sign        = regexp.MustCompile(`(?m)^[-+]`)
)

// parseNamed reads the text of a file of named mutants. Lines that begin with # are comments.
func parseNamed(text string) (all []namedMutant, err error) {
	entries := strings.Split("\n"+commentLine.ReplaceAllString(text, ""), "\n= ")
	if left := strings.TrimSpace(entries[0]); left != "" {
		return nil, fmt.Errorf("%q comes before the first name: start with =", left)
	}
	for _, entry := range entries[1:] {
		name, rest, _ := strings.Cut(entry, "\n")
		m := namedMutant{name: name}
		for _, c := range changeLines.FindAllStringSubmatch(rest, -1) {
			m.changes = append(m.changes, codeChange{c[1], sign.ReplaceAllString(c[2], ""), sign.ReplaceAllString(c[3], "")})
		}
		for _, j := range judgeLine.FindAllStringSubmatch(rest, -1) {
			m.judges = append(m.judges, j[1])
		}
		left := judgeLine.ReplaceAllString(changeLines.ReplaceAllString(rest, ""), "")
		if strings.TrimSpace(left) != "" || len(m.changes) == 0 || len(m.judges) == 0 {
			return nil, fmt.Errorf("%q must have functions, each with lines with \"-\", and a test or rule with \"!\":%s", name, left)
		}
		all = append(all, m)
	}
	return all, nil
}

// function is the body of a function, and where it is. It ends with end if no return comes before.
type function struct {
	file      string
	at        int
	body, end string
}

// functions returns the functions of the files by their names, such as Type.method.
func functions(all []source) (map[string][]*function, error) {
	byName := map[string][]*function{}
	for _, s := range all {
		files := token.NewFileSet()
		parsed, err := parser.ParseFile(files, s.file, s.text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			name, end := f.Name.Name, "return"
			if f.Recv != nil {
				receiver, _, _ := strings.Cut(types.ExprString(f.Recv.List[0].Type), "[")
				name = strings.TrimPrefix(receiver, "*") + "." + name
			}
			if f.Type.Results != nil {
				end = `panic("no return")`
			}
			from, to := files.Position(f.Body.Lbrace).Offset+1, files.Position(f.Body.Rbrace).Offset
			byName[name] = append(byName[name], &function{s.file, from, s.text[from:to], end})
		}
	}
	return byName, nil
}

// applyAll returns the changed files. Each changed function begins with the switch of each of its mutants and, behind it, the whole body
// with the change. The number of a mutant is its index, plus one.
func applyAll(mutants []namedMutant, all []source) (map[string]string, error) {
	byName, err := functions(all)
	if err != nil {
		return nil, err
	}
	insertions := map[string][]insertion{} // by file
	var errs []error
	for i, m := range mutants {
		changed := map[*function]string{} // the bodies
		for _, c := range m.changes {
			if err := c.apply(byName[c.function], changed); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", m.name, err))
			}
		}
		for f, body := range changed {
			text := fmt.Sprintf(" if mutant(%d) {%s\n%s };", i+1, body, f.end)
			insertions[f.file] = append(insertions[f.file], insertion{f.at, text})
		}
	}
	result := map[string]string{}
	for _, s := range all {
		if insertions[s.file] != nil {
			result[s.file] = insert(s.text, insertions[s.file])
		}
	}
	return result, errors.Join(errs...)
}

// apply changes the one body with the text.
func (c codeChange) apply(candidates []*function, changed map[*function]string) error {
	old, count := expression(c.old), 0
	for _, f := range candidates {
		body, ok := changed[f]
		if !ok {
			body = f.body
		}
		for _, at := range old.FindAllStringIndex(body, -1) {
			count++
			changed[f] = body[:at[0]] + strings.ReplaceAll(strings.TrimSpace(c.with), "OLD", body[at[0]:at[1]]) + body[at[1]:]
		}
	}
	if count != 1 {
		return fmt.Errorf("%s has %q %d times, want once: correct the entry", c.function, c.old, count)
	}
	return nil
}

// expression matches the words of a text, whatever spaces, line breaks and comments are between them.
func expression(text string) *regexp.Regexp {
	words := strings.Fields(text)
	for i, word := range words {
		words[i] = regexp.QuoteMeta(word)
	}
	return regexp.MustCompile(strings.Join(words, `(?:\s|//.*)+`))
}

// namedTrials compiles the mutants of a list with a text in their names. Each must be noticed by all of its judges.
func (m *mutation) namedTrials(ctx context.Context, list, only string) (trials []trial, err error) {
	text, err := os.ReadFile(list)
	if err != nil {
		return nil, err
	}
	named, err := parseNamed(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", list, err)
	}
	named = slices.DeleteFunc(named, func(n namedMutant) bool { return !strings.Contains(n.name, only) })
	if len(named) == 0 {
		return nil, fmt.Errorf("no named mutant's name contains %q: choose a part of one in %s", only, list)
	}
	all, err := m.sources()
	if err != nil {
		return nil, err
	}
	changed, err := applyAll(named, all)
	if err != nil {
		return nil, err
	}
	known, needed := tests(all), []string{}
	for i, n := range named {
		var judges []testCost
		for _, name := range n.judges {
			var found []testCost
			for _, t := range known {
				if name == t.Name || name == filepath.Base(t.Folder)+"."+t.Name {
					found = append(found, t)
				}
			}
			if len(found) == 0 && m.simulate != "" { // a regression or a rule
				found = []testCost{{Folder: m.simulation(), Name: name}}
			}
			if len(found) != 1 {
				return nil, fmt.Errorf("%s: %d packages have the test %s: name one with it, such as plan.%[3]s; for rules, set -simulate",
					n.name, len(found), name)
			}
			judges, needed = append(judges, found...), append(needed, found[0].Folder)
		}
		trials = append(trials, trial{n.name, func() (string, error) { return m.try(ctx, i+1, judges) }})
	}
	return trials, m.compile(ctx, needed, changed, len(named))
}

// failedSeed is a line of the simulation about a seed that has failed.
var failedSeed = regexp.MustCompile(`seed (\d+): ([a-z ]+): `)

// try returns the judges that notice the mutant with the number id, and an error if one does not.
func (m *mutation) try(ctx context.Context, id int, judges []testCost) (string, error) {
	var rules, names []string
	for _, judge := range judges {
		names = append(names, judge.Name)
		if !strings.HasPrefix(judge.Name, "Test") {
			rules = append(rules, judge.Name)
			continue
		}
		pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(strings.ReplaceAll(judge.Name, " ", "_")), "/", "$/^") + "$"
		if out, err := m.run(ctx, judge.Folder, strconv.Itoa(id), pattern, "-test.timeout", "30s"); err == nil {
			return "", fmt.Errorf("%s does not fail:\n%s", judge.Name, out)
		}
	}
	by := strings.Join(names, ", ")
	if len(rules) == 0 {
		return by, nil
	}
	out, err := m.runSeeds(ctx, id, "^TestSim$")
	if err == nil {
		return "", fmt.Errorf("no rule is broken in %d seeds", seeds)
	}
	for _, match := range failedSeed.FindAllStringSubmatch(string(out), -1) {
		if slices.Contains(rules, match[2]) {
			return by + ", seed " + match[1], nil
		}
	}
	return "", fmt.Errorf("the seeds break other rules, want one of %q:\n%s", rules, out)
}
