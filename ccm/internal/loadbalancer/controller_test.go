package loadbalancer_test

import (
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
)

func TestNothingIsCreatedWithInvalidSettings(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	cloud := w.provider()
	svc := newService("web", map[string]string{"algorithm-type": "fastest", "health-check-retries": "17"}, 80)
	w.expectError(cloud, svc)
	if calls := w.wire.take(); len(calls) != 1 || len(writes(calls)) != 0 {
		t.Errorf("calls: %v, want one to find the load balancer", calls)
	}
	events := strings.Join(w.eventsSoFar(), "\n")
	for _, want := range []string{
		`Warning InvalidSettings load-balancer.hetzner.cloud/algorithm-type: "fastest" is not valid: must be round_robin or least_connections`,
		`Warning InvalidSettings load-balancer.hetzner.cloud/health-check-retries: "17" is not valid: must be a number from 1 to 5`,
	} {
		if !strings.Contains(events, want) {
			t.Errorf("missing: %s\nin: %s", want, events)
		}
	}

	noPlace := w.provider(func(c *ccm.Config) { c.LoadBalancerDefaults = nil })
	w.expectError(noPlace, newService("nowhere", nil, 80), "HCLOUD_LOAD_BALANCERS_LOCATION")
	w.expectNoWrites()
}

// The API replaces all labels at once and has no conditional write. A sync starts with a list that may
// be some seconds old, and waits for its actions.
func TestForeignChangesDuringASyncStay(t *testing.T) {
	t.Parallel()
	for name, moment := range map[string]string{
		"after the load balancers were listed": "",
		"while a port is added":                "POST add_service",
		"while a port is deleted":              "POST delete_service",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _, svc := newServingWorld(t, "realistic", 1, nil, 80)
			cloud := w.provider()
			w.ensure(cloud, svc) // changes nothing; the next sync uses the cached list

			done := false
			foreignChange := func() {
				done = true
				lb := w.theLoadBalancer()
				lb.Labels["team"] = "edge"
				if _, _, err := w.api.LoadBalancer.Update(t.Context(), lb,
					hcloud.LoadBalancerUpdateOpts{Name: "edge", Labels: lb.Labels}); err != nil {
					t.Error(err)
				}
			}
			if moment == "" {
				foreignChange()
			} else {
				w.wire.setIntercept(func(r *http.Request) *http.Response {
					if !done && r.Method+" "+path.Base(r.URL.Path) == moment {
						foreignChange()
					}
					return nil
				})
			}
			setPorts(svc, 443)
			w.ensure(cloud, svc)
			lb := w.theLoadBalancer()
			if !done || lb.Labels["team"] != "edge" || lb.Name != "edge" || !slices.Equal(listenPorts(lb), []int{443}) ||
				!slices.Equal(plan.RecordOf(lb).Ports, []int{443}) {
				t.Errorf("foreign change made: %t; name %s, labels %v, ports %v", done, lb.Name, lb.Labels, listenPorts(lb))
			}
		})
	}
}

// Another client has read the labels before the CCM has written them, and writes all of them after it. What is not recorded would
// be foreign, so the CCM creates nothing before its own labels are there again.
func TestLabelsThatAnotherClientHasReplacedAreWrittenAgain(t *testing.T) {
	t.Parallel()
	for _, times := range []int{1, 3, 1000} {
		w, cloud, svc := newServingWorld(t, "instant", 1, nil, 80)
		before := w.theLoadBalancer()
		theirs := maps.Clone(before.Labels)
		theirs["team"] = "edge"
		undone, created := 0, false
		w.wire.setObserve(func() {
			if lb := w.theLoadBalancer(); undone < times && slices.Contains(plan.RecordOf(lb).Ports, 443) {
				undone++
				w.setLabels(lb, theirs)
			}
		})
		w.wire.setIntercept(func(r *http.Request) *http.Response {
			if path.Base(r.URL.Path) == "add_service" {
				if created = true; !slices.Contains(plan.RecordOf(w.theLoadBalancer()).Ports, 443) {
					t.Errorf("undone %d times: a port is created that is not recorded", undone)
				}
			}
			return nil
		})
		setPorts(svc, 443)
		_, err := w.tryEnsure(cloud, svc)
		if lb := w.theLoadBalancer(); lb.Labels["team"] != "edge" || created != (times < 3) || (err == nil) != created {
			t.Errorf("undone %d times: created %t, labels %v, %v", undone, created, lb.Labels, err)
		}
	}
}

func TestALoadBalancerThatLosesItsLabelDuringASyncIsReleased(t *testing.T) {
	t.Parallel()
	w, cloud, svc := newServingWorld(t, "realistic", 1, nil, 80)
	w.wire.setIntercept(func(r *http.Request) *http.Response {
		if path.Base(r.URL.Path) == "delete_service" {
			w.setLabels(w.theLoadBalancer(), map[string]string{"team": "edge"})
		}
		return nil
	})
	setPorts(svc, 443)
	w.expectError(cloud, svc, "was changed during the sync")
	if labels := w.theLoadBalancer().Labels; len(labels) != 1 || labels["team"] != "edge" {
		t.Errorf("labels %v", labels)
	}
}

// What a person has set up serves until the load balancer certainly serves the Service.
func TestAnAdoptedLoadBalancerLosesNothingBeforeItServesTheService(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string]string{"the port": "add_service", "the targets": "add_target",
		"the attachment": "attach_to_network", "to be private": "disable_public_interface"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "instant", 2)
			machine, _ := w.addServer("not-a-node")
			w.nodes = w.nodes[:2]
			const dest = 8080
			made := w.create(hcloud.LoadBalancerCreateOpts{Name: "edge",
				Algorithm: &hcloud.LoadBalancerAlgorithm{Type: "least_connections"},
				Services:  []hcloud.LoadBalancerCreateOptsService{tcp(80, dest)},
				Targets:   []hcloud.LoadBalancerCreateOptsTarget{serverTarget(machine)}})
			w.refuseAs(422, "service_error", func(r *http.Request) bool { return path.Base(r.URL.Path) == refused })
			svc := newService("web", map[string]string{"name": "edge", "algorithm-type": "round_robin", "use-private-ip": "true"}, 80, 443)
			private := refused == "disable_public_interface"
			if private {
				annotate(svc, map[string]string{"disable-public-network": "true"})
			}
			for range 3 { // also with another process, which does not know of the adoption
				w.expectError(w.provider(), svc)
			}
			lb := w.theLoadBalancer()
			if lb.Services[0].DestinationPort != dest || !private &&
				(lb.Algorithm.Type != "least_connections" || !slices.Contains(targetIDs(lb), machine.ID)) {
				t.Errorf("services %+v, algorithm %v, targets %v", lb.Services, lb.Algorithm, targetIDs(lb))
			}
			w.wire.setIntercept(nil)
			for range 2 { // the target of the person leaves when those of the Service are healthy
				w.ensure(w.provider(), svc)
				w.clock.Step(30 * time.Second)
			}
			lb = w.theLoadBalancer()
			if lb.ID != made.ID || !slices.Equal(listenPorts(lb), []int{80, 443}) || lb.Services[0].DestinationPort != 30080 ||
				lb.Algorithm.Type != "round_robin" || !slices.Equal(targetIDs(lb), serverIDs(w.nodes)) {
				t.Errorf("services %+v, algorithm %v, targets %v", lb.Services, lb.Algorithm, targetIDs(lb))
			}
		})
	}
}

// A person who removes the label wants to keep the load balancer.
func TestALoadBalancerWhoseLabelWasRemovedIsNotAdoptedAgain(t *testing.T) {
	t.Parallel()
	for name, annotations := range map[string]map[string]string{
		"with the default name": nil,
		"with a name":           {"name": "edge"},
		"with a hostname":       {"name": "edge", "hostname": "web.example.org"},
		"private":               {"name": "edge", "disable-public-network": "true"}, // its address may be another one's later
		"without a location":    {"location": ""},
	} {
		for _, all := range []bool{false, true} {
			if all && annotations["name"] != "" {
				continue // TestTerraformReplacesTheLabelsOfItsLoadBalancer
			}
			t.Run(fmt.Sprintf("%s, all labels: %t", name, all), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, "instant", 2)
				svc := newService("web", nil, 80)
				for k, v := range annotations {
					if v != "" {
						annotate(svc, map[string]string{k: v})
					}
				}
				w.ensure(w.provider(), svc)
				lb := w.theLoadBalancer()
				kept := map[string]string{}
				if !all {
					kept = lb.Labels
					delete(kept, plan.LabelServiceUID)
				}
				w.setLabels(lb, kept)
				w.eventsSoFar()

				cloud := w.provider(func(c *ccm.Config) {
					if _, ok := annotations["location"]; ok {
						c.LoadBalancerDefaults = nil
					}
				})
				w.nodes = w.nodes[:1]
				w.expectError(cloud, svc)
				if events := strings.Join(w.eventsSoFar(), "\n"); name != "without a location" &&
					(!strings.Contains(events, "Warning CloudLoadBalancerNotOwned") || !strings.Contains(events, plan.LabelServiceUID+
						"=uid-web")) {
					t.Errorf("events: %s", events)
				}
				w.remove(cloud, svc.DeepCopy())
				if got := w.theLoadBalancer(); got.ID != lb.ID || got.Labels[plan.LabelServiceUID] != "" || len(got.Targets) != 2 {
					t.Errorf("%+v", got)
				}

				// A new Service may ask for it by its name.
				if annotations["name"] != "" {
					next := newService("next", annotations, 80)
					w.ensure(cloud, next)
					w.expectEvent("Normal AdoptedCloudLoadBalancer")
					if got := w.theLoadBalancer(); got.ID != lb.ID || got.Labels[plan.LabelServiceUID] != "uid-next" {
						t.Errorf("%+v", got)
					}
					return
				}
				// Or a person gives it back.
				kept[plan.LabelServiceUID] = "uid-web"
				w.setLabels(lb, kept)
				w.ensure(cloud, svc)
				if got := w.theLoadBalancer(); got.ID != lb.ID || len(got.Targets) != 1 {
					t.Errorf("%+v", got)
				}
			})
		}
	}
}

func TestADeletedLoadBalancerIsCreatedAgain(t *testing.T) {
	t.Parallel()
	w, cloud, svc := newServingWorld(t, "instant", 1, nil, 80)
	old := w.theLoadBalancer()
	w.deleteLoadBalancer(old)
	if err := controllerOf(cloud).UpdateLoadBalancer(t.Context(), "", svc, w.nodes); err == nil || len(w.loadBalancers()) != 0 {
		t.Errorf("UpdateLoadBalancer must not create a load balancer, because it cannot write the address to the Service: %v", err)
	}
	w.ensure(cloud, svc)
	if got := w.theLoadBalancer(); got.ID == old.ID {
		t.Error("got the old load balancer, want a new one")
	}
}

// A person protects the load balancer after it was read.
func TestALoadBalancerThatIsProtectedAtTheLastMomentIsReported(t *testing.T) {
	t.Parallel()
	w, cloud, svc := newServingWorld(t, "instant", 1, nil, 80)
	w.eventsSoFar()
	w.refuseAs(http.StatusLocked, "protected", func(r *http.Request) bool { return r.Method == http.MethodDelete })
	if err := controllerOf(cloud).EnsureLoadBalancerDeleted(t.Context(), "", doomed(svc)); err == nil {
		t.Error("no error")
	}
	w.expectEvent("Warning CloudLoadBalancerProtected", "delete-protection to false")
}

func TestTheNameOfALoadBalancer(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"": "auidweb", " edge ": "edge", " ": "auidweb"} {
		cloud := newWorld(t, "instant", 0).provider()
		svc := newService("web", map[string]string{"name": name}, 80)
		if got := controllerOf(cloud).GetLoadBalancerName(t.Context(), "", svc); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// A gateway with a wrong path answers so for a moment.
func TestNotFoundLeavesNeitherALoadBalancerNorAPortWithoutAnOwner(t *testing.T) {
	t.Parallel()
	w, cloud, svc := newServingWorld(t, "instant", 1, nil, 80, 443)
	lies := func(selected func(*http.Request) bool) {
		var once sync.Once
		w.wire.setIntercept(func(r *http.Request) (answer *http.Response) {
			if selected(r) {
				once.Do(func() { answer = apiError(http.StatusNotFound, "not_found") })
			}
			return answer
		})
	}

	lies(func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/delete_service") })
	setPorts(svc, 80)
	w.expectError(cloud, svc)
	w.ensure(cloud, svc)
	if lb := w.theLoadBalancer(); !slices.Equal(listenPorts(lb), []int{80}) {
		t.Errorf("the load balancer listens on %v", listenPorts(lb))
	}

	lies(func(r *http.Request) bool { return r.Method == http.MethodDelete })
	if err := controllerOf(cloud).EnsureLoadBalancerDeleted(t.Context(), "", doomed(svc)); err == nil {
		t.Error("the load balancer counts as deleted")
	}
	w.remove(cloud, svc)
	w.expectNone()
}

// A person may copy the labels of one load balancer to another.
func TestALoadBalancerWithACopiedLabelIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		annotations map[string]string
		// status reports whether the Service's status shows which load balancer is in use.
		status bool
		// older makes the stranger the one with the lower ID.
		older bool
	}{
		"a public address":              {nil, true, false},
		"a public address, older":       {nil, true, true},
		"only a private address":        {map[string]string{"disable-public-network": "true"}, true, false},
		"only a private address, older": {map[string]string{"disable-public-network": "true"}, true, true},
		"a hostname":                    {map[string]string{"hostname": "web.example.org"}, false, false},
		"a hostname, older":             {map[string]string{"hostname": "web.example.org"}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "instant", 1)
			var stranger *hcloud.LoadBalancer
			makeStranger := func() {
				stranger = w.create(hcloud.LoadBalancerCreateOpts{Name: "stranger",
					Services: []hcloud.LoadBalancerCreateOptsService{tcp(443, 30443)}})
			}
			if tc.older {
				makeStranger()
			}
			svc := newService("web", tc.annotations, 80)
			w.ensure(w.provider(), svc)
			if !tc.older {
				makeStranger()
			}
			i := slices.IndexFunc(w.loadBalancers(), func(lb *hcloud.LoadBalancer) bool { return lb.ID != stranger.ID })
			ours := w.loadBalancers()[i]
			w.setLabels(stranger, ours.Labels)
			w.eventsSoFar()

			cloud := w.provider()
			lbs, _ := cloud.LoadBalancer()
			setPorts(svc, 80, 81)
			_, err := w.tryEnsure(cloud, svc)
			if (err == nil) != tc.status {
				t.Errorf("got %v", err)
			}
			w.expectEvent("Warning SeveralCloudLoadBalancers", itoa(stranger.ID))
			want := []int{80}
			if tc.status { // it is certain which one serves the Service, so it follows the Service
				want = []int{80, 81}
			}
			now, _, err := w.api.LoadBalancer.GetByID(t.Context(), ours.ID)
			if err != nil || now == nil || !slices.Equal(listenPorts(now), want) {
				t.Errorf("%v, the Service's own: %+v", err, now)
			}
			if now, _, err = w.api.LoadBalancer.GetByID(t.Context(), stranger.ID); err != nil || now == nil ||
				!slices.Equal(listenPorts(now), []int{443}) || len(now.Targets) != 0 {
				t.Errorf("%v, the stranger: %+v", err, now)
			}

			if _, exists, err := lbs.GetLoadBalancer(t.Context(), "", svc); !exists || err != nil {
				t.Errorf("exists: %t, %v", exists, err)
			}
			if err := lbs.EnsureLoadBalancerDeleted(t.Context(), "", doomed(svc)); err == nil || len(w.loadBalancers()) != 2 {
				t.Errorf("deleting: %v, %d left", err, len(w.loadBalancers()))
			}
			// A person decides.
			w.setLabels(stranger, map[string]string{})
			w.ensure(cloud, svc)
			w.remove(cloud, svc)
			if left := w.loadBalancers(); len(left) != 1 || left[0].ID != stranger.ID {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// An entry moves to an earlier page when another one is deleted while the pages are read.
func TestALoadBalancerThatMovesToAnotherPageIsFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	var others []*hcloud.LoadBalancer
	for i := range 50 {
		made := w.create(hcloud.LoadBalancerCreateOpts{Name: fmt.Sprintf("other-%d", i),
			Labels: map[string]string{plan.LabelServiceUID: fmt.Sprintf("other-%d", i)}})
		others = append(others, made)
	}
	svc := newService("web", nil, 80)
	before := w.ensure(w.provider(), svc)
	last := w.loadBalancers()[50]
	_, _, err := w.api.LoadBalancer.Update(t.Context(), last, hcloud.LoadBalancerUpdateOpts{Name: "renamed by a person"})
	w.must(err)

	raced := false
	w.wire.setIntercept(func(r *http.Request) *http.Response {
		if r.URL.Query().Get("page") == "2" && !raced {
			raced = true
			w.deleteLoadBalancer(others[0])
		}
		return nil
	})
	after := w.ensure(w.provider(), svc)
	if len(w.loadBalancers()) != 50 || after.Ingress[0].IP != before.Ingress[0].IP {
		t.Errorf("%d load balancers, want 50; address %s, was %s", len(w.loadBalancers()), after.Ingress[0].IP, before.Ingress[0].IP)
	}
	if !raced {
		t.Error("there was no second page")
	}
}

// An action that hangs locks one load balancer. It must not keep a worker of the service controller.
func TestAHangingActionDelaysNoOtherService(t *testing.T) {
	t.Parallel()
	for _, route := range []string{"POST /load_balancers", "POST /load_balancers/{id}/actions/add_service"} {
		t.Run(route, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "instant", 1)
			cloud := w.provider()
			var services []*corev1.Service
			for i := range 3 {
				svc := newService(fmt.Sprintf("s%d", i), nil, int32(8000+i))
				if route != "POST /load_balancers" {
					w.ensure(cloud, svc)
					setPorts(svc, int32(8000+i), int32(9000+i))
				}
				services = append(services, svc)
			}
			_, err := w.fake.Faults().Add(t.Context(), fault.Rule{Method: http.MethodPost, Route: strings.TrimPrefix(route, "POST "),
				Effect: fault.HangAction()})
			w.must(err)
			round := func() (took time.Duration, calls int) {
				w.wire.take()
				start := w.clock.Now()
				for _, svc := range services {
					w.expectError(cloud, svc)
				}
				return w.clock.Since(start), len(w.wire.take())
			}
			first, _ := round()
			later, calls := round()
			t.Logf("three Services: %v, later %v with %d calls", first, later, calls)
			if first > 40*time.Second || later > time.Second || calls > 6 {
				t.Errorf("three hanging Services keep one worker for %v, later for %v (%d calls)", first, later, calls)
			}
			w.endFaults()
			for _, svc := range services {
				w.ensure(cloud, svc)
			}
			for _, lb := range w.loadBalancers() {
				if len(lb.Targets) != 1 || len(lb.Services) == 0 {
					t.Errorf("%+v", lb)
				}
			}
		})
	}
}

// An action that hung ends after the load balancer was read. The port that it adds is known to belong to the Service.
func TestAPortThatASlowActionAddsIsNotForgotten(t *testing.T) {
	t.Parallel()
	w, cloud, svc := newServingWorld(t, "instant", 1, nil, 80)
	_, err := w.fake.Faults().Add(t.Context(), fault.Rule{Method: http.MethodPost, Route: "/load_balancers/{id}/actions/add_service",
		Effect: fault.HangAction()})
	w.must(err)
	setPorts(svc, 80, 81)
	w.expectError(cloud, svc)
	w.must(w.fake.Faults().Clear(t.Context()))
	w.wire.intercept = func(r *http.Request) *http.Response {
		if strings.Contains(r.URL.Path, "/actions/") && r.Method == http.MethodGet {
			_, err := w.fake.ResumeActions(t.Context())
			w.must(err)
		}
		return nil
	}
	setPorts(svc, 80, 82)
	w.ensure(cloud, svc)
	if got := listenPorts(w.theLoadBalancer()); !slices.Equal(got, []int{80, 82}) {
		t.Errorf("ports %v, want 80 and 82", got)
	}
}
