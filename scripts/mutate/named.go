package main

import (
	"cmp"
	"context"
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

// namedMutant is a change that a person has written down:
//
//	= what is broken
//	Type.method, or the name of a function
//	- a part of it that is replaced: tokens of Go that are there exactly once
//	+ Go in its place, in which OLD is what was there; none: it is left out. It uses only packages that the function uses
//	! TestThatMustFail
//
// Line breaks, spaces and comments do not matter, nor does the file of the function. More functions may follow the first
// one. If the simulation judges, ! names a rule by which seeds notice the mutant, or a regression that must fail:
// TestRegressions/its name.
type namedMutant struct {
	name    string
	changes []codeChange
	judges  []string
}

// codeChange is a change in one function.
type codeChange struct {
	function  string
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
			m.changes = append(m.changes, codeChange{})
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
			c.function = line
		}
	}
	for _, m := range all {
		incomplete := func(c codeChange) bool { return c.function == "" || len(c.old) == 0 }
		if len(m.changes) == 0 || slices.ContainsFunc(m.changes, incomplete) || len(m.judges) == 0 {
			return nil, fmt.Errorf("%q must have functions, each with lines with \"-\", and a test or rule with \"!\"", m.name)
		}
	}
	return all, nil
}

// apply changes the texts of the files that the mutant changes, and notes them in changed. REVERTED in them becomes the
// switch with the number id.
func (n *namedMutant) apply(id int, texts, changed map[string]string) error {
	for _, c := range n.changes {
		old, with := words(strings.Join(c.old, "\n")), words(strings.Join(c.with, "\n"))
		has := map[string]bool{} // in the function
		var file string
		var from, to, count int
		for name, text := range texts {
			for _, f := range functions(name, text, c.function) {
				all := words(text[f[0]:f[1]])
				for i := range len(all) - len(old) + 1 {
					if slices.EqualFunc(all[i:i+len(old)], old, func(a, b word) bool { return a.text == b.text }) {
						file, from, to, count = name, f[0]+all[i].at, f[0]+all[i+len(old)-1].end, count+1
						for _, w := range all {
							has[w.text] = true
						}
					}
				}
			}
		}
		if count != 1 {
			return fmt.Errorf("%s: %s has %q %d times, want once: correct the entry", n.name, c.function, c.old[0], count)
		}
		for i, w := range with[:max(0, len(with)-1)] {
			if with[i+1].text == "." && !has[w.text] && token.IsIdentifier(w.text) && (i == 0 || with[i-1].text != ".") {
				return fmt.Errorf("%s: %s does not use %s: use what it does, so that it can be moved", n.name, c.function, w.text)
			}
		}
		text := strings.ReplaceAll(strings.Join(c.with, "\n"), "OLD", texts[file][from:to])
		texts[file] = texts[file][:from] + strings.ReplaceAll(text, "REVERTED", fmt.Sprintf("mutant(%d)", id)) + texts[file][to:]
		changed[file] = texts[file]
	}
	return nil
}

// functions returns where the functions of this name start and end in a file. What does not parse, the compiler reports.
func functions(file, text, name string) (all [][2]int) {
	if !strings.Contains(text, name[strings.LastIndex(name, ".")+1:]+"(") {
		return nil // to parse takes longer
	}
	files := token.NewFileSet()
	parsed, _ := parser.ParseFile(files, file, text, parser.SkipObjectResolution)
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		full := f.Name.Name
		if f.Recv != nil {
			receiver, _, _ := strings.Cut(types.ExprString(f.Recv.List[0].Type), "[")
			full = strings.TrimPrefix(receiver, "*") + "." + full
		}
		if full == name {
			all = append(all, [2]int{files.Position(f.Pos()).Offset, files.Position(f.End()).Offset})
		}
	}
	return all
}

// word is a token of Go in a text.
type word struct {
	text    string
	at, end int
}

// words returns the tokens, without comments and without what depends on line breaks: a semicolon at the end of a line, and a
// comma before a bracket that closes.
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
	texts, err := sources(m.folder)
	if err != nil {
		return err
	}
	changed := map[string]string{}
	for i, n := range all {
		if err := n.apply(i+1, texts, changed); err != nil {
			return err
		}
	}
	addSwitches(changed, len(all)+1)
	return m.compile(ctx, m.simulation(), changed)
}

// try returns what notices the mutant with the number id, and an error if something that should does not.
func (m *mutation) try(ctx context.Context, id int, n namedMutant) (by string, err error) {
	if m.simulate != "" {
		return m.simulated(ctx, id, n)
	}
	texts, err := sources(m.folder)
	if err != nil {
		return "", err
	}
	changed := map[string]string{}
	if err := n.apply(id, texts, changed); err != nil {
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
		if err := m.compile(ctx, folders[i], changed); err != nil {
			return "", err
		}
		if m.pass(ctx, 0, []testCost{{Folder: folders[i], Name: name, Took: slowTest}}) {
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

// regressions is the test of the simulation that plays what it has found.
const regressions = "TestRegressions"

// failedSeed is a line of the simulation about a seed that has failed.
var failedSeed = regexp.MustCompile(`seed (\d+): ([a-z ]+): `)

// simulated runs the regressions that must notice the mutant, and then seeds until one fails. It returns the rule that was broken
// and the number of seeds.
func (m *mutation) simulated(ctx context.Context, id int, n namedMutant) (by string, err error) {
	var rules []string
	for _, judge := range n.judges {
		name, isRegression := strings.CutPrefix(judge, regressions+"/")
		if !isRegression {
			rules = append(rules, judge)
			continue
		}
		cmd := m.command(ctx, m.simulation(), "-test.run", "^"+regressions+"$/^"+regexp.QuoteMeta(strings.ReplaceAll(name, " ", "_"))+"$")
		cmd.Env = append(cmd.Env, "MUTANT="+strconv.Itoa(id))
		if out, err := cmd.CombinedOutput(); err == nil {
			return "", fmt.Errorf("SURVIVES: the regression %q passes:\n%s", name, out)
		}
		by = "the regression"
	}
	if len(rules) == 0 {
		return by, nil
	}
	cmd := m.command(ctx, m.simulation(), "-test.run", "^TestSim$", "-test.timeout", "0", "-seeds", strconv.Itoa(m.seeds), "-shrink", "0",
		"-until")
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
	if !slices.Contains(rules, rule) {
		return "", fmt.Errorf("seed %d breaks the rule %q, want one of %q:\n%s", first, rule, rules, out)
	}
	return fmt.Sprintf("rule %q, %d seeds", rule, first), nil
}
