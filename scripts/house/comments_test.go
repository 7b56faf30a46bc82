package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var firstWord = regexp.MustCompile(`^\w+`)

// TestACommentNamesWhatItDescribes finds comments that begin with a former name: "quiet suppresses" above Quiet, once private, or
// another name in camelCase.
func TestACommentNamesWhatItDescribes(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	out, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "*.go").Output()
	if err != nil {
		t.Skip("git does not list the files: ", err)
	}
	files, right := token.NewFileSet(), 0
	check := func(comment *ast.CommentGroup, names ...*ast.Ident) {
		word := firstWord.FindString(comment.Text())
		if is := func(n *ast.Ident) bool { return n.Name == word }; slices.ContainsFunc(names, is) {
			right++
		} else if word != "" && len(names) > 0 && strings.ToLower(word[:1]) == word[:1] {
			if former := func(n *ast.Ident) bool { return strings.EqualFold(n.Name, word) }; slices.ContainsFunc(names, former) ||
				strings.ToLower(word) != word {
				t.Errorf("%s: the comment of %s begins with %q", files.Position(comment.Pos()), names[0].Name, word)
			}
		}
	}
	for path := range strings.FieldsSeq(string(out)) {
		file, err := parser.ParseFile(files, filepath.Join(root, path), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Field:
				check(n.Doc, n.Names...)
			case *ast.FuncDecl:
				check(n.Doc, n.Name)
			case *ast.ValueSpec:
				check(n.Doc, n.Names...)
			case *ast.TypeSpec:
				check(n.Doc, n.Name)
			case *ast.GenDecl:
				for _, spec := range n.Specs {
					if s, ok := spec.(*ast.TypeSpec); ok && !n.Lparen.IsValid() {
						s.Doc = n.Doc
					}
				}
			}
			return true
		})
	}
	if right < 5000 {
		t.Errorf("only %d comments begin with the name of what they describe", right)
	}
}
