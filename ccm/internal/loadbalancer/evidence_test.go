package loadbalancer_test

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/resync"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// evidenceWorld is a world with another project and a token file.
type evidenceWorld struct {
	*world
	file     string
	other    string // token of the other project
	otherAPI *hcloud.Client
	services []*corev1.Service
}

func newEvidenceWorld(t *testing.T, servers, services int) *evidenceWorld {
	t.Helper()
	w := &evidenceWorld{world: newWorld(t, "instant", servers), file: filepath.Join(t.TempDir(), "token")}
	w.rotate(fakecloud.DefaultToken)
	var err error
	_, w.other, err = w.fake.AddProject(t.Context(), "other", "")
	w.must(err)
	w.otherAPI = w.fake.Client(hcloud.WithToken(w.other))
	// The other project has a network and a server with the same names.
	network, _, err := w.otherAPI.Network.Create(t.Context(), hcloud.NetworkCreateOpts{Name: "internal", IPRange: cidr("10.0.0.0/8"),
		Subnets: []hcloud.NetworkSubnet{{Type: hcloud.NetworkSubnetTypeCloud, NetworkZone: hcloud.NetworkZoneEUCentral,
			IPRange: cidr("10.0.0.0/16")}}})
	w.must(err)
	_, _, err = w.otherAPI.Server.Create(t.Context(), hcloud.ServerCreateOpts{Name: "node-1", ServerType: &hcloud.ServerType{Name: "cx23"},
		Image: &hcloud.Image{Name: "ubuntu-24.04"}, Location: &hcloud.Location{Name: "fsn1"}, Networks: []*hcloud.Network{network}})
	w.must(err)
	cloud, _ := w.start()
	for i := range services {
		svc := newService(fmt.Sprintf("s%d", i), nil, int32(8000+i))
		w.ensure(cloud, svc)
		w.services = append(w.services, svc)
	}
	reconcileRoutes(t, w.world, cloud, true)
	return w
}

// rotate writes the token to the file.
func (w *evidenceWorld) rotate(token string) {
	w.t.Helper()
	if err := os.WriteFile(w.file, []byte(token), 0o600); err != nil {
		w.t.Fatal(err)
	}
	// The CCM compares the time and the size of the file, which may be equal for two quick writes.
	at := time.Unix(1_700_000_000+int64(len(w.wire.calls)), int64(len(token)+int(token[0])))
	if err := os.Chtimes(w.file, at, at); err != nil {
		w.t.Fatal(err)
	}
}

// start returns a new CCM that knows the Nodes and Services.
func (w *evidenceWorld) start(change ...func(*ccm.Config)) (*ccm.Cloud, *resync.Comparison) {
	change = append(change, func(c *ccm.Config) { c.Token, c.TokenFile = "", w.file })
	cloud := w.provider(change...)
	var objects []runtime.Object
	for _, svc := range w.services {
		objects = append(objects, svc)
	}
	r, _ := w.resyncOf(cloud, objects...)
	return cloud, r
}

// gone returns the names of the Nodes whose server the CCM says does not exist.
func (w *evidenceWorld) gone(cloud *ccm.Cloud) (names []string) {
	instances, _ := cloud.InstancesV2()
	for _, n := range w.nodes {
		if exists, err := instances.InstanceExists(w.t.Context(), n); err == nil && !exists {
			names = append(names, n.Name)
		}
	}
	return names
}

func TestTheTokenOfAnotherProjectDeletesAndCreatesNothing(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart: %t", restart), func(t *testing.T) {
			t.Parallel()
			w := newEvidenceWorld(t, 3, 2)
			cloud, r := w.start()
			lbs, _ := cloud.LoadBalancer()
			for _, svc := range w.services {
				w.ensure(cloud, svc)
			}
			if gone := w.gone(cloud); len(gone) != 0 || cloud.Ready() != nil {
				t.Fatal(gone, cloud.Ready())
			}
			w.rotate(w.other)
			w.clock.Step(time.Minute)
			if restart {
				cloud, r = w.start()
				lbs, _ = cloud.LoadBalancer()
			}
			w.wire.take()
			w.eventsSoFar()

			for range 20 {
				if gone := w.gone(cloud); len(gone) != 0 {
					t.Errorf("Nodes %v would be deleted", gone)
				}
				w.clock.Step(time.Minute) // the project never becomes right by waiting
			}
			for _, svc := range w.services {
				w.expectError(cloud, svc)
				if err := lbs.EnsureLoadBalancerDeleted(t.Context(), "", doomed(svc)); err == nil {
					t.Error("a Service would be deleted without its load balancer")
				}
				deleted := svc.DeepCopy()
				deleted.DeletionTimestamp = w.nowPtr()
				w.expectStays(cloud, deleted)
			}
			w.expectError(cloud, newService("new", nil, 80))
			r.SyncLoadBalancers(t.Context())
			routes, _ := cloud.Routes()
			if r.SyncRoutes(t.Context()) || routes.CreateRoute(t.Context(), "", "",
				&cloudprovider.Route{TargetNode: "node-1", DestinationCIDR: "10.244.1.0/24"}) == nil {
				t.Error("no error of routes")
			}
			newNode := w.nodes[0].DeepCopy()
			newNode.Name, newNode.Spec.ProviderID = "node-1", ""
			instances, _ := cloud.InstancesV2()
			if meta, err := instances.InstanceMetadata(t.Context(), newNode); err == nil {
				t.Errorf("a new Node becomes the other project's server: %+v", meta)
			}

			if calls := w.wire.take(); len(writes(calls)) != 0 {
				t.Errorf("writes: %v", writes(calls))
			} else {
				t.Logf("%d reads in 20 minutes with 3 NotReady nodes", len(calls))
			}
			events := strings.Join(w.eventsSoFar(), "\n")
			if strings.Count(events, "Warning CloudAnswerDoubted none of the cluster's 3 servers and 2 load balancers is visible with "+
				"this token") < 3 {
				t.Errorf("events: %s", events)
			}
			if err := cloud.Ready(); err == nil || !strings.Contains(err.Error(), "another project") {
				t.Errorf("ready: %v", err)
			}
			if err := testutil.GatherAndCompare(cloud.Metrics(), strings.NewReader(doubtMetric(1, 0, 0)),
				"ccm_answers_doubted"); err != nil {
				t.Error(err)
			}

			w.rotate(fakecloud.DefaultToken)
			w.clock.Step(time.Minute)
			if gone := w.gone(cloud); len(gone) != 0 || cloud.Ready() != nil {
				t.Errorf("with the right token: %v, %v", gone, cloud.Ready())
			}
			for _, svc := range w.services {
				before := svc.Status.LoadBalancer.Ingress[0].IP
				if after := w.ensure(cloud, svc); after.Ingress[0].IP != before {
					t.Errorf("the address changed from %s to %s", before, after.Ingress[0].IP)
				}
			}
			if !r.SyncRoutes(t.Context()) || len(w.networkRoutes()) != 3 {
				t.Errorf("routes %v", w.networkRoutes())
			}
		})
	}
}

func doubtMetric(project, servers, loadBalancers int) string {
	return fmt.Sprintf(`# HELP ccm_answers_doubted 1 while the provider does not believe that servers or load balancers are gone, by reason.
# TYPE ccm_answers_doubted gauge
ccm_answers_doubted{reason="load_balancers_disappeared"} %d
ccm_answers_doubted{reason="other_project"} %d
ccm_answers_doubted{reason="servers_disappeared"} %d
`, loadBalancers, project, servers)
}

// Nothing of a fresh cluster could show that the token is wrong, but that none of its Nodes finds a server.
func TestAFreshClusterWaitsForItsFirstNode(t *testing.T) {
	t.Parallel()
	w := newEvidenceWorld(t, 2, 0)
	fresh := corev1.Taint{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule}
	for _, n := range w.nodes {
		n.Spec.ProviderID, n.Spec.Taints = "", []corev1.Taint{fresh}
	}
	w.rotate(w.other)
	cloud, _ := w.start()
	svc := newService("web", nil, 80)
	w.wire.take()
	w.expectError(cloud, svc, "waiting for the first Node")
	if sent := w.wire.take(); len(sent) > 0 {
		t.Errorf("each try costs %v", sent)
	}
	if left, err := w.otherAPI.LoadBalancer.All(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("left in the other project: %v, %v", left, err)
	}
	w.rotate(fakecloud.DefaultToken)
	w.nodes[1].Spec.Taints = nil
	w.ensure(cloud, svc)
}

func TestTheLastServerOfAClusterMayDisappear(t *testing.T) {
	t.Parallel()
	w := newEvidenceWorld(t, 1, 0)
	cloud, _ := w.start()
	if gone := w.gone(cloud); len(gone) != 0 {
		t.Fatal(gone)
	}
	w.deleteServer(serverIDs(w.nodes)[0])
	if gone := w.gone(cloud); len(gone) != 1 {
		t.Error("the token has shown the cluster's server before, so the Node must go")
	}
	cloud, _ = w.start() // does not know whether the token shows the right project
	if gone := w.gone(cloud); len(gone) != 0 || cloud.Ready() == nil {
		t.Errorf("%v, %v", gone, cloud.Ready())
	}
	cloud, _ = w.start(func(c *ccm.Config) { c.ProjectCheckDisabled = true })
	if gone := w.gone(cloud); len(gone) != 1 || cloud.Ready() != nil {
		t.Errorf("a person has switched the check off: %v, %v", gone, cloud.Ready())
	}
}

// A load balancer shows the project, too.
func TestAClusterWithoutServersIsRecognisedByItsLoadBalancers(t *testing.T) {
	t.Parallel()
	w := newEvidenceWorld(t, 1, 1)
	w.deleteServer(serverIDs(w.nodes)[0])
	cloud, _ := w.start()
	if gone := w.gone(cloud); len(gone) != 1 || cloud.Ready() != nil {
		t.Errorf("%v, %v", gone, cloud.Ready())
	}
}

// All Nodes are gone, and a person has removed all labels to keep the load balancers: their addresses show the
// project, and other Services are not held up.
func TestAClusterWithoutNodesAndLabelsIsRecognisedByAddresses(t *testing.T) {
	t.Parallel()
	w := newEvidenceWorld(t, 1, 2)
	for _, lb := range w.loadBalancers() {
		w.setLabels(lb, map[string]string{})
	}
	w.nodes = nil
	cloud, _ := w.start()
	w.ensure(cloud, newService("new", nil, 80))
	if err := cloud.Ready(); err != nil {
		t.Error(err)
	}
	w.rotate(w.other)
	cloud, _ = w.start()
	if _, err := w.tryEnsure(cloud, newService("newer", nil, 80)); err == nil || cloud.Ready() == nil {
		t.Errorf("with the token of another project: %v", err)
	}
}

// What was visible with one token says nothing about another one: a load balancer that only the production CCM's label shows.
func TestAnInheritedLoadBalancerProvesNothingForAnotherToken(t *testing.T) {
	t.Parallel()
	w := newEvidenceWorld(t, 2, 1)
	for _, lb := range w.loadBalancers() {
		labels := maps.Clone(lb.Labels)
		delete(labels, plan.LabelServiceUID)
		w.setLabels(lb, labels)
	}
	cloud, r := w.start()
	w.expectError(cloud, w.services[0])
	w.clock.Step(time.Minute)
	r.SyncLoadBalancers(t.Context())
	w.rotate(w.other)
	for range 10 {
		w.clock.Step(time.Minute)
		r.SyncLoadBalancers(t.Context())
		if gone := w.gone(cloud); len(gone) != 0 {
			t.Fatalf("Nodes %v would be deleted", gone)
		}
	}
	w.rotate(fakecloud.DefaultToken)
	w.clock.Step(time.Minute)
	if gone := w.gone(cloud); len(gone) != 0 || cloud.Ready() != nil {
		t.Errorf("with the right token again: %v, %v", gone, cloud.Ready())
	}
}

func TestManyServersThatDisappearAtOnceAreGoneAfterAWhile(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ servers, deleted, atOnce int }{
		{9, 1, 1}, {9, 2, 2}, {9, 3, 0}, {12, 3, 3}, {12, 4, 0}, {2, 2, 2},
	} {
		t.Run(fmt.Sprintf("%d of %d", tc.deleted, tc.servers), func(t *testing.T) {
			t.Parallel()
			w := newEvidenceWorld(t, tc.servers, 0)
			cloud, r := w.start()
			if gone := w.gone(cloud); len(gone) != 0 {
				t.Fatal(gone)
			}
			for _, id := range serverIDs(w.nodes)[:tc.deleted] {
				w.deleteServer(id)
			}
			held := tc.atOnce == 0
			gone := w.gone(cloud)
			if len(gone) != tc.atOnce || (cloud.Ready() != nil) != held {
				t.Errorf("at once: %v, want %d; %v", gone, tc.atOnce, cloud.Ready())
			}
			if events := strings.Join(w.eventsSoFar(), "\n"); strings.Contains(events, "CloudAnswerDoubted") != held {
				t.Errorf("events: %s", events)
			}
			r.SyncRoutes(t.Context())
			reconcileRoutes(t, w.world, cloud, false) // as the route controller does, which deletes what it cannot place
			if n := len(w.networkRoutes()); held && n != tc.servers {
				t.Errorf("%d routes, want %d", n, tc.servers)
			}
			w.clock.Step(4 * time.Minute)
			if gone := w.gone(cloud); len(gone) != tc.atOnce {
				t.Errorf("after 4 minutes: %v, want %d", gone, tc.atOnce)
			}
			w.clock.Step(time.Minute + time.Second)
			if gone := w.gone(cloud); len(gone) != tc.deleted || cloud.Ready() != nil {
				t.Errorf("after 5 minutes: %v, want %d; %v", gone, tc.deleted, cloud.Ready())
			}
		})
	}
}

// An incident with empty lists, in which the API still knows each server by its ID, comes before one in which it knows none.
func TestServersThatWereSeenInAnEarlierIncidentAreNotMissingSinceThen(t *testing.T) {
	t.Parallel()
	w := newEvidenceWorld(t, 6, 0)
	cloud, _ := w.start()
	byID := false
	w.wire.setIntercept(func(r *http.Request) *http.Response {
		switch {
		case r.URL.Path == "/v1/servers":
			return emptyList("servers")
		case byID && strings.HasPrefix(r.URL.Path, "/v1/servers/"):
			return apiError(http.StatusNotFound, "not_found")
		}
		return nil
	})
	w.clock.Step(time.Hour) // what is known of servers is old
	if gone := w.gone(cloud); len(gone) != 0 {
		t.Fatalf("in the first incident: %v", gone)
	}
	w.clock.Step(6 * time.Minute)
	byID = true
	if gone := w.gone(cloud); len(gone) != 0 {
		t.Errorf("at the begin of the second: %v", gone)
	}
	w.clock.Step(6 * time.Minute)
	if gone := w.gone(cloud); len(gone) != 6 {
		t.Errorf("6 minutes later: %v, want all", gone)
	}
}

func TestManyLoadBalancersThatDisappearAtOnceAreCreatedAgainAfterAWhile(t *testing.T) {
	t.Parallel()
	w := newEvidenceWorld(t, 1, 4)
	cloud, r := w.start()
	for _, svc := range w.services {
		w.ensure(cloud, svc)
	}
	remove := func(n int) {
		for _, lb := range w.loadBalancers()[:n] {
			w.deleteLoadBalancer(lb)
		}
	}
	remove(2)
	r.SyncLoadBalancers(t.Context())
	if n := len(w.loadBalancers()); n != 4 {
		t.Fatalf("two of four: %d load balancers, want 4 at once", n)
	}
	w.clock.Step(time.Minute)
	remove(3)
	w.clock.Step(10 * time.Second)
	r.SyncLoadBalancers(t.Context())
	if n := len(w.loadBalancers()); n != 1 || cloud.Ready() == nil {
		t.Errorf("three of four: %d load balancers at once, want 1; %v", n, cloud.Ready())
	}
	if _, err := w.tryEnsure(cloud, newService("new", nil, 80)); err != nil {
		t.Errorf("a new Service must not wait: %v", err)
	}
	w.clock.Step(5*time.Minute + time.Second)
	r.SyncLoadBalancers(t.Context())
	w.clock.Step(10 * time.Second)
	r.SyncLoadBalancers(t.Context())
	if n := len(w.loadBalancers()); n != 5 || cloud.Ready() != nil {
		t.Errorf("%d load balancers after 5 minutes, want 5; %v", n, cloud.Ready())
	}
}

// The old token's answers are empty, and the right token is back before the search ends.
func TestATokenThatReturnsDuringASearchProvesNothing(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(*evidenceWorld, cloudprovider.LoadBalancer) error{
		"sync": func(w *evidenceWorld, lbs cloudprovider.LoadBalancer) error {
			_, err := lbs.EnsureLoadBalancer(w.t.Context(), "", w.services[0], w.nodes)
			return err
		},
		"look before a deletion": func(w *evidenceWorld, lbs cloudprovider.LoadBalancer) error {
			deleted := w.services[0].DeepCopy()
			deleted.DeletionTimestamp = w.nowPtr()
			_, _, err := lbs.GetLoadBalancer(w.t.Context(), "", deleted)
			return err
		},
		"deletion": func(w *evidenceWorld, lbs cloudprovider.LoadBalancer) error {
			return lbs.EnsureLoadBalancerDeleted(w.t.Context(), "", doomed(w.services[0]))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newEvidenceWorld(t, 1, 1)
			cloud, _ := w.start()
			lbs, _ := cloud.LoadBalancer()
			w.rotate(w.other)
			w.wire.setIntercept(func(r *http.Request) *http.Response {
				if strings.HasPrefix(r.URL.Query().Get("label_selector"), "hcloud-ccm/service-uid=") {
					w.rotate(fakecloud.DefaultToken)
				}
				return nil
			})
			if err := act(w, lbs); err == nil {
				t.Error("no error, so that the Service's load balancer counts as gone")
			}
			if n := len(w.loadBalancers()); n != 1 {
				t.Errorf("%d load balancers, want 1", n)
			}
		})
	}
}

// The other project has a network with the same name, in which a route to the same pod range is stale for this cluster.
func TestRoutesOfAnotherProjectAreNeitherListedNorDeleted(t *testing.T) {
	t.Parallel()
	w := newEvidenceWorld(t, 2, 0)
	network, _, err := w.otherAPI.Network.GetByName(t.Context(), "internal")
	w.must(err)
	_, _, err = w.otherAPI.Network.AddRoute(t.Context(), network, hcloud.NetworkAddRouteOpts{
		Route: hcloud.NetworkRoute{Destination: cidr("10.244.9.0/24"), Gateway: net.ParseIP("10.0.99.99")}})
	w.must(err)
	cloud, _ := w.start()
	routes, _ := cloud.Routes()
	own, err := routes.ListRoutes(t.Context(), "")
	if err != nil || len(own) != 2 {
		t.Fatal(own, err)
	}
	w.rotate(w.other)
	w.clock.Step(2 * time.Minute) // what was read with the right token is too old
	if got, err := routes.ListRoutes(t.Context(), ""); err == nil {
		t.Errorf("the routes %v of another project are listed", got)
	}
	if err := routes.DeleteRoute(t.Context(), "", own[0]); err == nil {
		t.Error("a route of the cluster counts as deleted because another project does not have it")
	}
	if n := len(w.networkRoutes()); n != 2 {
		t.Errorf("%d routes, want 2", n)
	}
}
