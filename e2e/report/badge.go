package report

import (
	"encoding/xml"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
)

// BadgeFile returns the name of the badge of a run.
func BadgeFile(r speclist.Run) string {
	return "badge-" + fileName(r.CCM) + "-" + fileName(r.Cluster) + ".svg"
}

var notInFiles = regexp.MustCompile(`[^a-zA-Z0-9.]+`)

func fileName(text string) string { return strings.Trim(notInFiles.ReplaceAllString(text, "-"), "-.") }

// badge is a picture without fonts, scripts or links, so that it looks the same wherever a page shows it.
const badge = `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="20" role="img" aria-label="%[5]s: %[6]s">
<title>%[7]s</title>
<clipPath id="r"><rect width="%[1]d" height="20" rx="3"/></clipPath>
<g clip-path="url(#r)"><rect width="%[2]d" height="20" fill="#404852"/><rect x="%[2]d" width="%[3]d" height="20" fill="%[4]s"/></g>
<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
<text x="6" y="14" textLength="%[8]d">%[5]s</text>
<text x="%[9]d" y="14" textLength="%[10]d">%[6]s</text>
</g></svg>
`

// The colours of badges have enough contrast to white text.
const (
	green  = "#1a7f37"
	yellow = "#8a5a00"
	red    = "#b3182f"
	grey   = "#5b6678"
)

// Badge returns a badge that says how many specs have passed, of those about features that the CCM offers and the kind of cluster can run.
// It is red if a spec failed, yellow with known gaps, and grey if the run is not complete.
func Badge(r speclist.Run) string {
	counts := map[speclist.Result]int{}
	for _, s := range r.Specs {
		counts[s.Result]++
	}
	passed := counts[speclist.Passed] + counts[speclist.GapClosed]
	all := passed + counts[speclist.Failed] + counts[speclist.KnownGap]
	const label = "conformance"
	value, colour := fmt.Sprintf("%d of %d", passed, all), green
	switch {
	case r.Incomplete != "" || all == 0:
		value, colour = value+", incomplete", grey
	case counts[speclist.Failed] > 0:
		colour = red
	case counts[speclist.KnownGap] > 0:
		colour = yellow
	}
	title := fmt.Sprintf("%s on %s, %s: %d passed, %d failed, %d known gaps, %d unsupported", r.CCM, r.Cluster,
		r.Time.UTC().Format("2006-01-02"), passed, counts[speclist.Failed], counts[speclist.KnownGap], counts[speclist.Unsupported])
	left, right := textWidth(label)+12, textWidth(value)+12
	return fmt.Sprintf(badge, left+right, left, right, colour, label, value, escape(title), textWidth(label), left+6, textWidth(value))
}

// textWidth returns about how wide a text is. The badge makes it that wide.
func textWidth(text string) int { return utf8.RuneCountInString(text) * 13 / 2 }

func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a builder takes everything
	return b.String()
}
