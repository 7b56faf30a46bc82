// Package house holds the one way in which imports may point: cmd → e2e → kind → fakecloud → control, api → cloud.
package house

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const repository = "github.com/ccm-from-scratch/ccm-from-scratch"

// words are the public packages with what the cloud and its clients speak.
var words = []string{"fakecloud/fault", "fakecloud/journal", "fakecloud/hypervisor"}

// allowed says which packages of the repository a package may import. A key or a value stands for the package and for all
// below it; the longest key that fits decides. Packages with the same key may import each other.
var allowed = map[string][]string{
	// The CCM sees an endpoint URL, never the cloud behind it.
	"ccm": {},
	// What the cloud and its clients speak: public packages that know no other part.
	"fakecloud/fault":      {},
	"fakecloud/journal":    {},
	"fakecloud/hypervisor": {"fakecloud/fault"},
	"fakecloud/dataplane":  {},
	// The core: control, api → cloud. What else is internal are parts that these share.
	"fakecloud/internal":          words,
	"fakecloud/internal/cloud":    append(words, "fakecloud/internal/simclock"),
	"fakecloud/internal/bind":     {"fakecloud/internal/cloud"},
	"fakecloud/internal/testhook": {"fakecloud/internal/cloud"},
	"fakecloud/internal/api":      append(words, "fakecloud/internal"),
	"fakecloud/internal/control":  append(words, "fakecloud/internal"),
	"fakecloud/internal/contract": {},
	// What moves packets for the cloud: it follows the events, and lists where load balancers listen for the control API.
	"fakecloud/internal/plane": {"fakecloud/dataplane", "fakecloud/internal/cloud", "fakecloud/internal/control", "fakecloud/internal/simclock"},
	// The library: it puts the core together.
	"fakecloud":        append(words, "fakecloud/dataplane", "fakecloud/internal"),
	"fakecloud/remote": append(words, "fakecloud"),
	"fakecloud/cmd":    {"fakecloud"},
	// Clusters, and the specs that run on them. What builds images is a program, of which nothing is imported.
	"kind":           {"fakecloud", "ccm/deploy", "ccm/machine/deploy"},
	"kind/nodeimage": {},
	"e2e":            {"kind", "fakecloud", "ccm"},
	"scripts":        {"kind/wholefile"},
	"scripts/chart":  {},
	"scripts/crds":   {},
}

// never are packages that no other part may import, although a longer list of allowed ones would cover them.
var never = map[string]string{
	"kind/nodeimage": "run the program instead: package kind/build does",
	"kind/cmd":       "it is a program",
	"e2e/cmd":        "it is a program",
	"fakecloud/cmd":  "it is a program",
}

// private are packages that only some may import, by the longest key that fits: a name is that package alone, one that ends with a slash all below it, too.
var private = map[string][]string{
	// Public packages do not show the control API's wire types, or other internals.
	"fakecloud/internal": {"fakecloud", "fakecloud/internal/"},
	// The client of the control API, and the server, share some of their wire types.
	"fakecloud/internal/wire": {"fakecloud/remote", "fakecloud/internal/"},
	// The public API knows nothing of the control API.
	"fakecloud/internal/control": {"fakecloud", "fakecloud/internal/control/", "fakecloud/internal/plane"},
}

// inTests says what tests may import in addition.
var inTests = map[string][]string{
	"ccm":                         {"fakecloud"},
	"fakecloud/hypervisor":        {"fakecloud"},
	"fakecloud/internal/contract": {"fakecloud"},
	"fakecloud/internal/api":      {"fakecloud"},
	"fakecloud/internal":          {"fakecloud/internal"},
	"scripts/chart":               {"ccm/deploy"},
}

// testHelpers are packages that all tests of their module may import.
var testHelpers = []string{"fakecloud/internal/netlab", "fakecloud/internal/contract"}

// within reports whether a package is another one or lies below it.
func within(pkg, folder string) bool { return pkg == folder || strings.HasPrefix(pkg, folder+"/") }

// layer returns the longest key that fits a package.
func layer(pkg string) (key string) {
	for k := range allowed {
		if within(pkg, k) && len(k) > len(key) {
			key = k
		}
	}
	return key
}

// wrong returns why a package may not import another, "" if it may.
func wrong(pkg, imported string, test bool) string {
	key := layer(pkg)
	if key == "" {
		return "has no rule: add one to the table of allowed imports"
	}
	if test && slices.Contains(testHelpers, imported) {
		return ""
	}
	folder := "" // the longest that fits
	for f := range private {
		if within(imported, f) && len(f) > len(folder) {
			folder = f
		}
	}
	except := private[folder]
	if folder != "" && !slices.ContainsFunc(except, func(e string) bool { return pkg == e || strings.HasSuffix(e, "/") && within(pkg, e[:len(e)-1]) }) {
		return "imports " + imported + ": only " + strings.Join(except, ", ") + " may"
	}
	for folder, advice := range never {
		if within(imported, folder) && !within(pkg, folder) {
			return "imports " + imported + ": " + advice
		}
	}
	if layer(imported) == key {
		return ""
	}
	may := allowed[key]
	if test {
		may = append(inTests[key], may...)
	}
	for _, folder := range may {
		if within(imported, folder) {
			return ""
		}
	}
	return "imports " + imported + ": its layer may import only " + strings.Join(append([]string{"itself"}, may...), ", ")
}

func TestImportsPointOneWay(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	seen := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			// modules/ is foreign programs, each in a module of its own.
			if name == "testdata" || name == "out" || path == filepath.Join(root, "kind", "nodeimage", "modules") || len(name) > 2 && name[0] == '.' {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		seen++
		return check(t, root, path)
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 400 {
		t.Errorf("%d files were looked at: where are the others?", seen)
	}
}

// check reports the imports of a file that point the wrong way.
func check(t *testing.T, root, path string) error {
	t.Helper()
	// Parsed here, and not listed by the go command, so that go test knows which files its result depends on.
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		return err
	}
	folder, err := filepath.Rel(root, filepath.Dir(path))
	if err != nil {
		return err
	}
	for _, spec := range file.Imports {
		imported, own := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), repository+"/")
		if !own {
			continue
		}
		if why := wrong(filepath.ToSlash(folder), imported, strings.HasSuffix(path, "_test.go")); why != "" {
			t.Errorf("%s: %s %s", filepath.Base(path), filepath.ToSlash(folder), why)
		}
	}
	return nil
}

func TestTheRulesForbidWhatTheyAreFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pkg, imported string
		test, may     bool
	}{
		{pkg: "ccm/deploy", imported: "fakecloud"},
		{pkg: "ccm", imported: "fakecloud", test: true, may: true},
		{pkg: "kind/cmd/probe", imported: "e2e/framework"},
		{pkg: "kind/cluster", imported: "kind/build", may: true},
		{pkg: "kind/environment", imported: "fakecloud/remote", may: true},
		{pkg: "kind/environment", imported: "kind/nodeimage/image"},
		{pkg: "e2e", imported: "kind/environment", may: true},
		{pkg: "fakecloud/dataplane/netdev", imported: "fakecloud/internal/cloud"},
		{pkg: "fakecloud/dataplane/netdev", imported: "fakecloud/internal/netlab"},
		{pkg: "fakecloud/dataplane/netdev", imported: "fakecloud/internal/netlab", test: true, may: true},
		{pkg: "fakecloud/internal/cloud", imported: "fakecloud/internal/api"},
		{pkg: "fakecloud/internal/api", imported: "fakecloud/internal/control"},
		{pkg: "fakecloud/remote", imported: "kind/machines"},
		{pkg: "fakecloud/remote", imported: "fakecloud", may: true},
		{pkg: "fakecloud/remote", imported: "fakecloud/internal/control"},
		{pkg: "fakecloud/remote", imported: "fakecloud/internal/cloud"},
		{pkg: "fakecloud/remote", imported: "fakecloud/internal/wire", may: true},
		{pkg: "fakecloud/hypervisor", imported: "fakecloud/internal/cloud"},
		{pkg: "elsewhere", imported: "ccm"},
	} {
		if why := wrong(c.pkg, c.imported, c.test); (why == "") != c.may {
			t.Errorf("%s → %s: %q, may must be %t", c.pkg, c.imported, why, c.may)
		}
	}
}
