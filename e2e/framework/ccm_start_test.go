package framework

import (
	"context"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
)

func TestACCMHasBegunWithItsFirstRequestAndItsLease(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 24, 6, 49, 53, 0, time.UTC)
	at := func(d time.Duration) []cloud.Request { return []cloud.Request{{Time: now.Add(d)}} }
	alone := start{since: now}
	elects := start{since: now, elects: true, renewed: now.Add(-time.Minute)}
	for name, tc := range map[string]struct {
		start    start
		requests []cloud.Request
		renewed  time.Time
		want     bool
	}{
		"no request":                         {alone, nil, time.Time{}, false},
		"a request of the process before":    {alone, at(-time.Second), time.Time{}, false},
		"a request":                          {alone, at(time.Second), time.Time{}, true},
		"a request, no Lease":                {elects, at(time.Second), time.Time{}, false},
		"a request, a dead leader's Lease":   {elects, at(time.Second), elects.renewed, false},
		"a request, a Lease":                 {elects, at(time.Second), now.Add(-time.Second), true}, // another host's clock
		"a Lease, no request":                {elects, nil, now, false},
		"a request, the cluster's 1st Lease": {start{since: now, elects: true}, at(time.Second), now, true},
	} {
		if got := tc.start.begun(tc.requests, tc.renewed); got != tc.want {
			t.Errorf("%s: begun is %v, want %v", name, got, tc.want)
		}
	}
}

// recorder is a cloud that has nothing but requests, and tells of each look at them, before the look.
type recorder struct {
	cloud.Cloud
	requests []cloud.Request
	look     func(after uint64)
}

func (r *recorder) Requests(_ context.Context, after uint64) ([]cloud.Request, error) {
	r.look(after)
	return slices.DeleteFunc(slices.Clone(r.requests), func(q cloud.Request) bool { return q.Seq <= after }), nil
}

func TestQuietCountsFromWhenTheCCMHasBegun(t *testing.T) {
	RegisterTestingT(t)
	now := time.Date(2026, 11, 24, 6, 49, 53, 0, time.UTC)
	r := &recorder{look: func(uint64) {}}
	ask := func(kind string) {
		r.requests = append(r.requests, cloud.Request{Seq: uint64(len(r.requests) + 1), Time: now, Kind: kind})
	}
	ask("of the spec before")
	ccm := CCMDescription{Quiet: metav1.Duration{Duration: time.Second}}
	env := &Env{suite: &Suite{Kind: Embedded, CCM: ccm}, Cloud: r, clock: func() time.Time { return now }}
	env.CCM.env, env.setup = env, &ownSetup{env: env}
	env.CCM.Replica = &Replica{}
	env.CCM.noteStart(false, time.Time{})

	var happened []string
	r.look = func(after uint64) {
		const sinceStart = 1 // else it looks for writes
		if after == sinceStart && (len(happened) >= 4 || slices.Contains(happened, "looked for writes")) {
			return // it has begun: a look at the kinds of its requests
		}
		step := "looked for a request"
		if after != sinceStart {
			step = "looked for writes"
		}
		switch happened = append(happened, step); len(happened) {
		case 4:
			ask("networks")
		case 7:
			ask("servers")
		}
		if len(happened) != 8 {
			now = now.Add(2 * time.Second)
		}
	}
	env.CCM.AwaitIdle(t.Context())
	Expect(happened).To(Equal([]string{
		"looked for a request", "looked for a request", "looked for a request", "looked for a request", // and found the first one
		"looked for writes", "looked for writes", // two seconds later, but it has asked for one thing only
		"looked for writes", // there is a request of another kind
		"looked for writes", // no time has passed
		"looked for writes", // two seconds later
	}))
}

func TestADelayIsCheckedBeforeTheFirstSpec(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		delay string
		kind  ClusterKind
		want  string
	}{
		{"", KindCluster, ""},
		{"2", Embedded, ""},
		{"2s", Embedded, "E2E_CCM_DELAY=2s: must be a whole number of seconds, such as 2"},
		{"-1", Embedded, "E2E_CCM_DELAY=-1: must be a whole number of seconds, such as 2"},
		{"2", KindCluster, "E2E_CCM_DELAY=2: works with E2E_CLUSTER=embedded only"},
	} {
		got := ""
		if err := checkDelay(tc.delay, tc.kind); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%q on %s: %q, want %q", tc.delay, tc.kind, got, tc.want)
		}
	}
}
