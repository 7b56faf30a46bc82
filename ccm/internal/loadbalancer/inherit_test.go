package loadbalancer_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// The state that the production CCM leaves: provider IDs with its prefix, and its label on the load balancer.
const productionLabel = "hcloud-ccm/service-uid"

// production makes the world one of the production CCM, and returns a Service with its load balancer. change may
// change the request.
func (w *world) production(svc *corev1.Service, change ...func(*hcloud.LoadBalancerCreateOpts)) *hcloud.LoadBalancer {
	w.t.Helper()
	opts := hcloud.LoadBalancerCreateOpts{
		Name: strings.ReplaceAll("a"+string(svc.UID), "-", ""), LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"},
		Location: &hcloud.Location{Name: "fsn1"},
		Labels:   map[string]string{productionLabel: string(svc.UID), "team": "edge"}, Network: w.network,
	}
	for _, n := range w.nodes {
		n.Spec.ProviderID = strings.Replace(n.Spec.ProviderID, "ccm-from-scratch://", "hcloud://", 1)
	}
	for _, id := range serverIDs(w.nodes) {
		opts.Targets = append(opts.Targets, serverTarget(&hcloud.Server{ID: id}))
	}
	for _, p := range svc.Spec.Ports {
		opts.Services = append(opts.Services, tcp(int(p.Port), int(p.NodePort)))
	}
	for _, c := range change {
		c(&opts)
	}
	result, _, err := w.api.LoadBalancer.Create(w.t.Context(), opts)
	w.must(err)
	lb, _, err := w.api.LoadBalancer.GetByID(w.t.Context(), result.LoadBalancer.ID)
	w.must(err)
	svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: lb.PublicNet.IPv4.IP.String()}, {IP: lb.PublicNet.IPv6.IP.String()}}
	return lb
}

func TestALoadBalancerOfTheProductionCCMIsTakenOverInPlace(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		annotations map[string]string
		change      func(*hcloud.LoadBalancerCreateOpts)
		status      []corev1.LoadBalancerIngress // what the Service shows instead of the addresses
		noStatus    bool
	}{
		"with the default name": {},
		"with a name": {annotations: map[string]string{"name": "front"},
			change: func(o *hcloud.LoadBalancerCreateOpts) { o.Name = "front" }},
		"renamed by a person": {change: func(o *hcloud.LoadBalancerCreateOpts) { o.Name = "renamed" }},
		"with a hostname": {annotations: map[string]string{"hostname": "web.example.org"},
			status: []corev1.LoadBalancerIngress{{Hostname: "web.example.org"}}},
		"with a hostname and a name": {annotations: map[string]string{"hostname": "web.example.org", "name": "front"},
			change: func(o *hcloud.LoadBalancerCreateOpts) { o.Name = "front" },
			status: []corev1.LoadBalancerIngress{{Hostname: "web.example.org"}}},
		"made just now, without a status": {noStatus: true},
		"made just now with a name, no status": {noStatus: true, annotations: map[string]string{"name": "front"},
			change: func(o *hcloud.LoadBalancerCreateOpts) { o.Name = "front" }},
		"with another type and algorithm": {change: func(o *hcloud.LoadBalancerCreateOpts) {
			o.LoadBalancerType.Name, o.Algorithm = "lb21",
				&hcloud.LoadBalancerAlgorithm{Type: hcloud.LoadBalancerAlgorithmTypeLeastConnections}
		}},
		"with private targets, as the Service": {annotations: map[string]string{"use-private-ip": "true"},
			change: func(o *hcloud.LoadBalancerCreateOpts) { usePrivate(o.Targets) }},
		"without a target that is a new Node": {change: func(o *hcloud.LoadBalancerCreateOpts) { o.Targets = o.Targets[1:] }},
		"that listens on a port of a person, too": {change: func(o *hcloud.LoadBalancerCreateOpts) {
			o.Services = append(o.Services, tcp(9999, 31999))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "realistic", 3)
			svc := newService("web", tc.annotations, 80, 443)
			var change []func(*hcloud.LoadBalancerCreateOpts)
			if tc.change != nil {
				change = append(change, tc.change)
			}
			lb := w.production(svc, change...)
			if tc.status != nil || tc.noStatus {
				svc.Status.LoadBalancer.Ingress = tc.status
			}
			cloud := w.provider()
			seen := w.watch()
			w.ensure(cloud, svc)
			got := w.theLoadBalancer()
			if got.ID != lb.ID || got.Name != lb.Name || len(seen.lost)+len(seen.closed) > 0 || seen.fewest < len(lb.Targets) ||
				!slices.Equal(targetIDs(got), serverIDs(w.nodes)) {
				t.Errorf("%v; targets %v, want %v", seen, targetIDs(got), serverIDs(w.nodes))
			}
			if got.LoadBalancerType.Name != lb.LoadBalancerType.Name || got.Algorithm != lb.Algorithm ||
				len(got.Services) != len(lb.Services) {
				t.Errorf("got %+v, had %+v", got, lb)
			}
			if got.Labels[plan.LabelServiceUID] != "uid-web" || got.Labels[productionLabel] != "uid-web" || got.Labels["team"] != "edge" {
				t.Errorf("labels %v", got.Labels)
			}
			for _, call := range writes(w.wire.take()) {
				if strings.Contains(call, "remove_target") || strings.Contains(call, "delete_service") || call == "POST /load_balancers" &&
					!tc.noStatus {
					t.Errorf("moving over leads to %s", call)
				}
			}
			w.expectEvent("Normal AdoptedCloudLoadBalancer")
			w.clock.Step(time.Minute)
			w.ensure(w.provider(), svc)
			w.expectNoWrites()
			w.remove(cloud, svc)
			if left := len(w.loadBalancers()); (left > 0) != (tc.annotations["name"] != "") { // one that is named may be a person's
				t.Errorf("%d load balancers are left", left)
			}
		})
	}
}

func usePrivate(targets []hcloud.LoadBalancerCreateOptsTarget) {
	private := true
	for i := range targets {
		targets[i].UsePrivateIP = &private
	}
}

// serverTarget makes a server a target.
func serverTarget(server *hcloud.Server) hcloud.LoadBalancerCreateOptsTarget {
	return hcloud.LoadBalancerCreateOptsTarget{Type: "server", Server: hcloud.LoadBalancerCreateOptsTargetServer{Server: server}}
}

func tcp(listen, destination int) hcloud.LoadBalancerCreateOptsService {
	return hcloud.LoadBalancerCreateOptsService{Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: &listen,
		DestinationPort: &destination}
}

// The production CCM finds a load balancer by its label, and a Node by the prefix of its provider ID.
func TestTheProductionCCMFindsEverythingAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	hcloudIDs := func(c *ccm.Config) {
		c.ProviderIDPrefix, c.TopologyLabels = nodeinfo.ConventionHcloud, nodeinfo.ConventionHcloud
	}
	cloud := w.provider(hcloudIDs)
	w.ensure(cloud, newService("web", managed("example.org"), 443))
	if lb := w.theLoadBalancer(); lb.Labels[productionLabel] != "uid-web" {
		t.Errorf("labels of the load balancer: %v", lb.Labels)
	}
	if c := w.certificates()[0]; c.Labels[productionLabel] != "uid-web" {
		t.Errorf("labels of the certificate: %v", c.Labels)
	}
	instances, _ := cloud.InstancesV2()
	newNode := w.nodes[0].DeepCopy()
	newNode.Spec.ProviderID = ""
	meta, err := instances.InstanceMetadata(t.Context(), newNode)
	if id := "hcloud://" + itoa(serverIDs(w.nodes)[0]); err != nil || meta.ProviderID != id || meta.Region != "fsn1" ||
		meta.Zone != "fsn1-dc14" {
		t.Errorf("%v, %+v", err, meta)
	}

	// Without these labels, if the operator does not want them.
	w = newWorld(t, "instant", 1)
	w.ensure(w.provider(func(c *ccm.Config) { c.OwnLabelsOnly = true }), newService("web", managed("example.org"), 443))
	if _, has := w.theLoadBalancer().Labels[productionLabel]; has || w.certificates()[0].Labels[productionLabel] != "" {
		t.Errorf("labels %v, %v", w.theLoadBalancer().Labels, w.certificates()[0].Labels)
	}
}

func TestWhatIsNotCertainlyTheServicesIsNotTakenOver(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*world, *corev1.Service, *hcloud.LoadBalancer)
		event  string
	}{
		"another address than the Service shows": {func(_ *world, svc *corev1.Service, _ *hcloud.LoadBalancer) {
			svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
		}, "Warning CloudLoadBalancerNotOwned"},
		"two with the label, and a hostname": {func(w *world, svc *corev1.Service, lb *hcloud.LoadBalancer) {
			svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "web.example.org"}}
			w.copyOf(lb, "copy")
		}, "Warning SeveralCloudLoadBalancers"},
	} {
		w := newWorld(t, "instant", 2)
		svc := newService("web", nil, 80)
		lb := w.production(svc)
		tc.change(w, svc, lb)
		before := w.loadBalancers()
		w.expectError(w.provider(), svc)
		w.expectEvent(tc.event)
		deleted := svc.DeepCopy()
		deleted.DeletionTimestamp = w.nowPtr()
		w.expectStays(w.provider(), deleted)
		if n := writes(w.wire.take()); len(n) > 0 || len(w.loadBalancers()) != len(before) {
			t.Errorf("%s: writes %v", name, n)
		}
	}
}

// copyOf creates another load balancer with the same labels.
func (w *world) copyOf(lb *hcloud.LoadBalancer, name string) {
	w.t.Helper()
	w.create(hcloud.LoadBalancerCreateOpts{Name: name, LoadBalancerType: lb.LoadBalancerType, Location: lb.Location, Labels: lb.Labels})
}

// A Service that is deleted before we have taken over its load balancer.
func TestTheLoadBalancerOfTheProductionCCMIsDeletedWithItsService(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	svc := newService("web", managed("example.org"), 443)
	w.production(svc)
	w.orderAsProduction(svc, "example.org")
	w.remove(w.provider(), svc)
	if lbs, certs := w.loadBalancers(), w.certificates(); len(lbs)+len(certs) != 0 {
		t.Errorf("left: %d load balancers, %d certificates", len(lbs), len(certs))
	}
}

// A Service that wants to keep its load balancer is deleted before we have taken over that one.
func TestTheLoadBalancerOfTheProductionCCMIsKeptOnDelete(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	svc := newService("web", map[string]string{"keep-on-delete": "true"}, 443)
	lb := w.production(svc)
	w.remove(w.provider(), svc)
	if now := w.theLoadBalancer(); now.ID != lb.ID || now.Labels[productionLabel] != "" || now.Labels[plan.LabelServiceUID] != "" ||
		now.Labels["team"] != "edge" || !slices.Equal(targetIDs(now), serverIDs(w.nodes)) || slices.Contains(listenPorts(now), 443) {
		t.Errorf("labels %v, targets %v, ports %v", now.Labels, targetIDs(now), listenPorts(now))
	}
}

// orderAsProduction orders a managed certificate as the production CCM does.
func (w *world) orderAsProduction(svc *corev1.Service, domain string) int64 {
	w.t.Helper()
	result, _, err := w.api.Certificate.CreateCertificate(w.t.Context(), hcloud.CertificateCreateOpts{Name: "ccm-managed-" +
		domain, Type: hcloud.CertificateTypeManaged,
		DomainNames: []string{domain}, Labels: map[string]string{productionLabel: string(svc.UID)}})
	w.must(err)
	w.clock.Step(10 * time.Minute)
	return result.Certificate.ID
}

// A certificate that a person has uploaded is never renewed, whatever labels it has.
func TestAnUploadedCertificateIsNoManagedOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	svc := newService("web", managed("example.org"), 443)
	uploaded := w.uploadCertificate("example.org")
	_, _, err := w.api.Certificate.Update(t.Context(), uploaded, hcloud.CertificateUpdateOpts{
		Labels: map[string]string{productionLabel: string(svc.UID)}})
	w.must(err)
	w.ensure(w.provider(), svc)
	if used := w.theLoadBalancer().Services[0].HTTP.Certificates; len(used) != 1 || used[0].ID == uploaded.ID {
		t.Errorf("the port uses %v; the uploaded certificate is %d", used, uploaded.ID)
	}
}

func TestAManagedCertificateOfTheProductionCCMIsReused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	svc := newService("web", managed("example.org"), 443)
	w.production(svc)
	id := w.orderAsProduction(svc, "example.org")
	other := w.orderAsProduction(svc, "other.example.org") // for other domains: nothing of ours
	cloud := w.provider()
	w.ensure(cloud, svc)
	certs := w.certificates()
	if len(certs) != 2 || w.theLoadBalancer().Services[0].HTTP.Certificates[0].ID != id {
		t.Fatalf("%d certificates, the port uses %v", len(certs), w.theLoadBalancer().Services[0].HTTP.Certificates)
	}
	for _, c := range certs {
		if ours := c.Labels[plan.LabelServiceUID] == "uid-web"; ours != (c.ID == id) {
			t.Errorf("labels of certificate %d: %v", c.ID, c.Labels)
		}
	}
	w.remove(cloud, svc)
	if certs := w.certificates(); len(certs) != 1 || certs[0].ID != other {
		t.Errorf("%d certificates are left", len(certs))
	}
}

// After the move, many load balancers lack our label at once. They have not disappeared.
func TestMovingOverIsNoMassDisappearance(t *testing.T) {
	t.Parallel()
	w := newEvidenceWorld(t, 2, 5)
	for _, lb := range w.loadBalancers() {
		w.setLabels(lb, map[string]string{productionLabel: lb.Labels[plan.LabelServiceUID]})
	}
	cloud, r := w.start()
	before := map[string]string{}
	w.wire.take()
	for _, svc := range w.services {
		before[svc.Name] = svc.Status.LoadBalancer.Ingress[0].IP
		if _, err := w.tryEnsure(cloud, svc); err != nil || cloud.Ready() != nil {
			t.Errorf("%s: %v, %v", svc.Name, err, cloud.Ready())
		}
	}
	for _, call := range writes(w.wire.take()) {
		if !strings.HasPrefix(call, "PUT /load_balancers/") {
			t.Errorf("moving over leads to %s", call)
		}
	}
	r.SyncLoadBalancers(t.Context())
	for _, svc := range w.services {
		if after := w.ensure(cloud, svc); after.Ingress[0].IP != before[svc.Name] {
			t.Errorf("the address of %s changed from %s to %s", svc.Name, before[svc.Name], after.Ingress[0].IP)
		}
	}
	if n := len(w.loadBalancers()); n != 5 || cloud.Ready() != nil {
		t.Errorf("%d load balancers, %v", n, cloud.Ready())
	}
}

// A cluster that was made from a backup has the same Service UIDs, Nodes and status.
func TestAClonedClusterNeverTouchesTheOriginals(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 2)
	id := func(id string) func(*ccm.Config) { return func(c *ccm.Config) { c.ClusterID = id } }
	https := managed("example.org")
	delete(https, "http-managed-certificate-name") // a chosen name cannot be free twice
	svc := newService("web", https, 443)
	w.ensure(w.provider(), svc) // before the operator has set an ID
	w.ensure(w.provider(id("a")), svc)
	original, certificate := w.theLoadBalancer(), w.certificates()[0]
	if original.Labels["ccm-from-scratch/cluster"] != "a" || certificate.Labels["ccm-from-scratch/cluster"] != "a" {
		t.Fatalf("labels %v, %v", original.Labels, certificate.Labels)
	}
	for _, clone := range []string{"b", ""} {
		copied := svc.DeepCopy()
		w.wire.take()
		w.eventsSoFar()
		cloud := w.provider(id(clone))
		w.expectError(cloud, copied)
		w.expectEvent("Warning CloudLoadBalancerOwnedByAnother", `HCLOUD_CLUSTER_ID="a"`, "delete and create the Service")
		copied.DeletionTimestamp = w.nowPtr()
		w.expectStays(cloud, copied)
		w.expectNoWrites()
	}

	// Without a status it gets a load balancer and, for domains of its own, a certificate.
	copied := svc.DeepCopy()
	copied.Status.LoadBalancer.Ingress = nil
	clone := w.provider(id("b"))
	w.expectError(clone, copied, fmt.Sprintf("are those of certificate %d", certificate.ID))
	if n := len(w.certificates()); n != 1 {
		t.Errorf("%d certificates", n)
	}
	copied.Annotations[plan.AnnotationPrefix+"http-managed-certificate-domains"] = "clone.example.org"
	w.ensure(clone, copied)
	if len(w.loadBalancers()) != 2 || len(w.certificates()) != 2 ||
		copied.Status.LoadBalancer.Ingress[0].IP == svc.Status.LoadBalancer.Ingress[0].IP {
		t.Errorf("%d load balancers, %d certificates", len(w.loadBalancers()), len(w.certificates()))
	}
	w.remove(clone, copied)
	if now := w.theLoadBalancer(); now.ID != original.ID || !maps.Equal(now.Labels, original.Labels) || len(now.Targets) != 2 ||
		len(w.certificates()) != 1 {
		t.Errorf("the original's: %+v", now)
	}
	w.ensure(w.provider(id("a")), svc)
}

// The label on servers shows to which cluster a route belongs: a copy of the original has its Nodes, or has deleted them.
func TestRoutesAndTargetsOfAnotherClustersServersStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 2)
	_, _, err := w.api.Server.Update(t.Context(), &hcloud.Server{ID: serverIDs(w.nodes)[0]},
		hcloud.ServerUpdateOpts{Labels: map[string]string{"ccm-from-scratch/cluster": "a"}})
	w.must(err)
	w.addRoute("10.244.9.0/24", w.privateIP(0)) // no Node of the copy has this range
	w.addRoute("10.244.2.0/24", w.privateIP(0)) // the copy gave it to its own node-2
	cloud := w.provider(func(c *ccm.Config) { c.ClusterID = "b" })
	theirs := w.nodes[0]
	w.nodes = w.nodes[1:]
	r, _ := w.resyncOf(cloud)
	w.nodes[0].Spec.PodCIDRs = []string{"10.244.2.0/24"}
	before := w.networkRoutes()
	if r.SyncRoutes(t.Context()) {
		t.Error("no error although the pod range is taken")
	}
	if got := w.networkRoutes(); !slices.Equal(got, before) {
		t.Errorf("routes %v, were %v", got, before)
	}
	w.nodes = append(w.nodes, theirs)
	w.ensure(cloud, newService("web", nil, 80))
	w.expectTargets(serverIDs(w.nodes)[1:])

	original := w.provider(func(c *ccm.Config) { c.ClusterID = "a" })
	routes, _ := original.Routes()
	if all, err := routes.ListRoutes(t.Context(), ""); err != nil || len(all) != 2 {
		t.Errorf("the original sees the routes %v, %v", all, err)
	}

	// The refusal holds up no other change of routes.
	w.nodes = w.nodes[:1]
	w.nodes[0].Spec.PodCIDRs = []string{"10.244.3.0/24"}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if !r.SyncRoutes(ctx) || len(w.networkRoutes()) != 3 {
		t.Errorf("with a pod range of its own, the routes are %v", w.networkRoutes())
	}
}

// A sync must not take every target off a load balancer because it knows none of the nodes.
func TestTargetsStayIfAllNodesAreOfAnotherProvider(t *testing.T) {
	t.Parallel()
	w, _, svc := newServingWorld(t, "instant", 2, nil, 80)
	want := targetIDs(w.theLoadBalancer())
	known := w.nodes[0].Spec.ProviderID
	for _, n := range w.nodes {
		n.Spec.ProviderID = strings.Replace(n.Spec.ProviderID, "ccm-from-scratch", "another-cloud", 1)
	}
	setPorts(svc, 80, 443) // other parts follow the Service
	w.eventsSoFar()
	w.ensure(w.provider(), svc)
	if lb := w.theLoadBalancer(); !slices.Equal(targetIDs(lb), want) || len(lb.Services) != 2 {
		t.Errorf("targets %v, want %v; %d ports", targetIDs(lb), want, len(lb.Services))
	}
	w.expectEvent("Warning NodesSkipped", `"another-cloud://`, "ccm-from-scratch:// or hcloud://")
	w.nodes[0].Spec.ProviderID = known // one is ours: the other is really another provider's
	w.ensure(w.provider(), svc)
	if lb := w.theLoadBalancer(); len(lb.Targets) != 1 {
		t.Errorf("targets %v", targetIDs(lb))
	}
	w.expectEvent("Warning NodesSkipped", "1 nodes are not targets because they belong to another provider", w.nodes[1].Name)
}

// The load balancer's own redirect occupies port 80: nobody else does.
func TestATakeoverKeepsTheRedirect(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	cert := w.uploadCertificate("web")
	svc := newService("web", map[string]string{"protocol": "https", "http-certificates": "web", "http-redirect-http": "true"}, 443)
	w.production(svc, func(o *hcloud.LoadBalancerCreateOpts) {
		o.Services[0].Protocol = hcloud.LoadBalancerServiceProtocolHTTPS
		o.Services[0].HTTP = &hcloud.LoadBalancerCreateOptsServiceHTTP{RedirectHTTP: new(true), Certificates: []*hcloud.Certificate{cert}}
	})
	if _, err := w.tryEnsure(w.provider(), svc); err != nil || !w.theLoadBalancer().Services[0].HTTP.RedirectHTTP {
		t.Errorf("%v: %+v; %v", err, w.theLoadBalancer().Services[0].HTTP, w.eventsSoFar())
	}
}

// The Service's domains have changed since the production CCM ordered the certificate of that name.
func TestANamedCertificateOfTheProductionCCMIsReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	svc := newService("web", managed("example.org"), 443)
	w.production(svc)
	old := w.orderAsProduction(svc, "old.example.org")
	svc.Annotations[plan.AnnotationPrefix+"http-managed-certificate-name"] = "ccm-managed-old.example.org"
	cloud := w.provider()
	w.ensure(cloud, svc)
	w.clock.Step(time.Minute)
	w.ensure(cloud, svc)
	if certs := w.certificates(); len(certs) != 1 || certs[0].ID == old || certs[0].DomainNames[0] != "example.org" {
		t.Errorf("%d certificates, the first is %+v", len(certs), certs[0])
	}
}
