package recording

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

const (
	lineOne = `{"format":"fakecloud-recording","version":1,"target":"other","started":"2026-11-20T12:00:00Z"}` + "\n"
	lineTwo = `{"seq":1,"at_ms":0,"end_ms":3,"method":"GET","path":"/servers","status":200,"response":{"servers":[]}}` + "\n"
)

func TestADamagedRecordingIsRefusedWithItsLine(t *testing.T) {
	t.Parallel()
	change := func(old, replacement string) string {
		return lineOne + lineTwo + strings.Replace(lineTwo, old, replacement, 1)
	}
	for name, c := range map[string]struct{ text, want string }{
		"empty":            {"", "line 1: "},
		"no recording":     {"hello\n", "line 1: "},
		"another format":   {`{"format":"x","version":1}` + "\n", "line 1: "},
		"a later version":  {strings.Replace(lineOne, "1", "2", 1), "version 2"},
		"no time":          {strings.Replace(lineOne, "2026", "0001", 1), "line 1: "},
		"no JSON":          {lineOne + "{\n" + lineTwo, "line 2: "},
		"two values":       {lineOne + lineTwo + "{} {}\n", "line 3: "},
		"an empty line":    {lineOne + "\n" + lineTwo, "line 2: "},
		"an unknown field": {change(`"seq"`, `"more":1,"seq"`), "line 3: "},
		"seq 0":            {change(`"seq":1`, `"seq":0`), "line 3: "},
		"a seq twice":      {lineOne + lineTwo + lineTwo, `"seq":1`},
		"time goes back":   {change(`"seq":1,"at_ms":0`, `"seq":2,"at_ms":-1`), "line 3: "},
		"it ends before":   {change(`"seq":1,"at_ms":0`, `"seq":2,"at_ms":9`), "line 3: "},
		"it begins before": {lineOne + strings.Replace(lineTwo, `"at_ms":0`, `"at_ms":2`, 1) +
			strings.Replace(lineTwo, `"seq":1`, `"seq":2`, 1), "less than"},
		"a method":             {change(`"seq":1`, `"seq":2`) + strings.Replace(lineTwo, "GET", "EAT", 1), "line 4: "},
		"a path":               {change(`"/servers"`, `"servers"`), "line 3: "},
		"a status":             {change(`200`, `2000`), "line 3: "},
		"a broken last line":   {lineOne + lineTwo + `{"seq":0,"at_ms":0}`, "line 3: "},
		"a very long line":     {lineOne + strings.Repeat("x", maxLine+1), "line 2: "},
		"a year beyond limits": {change(`"end_ms":3`, `"end_ms":99999999999999`), "line 3: "},
	} {
		rec, err := Read(strings.NewReader(c.text))
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v, want %q", name, rec, err, c.want)
		}
	}
}

// TestARecordingThatIsCutOffIsRead cuts a recording at each byte.
func TestARecordingThatIsCutOffIsRead(t *testing.T) {
	t.Parallel()
	text := lineOne + lineTwo + strings.Replace(lineTwo, `"seq":1`, `"seq":2`, 1)
	for end := len(lineOne); end <= len(text); end++ {
		rec, err := Read(strings.NewReader(text[:end]))
		if err != nil {
			t.Fatalf("cut at %d: %v", end, err)
		}
		whole := strings.Count(text[:end], "\n") - 1
		if end < len(text) && text[end] == '\n' {
			whole++ // only the line feed is missing
		}
		cut := text[end-1] != '\n' && (end == len(text) || text[end] != '\n')
		if len(rec.Exchanges) != whole || rec.CutOff != cut {
			t.Errorf("cut at %d: %d exchanges, want %d; cut off: %t, want %t", end, len(rec.Exchanges), whole, rec.CutOff, cut)
		}
	}
}

func TestExchangesAreInTheOrderOfTheirBeginnings(t *testing.T) {
	t.Parallel()
	rec, err := Read(strings.NewReader(lineOne + strings.Replace(lineTwo, `"seq":1,"at_ms":0`, `"seq":2,"at_ms":1`, 1) + lineTwo))
	if err != nil || len(rec.Exchanges) != 2 || rec.Exchanges[0].Seq != 1 {
		t.Errorf("%+v, %v", rec, err)
	}
}

// FuzzRead reads and replays recordings. None may crash.
func FuzzRead(f *testing.F) {
	f.Add([]byte(lineOne + lineTwo))
	f.Add([]byte(lineOne + lineTwo + `{"seq":3`))
	f.Add([]byte(lineOne + strings.Replace(lineTwo, "servers", "%0X", 1)))
	f.Add([]byte(lineOne + `{"seq":1,"at_ms":0,"end_ms":0,"method":"POST","path":"/servers","request":{"name":[1]},"status":201,"response":` +
		`{"server":{"id":6400},"action":{"id":1,"status":"success"},"next_actions":[{"id":"2","status":"running"},null]}}` + "\n" +
		`{"seq":2,"at_ms":9,"end_ms":9,"method":"GET","path":"/servers/6400","query":{"name":["["]},"status":200,"response":` +
		`{"servers":[{"id":5}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		rec, err := Read(bytes.NewReader(text))
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("%v", err)
			}
			return
		}
		if len(rec.Exchanges) > 20 {
			return
		}
		report, err := Verify(t.Context(), rec)
		if err != nil && !errors.Is(err, ErrNothing) {
			t.Fatal(err)
		}
		if report.Replayed+len(report.NotReplayable) != len(rec.Exchanges) {
			t.Errorf("%d exchanges, %d replayed, %d not", len(rec.Exchanges), report.Replayed, len(report.NotReplayable))
		}
		if err := report.Write(new(bytes.Buffer)); err != nil {
			t.Error(err)
		}
	})
}
