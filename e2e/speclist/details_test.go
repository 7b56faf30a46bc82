package speclist

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestALineOfATimelineIsReadable(t *testing.T) {
	t.Parallel()
	line := Line{At: 1.25, Lane: Requests, Text: "GET /v1/servers → 200"}
	text, err := json.Marshal(Spec{Details: Details{Failure: &Failure{Timeline: []Line{line}}}})
	if want := `"timeline":["1.250 requests GET /v1/servers → 200"]`; err != nil || !strings.Contains(string(text), want) {
		t.Errorf("%v: %s lacks %s", err, text, want)
	}
	var back Spec
	if err := json.Unmarshal(text, &back); err != nil || back.Failure.Timeline[0] != line {
		t.Errorf("read again: %+v, %v", back, err)
	}
	for _, wrong := range []string{"", "1.25", "1.25 log", "soon log text"} {
		err := new(Line).UnmarshalText([]byte(wrong))
		if err == nil || !strings.Contains(err.Error(), "must be seconds, a lane and a text") {
			t.Errorf("%q: got %v", wrong, err)
		}
	}
}

func FuzzLine(f *testing.F) {
	f.Add("1.250 requests GET /v1/servers → 200")
	f.Add("-1e9 log  ")
	f.Fuzz(func(t *testing.T, text string) {
		var line, again Line
		if line.UnmarshalText([]byte(text)) != nil {
			return
		}
		written, err := line.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		if err := again.UnmarshalText(written); err != nil || again.Lane != line.Lane || again.Text != line.Text {
			t.Fatalf("%q became %q: %+v, %v", text, written, again, err)
		}
	})
}
