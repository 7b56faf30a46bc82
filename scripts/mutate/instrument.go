package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strings"
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
	at   int
	text string
}

// insert returns the text with the insertions. Those of one place stay in their order.
func insert(text string, all []insertion) string {
	slices.SortStableFunc(all, func(a, b insertion) int { return a.at - b.at })
	var out strings.Builder
	last := 0
	for _, i := range all {
		out.WriteString(text[last:i.at] + i.text)
		last = i.at
	}
	return out.String() + text[last:]
}

// instrumenter puts mutants into Go files. Each is switched on by its number when the tests run, so that all of
// them are compiled only once:
//
//   - the condition of an if, and a comparison that is returned, is negated;
//   - an operand of && or || is left out;
//   - a comparison includes, or excludes, the limit;
//   - a statement that calls, assigns, defers, continues or breaks is left out.
//
// Not changed: constants, declarations with :=, and returns. Nor changes that no test could see: log lines, the conditions of
// nothing but log lines, and calls that give back a timer or a context early.
type instrumenter struct {
	next    int
	mutants []mutant
}

// instrument returns the source with mutants. name is the file's name in reports.
func (in *instrumenter) instrument(name, source string) (string, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	f := &fileMutants{instrumenter: in, files: files, unseen: map[ast.Expr]bool{}}
	ast.Inspect(file, func(n ast.Node) bool {
		f.visit(n)
		return true
	})
	slices.Reverse(f.closing) // inner nodes come later, and end first
	return insert(source, append(f.closing, f.opening...)), nil
}

// fileMutants collects the mutants of one file.
type fileMutants struct {
	*instrumenter
	files            *token.FileSet
	opening, closing []insertion       // of wrapped nodes, outer ones first
	unseen           map[ast.Expr]bool // conditions of log lines
}

func (f *fileMutants) visit(n ast.Node) {
	switch n := n.(type) {
	case *ast.IfStmt:
		if n.Else == nil && !slices.ContainsFunc(n.Body.List, func(s ast.Stmt) bool { return !isLog(s) }) {
			f.unseen[n.Cond] = true
			return
		}
		f.wrap(n.Cond, "the condition is negated", "(mutant(%d) != (", "))")
	case *ast.ReturnStmt:
		for _, r := range n.Results {
			if isBool(r) {
				f.wrap(r, "the result is negated", "(mutant(%d) != (", "))")
			}
		}
	case *ast.BinaryExpr:
		f.binary(n)
	case *ast.BlockStmt:
		f.statements(n.List)
	case *ast.CaseClause:
		f.statements(n.Body)
	case *ast.CommClause:
		f.statements(n.Body)
	}
}

// isBool reports whether an expression certainly is a boolean.
func isBool(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		return e.Op.Precedence() <= token.EQL.Precedence() // ||, && and comparisons
	case *ast.UnaryExpr:
		return e.Op == token.NOT
	}
	return false
}

func (f *fileMutants) binary(n *ast.BinaryExpr) {
	if f.unseen[n] {
		f.unseen[n.X], f.unseen[n.Y] = true, true
		return
	}
	switch n.Op {
	case token.LAND:
		for _, side := range []ast.Expr{n.X, n.Y} {
			f.wrap(side, "an operand of && is left out", "(mutant(%d) || (", "))")
		}
	case token.LOR:
		for _, side := range []ast.Expr{n.X, n.Y} {
			f.wrap(side, "an operand of || is left out", "(!mutant(%d) && (", "))")
		}
	case token.LSS, token.GTR:
		if isPure(n.X) && isPure(n.Y) {
			f.wrap(n, "the limit is included", "((mutant(%d) && "+equal(n)+") || (", "))")
		}
	case token.LEQ, token.GEQ:
		if isPure(n.X) && isPure(n.Y) {
			f.wrap(n, "the limit is excluded", "(!(mutant(%d) && "+equal(n)+") && (", "))")
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
func equal(n *ast.BinaryExpr) string { return types.ExprString(n.X) + " == " + types.ExprString(n.Y) }

func (f *fileMutants) statements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.DeferStmt:
			if givesBack(s.Call) {
				continue
			}
		case *ast.GoStmt, *ast.IncDecStmt, *ast.SendStmt:
		case *ast.ExprStmt:
			if called(s) == "panic" || isLog(s) || givesBack(s) {
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
		f.wrap(s, "the statement is left out", "if !mutant(%d) { ", " }")
	}
}

// called returns the text of the function that a statement or an expression calls; "" if it calls none.
func called(n ast.Node) string {
	if s, ok := n.(*ast.ExprStmt); ok {
		n = s.X
	}
	if call, ok := n.(*ast.CallExpr); ok {
		return types.ExprString(call.Fun)
	}
	return ""
}

// isLog reports whether a statement writes a log line.
func isLog(s ast.Stmt) bool { return strings.HasPrefix(called(s), "klog.") }

// givesBack reports whether a call is cancel() or timer.Stop(): without it, a context or a timer ends later by itself.
func givesBack(n ast.Node) bool {
	return called(n) == "cancel" || strings.HasSuffix(called(n), ".Stop")
}

func isBlank(names []ast.Expr) bool {
	return !slices.ContainsFunc(names, func(e ast.Expr) bool {
		name, ok := e.(*ast.Ident)
		return !ok || name.Name != "_"
	})
}

// wrap adds a mutant that surrounds the node with the texts.
func (f *fileMutants) wrap(n ast.Node, what, before, after string) {
	f.next++
	f.mutants = append(f.mutants, mutant{ID: f.next, Where: f.files.Position(n.Pos()).String(), What: what})
	offset := func(p token.Pos) int { return f.files.Position(p).Offset }
	f.opening = append(f.opening, insertion{offset(n.Pos()), fmt.Sprintf(before, f.next)})
	f.closing = append(f.closing, insertion{offset(n.End()), after})
}
