//go:build sim

package sim

import (
	"fmt"
	"net/http"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
)

// troubles are the steps that no user makes: the cloud misbehaves, the CCM dies, another one leads, the
// token changes.
var troubles = map[string]act{
	"fault": func(w *world, _ string, n, m int) { w.addFault(n, m) },
	"crash": func(w *world, _ string, n, m int) {
		if w.crash == nil {
			w.crash = &crash{in: 1 + n, after: m%2 == 0, rest: time.Duration(m) * time.Second}
		}
	},
	"leader":     func(w *world, _ string, _, _ int) { w.changeLeader() },
	"token away": func(w *world, _ string, _, _ int) { w.useProject(true) },
	"token back": func(w *world, _ string, _, _ int) { w.useProject(false) },
}

var effects = []fault.Effect{
	fault.HTTPStatus(http.StatusServiceUnavailable), fault.APIError("conflict"), fault.APIError("locked"), fault.APIError("rate_limit_exceeded"),
	fault.LoseAnswer(), fault.DropConnection(), fault.CutBody(0), fault.Latency(15 * time.Second), fault.FailAction("", ""), fault.HangAction(),
	{Kind: fault.KindHTTPStatus, Status: http.StatusOK, Body: "{}"},
}

// addFault makes some of the CCM's next requests fail.
func (w *world) addFault(n, m int) {
	r := fault.Rule{Client: ccm.ProviderName, Effect: effects[n%len(effects)], Seed: uint64(m) + 1, Max: 3 + m%20, Probability: []float64{0, 0.5, 0.2}[m%3]}
	switch n % 4 {
	case 1:
		r.Writes = true
	case 2:
		r.Resource = "load_balancer"
	case 3:
		r.Method = http.MethodGet
	}
	switch r.Effect.Kind {
	case fault.KindFailAction, fault.KindHangAction:
		r.Writes, r.Method = true, ""
	case fault.KindHTTPStatus:
		if r.Effect.Body != "" { // only a read has such an answer
			r.Writes, r.Method = false, http.MethodGet
		}
	}
	_, err := w.fake.Faults().Add(ctx, r)
	must(err)
}

// changeLeader cuts the leader off from the Kubernetes API until another one has led for some time. The old one
// works on until then, as a process does that was frozen.
func (w *world) changeLeader() {
	if w.crash != nil {
		return
	}
	old := w.current
	old.lost = old.renewed()
	old.cut.Store(true)
	w.pass(time.Until(old.lost.Add(leaseDuration+time.Second)), 0)
	if w.crash != nil {
		return
	}
	w.current = w.startProcess()
	w.pass(20*time.Second, 0)
	old.die()
}

// useProject rotates the token to one of another project, or back.
func (w *world) useProject(away bool) {
	if w.away == away {
		return
	}
	w.away = away
	token := w.fake.Token()
	if away {
		token = w.otherToken
	}
	w.useToken(token)
}

// settle ends all trouble and waits until everything is as it should be. Then nothing must change any more.
func (w *world) settle() {
	must(w.fake.Faults().Clear(ctx))
	_, err := w.fake.ResumeActions(ctx)
	must(err)
	w.useProject(false)
	if w.crash != nil && w.crash.back.IsZero() {
		w.crash = nil
	}
	deadline := time.Now().Add(40 * time.Minute)
	for w.guard.ok() {
		w.pass(30*time.Second, 0)
		err := w.guard.quiet()
		before := w.writes.Load()
		if err == nil && w.crash == nil {
			w.pass(4*time.Minute, 0)
			if err = w.guard.quiet(); err == nil && w.writes.Load() == before {
				return
			}
		}
		if time.Now().After(deadline) {
			w.failNow("not settled", fmt.Sprintf("after 40 minutes without trouble: %v; %d writes in the last 4 minutes", err, w.writes.Load()-before))
		}
	}
}

func (w *world) failNow(rule, text string) {
	w.guard.mu.Lock()
	defer w.guard.mu.Unlock()
	w.guard.fail(rule, "%s", text)
}
