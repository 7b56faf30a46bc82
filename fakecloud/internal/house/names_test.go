package house

import (
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"

// goList runs go list in the root of the module. With -short, it skips the test.
func goList(t *testing.T, args ...string) []string {
	t.Helper()
	if testing.Short() {
		t.Skip("checks the repository, and compiles it")
	}
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...)
	cmd.Dir, cmd.Stderr = filepath.Join("..", ".."), os.Stderr
	cmd.Env = append(os.Environ(), "GOWORK=off") // the module alone, as its importers see it
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %v: %v", args, err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// publicPackages returns the packages that another module can import.
func publicPackages(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(goList(t, "-f", `{{if ne .Name "main"}}{{.ImportPath}}{{end}}`, "./..."), func(p string) bool {
		return p == "" || internal(p)
	})
}

func internal(path string) bool { return strings.Contains(path+"/", "/internal/") }

func TestNoPublicNameIsInternal(t *testing.T) {
	t.Parallel()
	packages := publicPackages(t)
	if !slices.Contains(packages, module) || !slices.Contains(packages, module+"/hypervisor") {
		t.Fatalf("the public packages are %v", packages)
	}
	exports := map[string]string{}
	for _, line := range goList(t, append([]string{"-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, packages...)...) {
		path, file, _ := strings.Cut(line, " ")
		exports[path] = file
	}
	load := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, path := range packages {
		p, err := load.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		v := visitor{seen: map[types.Type]bool{}}
		for _, name := range p.Scope().Names() {
			if o := p.Scope().Lookup(name); o.Exported() {
				v.object(path[strings.LastIndex(path, "/")+1:]+"."+name, o)
			}
		}
		for _, problem := range v.problems {
			t.Error(problem)
		}
	}
}

// visitor finds internal types in the public names, methods and fields.
type visitor struct {
	seen     map[types.Type]bool
	problems []string
}

func (v *visitor) object(name string, o types.Object) {
	v.typ(name, o.Type())
	if _, ok := o.(*types.TypeName); !ok {
		return
	}
	methods := types.NewMethodSet(types.NewPointer(o.Type()))
	for m := range methods.Methods() {
		if m.Obj().Exported() {
			v.typ(name+"."+m.Obj().Name(), m.Type())
		}
	}
}

func (v *visitor) typ(name string, t types.Type) {
	t = types.Unalias(t)
	if named, ok := t.(*types.Named); ok {
		pkg := named.Obj().Pkg()
		if pkg == nil || !strings.HasPrefix(pkg.Path(), module) {
			return
		}
		if internal(pkg.Path()) {
			v.problems = append(v.problems, fmt.Sprintf("%s shows %s, which an importer cannot look up; publish the type or hide it", name,
				named))
			return
		}
	}
	if v.seen[t] {
		return
	}
	v.seen[t] = true
	switch u := t.Underlying().(type) {
	case *types.Struct:
		for f := range u.Fields() {
			if f.Exported() {
				v.typ(name+"."+f.Name(), f.Type())
			}
		}
	case *types.Interface:
		for m := range u.Methods() {
			v.typ(name+"."+m.Name(), m.Type())
		}
	case *types.Signature:
		for _, vars := range []*types.Tuple{u.Params(), u.Results()} {
			for p := range vars.Variables() {
				v.typ(name, p.Type())
			}
		}
	case *types.Map:
		v.typ(name, u.Key())
		v.typ(name, u.Elem())
	case interface{ Elem() types.Type }: // pointers, slices, arrays, channels
		v.typ(name, u.Elem())
	}
}
