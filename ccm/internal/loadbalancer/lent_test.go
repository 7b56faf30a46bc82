package loadbalancer_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// primaryIP makes a Primary IP that is not assigned.
func (w *world) primaryIP(name string, kind hcloud.PrimaryIPType, location string) *hcloud.PrimaryIP {
	w.t.Helper()
	result, _, err := w.api.PrimaryIP.Create(w.t.Context(), hcloud.PrimaryIPCreateOpts{Name: name, Type: kind, Location: location,
		AutoDelete: new(false)})
	w.must(err)
	return result.PrimaryIP
}

func TestALoadBalancerGetsPrimaryIPs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	v4, v6 := w.primaryIP("edge-4", hcloud.PrimaryIPTypeIPv4, "fsn1"), w.primaryIP("edge-6", hcloud.PrimaryIPTypeIPv6, "fsn1")
	for name, annotations := range map[string]map[string]string{ // the addresses outlive the Service
		"first":  {"primary-ipv4": "edge-4", "primary-ipv6": itoa(v6.ID)},
		"second": {"public-net-ipv4": itoa(v4.ID), "public-net-ipv6": itoa(v6.ID)},
	} {
		cloud := w.provider()
		svc := newService(name, annotations, 80)
		w.eventsSoFar()
		status := w.ensure(cloud, svc)
		lb := w.theLoadBalancer()
		if lb.PublicNet.IPv4.ID != v4.ID || lb.PublicNet.IPv6.ID != v6.ID || status.Ingress[0].IP != v4.IP.String() {
			t.Errorf("%s: got %+v, status %+v", name, lb.PublicNet, status)
		}
		w.ensure(cloud, svc)
		w.wire.take()
		w.clock.Step(1e9)
		w.ensure(cloud, svc)
		if calls := w.wire.take(); len(calls) > 1 {
			t.Errorf("a sync without a change takes %v", calls)
		}
		if events := strings.Join(w.eventsSoFar(), "\n"); strings.Contains(events, "Warning") {
			t.Errorf("events:\n%s", events)
		}
		w.remove(cloud, svc)
	}
}

func TestAPrimaryIPThatCannotBeHad(t *testing.T) {
	t.Parallel()
	for value, reason := range map[string]string{
		"none":      "does not exist",
		"edge-6":    "is of type ipv6: must be a Primary IP of type ipv4",
		"elsewhere": "is in location nbg1: must be in fsn1",
		"taken":     "is assigned to load_balancer",
	} {
		t.Run(value, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "instant", 1)
			w.primaryIP("edge-6", hcloud.PrimaryIPTypeIPv6, "fsn1")
			w.primaryIP("elsewhere", hcloud.PrimaryIPTypeIPv4, "nbg1")
			w.primaryIP("free", hcloud.PrimaryIPTypeIPv4, "fsn1")
			taken := w.primaryIP("taken", hcloud.PrimaryIPTypeIPv4, "fsn1")
			w.create(hcloud.LoadBalancerCreateOpts{Name: "other", PublicNet: &hcloud.LoadBalancerCreateOptsPublicNet{IPv4: taken}})
			svc := newService("web", map[string]string{"primary-ipv4": value, "location": "fsn1"}, 80)
			w.expectError(w.provider(), svc)
			w.expectEvent("Warning InvalidSettings", "primary-ipv4", fmt.Sprintf("%q %s", value, reason),
				"no load balancer is created until this is corrected")
			w.expectNoWrites()
			annotate(svc, map[string]string{"primary-ipv4": "free"})
			w.ensure(w.provider(), svc)
		})
	}
}

func TestTheAddressesOfALoadBalancerCannotChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	ip := w.primaryIP("edge-4", hcloud.PrimaryIPTypeIPv4, "fsn1")
	_, _, err := w.api.PrimaryIP.Update(t.Context(), ip, hcloud.PrimaryIPUpdateOpts{AutoDelete: new(true)})
	w.must(err)
	cloud := w.provider()
	svc := newService("web", nil, 80)
	w.ensure(cloud, svc)
	annotate(svc, map[string]string{"primary-ipv4": "edge-4"})
	setPorts(svc, 80, 81)
	w.ensure(cloud, svc)
	w.expectEvent("Warning AddressCannotChange", "primary-ipv4", "delete and create the Service")
	w.ensure(cloud, newService("web", map[string]string{"public-net-ipv4": itoa(ip.ID)}, 80, 81))
	w.expectEvent("Warning AddressCannotChange", "public-net-ipv4", "delete and create the Service")
	if lb := w.theLoadBalancer(); !slices.Equal(listenPorts(lb), []int{80, 81}) {
		t.Errorf("ports %v", listenPorts(lb))
	}
	w.ensure(cloud, newService("other", map[string]string{"primary-ipv4": "edge-4"}, 80))
	w.expectEvent("Warning AddressCannotChange", "auto_delete")
}

// lend makes a load balancer that serves others: a port, a server without a Node, a target by label.
func (w *world) lend(name string) (lb *hcloud.LoadBalancer, stranger int64) {
	w.t.Helper()
	server, _ := w.addServer("stranger")
	w.nodes = w.nodes[:len(w.nodes)-1]
	result := w.create(hcloud.LoadBalancerCreateOpts{Name: name, LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb21"},
		Labels: map[string]string{"team": "edge"}, Algorithm: &hcloud.LoadBalancerAlgorithm{Type: "least_connections"},
		Services: []hcloud.LoadBalancerCreateOptsService{tcp(9000, 9001)},
		Targets: []hcloud.LoadBalancerCreateOptsTarget{serverTarget(server),
			{Type: "label_selector", LabelSelector: hcloud.LoadBalancerCreateOptsTargetLabelSelector{Selector: "role=spare"}}}})
	return result, server.ID
}

func TestALentLoadBalancerIsUsedAndGivenBack(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"ID", "name"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			eachDeath(t, func(cutAt int, after bool) []string {
				w := newWorld(t, "instant", 2)
				lent, stranger := w.lend("front")
				adopt := "front"
				if by == "ID" {
					adopt = itoa(lent.ID)
				}
				svc := newService("web", map[string]string{"adopt": adopt}, 80)
				both := slices.Sorted(slices.Values(append(serverIDs(w.nodes), stranger)))
				w.wire.reset(cutAt, after)
				_, _ = w.tryEnsure(w.provider(), svc)
				calls := w.wire.take()
				w.wire.reset(0, false)
				w.ensure(w.provider(), svc)
				lb := w.theLoadBalancer()
				if lb.ID != lent.ID || lb.Name != "front" || lb.LoadBalancerType.Name != "lb21" ||
					lb.Algorithm.Type != "least_connections" ||
					!slices.Equal(listenPorts(lb), []int{80, 9000}) || !slices.Equal(targetIDs(lb), both) || len(lb.Targets) != 4 {
					t.Fatalf("died at call %d (answered: %t): got %+v", cutAt, after, lb)
				}

				_, next := w.addServer("node-3")
				w.nodes = append(w.nodes[1:2], next)
				w.ensure(w.provider(), svc)
				both = slices.Sorted(slices.Values(append(serverIDs(w.nodes), stranger)))
				if lb = w.theLoadBalancer(); !slices.Equal(targetIDs(lb), both) {
					t.Fatalf("targets %v, want %v", targetIDs(lb), both)
				}
				w.expectQuiet(w.provider(), svc)
				w.remove(w.provider(), svc)
				if lb = w.theLoadBalancer(); !slices.Equal(listenPorts(lb), []int{9000}) ||
					!maps.Equal(lb.Labels, map[string]string{"team": "edge"}) || !slices.Contains(targetIDs(lb), stranger) {
					t.Fatalf("died at call %d (answered: %t): got back %+v", cutAt, after, lb)
				}
				w.fake.Close()
				return calls
			})
		})
	}
}

func TestALentLoadBalancerKeepsItsInterfaceAndItsNetwork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	other := w.otherNetwork()
	w.create(hcloud.LoadBalancerCreateOpts{Name: "front", Network: other, PublicInterface: new(false)})
	svc := newService("web", map[string]string{"adopt": "front"}, 80)
	seen := w.watch()
	if _, err := w.tryEnsure(w.provider(), svc); err != nil {
		t.Error(err)
	}
	w.expectEvent("Warning IgnoredSetting", "is attached to network", "HCLOUD_NETWORK")
	if lb := w.theLoadBalancer(); lb.PublicNet.Enabled || seen.exposed > 0 || lb.PrivateNet[0].Network.ID != other.ID ||
		!slices.Equal(listenPorts(lb), []int{80}) {
		t.Errorf("%v; got %+v", seen, lb)
	}
	annotate(svc, map[string]string{"keep-on-delete": "false"})
	w.remove(w.provider(), svc)
	w.expectNone()
}

// A load balancer that does not exist, or that is another Service's, is not replaced by a new one.
func TestALoadBalancerThatCannotBeLent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	cloud := w.provider()
	svc := newService("web", map[string]string{"adopt": "front"}, 80)
	w.expectError(cloud, svc)
	w.expectEvent("Warning InvalidSettings", "adopt", `"front" does not exist`)
	first := newService("first", nil, 80)
	w.ensure(cloud, first)
	annotate(svc, map[string]string{"adopt": itoa(w.theLoadBalancer().ID)})
	w.eventsSoFar()
	w.expectError(cloud, svc)
	w.expectEvent("Warning CloudLoadBalancerOwnedByAnother", "uid-first")
	annotate(first, map[string]string{"adopt": "front"})
	w.ensure(cloud, first)
	w.expectEvent("Warning IgnoredSetting", "adopt", "has load balancer")
	if n := len(w.loadBalancers()); n != 1 {
		t.Errorf("%d load balancers", n)
	}
	w.remove(cloud, first)
	w.expectNone() // it was never lent
}

// Two Services ask for the same load balancer at the same time, by its name and by its ID.
func TestOneServiceGetsALentLoadBalancer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	lent, _ := w.lend("front")
	cloud := w.provider()
	first, second := newService("first", map[string]string{"adopt": "front"}, 80),
		newService("second", map[string]string{"adopt": itoa(lent.ID)}, 81)
	done := make(chan error, 2)
	for _, svc := range []*corev1.Service{first, second} {
		go func() {
			_, err := w.tryEnsure(cloud, svc)
			done <- err
		}()
	}
	failed := 0
	for range 2 {
		if <-done != nil {
			failed++
		}
	}
	if owner := w.theLoadBalancer().Labels[plan.LabelServiceUID]; failed != 1 || owner == "" {
		t.Errorf("%d of two failed, the owner is %q", failed, owner)
	}
}

// An API before October 2026 ignores the field for Primary IPs. The Service says so.
func TestAnAPIThatKnowsNoPrimaryIPs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	w.primaryIP("edge-4", hcloud.PrimaryIPTypeIPv4, "fsn1")
	w.wire.setIntercept(func(r *http.Request) *http.Response {
		if req := readRequest(t, r); req.what == "POST load_balancers" && req.body["public_net"] != nil {
			delete(req.body, "public_net")
			w.replaceBody(r, req.body)
		}
		return nil
	})
	w.ensure(w.provider(), newService("web", map[string]string{"primary-ipv4": "edge-4"}, 80))
	w.expectEvent("Warning AddressCannotChange", "primary-ipv4")
}

// replaceBody sets the body of a request.
func (w *world) replaceBody(r *http.Request, body any) {
	w.t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		w.t.Error(err)
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
}

// Terraform replaces all labels of its load balancer, or all but some. The targets still follow the nodes, and the load balancer outlives
// its Service.
func TestTerraformReplacesTheLabelsOfItsLoadBalancer(t *testing.T) {
	t.Parallel()
	for _, annotation := range []string{"name", "adopt"} {
		for left, labels := range map[string][]string{"none": nil, "the production CCM's": {plan.LabelServiceUIDHcloud},
			"the owner's": {plan.LabelServiceUID}, "both": {plan.LabelServiceUID, plan.LabelServiceUIDHcloud}} {
			for _, followed := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, %s is left, the sync follows: %t", annotation, left, followed), func(t *testing.T) {
					t.Parallel()
					w := newWorld(t, "instant", 2)
					w.create(hcloud.LoadBalancerCreateOpts{Name: "edge", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"},
						Location: &hcloud.Location{Name: "fsn1"}})
					all := w.nodes
					w.nodes = all[:1]
					cloud, svc := w.provider(), newService("web", map[string]string{annotation: "edge"}, 80)
					svc.Status.LoadBalancer = *w.ensure(cloud, svc)
					replaced := map[string]string{"made-by": "terraform"}
					for _, key := range labels {
						replaced[key] = string(svc.UID)
					}
					w.setLabels(w.theLoadBalancer(), replaced)
					if annotation == "adopt" && left == "the production CCM's" {
						_, _, err := w.api.LoadBalancer.Update(t.Context(), w.theLoadBalancer(),
							hcloud.LoadBalancerUpdateOpts{Name: "front"})
						w.must(err)
					}
					w.clock.Step(time.Minute)
					if w.nodes = all; followed {
						w.ensure(cloud, svc)
						w.expectTargets(serverIDs(all))
					}
					w.remove(cloud, svc)
					if lb := w.theLoadBalancer(); lb.Labels["made-by"] != "terraform" || lb.Labels[plan.LabelServiceUID] != "" && followed {
						t.Errorf("labels %v", lb.Labels)
					} else if unseen := left == "none" && !followed; slices.Contains(listenPorts(lb), 80) != unseen {
						t.Errorf("ports %v", listenPorts(lb))
					}
				})
			}
		}
	}
}
