package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"go/types"
	"io/fs"
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
//	- a part of its body that is replaced: tokens of Go that are there exactly once
//	+ Go in its place, where OLD stands for the part; none: it is left out
//	! TestThatMustFail
//
// Line breaks, spaces and comments do not matter, nor does the file of the function. More changes may follow the first one. A judge may
// also be a regression of the simulation (TestRegressions/its name), or a rule that its seeds must break; one of several rules suffices.
type namedMutant struct {
	name    string
	changes []codeChange
	judges  []string
}

// codeChange is a change in one function.
type codeChange struct{ function, old, with string }

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
			m.changes = append(m.changes, codeChange{})
		}
		c := &m.changes[len(m.changes)-1]
		switch kind {
		case "-":
			c.old += rest + "\n"
		case "+":
			c.with += rest + "\n"
		case "!":
			m.judges = append(m.judges, rest)
		default:
			c.function = line
		}
	}
	for _, m := range all {
		incomplete := func(c codeChange) bool { return c.function == "" || c.old == "" }
		if len(m.changes) == 0 || slices.ContainsFunc(m.changes, incomplete) || len(m.judges) == 0 {
			return nil, fmt.Errorf("%q must have functions, each with lines with \"-\", and a test or rule with \"!\"", m.name)
		}
	}
	return all, nil
}

// function is where a function is.
type function struct {
	file     string
	from, to int    // of its body, in the file
	results  string // their types
	body     string
}

// functions returns the functions of the files by their names, such as Type.method.
func functions(texts map[string]string) (map[string][]*function, error) {
	all := map[string][]*function{}
	for name, text := range texts {
		files := token.NewFileSet()
		parsed, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		offset := func(p token.Pos) int { return files.Position(p).Offset }
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			full := f.Name.Name
			if f.Recv != nil {
				receiver, _, _ := strings.Cut(types.ExprString(f.Recv.List[0].Type), "[")
				full = strings.TrimPrefix(receiver, "*") + "." + full
			}
			found := &function{file: name, from: offset(f.Body.Lbrace) + 1, to: offset(f.Body.Rbrace)}
			found.body = text[found.from:found.to]
			if f.Type.Results != nil {
				found.results = text[offset(f.Type.Results.Pos()):offset(f.Type.Results.End())]
			}
			all[full] = append(all[full], found)
		}
	}
	return all, nil
}

// applyAll returns the changed files. Each changed function begins with the switch of each of its mutants and, behind it, the whole body
// with the change. The number of a mutant is its index, plus one.
func applyAll(mutants []namedMutant, texts map[string]string) (map[string]string, error) {
	byName, err := functions(texts)
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
			call, end := "return func() ", "()"
			if f.results == "" {
				call, end = "func() ", "(); return"
			}
			text := fmt.Sprintf(" if mutant(%d) { %s%s {%s}%s };", i+1, call, f.results, body, end)
			insertions[f.file] = append(insertions[f.file], insertion{f.from, text})
		}
	}
	result := map[string]string{}
	for file, all := range insertions {
		result[file] = insert(texts[file], all)
		if _, err := parser.ParseFile(token.NewFileSet(), file, result[file], parser.SkipObjectResolution); err != nil {
			errs = append(errs, fmt.Errorf("the Go of a named mutant: %w", err))
		}
	}
	return result, errors.Join(errs...)
}

// apply changes the one body with the tokens.
func (c codeChange) apply(candidates []*function, changed map[*function]string) error {
	old, count := words(c.old), 0
	var found *function
	var result string
	for _, f := range candidates {
		body, ok := changed[f]
		if !ok {
			body = f.body
		}
		all := words(body)
		for i := range len(all) - len(old) + 1 {
			if slices.EqualFunc(all[i:i+len(old)], old, func(a, b word) bool { return a.text == b.text }) {
				from, to := all[i].at, all[i+len(old)-1].end
				found, count = f, count+1
				result = body[:from] + strings.ReplaceAll(strings.TrimSpace(c.with), "OLD", body[from:to]) + body[to:]
			}
		}
	}
	if count != 1 {
		return fmt.Errorf("%s has %q %d times, want once: correct the entry", c.function, c.old, count)
	}
	changed[found] = result
	return nil
}

// word is a token of Go in a text.
type word struct {
	text    string
	at, end int
}

// words returns the tokens, without comments, semicolons at the ends of lines, and commas before a bracket that closes.
func words(text string) (all []word) {
	file := token.NewFileSet().AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, []byte(text), nil, 0)
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return all
		}
		if tok == token.SEMICOLON && literal == "\n" {
			continue
		}
		if slices.Contains([]token.Token{token.RPAREN, token.RBRACE, token.RBRACK}, tok) && len(all) > 0 && all[len(all)-1].text == "," {
			all = all[:len(all)-1]
		}
		w := word{text: cmp.Or(literal, tok.String()), at: file.Offset(pos)}
		w.end = w.at + len(w.text)
		all = append(all, w)
	}
}

// sources returns the Go files of all packages beneath the folder that are not tests.
func sources(folder string) (texts map[string]string, err error) {
	texts = map[string]string{}
	return texts, filepath.WalkDir(folder, func(file string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := os.ReadFile(file)
		texts[file] = string(text)
		return err
	})
}

// namedTrials compiles the mutants of a list with a text in their names. Each must be noticed by all of its judges.
func (m *mutation) namedTrials(ctx context.Context, list, only string) (trials []trial, err error) {
	text, err := os.ReadFile(list)
	if err != nil {
		return nil, err
	}
	all, err := parseNamed(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", list, err)
	}
	all = slices.DeleteFunc(all, func(n namedMutant) bool { return !strings.Contains(n.name, only) })
	if len(all) == 0 {
		return nil, fmt.Errorf("no named mutant's name contains %q: choose a part of one in %s", only, list)
	}
	texts, err := sources(m.folder)
	homes, err2 := m.homes()
	if err = errors.Join(err, err2); err != nil {
		return nil, err
	}
	changed, err := applyAll(all, texts)
	if err != nil {
		return nil, err
	}
	var needed []string
	for i, n := range all {
		for _, judge := range n.judges {
			home := homes[judge]
			if !isTest(judge) || strings.Contains(judge, "/") {
				homes[judge], home = m.simulation(), m.simulation()
			}
			if home == "" || home == m.simulation() && m.simulate == "" {
				return nil, fmt.Errorf("%s: there is no test %s, or -simulate is not set", n.name, judge)
			}
			needed = append(needed, home)
		}
		trials = append(trials, trial{n.name, func() (string, error) { return m.try(ctx, i+1, n.judges, homes) }})
	}
	slices.Sort(needed)
	return trials, m.compile(ctx, slices.Compact(needed), changed, len(all))
}

// isTest reports whether a judge is a test, and not a rule of the simulation.
func isTest(judge string) bool { return strings.HasPrefix(judge, "Test") }

var testName = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// homes returns the folders of the tests.
func (m *mutation) homes() (map[string]string, error) {
	folders, err := m.packages()
	homes := map[string]string{}
	for _, folder := range folders {
		files, _ := filepath.Glob(filepath.Join(folder, "*_test.go"))
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			for _, match := range testName.FindAllStringSubmatch(string(text), -1) {
				homes[match[1]] = folder
			}
		}
	}
	return homes, err
}

// failedSeed is a line of the simulation about a seed that has failed.
var failedSeed = regexp.MustCompile(`seed (\d+): ([a-z ]+): `)

// try returns the judges that notice the mutant with the number id, and an error if one does not.
func (m *mutation) try(ctx context.Context, id int, judges []string, homes map[string]string) (string, error) {
	var by, rules []string
	for _, judge := range judges {
		if !isTest(judge) {
			rules = append(rules, judge)
			continue
		}
		pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(strings.ReplaceAll(judge, " ", "_")), "/", "$/^") + "$"
		if out, err := m.run(ctx, homes[judge], strconv.Itoa(id), pattern, "-test.timeout", "30s"); err == nil {
			return "", fmt.Errorf("%s does not fail:\n%s", judge, out)
		}
		by = append(by, judge)
	}
	if len(rules) == 0 {
		return strings.Join(by, ", "), nil
	}
	out, err := m.runSeeds(ctx, id, "^TestSim$")
	if err == nil {
		return "", fmt.Errorf("no rule is broken in %d seeds", m.seeds)
	}
	first, rule := 0, ""
	for _, match := range failedSeed.FindAllStringSubmatch(string(out), -1) {
		if seed, err := strconv.Atoi(match[1]); err == nil && (first == 0 || seed < first) {
			first, rule = seed, match[2]
		}
	}
	if !slices.Contains(rules, rule) {
		return "", fmt.Errorf("seed %d breaks the rule %q, want one of %q:\n%s", first, rule, rules, out)
	}
	return strings.Join(append(by, fmt.Sprintf("rule %q, %d seeds", rule, first)), ", "), nil
}
