package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// source writes a program that needs another module into a new folder.
func source(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.org/program\n\ngo 1.26\n\nrequire k8s.io/component-base v1.2.3\n\nreplace " +
			"k8s.io/component-base => ./library\n",
		"cmd/program/main.go": "package main\n\nimport \"k8s.io/component-base/version\"\n\nfunc main() {\n\tversion.F()\n\tpanic(\"the " +
			"text of a panic has the name of this file\")\n}\n",
		"library/go.mod":       "module k8s.io/component-base\n\ngo 1.26\n",
		"library/version/v.go": "package version\n\nvar gitCommit string\n\n// F prints the commit.\nfunc F() { println(gitCommit) }\n",
	} {
		name = filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// made builds an image from a folder and returns its files by name.
func made(t *testing.T, folder string, arches ...string) map[string]string {
	t.Helper()
	out := t.TempDir()
	j := job{
		image: image{tag: "program:v1", labels: map[string]string{
			"org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.source": "https://example.org",
			"org.opencontainers.image.revision": "the-revision",
		}},
		pkg: "./cmd/program", arches: arches, out: filepath.Join(out, "program.tar"), sbom: filepath.Join(out, "program"),
	}
	if err := j.run(t.Context(), folder); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	entries, err := os.ReadDir(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(out, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = string(text)
	}
	return all
}

func TestTwoFoldersWithTheSameSourceMakeTheSameFiles(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	t.Setenv("GOFLAGS", "-trimpath")
	t.Setenv("GOWORK", "off")
	first, second := made(t, source(t), "amd64", "arm64"), made(t, source(t), "amd64", "arm64")
	if len(first) != 3 {
		t.Errorf("%d files", len(first))
	}
	for name := range first {
		if first[name] != second[name] {
			t.Errorf("%s differs (%d and %d bytes)", name, len(first[name]), len(second[name]))
		}
	}
	// Go's cache holds the packages of the first build. The bill has the digest of the program.
	cache := os.Getenv("GOCACHE")
	t.Setenv("GOCACHE", t.TempDir())
	bill := "program." + runtime.GOARCH + ".spdx.json"
	if again := made(t, source(t), runtime.GOARCH); again[bill] == "" || again[bill] != first[bill] {
		t.Errorf("compiled without a cache, the program differs:\n%s\n%s", first[bill], again[bill])
	}
	t.Setenv("GOCACHE", cache)
	// Without the flag the folders are in the programs: the comparison above could have failed.
	t.Setenv("GOFLAGS", "")
	a, b := made(t, source(t), runtime.GOARCH)["program.tar"], made(t, source(t), runtime.GOARCH)["program.tar"]
	if a == b {
		t.Error("two folders make the same image even without -trimpath; the test proves nothing")
	}
	_, program, _ := strings.Cut(a, "\x7fELF") // the labels have the revision, too
	program, _, _ = strings.Cut(program, ".shstrtab")
	if !strings.Contains(program, "the-revision") {
		t.Error("the program does not hold the revision; the metric kubernetes_build_info has none")
	}
}

func TestTheBillOfMaterialsNamesEachModule(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	t.Setenv("GOFLAGS", "-trimpath")
	t.Setenv("GOWORK", "off")
	var d struct {
		SpdxVersion, DocumentNamespace string
		CreationInfo                   struct{ Created string }
		Packages                       []struct {
			SPDXID, Name, VersionInfo, LicenseDeclared, SourceInfo string
			Checksums                                              []struct{ ChecksumValue string }
			ExternalRefs                                           []struct{ ReferenceLocator string }
		}
		Relationships []struct{ SpdxElementID, RelatedSpdxElement string }
	}
	if err := json.Unmarshal([]byte(made(t, source(t), "arm64")["program.arm64.spdx.json"]), &d); err != nil {
		t.Fatal(err)
	}
	if d.SpdxVersion != "SPDX-2.3" || d.CreationInfo.Created != "2023-11-14T22:13:20Z" ||
		!strings.Contains(d.DocumentNamespace, d.Packages[0].Checksums[0].ChecksumValue) {
		t.Errorf("%+v", d)
	}
	var names []string
	ids := map[string]bool{documentID: true}
	for _, p := range d.Packages {
		names = append(names, p.Name)
		if ids[p.SPDXID] || !regexp.MustCompile(`^SPDXRef-[a-zA-Z0-9.-]+$`).MatchString(p.SPDXID) {
			t.Errorf("identifier %q: must be unique, of letters, digits, . and -", p.SPDXID)
		}
		ids[p.SPDXID] = true
	}
	if want := []string{"example.org/program/cmd/program", "stdlib", "k8s.io/component-base"}; !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
	if p := d.Packages[0]; p.VersionInfo != "v1" || p.ExternalRefs[0].ReferenceLocator != "pkg:golang/example.org/program@v1" ||
		!strings.HasSuffix(p.SourceInfo, " from https://example.org@the-revision") ||
		p.LicenseDeclared != "Apache-2.0" || !strings.Contains(p.SourceInfo, "GOARCH=arm64") ||
		!strings.Contains(p.SourceInfo, "-trimpath=true") {
		t.Errorf("%+v", p)
	}
	if p := d.Packages[1]; p.ExternalRefs[0].ReferenceLocator != "pkg:golang/stdlib@"+strings.TrimPrefix(runtime.Version(), "go") {
		t.Errorf("%+v", p)
	}
	for _, r := range d.Relationships {
		if !ids[r.SpdxElementID] || !ids[r.RelatedSpdxElement] {
			t.Errorf("%+v refers to what is not there", r)
		}
	}
}

func TestAModuleIsNamedAsDatabasesKnowIt(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"v1.2.3": "pkg:golang/example.org/A@v1.2.3", "v2.0.0+incompatible": "pkg:golang/example.org/A@v2.0.0%2Bincompatible",
		"(devel)": "pkg:golang/example.org/A", "": "pkg:golang/example.org/A",
	} {
		if got := purl("example.org/A", version)[0]["referenceLocator"]; got != want {
			t.Errorf("%q: %s, want %s", version, got, want)
		}
	}
}
