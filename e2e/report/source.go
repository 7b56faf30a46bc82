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

// sources are the texts of specs. The specs of a table share one.
type sources struct {
	// Texts are by the place where they begin.
	Texts map[string]string `json:"texts"`
	// Tables have the places of texts by those of specs that are entries of a table.
	Tables map[string]string `json:"tables"`
}

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

// readSources reads the source of each spec from below a module's root. What is not there, such as on another machine, is left out.
func readSources(root fs.FS, runs []speclist.Run) sources {
	found := sources{Texts: map[string]string{}, Tables: map[string]string{}}
	files := map[string]*sourceFile{}
	for _, r := range runs {
		for _, s := range r.Specs {
			name, lineText, _ := strings.Cut(s.Source, ":")
			line, err := strconv.Atoi(lineText)
			if err != nil || path.Ext(name) != ".go" {
				continue
			}
			if files[name] == nil {
				files[name] = readFile(root, name)
			}
			begin, text := files[name].spec(line)
			if text == "" {
				continue
			}
			at := name + ":" + strconv.Itoa(begin)
			found.Texts[at] = text
			if at != s.Source {
				found.Tables[s.Source] = at
			}
		}
	}
	return found
}

// sourceFile is a file of specs.
type sourceFile struct {
	lines []string
	// begins are the calls of a file by the line where they begin.
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
	var tables []call
	ast.Inspect(parsed, func(n ast.Node) bool {
		c, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		found := call{set.Position(c.Pos()).Line, set.Position(c.End()).Line}
		name, _ := c.Fun.(*ast.Ident)
		switch {
		case name == nil:
		case strings.HasSuffix(name.Name, "DescribeTable"):
			tables = append(tables, found)
			f.begins[found.begin] = found
		case strings.HasSuffix(name.Name, "It"):
			f.begins[found.begin] = found
		case strings.HasSuffix(name.Name, "Entry"):
			for _, t := range tables {
				if t.begin <= found.begin && found.end <= t.end {
					f.begins[found.begin] = t
				}
			}
		}
		return true
	})
	return f
}

// spec returns the source of the spec that begins in a line, and where that source begins.
func (f *sourceFile) spec(line int) (begin int, text string) {
	c, ok := f.begins[line]
	if !ok {
		return 0, ""
	}
	lines := f.lines[c.begin-1 : c.end]
	more := ""
	if len(lines) > sourceLines {
		lines, more = lines[:sourceLines], "…\n"
	}
	return c.begin, unindented(lines) + more
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
