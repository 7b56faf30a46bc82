package contract

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// WriteCoverage writes the coverage page in Markdown: how many operations of the API document work, and the state and the
// exercised answers of each operation, by tag. It has no times and no counts of requests: two runs with the same answers
// write the same page.
func (r *Recorder) WriteCoverage(w io.Writer) error {
	var page strings.Builder
	byTag := make(map[string][]*Operation)
	for _, op := range r.document.operations {
		byTag[op.Tag] = append(byTag[op.Tag], op)
	}
	r.writeSummary(&page, byTag)
	for _, tag := range sortedKeys(byTag) {
		fmt.Fprintf(&page, "\n## %s\n\n| Operation | | State | Answers |\n| --- | --- | --- | --- |\n", tag)
		for _, op := range byTag[tag] {
			fmt.Fprintf(&page, "| `%s` | `%s` | %s | %s |\n", op.ID, op, r.remark(op), r.answersOf(op.ID))
		}
	}
	fmt.Fprintf(&page, "\n## Outside the document\n\nRequests with unknown paths or methods: %s\n", r.answersOf(""))
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
	fmt.Fprintf(page, ".\nEach listed answer was validated against the document and the amendments at the end of this page.\n")
	fmt.Fprintf(page, "\n| Tag | Operations | Implemented | 501 |\n| --- | ---: | ---: | ---: |\n")
	for _, tag := range sortedKeys(byTag) {
		fmt.Fprintf(page, "| %s | %d | %d | %d |\n", tag, len(byTag[tag]), perTag[tag][Implemented], perTag[tag][NotImplemented])
	}
}

// remark returns the state of an operation, and whether it is removed or deprecated.
func (r *Recorder) remark(op *Operation) string {
	remark := string(r.State(op))
	switch {
	case op.Removed:
		remark += ", removed from the API"
	case op.Deprecated:
		remark += ", deprecated"
	}
	return remark
}

// answersOf lists the answers of an operation, such as "200, 404 `not_found`". An empty id stands for requests without an
// operation.
func (r *Recorder) answersOf(id string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.unmatched
	if id != "" {
		seen = r.seen[id]
	}
	if seen == nil || len(seen.statuses) == 0 {
		return "none"
	}
	var parts []string
	for _, status := range slices.Sorted(maps.Keys(seen.statuses)) {
		words := []string{strconv.Itoa(status)}
		for _, code := range sortedKeys(seen.statuses[status]) {
			words = append(words, "`"+code+"`")
		}
		parts = append(parts, strings.Join(words, " "))
	}
	return strings.Join(parts, ", ")
}
