package loadbalancer_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/ccmtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/proof/crash"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/resync"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
)

// TestAnyCallMayBeTheLast lets processes die before and after each API call, and their successors too: all states that
// the cloud can be in when a process dies are found from the calls that are made, and from each one a process with
// empty caches must converge and leave nothing behind. At no call may clients notice more than they must.
func TestAnyCallMayBeTheLast(t *testing.T) {
	t.Parallel()
	for _, s := range crashScenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			crash.Sweep(t, 11, s.run)
		})
	}
}

// run lets one process after the other die, and then one converge. It returns where this one could have died.
func (s *crashScenario) run(t *testing.T, deaths []crash.Death) (ends []crash.End) {
	t.Helper()
	w := newWorld(t, "realistic", 2)
	defer w.fake.Close()
	svc := s.prepare(w)
	process := w.provider()
	var compare *resync.Comparison
	if s.comparison {
		w.ensure(process, svc) // it compares only what it has synced
		compare, _ = w.resyncOf(process, svc)
	}
	s.change(w, svc)

	seen := w.watch()
	for i, d := range deaths {
		w.wire.reset(d.Call, d.After)
		if s.comparison && i == 0 {
			compare.SyncLoadBalancers(t.Context())
		} else {
			for range 20 {
				if s.once(w, process, svc) == nil || w.wire.isDead() {
					break
				}
				w.clock.Step(15 * time.Second)
			}
		}
		process = w.provider()
	}
	when := fmt.Sprintf("died at %+v", deaths)
	w.wire.recordEnds(&ends, w.state, seen.look)
	if s.comparison && len(deaths) == 0 {
		compare.SyncLoadBalancers(t.Context())
	} else {
		s.converge(w, process, svc)
	}
	w.wire.setIntercept(nil)
	w.wire.setObserve(nil)
	s.checkEnd(t, w, svc, seen, when)
	return ends
}

// recordEnds adds to ends where a process can die from now on: before and after each call. It calls look after each.
func (w *wire) recordEnds(ends *[]crash.End, state func() string, look func()) {
	w.reset(0, false)
	calls := 0
	w.setIntercept(func(*http.Request) *http.Response {
		calls++
		*ends = append(*ends, crash.End{Death: crash.Death{Call: calls}, State: state()})
		return nil
	})
	w.setObserve(func() {
		look()
		*ends = append(*ends, crash.End{Death: crash.Death{Call: calls, After: true}, State: state()})
	})
}

// once makes the service controller's call once.
func (s *crashScenario) once(w *world, process *ccm.Cloud, svc *corev1.Service) error {
	if !s.gone {
		_, err := w.tryEnsure(process, svc)
		return err
	}
	return tryRemove(w.t.Context(), process, svc)
}

// converge makes the service controller's calls until the change is complete.
func (s *crashScenario) converge(w *world, process *ccm.Cloud, svc *corev1.Service) {
	w.t.Helper()
	if s.gone {
		w.remove(process, svc)
		return
	}
	w.ensure(process, svc)
	for range s.health {
		w.clock.Step(30 * time.Second)
		w.ensure(process, svc)
	}
}

// checkEnd makes sure that the change is complete, and that nothing is left when the Service is deleted.
func (s *crashScenario) checkEnd(t *testing.T, w *world, svc *corev1.Service, seen *traffic, when string) {
	t.Helper()
	if !s.gone {
		lb := w.theLoadBalancer()
		if err := s.check(w, lb); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if err := s.noticed(seen, lb); err != nil {
			t.Fatalf("%s: %v: %v", when, err, seen)
		}
		if lb.Labels[plan.LabelServiceUID] != string(svc.UID) {
			t.Fatalf("%s: labels %v", when, lb.Labels)
		}
		w.wire.take()
		w.ensure(w.provider(), svc)
		if extra := writes(w.wire.take()); len(extra) > 0 {
			t.Fatalf("%s: a further sync still writes %v", when, extra)
		}
		want := 0
		if svc.Annotations[plan.AnnotationPrefix+"certificate-type"] == "managed" {
			want = 1
		}
		if certs, err := w.api.Certificate.All(t.Context()); err != nil || len(certs) != want {
			t.Fatalf("%s: %d certificates, want %d; %v", when, len(certs), want, err)
		}
		w.remove(w.provider(), svc)
	}
	if left := w.loadBalancers(); len(left) > 0 {
		t.Fatalf("%s: load balancers left: %v", when, left)
	}
	if left, err := w.api.Certificate.All(t.Context()); err != nil || len(left) > 0 {
		t.Fatalf("%s: certificates left: %v, %v", when, left, err)
	}
}

// state describes what a new process finds: load balancers, certificates, and whether an action is running. Identifiers
// and times are left out.
func (w *world) state() string {
	var all []string
	for _, lb := range w.loadBalancers() {
		text := fmt.Sprint(lb.Name, lb.Labels, lb.LoadBalancerType.Name, lb.Algorithm.Type, lb.PublicNet.Enabled, lb.PublicNet.IPv4.DNSPtr,
			lb.PublicNet.IPv6.DNSPtr)
		for _, n := range lb.PrivateNet {
			text += fmt.Sprint(" ", n.IP)
		}
		for _, target := range lb.Targets {
			if target.Server != nil {
				text += fmt.Sprint(" ", target.Server.Server.ID, target.UsePrivateIP)
			}
		}
		for _, l := range lb.Services {
			text += fmt.Sprint(" ", l.Protocol, l.ListenPort, l.DestinationPort, l.Proxyprotocol, l.HealthCheck.Port,
				len(l.HTTP.Certificates))
		}
		all = append(all, text)
	}
	for _, c := range w.certificates() {
		all = append(all, fmt.Sprint(c.Name, c.DomainNames, c.Labels))
	}
	slices.Sort(all)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	return fmt.Sprint(all, w.fake.AwaitIdle(ended) == nil)
}

// TestAnyCallMayFail makes each API call fail once: refused, failed before its effect, and failed after it; or
// with an action that fails, or does not end before the process stops to wait for it. The same process must converge, and clients
// of the Service must notice no more of it than without the error.
func TestAnyCallMayFail(t *testing.T) {
	t.Parallel()
	for _, s := range crashScenarios() {
		if s.comparison {
			continue // its operations are those of a sync
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			runs := ccmtest.Share(t, 11)
			for i, call := range s.fail(t, 0, "") {
				kinds := []string{"refused", "failed", "lost", "action failed", "action hung"}
				switch {
				case strings.HasPrefix(call, "GET /actions/"):
					kinds = kinds[1:2]
				case strings.HasPrefix(call, "GET "):
					kinds = kinds[:2]
				}
				for _, kind := range kinds {
					if runs() {
						s.fail(t, i+1, kind)
					}
				}
			}
		})
	}
}

// fail runs the scenario with an error of call number n, and returns the calls of the first sync.
func (s *crashScenario) fail(t *testing.T, n int, kind string) (calls []string) {
	t.Helper()
	w := newWorld(t, "realistic", 2)
	svc := s.prepare(w)
	s.change(w, svc)
	seen := w.watch()
	w.wire.reset(0, false)
	at, failed := 0, ""
	w.wire.setIntercept(func(r *http.Request) *http.Response {
		if at++; at != n {
			return nil
		}
		failed = r.Method + " " + r.URL.Path
		switch kind {
		case "refused":
			return apiError(http.StatusUnprocessableEntity, "invalid_input")
		case "action failed":
			return w.injectFault(fault.FailAction("action_failed", "injected"))
		case "action hung":
			return w.injectFault(fault.HangAction())
		case "lost":
			if resp, err := w.fake.Transport().RoundTrip(r); err == nil {
				_ = resp.Body.Close()
			}
		}
		return apiError(http.StatusInternalServerError, "server_error")
	})
	cloud := w.provider()
	_ = s.once(w, cloud, svc)
	calls = w.wire.take()
	w.endFaults()
	when := fmt.Sprintf("call %d (%s) %s", n, failed, kind)
	s.converge(w, cloud, svc)
	s.checkEnd(t, w, svc, seen, when)
	w.fake.Close()
	return calls
}

// injectFault gives the next write of the CCM the effect. It returns nil, so that the request goes to the cloud.
func (w *world) injectFault(effect fault.Effect) *http.Response {
	if _, err := w.fake.Faults().Add(w.t.Context(), fault.Rule{Writes: true, First: 1, Effect: effect}); err != nil {
		w.t.Error(err)
	}
	return nil
}

// endFaults ends all faults, and actions that hang go on.
func (w *world) endFaults() {
	w.t.Helper()
	w.must(w.fake.Faults().Clear(w.t.Context()))
	_, err := w.fake.ResumeActions(w.t.Context())
	w.must(err)
}

// noticed returns an error if clients of the Service noticed more of the change than they must.
func (s *crashScenario) noticed(seen *traffic, final *hcloud.LoadBalancer) error {
	for _, p := range seen.closed {
		if slices.Contains(listenPorts(final), p) {
			return fmt.Errorf("port %d was closed for some time", p)
		}
	}
	if seen.fewest < s.floor {
		return fmt.Errorf("%d targets were left, want at least %d", seen.fewest, s.floor)
	}
	for _, p := range s.hidden {
		if slices.Contains(seen.ports, p) {
			return fmt.Errorf("port %d was reachable from the internet", p)
		}
	}
	if !s.moves && len(seen.lost) > 0 {
		return fmt.Errorf("addresses were lost")
	}
	return nil
}

// reconcileRoutes does the same as the route controller, with pod range 10.244.N.0/24 for the N-th
// node. With insist it fails the test if it does not succeed within a few rounds.
func reconcileRoutes(t *testing.T, w *world, cloud *ccm.Cloud, insist bool) {
	t.Helper()
	routes := routesOf(cloud)
	round := func() error {
		existing, err := routes.ListRoutes(t.Context(), "")
		if err != nil {
			return err
		}
		wanted := map[string]types.NodeName{}
		for i, n := range w.nodes {
			wanted[fmt.Sprintf("10.244.%d.0/24", i+1)] = types.NodeName(n.Name)
		}
		for _, r := range existing {
			if node, ok := wanted[r.DestinationCIDR]; ok && node == r.TargetNode {
				delete(wanted, r.DestinationCIDR)
				continue
			}
			if err := routes.DeleteRoute(t.Context(), "", r); err != nil {
				return err
			}
		}
		for destination, node := range wanted {
			if err := routes.CreateRoute(t.Context(), "", "",
				&cloudprovider.Route{TargetNode: node, DestinationCIDR: destination}); err != nil {
				return err
			}
		}
		return nil
	}
	err := round()
	for i := 0; insist && err != nil && i < 10; i++ {
		err = round()
	}
	if insist && err != nil {
		t.Fatal(err)
	}
}
