package kubebin

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

func TestProgressCountsWhatTheGoCommandSays(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		says                 []string
		downloaded, compiled int
		complaint            string
	}{
		"nothing":  {},
		"modules":  {says: []string{"go: downloading k8s.io/api v0.36.3\ngo: downloading cel.dev/expr v0.25.1\n"}, downloaded: 2},
		"packages": {says: []string{"internal/goarch\nk8s.io/api/core/v1\ngithub.com/x/y/v2\nmain_package\n"}, compiled: 4},
		"pieces that end within a line": {
			says: []string{"k8s.io/ap", "i/core/v1", "\nunico", "de\n", "go: downl", "oading a v1\n"}, compiled: 2, downloaded: 1,
		},
		"a compiler's error": {
			says: []string{"sync\n# example.com/broken\nmain.go:3:1: syntax error\n"}, compiled: 1,
			complaint: "# example.com/broken\nmain.go:3:1: syntax error",
		},
		"a last line without an end": {says: []string{"sync\ngo: no such tool"}, compiled: 1, complaint: "go: no such tool"},
		"an error of the go command": {says: []string{"go: updates to go.mod needed\n"}, complaint: "go: updates to go.mod needed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProgress(nil, false, testingclock.NewFakeClock(time.Now()))
			for _, piece := range test.says {
				if n, err := p.Write([]byte(piece)); n != len(piece) || err != nil {
					t.Fatalf("Write: %d, %v", n, err)
				}
			}
			if p.downloaded != test.downloaded || p.compiled != test.compiled {
				t.Errorf("%d downloaded, %d compiled; want %d, %d", p.downloaded, p.compiled, test.downloaded, test.compiled)
			}
			if got := p.complaint(); got != test.complaint {
				t.Errorf("complaint %q, want %q", got, test.complaint)
			}
		})
	}
}

func TestComplaintsAreBounded(t *testing.T) {
	t.Parallel()
	p := newProgress(nil, false, testingclock.NewFakeClock(time.Now()))
	_, _ = p.Write([]byte(strings.Repeat("x.go:1: wrong\n", 10*maxComplaints)))
	if got := strings.Count(p.complaint(), "wrong"); got != maxComplaints {
		t.Errorf("%d lines kept, want %d", got, maxComplaints)
	}
}

func TestProgressTellsAPersonHowFarItIs(t *testing.T) {
	t.Parallel()
	clock := testingclock.NewFakeClock(time.Now())
	p := newProgress(nil, false, clock)
	expect := func(want string) {
		t.Helper()
		if got := strings.TrimSpace(p.String()); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	_, _ = p.Write([]byte("go: downloading a v1\n"))
	clock.Step(2 * time.Second)
	expect("2s  reading the module graph, 1 modules downloaded")
	p.setTotal(3)
	expect("2s  looking for compiled packages in Go's build cache")
	clock.Step(time.Minute)
	_, _ = p.Write([]byte("a\n"))
	expect("1m2s  1 packages compiled, of at most 3, then linking")
	_, _ = p.Write([]byte("b\nc\n"))
	expect("1m2s  3 packages compiled, linking")
}

// lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	bytes.Buffer
	wrote chan struct{}
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	n, err := b.Buffer.Write(p)
	b.wrote <- struct{}{}
	return n, err
}

func TestProgressIsShownWhileWorkRuns(t *testing.T) {
	t.Parallel()
	clock := testingclock.NewFakeClock(time.Now())
	out := &lockedBuffer{wrote: make(chan struct{})}
	p := newProgress(out, false, clock)
	failure := errors.New("it failed")
	finish, result := make(chan struct{}), make(chan error, 1)
	go func() { result <- p.during(func() error { <-finish; return failure }) }()
	for range 2 {
		for !clock.HasWaiters() {
			if t.Context().Err() != nil {
				t.Fatal("nobody waits for the clock")
			}
		}
		clock.Step(15 * time.Second)
		<-out.wrote
	}
	close(finish)
	if err := <-result; !errors.Is(err, failure) {
		t.Errorf("got %v, want the work's error", err)
	}
	want := "   15s  reading the module graph, 0 modules downloaded\n   30s  reading the module graph, 0 modules downloaded\n"
	if got := out.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestATerminalsLineIsRewrittenAndCleared(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := newProgress(&out, true, testingclock.NewFakeClock(time.Now()))
	p.setTotal(1)
	p.show()
	first := out.String()
	p.say("done")
	if !strings.HasPrefix(first, "\r") || strings.Contains(first, "\n") {
		t.Errorf("a state on a terminal: %q", first)
	}
	if got := out.String(); !strings.HasSuffix(got, " \rdone\n") {
		t.Errorf("the sentence does not stand alone: %q", got)
	}
}
