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
	mutants []mutant
	// Of the current file. The insertions are of wrapped nodes, outer ones first.
	files            *token.FileSet
	opening, closing []insertion
}

// instrument returns the source with mutants. name is the file's name in reports.
func (in *instrumenter) instrument(name, source string) (string, error) {
	in.files, in.opening, in.closing = token.NewFileSet(), nil, nil
	file, err := parser.ParseFile(in.files, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	ast.Inspect(file, in.visit)
	slices.Reverse(in.closing) // inner nodes come later, and end first
	return insert(source, append(in.closing, in.opening...)), nil
}

// visit adds the mutants of a node. It reports whether those within the node follow.
func (in *instrumenter) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfStmt:
		if n.Else == nil && !slices.ContainsFunc(n.Body.List, func(s ast.Stmt) bool { return !isLog(s) }) {
			return false
		}
		in.wrap(n.Cond, "the condition is negated", "(mutant(%d) != (", "))")
	case *ast.ReturnStmt:
		for _, r := range n.Results {
			if isBool(r) {
				in.wrap(r, "the result is negated", "(mutant(%d) != (", "))")
			}
		}
	case *ast.BinaryExpr:
		in.binary(n)
	case *ast.BlockStmt:
		in.statements(n.List)
	case *ast.CaseClause:
		in.statements(n.Body)
	case *ast.CommClause:
		in.statements(n.Body)
	}
	return true
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

func (in *instrumenter) binary(n *ast.BinaryExpr) {
	equal := types.ExprString(n.X) + " == " + types.ExprString(n.Y)
	switch n.Op {
	case token.LAND:
		in.wrap(n.X, "an operand of && is left out", "(mutant(%d) || (", "))")
		in.wrap(n.Y, "an operand of && is left out", "(mutant(%d) || (", "))")
	case token.LOR:
		in.wrap(n.X, "an operand of || is left out", "(!mutant(%d) && (", "))")
		in.wrap(n.Y, "an operand of || is left out", "(!mutant(%d) && (", "))")
	case token.LSS, token.GTR:
		if isPure(n.X) && isPure(n.Y) {
			in.wrap(n, "the limit is included", "((mutant(%d) && "+equal+") || (", "))")
		}
	case token.LEQ, token.GEQ:
		if isPure(n.X) && isPure(n.Y) {
			in.wrap(n, "the limit is excluded", "(!(mutant(%d) && "+equal+") && (", "))")
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
		return types.ExprString(e.Fun) == "len" && isPure(e.Args[0])
	}
	return false
}

func (in *instrumenter) statements(list []ast.Stmt) {
	for _, s := range list {
		changes := false
		switch s := s.(type) {
		case *ast.GoStmt, *ast.IncDecStmt, *ast.SendStmt:
			changes = true
		case *ast.DeferStmt:
			changes = !givesBack(s.Call)
		case *ast.ExprStmt:
			changes = called(s.X) != "panic" && !isLog(s) && !givesBack(s.X)
		case *ast.AssignStmt:
			changes = s.Tok != token.DEFINE && slices.ContainsFunc(s.Lhs, func(e ast.Expr) bool { return types.ExprString(e) != "_" })
		case *ast.BranchStmt:
			changes = s.Tok == token.CONTINUE || s.Tok == token.BREAK
		}
		if changes {
			in.wrap(s, "the statement is left out", "if !mutant(%d) { ", " }")
		}
	}
}

// called returns the text of the function that an expression calls; "" if it calls none.
func called(e ast.Expr) string {
	if call, ok := e.(*ast.CallExpr); ok {
		return types.ExprString(call.Fun)
	}
	return ""
}

// isLog reports whether a statement writes a log line.
func isLog(s ast.Stmt) bool {
	e, ok := s.(*ast.ExprStmt)
	return ok && strings.HasPrefix(called(e.X), "klog.")
}

// givesBack reports whether a call is cancel() or timer.Stop(): without it, a context or a timer ends later by itself.
func givesBack(e ast.Expr) bool {
	return called(e) == "cancel" || strings.HasSuffix(called(e), ".Stop")
}

// wrap adds a mutant that surrounds the node with the texts.
func (in *instrumenter) wrap(n ast.Node, what, before, after string) {
	id, from, to := len(in.mutants)+1, in.files.Position(n.Pos()), in.files.Position(n.End())
	in.mutants = append(in.mutants, mutant{ID: id, Where: from.String(), What: what})
	in.opening = append(in.opening, insertion{from.Offset, fmt.Sprintf(before, id)})
	in.closing = append(in.closing, insertion{to.Offset, after})
}
