package loadbalancer_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
)

func (w *world) certificates() []*hcloud.Certificate {
	w.t.Helper()
	all, err := w.api.Certificate.All(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

func TestAManagedCertificateIsOrderedReusedReplacedAndRemoved(t *testing.T) {
	t.Parallel()
	w, cloud, svc := newServingWorld(t, "realistic", 1, managed("example.org"), 443)
	first := w.certificates()
	if len(first) != 1 || first[0].Name != "web" || first[0].Labels[plan.LabelServiceUID] != "uid-web" {
		t.Fatalf("certificates: %+v", first)
	}
	if got := w.theLoadBalancer().Services[0].HTTP.Certificates; len(got) != 1 || got[0].ID != first[0].ID {
		t.Errorf("the load balancer uses %v", got)
	}

	svc.Annotations[plan.AnnotationPrefix+"http-sticky-sessions"] = "true"
	w.ensure(w.provider(), svc)
	if again := w.certificates(); len(again) != 1 || again[0].ID != first[0].ID {
		t.Errorf("not reused: %+v", again)
	}

	annotate(svc, managed("www.example.org,example.org"))
	w.ensure(cloud, svc)
	second := w.certificates()
	if len(second) != 1 || second[0].ID == first[0].ID || second[0].Name != "web" {
		t.Errorf("after the domains changed: %+v", second)
	}
	if got := w.theLoadBalancer().Services[0].HTTP.Certificates; len(got) != 1 || got[0].ID != second[0].ID {
		t.Errorf("the load balancer uses %v, want %d", got, second[0].ID)
	}
	w.remove(cloud, svc)
	if left := w.certificates(); len(left) != 0 {
		t.Errorf("left: %+v", left)
	}
}

// A person keeps the load balancer by removing our label: the deletion of the Service must not wait for its certificate.
func TestACertificateStaysWithALoadBalancerThatAPersonKeeps(t *testing.T) {
	t.Parallel()
	w, _, svc := newServingWorld(t, "instant", 1, managed("example.org"), 443)
	w.setLabels(w.theLoadBalancer(), map[string]string{})
	w.eventsSoFar()
	w.remove(w.provider(), svc)
	w.expectEvent("Normal KeptCloudLoadBalancer", "Kept certificate")
	if certs := w.certificates(); len(certs) != 1 || len(certs[0].Labels) != 0 || len(w.loadBalancers()) != 1 {
		t.Errorf("certificates %+v, %d load balancers", certs, len(w.loadBalancers()))
	}
}

func TestAnErrorOfTheServiceLeavesNoCertificateBehind(t *testing.T) {
	t.Parallel()
	w, _, svc := newServingWorld(t, "instant", 1, managed("example.org"), 443)
	// The load balancer is deleted first. Its certificates are then tried, fail, and are tried again without a load balancer.
	_, err := w.fake.Faults().Add(t.Context(), fault.Rule{Operation: "delete_certificate", First: 2,
		Effect: fault.APIError("service_error")})
	w.must(err)
	w.remove(w.provider(), svc)
	if left := w.certificates(); len(left) != 0 {
		t.Errorf("left: %+v", left)
	}
}

func TestAManagedCertificateIsRemovedWhenHTTPSEnds(t *testing.T) {
	t.Parallel()
	w, cloud, svc := newServingWorld(t, "realistic", 1, managed("example.org"), 443)
	if n := len(w.certificates()); n != 1 {
		t.Fatalf("%d certificates", n)
	}
	annotate(svc, map[string]string{"protocol": "http"})
	w.ensure(cloud, svc)
	if left := w.certificates(); len(left) != 0 {
		t.Errorf("left: %+v", left)
	}
	w.wire.take()
	w.ensure(cloud, svc)
	for _, call := range w.wire.take() {
		if strings.Contains(call, "/certificates") {
			t.Errorf("a Service without HTTPS asks for certificates: %s", call)
		}
	}
}

func TestAFailedIssuanceIsReportedAndRepeated(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "realistic", 1)
	cloud := w.provider()
	svc := newService("web", managed("www.once-ca-dns-validation-failed.invalid"), 443, 80)
	annotate(svc, map[string]string{"protocol.80": "tcp"})
	w.expectError(cloud, svc, "ca_dns_validation_failed")
	w.expectEvent("Warning ManagedCertificate", "ca_dns_validation_failed")
	w.expectPorts(svc, 80)
	w.expectTargets(serverIDs(w.nodes))
	w.wire.take()
	for range 5 { // within a minute
		w.clock.Step(10 * time.Second)
		_, _ = w.tryEnsure(cloud, svc)
	}
	w.expectNoWrites()
	w.clock.Step(5 * time.Minute)
	w.ensure(cloud, svc)
	w.expectPorts(svc, 80, 443)
	if n := len(w.certificates()); n != 1 {
		t.Errorf("%d certificates", n)
	}
}

func TestUploadedCertificatesAreFoundByIDOrName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	var ids []int64
	for _, name := range []string{"first cert", "second"} {
		ids = append(ids, w.uploadCertificate(name).ID)
	}
	cloud := w.provider()
	svc := newService("web", map[string]string{"protocol": "https", "http-certificates": "first cert", "http-redirect-http": "true"}, 443)
	w.ensure(cloud, svc)
	used := func() (got []int64) {
		for _, c := range w.theLoadBalancer().Services[0].HTTP.Certificates {
			got = append(got, c.ID)
		}
		slices.Sort(got)
		return got
	}
	if !slices.Equal(used(), ids[:1]) || !w.theLoadBalancer().Services[0].HTTP.RedirectHTTP {
		t.Errorf("uses %v, want %v", used(), ids[:1])
	}
	annotate(svc, map[string]string{"http-certificates": " second , " + itoa(ids[0])})
	w.clock.Step(time.Minute)
	w.ensure(cloud, svc)
	if !slices.Equal(used(), ids) {
		t.Errorf("uses %v, want %v", used(), ids)
	}
	annotate(svc, map[string]string{"http-certificates": "missing"})
	w.eventsSoFar()
	w.expectError(cloud, svc)
	w.expectEvent(`Warning InvalidSettings load-balancer.hetzner.cloud/http-certificates: "missing" does not exist`)
	w.remove(cloud, svc)
	if n := len(w.certificates()); n != 2 {
		t.Errorf("%d certificates are left, want the two uploaded ones", n)
	}
}

func TestARedirectTakesPort80InOneSync(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	w.uploadCertificate("web")
	cloud := w.provider()
	two := newService("web", map[string]string{"protocol.443": "https", "http-certificates.443": "web"}, 80, 443)
	redirecting := newService("web", map[string]string{"protocol.443": "https", "http-certificates.443": "web",
		"http-redirect-http.443": "true"}, 443)
	other := newService("web", map[string]string{"protocol": "https", "http-certificates": "web", "http-redirect-http.444": "true"}, 443,
		444)
	first := newService("web", map[string]string{"protocol": "https", "http-certificates": "web", "http-redirect-http.443": "true"}, 443,
		444)
	w.ensure(cloud, two)
	balancers, _ := cloud.LoadBalancer()
	for i, svc := range []*corev1.Service{redirecting, two, first, other, first} {
		if _, err := balancers.EnsureLoadBalancer(t.Context(), "kubernetes", svc, w.nodes); err != nil {
			t.Errorf("change %d: %v", i+1, err)
		}
	}
}

func TestATakenCertificateNameIsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	w.uploadCertificate("web")
	w.expectError(w.provider(), newService("web", managed("example.org"), 443), "http-managed-certificate-name")
	w.expectNoWrites()
}
