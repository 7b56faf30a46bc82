package report

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
)

// File is the name of the page.
const File = "report.html"

// MostLines is how many lines the timelines of all failures of a page, or of a run, have at most: some 4 MB.
const MostLines = 24_000

//go:embed ui
var ui embed.FS

// scripts are the parts of the page's program, in their order. A page that is a file cannot load modules.
var scripts = []string{"dom.js", "data.js", "matrix.js", "detail.js", "figures.js", "compare.js", "app.js"}

// Options are the settings of the page.
type Options struct {
	// Compare are the results of other runs, with their names. The page begins with the comparison of the first with its newest run.
	Compare []Other
	// Root is the root of the module that the specs belong to. Without it, the page lacks their source.
	Root fs.FS
}

// Other is a run that is compared with others.
type Other struct {
	Name string
	Run  speclist.Run
}

// column is a run on the page.
type column struct {
	speclist.Run
	// Label tells a run from others of the same CCM and kind of cluster.
	Label string `json:"label,omitempty"`
}

// Page returns the page of runs: one HTML file that asks no other host for anything.
func Page(runs []speclist.Run, o Options) ([]byte, error) {
	columns := []column{} // and not null, which the page would not expect
	all := clone(runs)
	for _, other := range o.Compare {
		all = append(all, clone([]speclist.Run{other.Run})...)
	}
	Bound(all, MostLines)
	for i, r := range all {
		c := column{Run: r}
		if i >= len(runs) {
			c.Label = o.Compare[i-len(runs)].Name
		}
		columns = append(columns, c)
	}
	data := map[string]any{"runs": columns, "budgets": speclist.Budgets(), "requestsOfTheSpec": speclist.RequestsOfTheSpec,
		"compare": len(o.Compare) > 0}
	if o.Root != nil {
		data["sources"] = readSources(o.Root, all)
	}
	text, err := json.Marshal(data) // < and > are escaped, so that no text ends the script that it is in
	if err != nil {
		return nil, fmt.Errorf("making the report page: %w", err)
	}
	var program bytes.Buffer
	for _, name := range scripts {
		program.WriteString(file(name))
	}
	script, style := "\n(() => {\n'use strict';\n"+program.String()+"})();\n", file("style.css")
	page := strings.NewReplacer("{{policy}}", policy(script, style), "{{style}}", style, "{{data}}", string(text), "{{script}}", script).
		Replace(file("index.html"))
	return []byte(page), nil
}

// clone copies the parts that Bound changes.
func clone(runs []speclist.Run) []speclist.Run {
	var all []speclist.Run
	for _, r := range runs {
		r.Specs = append([]speclist.Spec{}, r.Specs...)
		for i, s := range r.Specs {
			if s.Failure != nil {
				f := *s.Failure
				r.Specs[i].Failure = &f
			}
		}
		all = append(all, r)
	}
	return all
}

func file(name string) string {
	text, err := ui.ReadFile("ui/" + name)
	if err != nil {
		panic(err) // the folder is embedded
	}
	return string(text)
}

// policy lets the page load nothing and run only its own script, whatever the texts contain that it shows.
func policy(script, style string) string {
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; " +
		"script-src " + hash(script) + "; style-src " + hash(style)
}

// WriteRun writes all that a run leaves in its folder: its results, and the page, the badge and the junit.xml that come from them.
func WriteRun(folder string, r speclist.Run) error {
	Bound([]speclist.Run{r}, MostLines)
	junit, err := JUnit(r)
	if err != nil {
		return err
	}
	return errors.Join(r.Write(folder), os.WriteFile(filepath.Join(folder, "junit.xml"), junit, 0o644),
		Write(folder, []speclist.Run{r}, Options{Root: ModuleOf(".")}))
}

// Write writes the page and the badges of runs into a folder. A run of a part of the specs has no badge: that would not show the CCM's
// abilities.
func Write(folder string, runs []speclist.Run, o Options) error {
	page, err := Page(runs, o)
	if err != nil {
		return err
	}
	errs := []error{os.WriteFile(filepath.Join(folder, File), page, 0o644)}
	for _, r := range runs {
		if r.LeftOut == 0 {
			errs = append(errs, os.WriteFile(filepath.Join(folder, BadgeFile(r)), []byte(Badge(r)), 0o644))
		}
	}
	return errors.Join(errs...)
}
