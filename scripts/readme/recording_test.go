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

// The times of the recording, in milliseconds: from a command to its output, and to read an output.
const waiting, reading = 1000, 1800

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

// drawing returns the recording of steps: an SVG whose lines appear one after the other, by its style sheet alone, and stay.
func drawing(steps []step) string {
	var text strings.Builder
	now, y := 500, margin-5
	add := func(class, lines string) {
		for _, line := range wrapped(lines) {
			y += lineHeight
			shown := strings.TrimLeft(line, " ")
			if shown == "" {
				continue
			}
			x := margin + charWidth*(len(line)-len(shown))
			fmt.Fprintf(&text, `<text class="%s" x="%d" y="%d" textLength="%d" style="animation-delay:%dms">%s</text>`+"\n",
				class, x, y, charWidth*len(shown), now, html.EscapeString(shown))
		}
	}
	for _, s := range steps {
		add("in", "$ "+s.command)
		now += waiting
		add("out", s.want)
		now += reading
	}
	width, height := 2*margin+charWidth*columns, y+margin+5
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" xml:space="preserve">
<title>A terminal: the first look at fakecloud, command by command</title>
<style>
@keyframes appear{from{opacity:0}}
text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#c3ccd9;animation:appear 1ms both}
.in{fill:#fff;font-weight:600}
@media(prefers-reduced-motion:reduce){text{animation:none!important}}
</style>
<rect width="%d" height="%d" rx="10" fill="#12161d"/>
%s</svg>
`, width, height, width, height, width, height, text.String())
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
