package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
)

// mutant is one small change of the code.
type mutant struct {
	ID    int
	Where string // file:line:column
	What  string
	Tests []int `json:",omitempty"` // indexes of the tests that reach it
}

// insertion is text that is inserted into a file.
type insertion struct {
	at    int
	opens bool // opens a bracket, whose end is another insertion
	depth int
	text  string
}

// instrumenter puts mutants into Go files. Each is switched on by its number when the tests run, so that all of
// them are compiled only once:
//
//   - the condition of an if, and a comparison that is returned, is negated;
//   - an operand of && or || is left out;
//   - a comparison includes, or excludes, the limit;
//   - a statement that calls, assigns, defers, continues or breaks is left out.
//
// Not changed: constants, declarations with :=, and returns, which could not be left out. Nor what no test could see:
// log lines, the conditions of nothing but log lines, and calls that give back a timer or a context early.
type instrumenter struct {
	next    int
	mutants []mutant
}

// instrument returns the source with mutants. name is the file's name in reports.
func (in *instrumenter) instrument(name string, source []byte) ([]byte, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := &fileMutants{instrumenter: in, files: files, unseen: map[ast.Expr]bool{}}
	depth := 0
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil {
			depth--
			return false
		}
		f.visit(n, depth)
		depth++
		return true
	})
	slices.SortStableFunc(f.insertions, func(a, b insertion) int {
		order := func(i insertion) int { // at one place: inner ends, outer ends, outer starts, inner starts
			if i.opens {
				return 1000 + i.depth
			}
			return -i.depth
		}
		return cmp.Or(a.at-b.at, order(a)-order(b))
	})
	var out bytes.Buffer
	last := 0
	for _, i := range f.insertions {
		out.Write(source[last:i.at])
		out.WriteString(i.text)
		last = i.at
	}
	out.Write(source[last:])
	return out.Bytes(), nil
}

// fileMutants collects the mutants of one file.
type fileMutants struct {
	*instrumenter
	files      *token.FileSet
	insertions []insertion
	unseen     map[ast.Expr]bool // conditions of log lines
}

func (f *fileMutants) visit(n ast.Node, depth int) {
	switch n := n.(type) {
	case *ast.IfStmt:
		if n.Else == nil && !slices.ContainsFunc(n.Body.List, func(s ast.Stmt) bool { return !isLog(s) }) {
			f.unseen[n.Cond] = true
			return
		}
		f.wrap(n.Cond, depth, "the condition is negated", "(mutant(%d) != (", "))")
	case *ast.ReturnStmt:
		for _, r := range n.Results {
			if isBool(r) {
				f.wrap(r, depth, "the result is negated", "(mutant(%d) != (", "))")
			}
		}
	case *ast.BinaryExpr:
		f.binary(n, depth)
	case *ast.BlockStmt:
		f.statements(n.List, depth)
	case *ast.CaseClause:
		f.statements(n.Body, depth)
	case *ast.CommClause:
		f.statements(n.Body, depth)
	}
}

// isBool reports whether an expression certainly is a boolean.
func isBool(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		return slices.Contains([]token.Token{token.LAND, token.LOR, token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ}, e.Op)
	case *ast.UnaryExpr:
		return e.Op == token.NOT
	}
	return false
}

func (f *fileMutants) binary(n *ast.BinaryExpr, depth int) {
	if f.unseen[n] {
		f.unseen[n.X], f.unseen[n.Y] = true, true
		return
	}
	switch n.Op {
	case token.LAND:
		for _, side := range []ast.Expr{n.X, n.Y} {
			f.wrap(side, depth, "an operand of && is left out", "(mutant(%d) || (", "))")
		}
	case token.LOR:
		for _, side := range []ast.Expr{n.X, n.Y} {
			f.wrap(side, depth, "an operand of || is left out", "(!mutant(%d) && (", "))")
		}
	case token.LSS, token.GTR:
		if isPure(n.X) && isPure(n.Y) {
			f.wrap(n, depth, "the limit is included", "((mutant(%d) && "+f.equal(n)+") || (", "))")
		}
	case token.LEQ, token.GEQ:
		if isPure(n.X) && isPure(n.Y) {
			f.wrap(n, depth, "the limit is excluded", "(!(mutant(%d) && "+f.equal(n)+") && (", "))")
		}
	}
}

// isPure reports whether an expression can be evaluated twice.
func isPure(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident, *ast.BasicLit:
		return true
	case *ast.SelectorExpr:
		return isPure(e.X)
	case *ast.CallExpr:
		name, ok := e.Fun.(*ast.Ident)
		return ok && name.Name == "len" && isPure(e.Args[0])
	}
	return false
}

// equal returns the text of X == Y.
func (f *fileMutants) equal(n *ast.BinaryExpr) string {
	return fmt.Sprintf("%s == %s", text(n.X), text(n.Y))
}

// text returns the source of a pure expression.
func text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.BasicLit:
		return e.Value
	case *ast.SelectorExpr:
		return text(e.X) + "." + e.Sel.Name
	case *ast.CallExpr:
		return "len(" + text(e.Args[0]) + ")"
	}
	panic(fmt.Sprintf("not pure: %T", e))
}

func (f *fileMutants) statements(list []ast.Stmt, depth int) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.DeferStmt:
			if givesBack(s.Call) {
				continue
			}
		case *ast.GoStmt, *ast.IncDecStmt, *ast.SendStmt:
		case *ast.ExprStmt:
			if isPanic(s.X) || isLog(s) || givesBack(s.X) {
				continue
			}
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE || isBlank(s.Lhs) {
				continue
			}
		case *ast.BranchStmt:
			if s.Tok != token.CONTINUE && s.Tok != token.BREAK {
				continue
			}
		default:
			continue
		}
		f.wrap(s, depth, "the statement is left out", "if !mutant(%d) { ", " }")
	}
}

func isPanic(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	name, ok := call.Fun.(*ast.Ident)
	return ok && name.Name == "panic"
}

// isLog reports whether a statement writes a log line.
func isLog(s ast.Stmt) bool {
	expr, ok := s.(*ast.ExprStmt)
	if !ok {
		return false
	}
	for e := expr.X; ; {
		switch x := e.(type) {
		case *ast.CallExpr:
			e = x.Fun
		case *ast.SelectorExpr:
			e = x.X
		case *ast.Ident:
			return x.Name == "klog"
		default:
			return false
		}
	}
}

// givesBack reports whether a call is cancel() or timer.Stop(): without it, a context or a timer ends later by itself.
func givesBack(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		return fun.Name == "cancel"
	case *ast.SelectorExpr:
		return fun.Sel.Name == "Stop"
	}
	return false
}

func isBlank(names []ast.Expr) bool {
	return !slices.ContainsFunc(names, func(e ast.Expr) bool {
		name, ok := e.(*ast.Ident)
		return !ok || name.Name != "_"
	})
}

// wrap adds a mutant that surrounds the node with the texts.
func (f *fileMutants) wrap(n ast.Node, depth int, what, before, after string) {
	f.next++
	f.mutants = append(f.mutants, mutant{ID: f.next, Where: f.files.Position(n.Pos()).String(), What: what})
	offset := func(p token.Pos) int { return f.files.Position(p).Offset }
	f.insertions = append(f.insertions,
		insertion{offset(n.Pos()), true, depth, fmt.Sprintf(before, f.next)},
		insertion{offset(n.End()), false, depth, after})
}
