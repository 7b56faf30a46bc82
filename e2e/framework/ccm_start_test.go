package framework

import (
	"net/http"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

func TestACCMHasBegunWithItsFirstRequestAndItsLease(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 24, 6, 49, 53, 0, time.UTC)
	at := func(d time.Duration) []journal.Entry { return []journal.Entry{{Time: now.Add(d)}} }
	alone := start{since: now}
	elects := start{since: now, elects: true, renewed: now.Add(-time.Minute)}
	for name, tc := range map[string]struct {
		start    start
		requests []journal.Entry
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

// looks is a journal that tells of each look at it, before the look.
type looks struct {
	Journal
	at func(journal.Filter)
}

func (l looks) Entries(f journal.Filter) []journal.Entry {
	l.at(f)
	return l.Journal.Entries(f)
}

func TestQuietCountsFromWhenTheCCMHasBegun(t *testing.T) {
	RegisterTestingT(t)
	cloud := fakecloud.New(fakecloud.Options{})
	defer cloud.Close()
	Expect(cloud.SetSpeed(t.Context(), 0)).To(Succeed())
	ask := func(path string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://cloud/v1"+path, nil)
		Expect(err).NotTo(HaveOccurred())
		r.Header.Set("User-Agent", "the-ccm/1")
		response, err := (&http.Client{Transport: cloud.Transport()}).Do(r)
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Body.Close()).To(Succeed())
	}
	ccm := CCMDescription{UserAgent: "the-ccm", Quiet: metav1.Duration{Duration: time.Second}}
	env := &Env{suite: &Suite{Kind: Embedded, CCM: ccm}}
	env.Cloud.env, env.CCM.env, env.setup = env, env, &ownSetup{env: env}
	env.Cloud.use(cloud)
	env.CCM.Replica = &Replica{}
	env.CCM.noteStart(t.Context(), false, time.Time{})

	var happened []string
	env.Cloud.Journal = looks{env.Cloud.Journal, func(f journal.Filter) {
		if !f.Writes && (len(happened) >= 4 || slices.Contains(happened, "looked for writes")) {
			return // it has begun: a look at its operations
		}
		step := "looked for a request"
		if f.Writes {
			step = "looked for writes"
		}
		switch happened = append(happened, step); len(happened) {
		case 4:
			ask("/networks")
		case 7:
			ask("/servers")
		}
		if len(happened) != 8 {
			Expect(cloud.Step(t.Context(), 2*time.Second)).To(Succeed())
		}
	}}
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
