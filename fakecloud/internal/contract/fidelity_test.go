package contract

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// fidelityPage says what is proven, what is not, and what is unknown. `make behaviour` writes the numbers.
const fidelityPage = "../../FIDELITY.md"

// fidelityCounts returns the numbers of the page, by their names in testdata/fidelity.tmpl.
func fidelityCounts(t *testing.T) map[string]int {
	t.Helper()
	counts := map[string]int{"assertions": len(assertionsForTest(t))}
	for _, reason := range Reasons {
		counts[strings.TrimSuffix(reason, ": ")] = 0
	}
	for _, rule := range rulesForTest(t) {
		switch {
		case rule.Topic == TopicFields:
			counts["field sentences"]++
		case rule.Reason() == "":
			counts["guarded"]++
			counts["sentences"]++
		default:
			counts[strings.TrimSuffix(rule.Reason(), ": ")]++
			counts["sentences"]++
		}
	}
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, m := range regexp.MustCompile(`Of the (\d+) operations .*? (\d+) are implemented and were exercised`).FindAllStringSubmatch(
		read("../../COVERAGE.md"), 1) {
		counts["operations"], counts["exercised"] = figure(t, m[1]), figure(t, m[2])
	}
	_, amendments, _ := strings.Cut(read("../../COVERAGE.md"), "\n## Amendments of the document\n")
	counts["amendments"] = rowsOf(amendments)
	for chapter := range strings.SplitSeq(read("../../DIFFERENCES.md"), "\n## ") {
		title, text, _ := strings.Cut(chapter, "\n")
		counts["differences: "+title] = rowsOf(text)
	}
	counts["differences"] = counts["differences: Nothing is real"] + counts["differences: Time"] + counts["differences: Traffic"]
	counts["fields"] = strings.Count(read("../recording/fields.tsv"), "\n")
	counts["infidelities"] = len(infidelity.FindAllString(read("../recording/verify_test.go"), -1))
	return counts
}

// infidelity is the beginning of a case of TestEachInfidelityIsFound.
var infidelity = regexp.MustCompile(`(?m)^\t\t\{"[^"]+", "[A-Z]+", `)

func figure(t *testing.T, text string) (n int) {
	t.Helper()
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// rowsOf returns how many rows the tables of a text have, without their heads.
func rowsOf(text string) (rows int) {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "|") && !isRule(line) && (i+1 == len(lines) || !isRule(lines[i+1])) {
			rows++
		}
	}
	return rows
}

var placeholder = regexp.MustCompile(`\{([a-zA-Z: ]+)\}`)

// TestThePageOfBehaviourIsSummedUp compares FIDELITY.md with the numbers of today.
func TestThePageOfBehaviourIsSummedUp(t *testing.T) {
	t.Parallel()
	counts := fidelityCounts(t)
	text, err := os.ReadFile("testdata/fidelity.tmpl")
	if err != nil {
		t.Fatal(err)
	}
	page := placeholder.ReplaceAllFunc(text, func(name []byte) []byte {
		n, ok := counts[string(name[1:len(name)-1])]
		if !ok {
			t.Errorf("%s is not counted", name)
		}
		return fmt.Append(nil, n)
	})
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile(fidelityPage, page, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	written, err := os.ReadFile(fidelityPage)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(written, page) {
		t.Errorf("%s is out of date: run `make behaviour` and commit it", fidelityPage)
	}
}
