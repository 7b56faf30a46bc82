package contract

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// WriteCoverage writes the coverage page in Markdown: how many operations of the API document work, by tag, and the amendments.
func (r *Recorder) WriteCoverage(w io.Writer) error {
	var page strings.Builder
	byTag := make(map[string][]*Operation)
	for _, op := range r.document.operations {
		byTag[op.Tag] = append(byTag[op.Tag], op)
	}
	r.writeSummary(&page, byTag)
	fmt.Fprintf(&page, "\n## Amendments of the document\n\n| Since | Change | Source |\n| --- | --- | --- |\n")
	for _, amendment := range Amendments() {
		since := "always"
		if !amendment.Since.IsZero() {
			since = amendment.Since.Format(time.DateOnly)
		}
		if !amendment.Since.After(r.document.asOf) {
			fmt.Fprintf(&page, "| %s | %s | %s |\n", since, amendment.What, amendment.Source)
		}
	}
	_, err := io.WriteString(w, page.String())
	return err
}

// writeSummary writes the totals, of all operations and by tag.
func (r *Recorder) writeSummary(page *strings.Builder, byTag map[string][]*Operation) {
	total := make(map[State]int)
	perTag := make(map[string]map[State]int)
	for tag, operations := range byTag {
		perTag[tag] = make(map[State]int)
		for _, op := range operations {
			total[r.State(op)]++
			perTag[tag][r.State(op)]++
		}
	}
	fmt.Fprintf(page, "# Coverage of the Hetzner Cloud API\n\n")
	fmt.Fprintf(page, "Of the %d operations of the official document, %d are implemented and were exercised, %d answer 501",
		len(r.document.operations), total[Implemented], total[NotImplemented])
	if total[OnlyErrors]+total[NotExercised] > 0 {
		fmt.Fprintf(page, ", %d gave only errors, %d were not exercised", total[OnlyErrors], total[NotExercised])
	}
	fmt.Fprintf(page, ".\nEach answer was validated against the document and the amendments at the end of this page.\n")
	fmt.Fprintf(page, "\n| Tag | Operations | Implemented | 501 |\n| --- | ---: | ---: | ---: |\n")
	for _, tag := range sortedKeys(byTag) {
		fmt.Fprintf(page, "| %s | %d | %d | %d |\n", tag, len(byTag[tag]), perTag[tag][Implemented], perTag[tag][NotImplemented])
	}
}
