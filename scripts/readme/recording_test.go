package readme

import (
	"flag"
	"fmt"
	"html"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the recording of the transcript, after it has run")

const (
	recordingFile = "../../.github/pictures/first-look.svg"
	maxRecording  = 60_000 // bytes
)

// The terminal of the recording.
const (
	columns               = 100
	charWidth, lineHeight = 8, 18 // in pixels
	margin                = 16
)

// The times of the recording, in milliseconds: of a character that is typed, from a command to its output, to read an output, and at the
// end, before all begins again.
const typing, waiting, reading, resting = 16, 300, 1800, 6000

// row is a line of the terminal: its text, when it begins to appear, and for how long it is typed, 0 for output.
type row struct {
	text        string
	from, lasts int
}

// record lays out steps in time. It returns the rows, and when all ends.
func record(steps []step) (all []row, end int) {
	now := 500
	for _, s := range steps {
		for i, line := range wrapped("$ " + s.command) {
			lasts := typing * len(line)
			if i == 0 {
				lasts -= typing * len("$ ")
			}
			all = append(all, row{line, now, lasts})
			now += lasts
		}
		now += waiting
		for _, line := range wrapped(s.want) {
			all = append(all, row{line, now, 0})
		}
		now += reading
	}
	return all, now + resting
}

// wrapped returns the lines of a text as a terminal shows them.
func wrapped(text string) (lines []string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		for len(line) > columns {
			lines = append(lines, line[:columns])
			line = line[columns:]
		}
		lines = append(lines, line)
	}
	return lines
}

// drawing returns the recording of steps: an SVG that moves by its style sheet alone.
func drawing(steps []step) string {
	all, end := record(steps)
	at := func(ms int) string { return fmt.Sprintf("%.2f%%", float64(ms)*100/float64(end)) }
	var style, text strings.Builder
	for i, r := range all {
		x, shown := margin, strings.TrimLeft(r.text, " ")
		x += charWidth * (len(r.text) - len(shown))
		class := "out"
		if r.lasts > 0 {
			class = "in"
			const hidden = "clip-path:inset(0 100% 0 0)"
			fmt.Fprintf(&style, "@keyframes r%d{0%%{%s}%s{%s;animation-timing-function:steps(%d)}%s,to{clip-path:inset(0)}}\n",
				i, hidden, at(r.from), hidden, len(shown), at(r.from+r.lasts))
		} else {
			fmt.Fprintf(&style, "@keyframes r%d{0%%{opacity:0}%s,to{opacity:1}}\n", i, at(r.from))
		}
		if shown == "" {
			continue
		}
		fmt.Fprintf(&text, `<text class="%s" x="%d" y="%d" textLength="%d" style="animation-name:r%d">%s</text>`+"\n",
			class, x, margin+lineHeight*(i+1)-5, charWidth*len(shown), i, html.EscapeString(shown))
	}
	width, height := 2*margin+charWidth*columns, 2*margin+lineHeight*len(all)
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" xml:space="preserve">
<title>A terminal: the first look at fakecloud, command by command</title>
<style>
text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#c3ccd9;animation:%dms step-end infinite}
.in{fill:#fff;font-weight:600}
@media(prefers-reduced-motion:reduce){text{animation:none!important}}
%s</style>
<rect width="%d" height="%d" rx="10" fill="#12161d"/>
%s</svg>
`, width, height, width, height, end, style.String(), width, height, text.String())
}

// TestTheRecordingIsOfTheTranscript compares the picture with the transcript.
func TestTheRecordingIsOfTheTranscript(t *testing.T) {
	t.Parallel()
	svg, err := os.ReadFile(recordingFile)
	if err != nil {
		t.Fatal(err)
	}
	steps := transcript(t, "## A first look, command by command")
	if string(svg) != drawing(steps) {
		t.Errorf("%s is not that of the transcript of fakecloud/README.md: run make pictures", recordingFile)
	}
	if len(svg) > maxRecording || strings.Contains(string(svg), "<script") {
		t.Errorf("%d bytes: want at most %d, without a script", len(svg), maxRecording)
	}
}
