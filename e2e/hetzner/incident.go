package hetzner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/scenario"
)

// RunningIncident is an incident that a spec rehearses, with a program's mistakes in it.
type RunningIncident struct {
	// Since is the latest entry of the journal before the incident.
	Since uint64
	// Client is a part of the User-Agent of the program that the incident is about. StartIncident sets it to the CCM's.
	Client string

	env   *Env
	id    int64
	begin time.Time
	wrong []string
}

// StartIncident starts a scenario of the simulated cloud. It ends with the spec at the latest.
func (e *Env) StartIncident(ctx context.Context, start string) *RunningIncident {
	GinkgoHelper()
	i := &RunningIncident{env: e, begin: time.Now(), Since: e.Cloud.Journal.Last(), Client: framework.Current().CCM.UserAgent}
	running, err := e.Cloud.Fake.Scenarios().Start(ctx, start)
	Expect(err).NotTo(HaveOccurred())
	i.id = running.ID
	DeferCleanup(func(ctx context.Context) {
		if err := e.Cloud.Fake.Scenarios().End(ctx, i.id); !errors.Is(err, scenario.ErrNotFound) {
			Expect(err).NotTo(HaveOccurred())
		}
	})
	return i
}

// AwaitMet waits until the incident affects a request of the Client, or one of the others returns true. Until then, a quiet cloud shows
// nothing.
func (i *RunningIncident) AwaitMet(ctx context.Context, others ...func() bool) {
	GinkgoHelper()
	met := func(e journal.Entry) bool { return e.Fault != "" || e.Status >= 400 }
	Eventually(func() bool {
		return slices.ContainsFunc(i.env.Cloud.Journal.Entries(journal.Filter{Client: i.Client, Since: i.Since}), met) ||
			slices.ContainsFunc(others, func(other func() bool) bool { return other() })
	}).WithContext(ctx).Should(BeTrue(), "no request of %s met the incident", i.Client)
}

// AwaitRequests waits for n requests of the Client in the incident, or for the quiet time to pass without one.
func (i *RunningIncident) AwaitRequests(ctx context.Context, n int) {
	GinkgoHelper()
	last, since := 0, time.Now()
	Eventually(func() bool {
		if sent := i.Requests(); sent != last {
			last, since = sent, time.Now()
		}
		return last >= n || time.Since(since) > framework.Current().QuietTime()
	}).WithContext(ctx).Should(BeTrue(), "%s sends requests, but fewer than %d", i.Client, n)
}

// Requests returns the number of the Client's requests in the incident.
func (i *RunningIncident) Requests() int {
	return i.env.Cloud.Journal.Count(journal.Filter{Client: i.Client, Since: i.Since})
}

// Wrong notes something that the Client did wrong.
func (i *RunningIncident) Wrong(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(i.wrong, text) {
		i.wrong = append(i.wrong, text)
	}
}

// End ends the incident.
func (i *RunningIncident) End(ctx context.Context) {
	GinkgoHelper()
	framework.RecordIncident(i.Requests(), time.Since(i.begin))
	Expect(i.env.Cloud.Fake.Scenarios().End(ctx, i.id)).To(Succeed())
}

// Expect fails if the Client did something wrong.
func (i *RunningIncident) Expect() {
	GinkgoHelper()
	if len(i.wrong) > 0 {
		Fail(strings.Join(i.wrong, "; "))
	}
}
