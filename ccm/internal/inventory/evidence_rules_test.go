package inventory

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/ccmtest"
)

func TestWhichDisappearancesAreDoubted(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		known   int
		missing []time.Duration // since when
		want    bool
	}{
		"two of two":                      {2, []time.Duration{0, 0}, false},
		"three of three":                  {3, []time.Duration{0, 0, 0}, true},
		"three of nine":                   {9, []time.Duration{0, 0, 0}, true},
		"three of ten":                    {10, []time.Duration{0, 0, 0}, false},
		"for almost five minutes":         {3, []time.Duration{massHold - 1, massHold - 1, massHold - 1}, true},
		"for five minutes":                {3, []time.Duration{massHold, massHold, massHold}, false},
		"one of them since a moment ago":  {3, []time.Duration{time.Hour, time.Hour, 0}, true},
		"all of them since a longer time": {3, []time.Duration{time.Hour, time.Hour, time.Hour}, false},
	} {
		missing := map[int]time.Time{}
		for i, since := range tc.missing {
			missing[i] = now.Add(-since)
		}
		if got := doubtOf(doubtServers, "servers", missing, tc.known, now); (got != nil) != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// What is missing counts from the first look that missed it; what is there again begins anew.
func TestSinceWhenAnObjectIsMissing(t *testing.T) {
	t.Parallel()
	before, now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), time.Date(2026, 11, 20, 12, 5, 0, 0, time.UTC)
	got := stillMissing(map[string]time.Time{"still": before, "back": before, "forgotten": before},
		map[string]bool{"still": true, "back": true, "new": true, "there": true},
		map[string]bool{"back": true, "there": true, "foreign": true}, now)
	if len(got) != 2 || got["still"] != before || got["new"] != now {
		t.Errorf("got %v", got)
	}
}

// A list that was asked for with the old token arrives after the new one has shown something of the cluster.
func TestALateAnswerWithTheOldTokenChangesNothing(t *testing.T) {
	t.Parallel()
	e := NewEvidence(ccmtest.NewAutoClock(), prometheus.NewRegistry(), false, func() (string, error) { return "new", nil })
	knowNodes(e, 1)
	e.SawOne("new")
	e.sawServers("old", map[int64]bool{1: true})
	if !e.isRecognised("new") || e.isRecognised("old") {
		t.Error("the project of the new token is not recognised any more")
	}
	e.sawServers("new", map[int64]bool{}) // the cluster's server is gone
	if !e.isRecognised("new") {
		t.Error("a list without the cluster's server ends the recognition")
	}
}
