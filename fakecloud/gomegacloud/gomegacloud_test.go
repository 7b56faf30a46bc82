package gomegacloud_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fakecloudtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/gomegacloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/remote"
)

// waitTimeout is longer than the cloud takes to probe targets.
const waitTimeout = 30 * time.Second

func create(t *testing.T, cloud *fakecloud.Cloud, name string) {
	t.Helper()
	opts := hcloud.ServerCreateOpts{
		Name: name, ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-13"},
		Labels: map[string]string{"a": "b"},
	}
	if _, _, err := cloud.Client().Server.Create(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
}

// TestAControllerThatUsesGomega is what a user's test looks like.
func TestAControllerThatUsesGomega(t *testing.T) {
	g := gomega.NewWithT(t)
	cloud := fakecloudtest.NewWith(t, fakecloud.Options{Actions: "50ms"})
	create(t, cloud, "web-1")
	g.Eventually(t.Context(), gomegacloud.Server(cloud.Client(), "web-1")).Should(gomegacloud.HaveStatus(hcloud.ServerStatusRunning))
	g.Expect(cloud).To(gomegacloud.HaveRequested("create_server", 1))
}

// message returns the failure of an assertion.
func message(f func(g gomega.Gomega)) (text string) {
	f(gomega.NewGomega(func(message string, _ ...int) { text += message }))
	return text
}

func TestRequestsAreCounted(t *testing.T) {
	t.Parallel()
	cloud := fakecloudtest.New(t)
	control, err := cloud.StartControl(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	create(t, cloud, "web-1")
	for _, c := range []any{cloud, remote.New(control)} {
		g := gomega.NewWithT(t)
		g.Expect(c).To(gomegacloud.HaveRequested("create_server", 1))
		g.Expect(c).To(gomegacloud.HaveRequested("create_server", gomega.BeNumerically("<", 2)))
		g.Expect(c).NotTo(gomegacloud.HaveRequested("delete_server", 1))
		g.Expect(c).To(gomegacloud.HaveRequests(journal.Filter{Writes: true}, 1))
		got := message(func(g gomega.Gomega) { g.Expect(c).To(gomegacloud.HaveRequested("create_server", 2)) })
		if !strings.Contains(got, "the number of requests") || !strings.Contains(got, "POST /v1/servers 201") {
			t.Errorf("%s", got)
		}
		got = message(func(g gomega.Gomega) { g.Expect(c).NotTo(gomegacloud.HaveRequested("create_server", 1)) })
		if !strings.Contains(got, "not to be ==") || !strings.Contains(got, "POST /v1/servers 201") {
			t.Errorf("%s", got)
		}
	}
	if _, err := gomegacloud.HaveRequested("create_server", 1).Match(7); err == nil || !strings.Contains(err.Error(), "needs a cloud") {
		t.Errorf("%v", err)
	}
}

func TestAStatusIsAConstantATextOrAMatcher(t *testing.T) {
	t.Parallel()
	g := gomega.NewWithT(t)
	server := &hcloud.Server{Status: hcloud.ServerStatusOff}
	for _, status := range []any{hcloud.ServerStatusOff, "off", gomega.BeEquivalentTo("off")} {
		g.Expect(server).To(gomegacloud.HaveStatus(status))
	}
	g.Expect(server).NotTo(gomegacloud.HaveStatus("running"))
	g.Expect(&hcloud.Volume{Status: hcloud.VolumeStatusAvailable}).To(gomegacloud.HaveStatus("available"))
}

func TestALoadBalancerIsHealthy(t *testing.T) {
	t.Parallel()
	cloud := fakecloudtest.New(t)
	client := cloud.Client()
	get := gomegacloud.LoadBalancer(client, "web")
	if err := cloud.SetSpeed(t.Context(), 100); err != nil { // targets are probed each 15 seconds
		t.Fatal(err)
	}
	if _, err := get(t.Context()); err == nil || err.Error() != `load balancer "web" does not exist` {
		t.Errorf("%v", err)
	}
	port, destination := 80, 8080
	opts := hcloud.LoadBalancerCreateOpts{
		Name: "web", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: &hcloud.Location{Name: "fsn1"},
		Targets: []hcloud.LoadBalancerCreateOptsTarget{{Type: hcloud.LoadBalancerTargetTypeLabelSelector,
			LabelSelector: hcloud.LoadBalancerCreateOptsTargetLabelSelector{Selector: "a=b"}}},
	}
	if _, _, err := client.LoadBalancer.Create(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	unhealthy := func(want string) {
		t.Helper()
		lb, err := get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := message(func(g gomega.Gomega) { g.Expect(lb).To(gomegacloud.BeHealthy()) }); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	unhealthy("load balancer web is not healthy:\nit has no target\nit has no service")
	create(t, cloud, "web-1")
	unhealthy("is not healthy:\nit has no service")
	lb, err := get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := client.LoadBalancer.AddService(t.Context(), lb, hcloud.LoadBalancerAddServiceOpts{
		Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: &port, DestinationPort: &destination,
	}); err != nil {
		t.Fatal(err)
	}
	g := gomega.NewWithT(t)
	g.Eventually(t.Context(), get).WithTimeout(waitTimeout).Should(gomegacloud.BeHealthy())
	server, err := gomegacloud.Server(client, "web-1")(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := client.Server.Poweroff(t.Context(), server); err != nil {
		t.Fatal(err)
	}
	g.Eventually(t.Context(), get).WithTimeout(waitTimeout).ShouldNot(gomegacloud.BeHealthy())
	unhealthy(" is unhealthy on port 80")
	if _, err := gomegacloud.BeHealthy().Match(server); err == nil || !strings.Contains(err.Error(), "needs a *hcloud.LoadBalancer") {
		t.Errorf("%v", err)
	}
	if _, err := gomegacloud.Volume(client, "none")(t.Context()); err == nil || !strings.Contains(err.Error(), `volume "none" does not exist`) {
		t.Errorf("%v", err)
	}
}
