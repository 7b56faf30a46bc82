package report

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
)

// sourceLines is how many lines of a spec's source the page shows at most.
const sourceLines = 200

// ModuleOf returns the files of the module that a folder belongs to, and those of this package's module: where a repository imports the
// specs, their sources are in Go's module cache.
func ModuleOf(folder string) fs.FS {
	var all modules
	_, here, _, _ := runtime.Caller(0)
	for _, root := range []string{moduleRoot(folder), moduleRoot(filepath.Dir(here))} {
		if root != "" {
			all = append(all, os.DirFS(root))
		}
	}
	return all
}

// modules has the files of several modules. Of files with the same name, the first counts.
type modules []fs.FS

// Open implements fs.FS.
func (m modules) Open(name string) (file fs.File, err error) {
	err = &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	for _, of := range m {
		if file, err = of.Open(name); err == nil {
			break
		}
	}
	return file, err
}

// readSources reads the source of each spec from below a module's root. A source begins at the place of its spec. Entries of a table share
// the source of the table, since any code can make them. Files that do not exist, such as on another machine, are left out.
func readSources(root fs.FS, runs []speclist.Run) map[string]string {
	texts := map[string]string{}
	files := map[string]*sourceFile{}
	for _, r := range runs {
		for _, s := range r.Specs {
			for _, place := range []string{s.Source, s.Container} {
				name, lineText, _ := strings.Cut(place, ":")
				line, err := strconv.Atoi(lineText)
				if err != nil || path.Ext(name) != ".go" {
					continue
				}
				if files[name] == nil {
					files[name] = readFile(root, name)
				}
				if text := files[name].spec(line); text != "" {
					texts[place] = text
					break // the page, too, shows the first that there is
				}
			}
		}
	}
	return texts
}

// sourceFile is a file of specs.
type sourceFile struct {
	lines []string
	// begins are the specs and tables of a file by the line where they begin.
	begins map[int]call
}

// call is where a call begins and ends.
type call struct{ begin, end int }

func readFile(root fs.FS, name string) *sourceFile {
	f := &sourceFile{begins: map[int]call{}}
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return f
	}
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
	if err != nil {
		return f
	}
	f.lines = strings.SplitAfter(string(text), "\n")
	ast.Inspect(parsed, func(n ast.Node) bool {
		c, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		name, _ := c.Fun.(*ast.Ident)
		if name != nil && (strings.HasSuffix(name.Name, "DescribeTable") || strings.HasSuffix(name.Name, "It")) {
			begin := set.Position(c.Pos()).Line
			f.begins[begin] = call{begin, set.Position(c.End()).Line}
		}
		return true
	})
	return f
}

// spec returns the source of the spec or table that begins in a line.
func (f *sourceFile) spec(line int) string {
	c, ok := f.begins[line]
	if !ok {
		return ""
	}
	lines := f.lines[c.begin-1 : c.end]
	more := ""
	if len(lines) > sourceLines {
		lines, more = lines[:sourceLines], "…\n"
	}
	return unindented(lines) + more
}

// unindented joins lines without the indent of the first one.
func unindented(lines []string) string {
	indent := lines[0][:len(lines[0])-len(strings.TrimLeft(lines[0], "\t"))]
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(strings.ReplaceAll(strings.TrimPrefix(line, indent), "\t", "    "))
	}
	return b.String()
}
