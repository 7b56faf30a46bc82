package contract

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Assertion is what a maintained client asserts, reads or waits for, or what it showed of the real API. It outranks the document.
type Assertion struct {
	Topic string // Load balancers
	Says  string // in our own words
	// Document is what the document says instead, or "" if it does not deny the assertion.
	Document string
	Source   string
	// Guard is that of a [Rule].
	Guard string
}

// ReadAssertions reads the list of assertions. A line has the topic, our words, what the document says instead ("-" for nothing
// else), the source and the guard, separated by tabs.
func ReadAssertions(path string) ([]Assertion, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var all []Assertion
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		cells := strings.Split(lines.Text(), "\t")
		if len(cells) != 5 || slices.Contains(cells, "") {
			return nil, fmt.Errorf("%s: want topic, words, document, source and guard, separated by tabs: %q", path, lines.Text())
		}
		if cells[2] == "-" {
			cells[2] = ""
		}
		all = append(all, Assertion{cells[0], cells[1], cells[2], cells[3], cells[4]})
	}
	return all, lines.Err()
}

// writeAssertions writes the chapters of assertions: those that the document denies, and the others.
func writeAssertions(page *strings.Builder, all []Assertion, file func(test string) string) {
	page.WriteString("\n## Where clients and the document disagree\n\n" +
		"Clients win. [COVERAGE.md](" + sourceOf + "COVERAGE.md#amendments-of-the-document) has the corrections of schemas.\n\n" +
		"| Topic | What the document says | What clients assert, and what is so here | Source | Guard |\n| --- | --- | --- | --- | --- |\n")
	for _, a := range all {
		if a.Document != "" {
			fmt.Fprintf(page, "| %s | %s | %s | %s | %s |\n", a.Topic, a.Document, a.Says, a.Source, Rule{Guard: a.Guard}.guardCell(file))
		}
	}
	page.WriteString("\n## What clients assert, and the document does not say\n\n" +
		"| Topic | What clients assert | Source | Guard |\n| --- | --- | --- | --- |\n")
	for _, a := range all {
		if a.Document == "" {
			fmt.Fprintf(page, "| %s | %s | %s | %s |\n", a.Topic, a.Says, a.Source, Rule{Guard: a.Guard}.guardCell(file))
		}
	}
}
