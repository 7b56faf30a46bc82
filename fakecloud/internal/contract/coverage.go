package contract

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// WriteCoverage writes the coverage page in Markdown: how many operations of the API document were seen
// to work, and for each one, by tag, its state and the answers that were exercised. The page has neither
// times nor counts of requests: two runs that see the same answers write the same page.
func (r *Recorder) WriteCoverage(w io.Writer) error {
	out := bufio.NewWriter(w)
	byTag := make(map[string][]*Operation)
	count := make(map[State]int)
	for _, op := range r.document.operations {
		byTag[op.Tag] = append(byTag[op.Tag], op)
		count[r.State(op)]++
	}
	total := len(r.document.operations)
	fmt.Fprintf(out, "# Coverage of the Hetzner Cloud API\n\n")
	fmt.Fprintf(out, "Of the %d operations of the official document, %d are implemented and were exercised, %d answer 501",
		total, count[Implemented], count[NotImplemented])
	if others := count[OnlyErrors] + count[NotExercised]; others > 0 {
		fmt.Fprintf(out, ", %d gave only errors, %d were not exercised", count[OnlyErrors], count[NotExercised])
	}
	fmt.Fprintf(out, ".\nEach answer that is listed was validated against the document and the amendments listed at the end.\n")

	fmt.Fprintf(out, "\n| Tag | Operations | Implemented | 501 |\n| --- | ---: | ---: | ---: |\n")
	for _, tag := range sortedKeys(byTag) {
		implemented, missing := 0, 0
		for _, op := range byTag[tag] {
			switch r.State(op) {
			case Implemented:
				implemented++
			case NotImplemented:
				missing++
			}
		}
		fmt.Fprintf(out, "| %s | %d | %d | %d |\n", tag, len(byTag[tag]), implemented, missing)
	}
	for _, tag := range sortedKeys(byTag) {
		fmt.Fprintf(out, "\n## %s\n\n| Operation | | State | Answers |\n| --- | --- | --- | --- |\n", tag)
		for _, op := range byTag[tag] {
			fmt.Fprintf(out, "| `%s` | `%s` | %s | %s |\n", op.ID, op, r.remark(op), r.answersOf(op.ID))
		}
	}
	fmt.Fprintf(out, "\n## Outside the document\n\nRequests to paths or with methods that the API does not have: %s\n", r.answersOf(""))
	fmt.Fprintf(out, "\n## Where the document is amended\n\n| Since | Change | Source |\n| --- | --- | --- |\n")
	for _, amendment := range Amendments() {
		if !amendment.Since.After(r.document.asOf) {
			since := "always"
			if !amendment.Since.IsZero() {
				since = amendment.Since.Format(time.DateOnly)
			}
			fmt.Fprintf(out, "| %s | %s | %s |\n", since, amendment.What, amendment.Source)
		}
	}
	return out.Flush()
}

// remark returns the state of an operation with what else is to be known of it.
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

// answersOf lists the answers of an operation, of unknown ones if id is empty: "200, 404 `not_found`".
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
		part := strconv.Itoa(status)
		for _, code := range sortedKeys(seen.statuses[status]) {
			part += " `" + code + "`"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}
