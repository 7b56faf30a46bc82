package loadbalancer_test

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	cloudapi "k8s.io/cloud-provider/api"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// tryEnsure calls EnsureLoadBalancer once.
func (w *world) tryEnsure(cloud *ccm.Cloud, svc *corev1.Service) (*corev1.LoadBalancerStatus, error) {
	w.t.Helper()
	w.apply(svc)
	return controllerOf(cloud).EnsureLoadBalancer(w.t.Context(), "kubernetes", svc, w.nodes)
}

// expectEvent fails the test if no event contains the texts. It takes the events.
func (w *world) expectEvent(texts ...string) {
	w.t.Helper()
	events := w.eventsSoFar()
	for _, e := range events {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(e, text) }) {
			return
		}
	}
	w.t.Errorf("no event contains %q in:\n%s", texts, strings.Join(events, "\n"))
}

func (w *world) uploadCertificate(name string) *hcloud.Certificate {
	w.t.Helper()
	cert, key := selfSigned(w.t, name)
	result, _, err := w.api.Certificate.Create(w.t.Context(), hcloud.CertificateCreateOpts{Name: name, Certificate: cert, PrivateKey: key})
	w.must(err)
	return result
}

// While one setting is wrong, targets follow the nodes, ports follow the Service, and what the setting is about
// stays as it is. When it is corrected, it takes effect.
func TestAWrongSettingHoldsUpOnlyItself(t *testing.T) {
	t.Parallel()
	https := map[string]string{"protocol": "https", "http-certificates": "first"}
	type settings = map[string]string
	for name, tc := range map[string]struct {
		before       settings
		wrong, right settings
		change       func(*world, *corev1.Service)
		event        string
		// keeps returns what must stay; takes effect is that it differs when the setting is right.
		keeps func(*hcloud.LoadBalancer) any
	}{
		"mistyped public network": {settings{"disable-public-network": "true"}, settings{"disable-public-network": "ture"},
			settings{"disable-public-network": "false"}, nil, "InvalidSettings",
			func(lb *hcloud.LoadBalancer) any { return lb.PublicNet.Enabled }},
		"mistyped private targets": {settings{"use-private-ip": "true"}, settings{"use-private-ip": "ture"},
			settings{"use-private-ip": "false"}, nil, "InvalidSettings",
			func(lb *hcloud.LoadBalancer) any { return lb.Targets[0].UsePrivateIP }},
		"contradiction": {settings{"disable-public-network": "true"}, settings{"use-private-ip": "false"},
			settings{"use-private-ip": "false", "disable-public-network": "false"}, nil, "InvalidSettings",
			func(lb *hcloud.LoadBalancer) any { return lb.PublicNet.Enabled }},
		"unknown type": {nil, settings{"type": "lb99"}, settings{"type": "lb21"}, nil, "must be one of lb11, lb21, lb31",
			func(lb *hcloud.LoadBalancer) any { return lb.LoadBalancerType.Name }},
		"name taken": {nil, settings{"name": "taken"}, settings{"name": "free"},
			func(w *world, _ *corev1.Service) {
				w.create(hcloud.LoadBalancerCreateOpts{Name: "taken"})
			}, "", func(lb *hcloud.LoadBalancer) any { return lb.Name }},
		"unknown certificate": {https, settings{"http-certificates": "third"}, settings{"http-certificates": "second"}, nil,
			"does not exist",
			func(lb *hcloud.LoadBalancer) any { return lb.Services[0].HTTP.Certificates[0].ID }},
		"https without a certificate": {nil, settings{"protocol": "https"}, settings{"http-certificates": "second"}, nil, "is missing",
			func(lb *hcloud.LoadBalancer) any { return lb.Services[0].Protocol }},
		"certificate not issued": {https,
			settings{"certificate-type": "managed", "http-managed-certificate-domains": "www.ca-dns-validation-failed.invalid"},
			settings{"http-managed-certificate-domains": "www.example.org"}, nil, "ca_dns_validation_failed",
			func(lb *hcloud.LoadBalancer) any { return lb.Services[0].HTTP.Certificates[0].ID }},
		"unknown certificate of a port": {settings{"protocol.80": "https", "http-certificates.80": "first"},
			settings{"http-certificates.80": "third"}, settings{"http-certificates.80": "second"}, nil, "http-certificates.80",
			func(lb *hcloud.LoadBalancer) any { return lb.Services[0].HTTP.Certificates[0].ID }},
		"mistyped selector": {nil, settings{"node-selector": "pool in (web"}, nil, nil, "InvalidSettings", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "realistic", 2)
			w.uploadCertificate("first")
			w.uploadCertificate("second")
			svc := newService("web", tc.before, 80, 443)
			w.ensure(w.provider(), svc)
			id := w.theLoadBalancer().ID
			own := func() *hcloud.LoadBalancer {
				lb, _, err := w.api.LoadBalancer.GetByID(t.Context(), id)
				if err != nil || lb == nil {
					t.Fatal(lb, err)
				}
				slices.SortFunc(lb.Services, func(a, b hcloud.LoadBalancerService) int { return a.ListenPort - b.ListenPort })
				return lb
			}
			var kept any
			if tc.keeps != nil {
				kept = tc.keeps(own())
			}
			annotate(svc, tc.wrong)
			if tc.change != nil {
				tc.change(w, svc)
			}
			w.addServer("node-3")
			w.nodes = w.nodes[1:]
			if name == "mistyped selector" {
				w.nodes = w.nodes[1:] // none of the old nodes is left
			}
			setPorts(svc, 80, 8443)
			svc.Spec.Ports[0].NodePort = 31111
			w.eventsSoFar()
			w.wire.take()
			for range 2 { // the second time with empty caches
				w.expectError(w.provider(), svc)
				w.clock.Step(30 * time.Second) // the new target is healthy, and the old ones may leave
			}
			for _, call := range w.wire.take() {
				if strings.HasPrefix(call, "DELETE ") {
					t.Errorf("the mistake leads to %s", call)
				}
			}
			lb := own()
			if !slices.Equal(targetIDs(lb), serverIDs(w.nodes)) || !slices.Equal(listenPorts(lb), []int{80, 8443}) ||
				lb.Services[0].DestinationPort != 31111 {
				t.Errorf("targets %v, ports %v, node port %d; want %v", targetIDs(lb), listenPorts(lb), lb.Services[0].DestinationPort,
					serverIDs(w.nodes))
			}
			if tc.event != "" {
				w.expectEvent("Warning", tc.event)
			}
			if tc.keeps != nil && fmt.Sprint(tc.keeps(lb)) != fmt.Sprint(kept) {
				t.Errorf("got %v, want to keep %v", tc.keeps(lb), kept)
			}
			if tc.right == nil {
				return
			}
			annotate(svc, tc.right)
			for range 3 { // the address of one target after the other changes
				w.clock.Step(10 * time.Minute)
				w.ensure(w.provider(), svc)
			}
			if got := tc.keeps(own()); fmt.Sprint(got) == fmt.Sprint(kept) {
				t.Errorf("the right setting has no effect: %v", got)
			}
		})
	}
}

// As long as it is not certain that the Service wants to be public, no new port is.
func TestAMistypedPublicNetworkExposesNoNewPort(t *testing.T) {
	t.Parallel()
	w, cloud, svc := newServingWorld(t, "instant", 1, nil, 80)
	annotate(svc, map[string]string{"disable-public-network": "ture"})
	setPorts(svc, 80, 443)
	svc.Spec.Ports[0].NodePort = 31111
	seen := w.watch()
	w.expectError(cloud, svc)
	if lb := w.theLoadBalancer(); !slices.Equal(listenPorts(lb), []int{80}) || lb.Services[0].DestinationPort != 31111 {
		t.Errorf("ports %v, node port %d", listenPorts(lb), lb.Services[0].DestinationPort)
	}
	annotate(svc, map[string]string{"disable-public-network": "true"})
	w.ensure(cloud, svc)
	if lb := w.theLoadBalancer(); !slices.Equal(listenPorts(lb), []int{80, 443}) || slices.Contains(seen.ports, 443) {
		t.Errorf("ports %v, %v", listenPorts(lb), seen)
	}
}

func TestTheDefaultTypeIsOnlyForNewLoadBalancers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	svc := newService("web", nil, 80)
	larger := func(c *ccm.Config) { c.LoadBalancerDefaults = map[string]string{"location": "fsn1", "type": "lb31"} }
	w.ensure(w.provider(), svc)
	w.ensure(w.provider(larger), svc)
	if lb := w.theLoadBalancer(); lb.LoadBalancerType.Name != "lb11" {
		t.Errorf("the default has changed the type to %s", lb.LoadBalancerType.Name)
	}
	other := newService("other", nil, 80)
	w.ensure(w.provider(larger), other)
	if !slices.ContainsFunc(w.loadBalancers(), func(lb *hcloud.LoadBalancer) bool { return lb.LoadBalancerType.Name == "lb31" }) {
		t.Error("the default has no effect on a new load balancer")
	}
}

func TestWhatExceedsTheTypeIsLeftOut(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"new", "existing"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "instant", 24)
			svc := newService("web", nil, 80)
			cloud := w.provider()
			var before []int64
			if when == "existing" {
				w.ensure(cloud, svc)
				before = serverIDs(w.nodes)
			}
			w.addServer("node-25")
			w.addServer("node-26")
			w.addServer("node-27")
			setPorts(svc, 80, 81, 82, 83, 84, 85)
			svc.Spec.Ports[0].NodePort = 31111
			w.eventsSoFar()
			if _, err := w.tryEnsure(cloud, svc); err != nil {
				t.Fatal(err)
			}
			w.expectEvent("Warning LoadBalancerTypeLimit", "lb11", "25 targets of 27", "5 services of 6", "lb21, lb31",
				"load-balancer.hetzner.cloud/type")
			lb := w.theLoadBalancer()
			if len(lb.Targets) != 25 || !slices.Equal(listenPorts(lb), []int{80, 81, 82, 83, 84}) ||
				lb.Services[0].DestinationPort != 31111 {
				t.Errorf("%d targets, ports %v, node port %d", len(lb.Targets), listenPorts(lb), lb.Services[0].DestinationPort)
			}
			for _, id := range before {
				if !slices.Contains(targetIDs(lb), id) {
					t.Errorf("server %d was a target and is none any more", id)
				}
			}
			chosen := targetIDs(lb)
			w.expectQuiet(w.provider(), svc)
			w.expectTargets(chosen)

			annotate(svc, map[string]string{"type": "lb21"})
			w.ensure(cloud, svc)
			if lb := w.theLoadBalancer(); len(lb.Targets) != 27 || len(lb.Services) != 6 {
				t.Errorf("lb21 has %d targets, %d services", len(lb.Targets), len(lb.Services))
			}

			annotate(svc, map[string]string{"type": "lb11"})
			setPorts(svc, 80, 81, 82, 83, 84, 86)
			w.eventsSoFar()
			w.expectError(cloud, svc)
			w.expectEvent("Warning InvalidSettings", `"lb11" is too small`, "25 targets of 27")
			if lb := w.theLoadBalancer(); lb.LoadBalancerType.Name != "lb21" || len(lb.Targets) != 27 ||
				!slices.Contains(listenPorts(lb), 86) {
				t.Errorf("%s has %d targets, ports %v", lb.LoadBalancerType.Name, len(lb.Targets), listenPorts(lb))
			}
		})
	}
}

// The API refuses with the same error what exceeds the type and what exceeds the project's limit. What exceeds the type
// is left out, once that is known: another create request would be refused too.
func TestAnAttemptAtTheProjectsLimitSendsOneCreateRequest(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		nodes int
		want  []int // create requests of each attempt
	}{
		"what the type has room for":      {nodes: 1, want: []int{1, 1, 1}},
		"more than the type has room for": {nodes: 26, want: []int{2, 1, 1}}, // the second request asks for less
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "instant", tc.nodes)
			w.refuseAs(http.StatusForbidden, "resource_limit_exceeded", func(r *http.Request) bool { return r.Method == http.MethodPost })
			cloud, svc := w.provider(), newService("web", nil, 80)
			for i, want := range tc.want {
				w.wire.take()
				if _, err := w.tryEnsure(cloud, svc); !hcloud.IsError(err, hcloud.ErrorCodeResourceLimitExceeded) {
					t.Errorf("attempt %d: %v", i+1, err)
				}
				if sent := writes(w.wire.take()); len(sent) != want {
					t.Errorf("attempt %d sends %v, want %d requests", i+1, sent, want)
				}
				w.clock.Step(time.Minute)
			}
			w.wire.setIntercept(nil)
			w.ensure(cloud, svc)
			if got := len(w.theLoadBalancer().Targets); got != min(tc.nodes, 25) {
				t.Errorf("%d targets", got)
			}
		})
	}
}

// The API refuses the type that would have room: what fits without it is there.
func TestATypeThatIsRefusedDoesNotHoldUpTargets(t *testing.T) {
	t.Parallel()
	w, cloud, svc := newServingWorld(t, "instant", 25, nil, 80)
	w.addServer("node-26")
	w.addServer("node-27")
	gone := serverIDs(w.nodes[:1])[0]
	w.nodes = w.nodes[1:]
	annotate(svc, map[string]string{"type": "lb21"})
	w.refuse(func(r request) bool { return r.what == "POST change_type" })
	w.expectError(cloud, svc, "change_type")
	lb := w.theLoadBalancer()
	if len(lb.Targets) != 25 || slices.Contains(targetIDs(lb), gone) ||
		!slices.ContainsFunc(serverIDs(w.nodes[24:]), func(id int64) bool { return slices.Contains(targetIDs(lb), id) }) {
		t.Errorf("%d targets: %v", len(lb.Targets), targetIDs(lb))
	}
}

// An address or range that the load balancer cannot have changes nothing, and everything else follows the Service.
func TestAPrivateAddressThatCannotBeHad(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		setting map[string]string
		reason  string
	}{
		"taken by a server": {map[string]string{"private-ipv4": "NODE"}, "server"},
		"a range that is not a subnet": {map[string]string{"private-ipv4": "", "private-subnet-ip-range": "10.7.0.0/24"},
			"must be one of 10.0.0.0/16"},
	} {
		for _, when := range []string{"existing", "new"} {
			t.Run(name+", "+when, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, "realistic", 2)
				setting := maps.Clone(tc.setting)
				if setting["private-ipv4"] == "NODE" {
					setting["private-ipv4"] = w.privateIP(0)
				}
				svc := newService("web", map[string]string{"disable-public-network": "true", "private-ipv4": "10.0.200.1"}, 80)
				cloud := w.provider()
				if when == "existing" {
					w.ensure(cloud, svc)
				}
				for k, v := range setting {
					annotate(svc, map[string]string{k: v})
					if v == "" {
						delete(svc.Annotations, plan.AnnotationPrefix+k)
					}
				}
				w.addServer("node-3")
				setPorts(svc, 80, 81)
				seen := w.watch()
				w.eventsSoFar()
				w.expectError(cloud, svc)
				w.expectEvent("Warning InvalidSettings", tc.reason)
				if when == "new" {
					w.expectNone()
					return
				}
				lb := w.theLoadBalancer()
				if seen.fewest < 2 || len(seen.lost) > 0 || !slices.Equal(targetIDs(lb), serverIDs(w.nodes)) ||
					!slices.Equal(listenPorts(lb), []int{80, 81}) {
					t.Errorf("%v; targets %v, ports %v", seen, targetIDs(lb), listenPorts(lb))
				}
			})
		}
	}
}

// The API can list the members of a network since September 2026. Before, the address is checked without them.
func TestAPrivateAddressNeedsNoListOfMembers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	w.refuseAs(http.StatusNotFound, "not_found", func(r *http.Request) bool { return path.Base(r.URL.Path) == "members" })
	svc := newService("web", map[string]string{"private-ipv4": "10.0.200.1"}, 80)
	if _, err := w.tryEnsure(w.provider(), svc); err != nil {
		t.Error(err)
	}
	if lb := w.theLoadBalancer(); len(lb.PrivateNet) != 1 || !lb.PrivateNet[0].IP.Equal(net.ParseIP("10.0.200.1")) {
		t.Errorf("network %+v", lb.PrivateNet)
	}
}

// The address is taken after it was checked: the load balancer returns to the one that it had.
func TestAPrivateAddressThatIsLostInARaceIsGivenBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "realistic", 2)
	svc := newService("web", map[string]string{"disable-public-network": "true", "private-ipv4": "10.0.200.1"}, 80)
	cloud := w.provider()
	w.ensure(cloud, svc)
	annotate(svc, map[string]string{"private-ipv4": "10.0.200.2"})
	refused := 0
	w.wire.setIntercept(func(r *http.Request) *http.Response {
		if path.Base(r.URL.Path) == "attach_to_network" && readRequest(t, r).body["ip"] == "10.0.200.2" {
			refused++
			return apiError(http.StatusUnprocessableEntity, "ip_not_available")
		}
		return nil
	})
	w.expectError(cloud, svc, "ip_not_available")
	lb := w.theLoadBalancer()
	if refused != 1 || len(lb.PrivateNet) != 1 || !lb.PrivateNet[0].IP.Equal(net.ParseIP("10.0.200.1")) ||
		!slices.Equal(targetIDs(lb), serverIDs(w.nodes)) {
		t.Errorf("refused %d times; network %+v, targets %v", refused, lb.PrivateNet, targetIDs(lb))
	}
}

// The network of the CCM is not set any more: private targets follow the nodes nevertheless.
func TestPrivateTargetsFollowNodesWithoutASetting(t *testing.T) {
	t.Parallel()
	w, _, svc := newServingWorld(t, "instant", 2, map[string]string{"use-private-ip": "true"}, 80)
	w.addServer("node-3")
	w.nodes = w.nodes[1:]
	w.eventsSoFar()
	for range 2 { // the old target leaves when the new one is healthy
		w.expectError(w.provider(func(c *ccm.Config) { c.Network, c.RoutesEnabled = "", false }), svc)
		w.clock.Step(time.Minute)
	}
	w.expectEvent("Warning InvalidSettings", "use-private-ip", "HCLOUD_NETWORK")
	lb := w.theLoadBalancer()
	if !slices.Equal(targetIDs(lb), serverIDs(w.nodes)) || !lb.Targets[0].UsePrivateIP || len(lb.PrivateNet) != 1 {
		t.Errorf("targets %v (private %t), want %v; network %v", targetIDs(lb), lb.Targets[0].UsePrivateIP, serverIDs(w.nodes),
			lb.PrivateNet)
	}
}

// The service controller writes no status after an error. A Service must show its address nevertheless, also if a person has removed it.
func TestAServiceShowsItsAddressAlthoughAPartHasFailed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	svc := newService("web", map[string]string{"ipv4-rdns": "a.example.org"}, 80)
	cloud := w.provider()
	r, kube := w.resyncOf(cloud, svc.DeepCopy())
	controllerOf(cloud).Kube = kube
	w.refuse(func(r request) bool { return r.what == "POST change_dns_ptr" })
	services := kube.CoreV1().Services(svc.Namespace)
	expectAddress := func() {
		t.Helper()
		got, err := services.Get(t.Context(), svc.Name, metav1.GetOptions{})
		w.must(err)
		if shown := got.Status.LoadBalancer.Ingress; len(shown) == 0 || shown[0].IP != w.theLoadBalancer().PublicNet.IPv4.IP.String() {
			t.Errorf("the Service shows %+v", shown)
		}
	}
	w.expectError(cloud, svc)
	expectAddress()
	_, err := services.UpdateStatus(t.Context(), svc.DeepCopy(), metav1.UpdateOptions{})
	w.must(err)
	w.clock.Step(time.Minute)
	r.SyncLoadBalancers(t.Context())
	expectAddress()
}

// expectShown makes one sync, which fails, and fails the test if the Service does not show what it showed before.
func (w *world) expectShown(svc *corev1.Service) {
	w.t.Helper()
	kube := fake.NewClientset(svc.DeepCopy())
	cloud := w.provider()
	controllerOf(cloud).Kube = kube
	w.expectError(cloud, svc)
	got, err := kube.CoreV1().Services(svc.Namespace).Get(w.t.Context(), svc.Name, metav1.GetOptions{})
	if want := svc.Status.LoadBalancer; err != nil || !reflect.DeepEqual(got.Status.LoadBalancer, want) {
		w.t.Errorf("the Service shows %+v, want %+v; %v", got.Status.LoadBalancer, want, err)
	}
}

// A person has detached a private load balancer, and the network refuses it for a moment: all of its addresses are gone.
func TestAFailedSyncDoesNotHideAllAddresses(t *testing.T) {
	t.Parallel()
	w, _, svc := newServingWorld(t, "instant", 1, map[string]string{"disable-public-network": "true"}, 80)
	_, _, err := w.api.LoadBalancer.DetachFromNetwork(t.Context(), w.theLoadBalancer(),
		hcloud.LoadBalancerDetachFromNetworkOpts{Network: w.network})
	w.must(err)
	w.refuse(func(r request) bool { return r.what == "POST attach_to_network" })
	w.expectShown(svc)
}

func TestAMistypedSettingOfTheStatusKeepsTheStatus(t *testing.T) {
	t.Parallel()
	for name, values := range map[string][2]string{
		"hostname": {"web.example.org", "web_example"}, "ipv6-disabled": {"true", "yes"}, "disable-private-ingress": {"true", "yes"},
		"uses-proxyprotocol": {"true", "yes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _, svc := newServingWorld(t, "instant", 1, map[string]string{name: values[0]}, 80)
			annotate(svc, map[string]string{name: values[1]})
			w.expectShown(svc)
		})
	}
}

func TestAServiceThatShowsNoAddressIsReady(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	svc := newService("web", map[string]string{"disable-public-network": "true", "disable-private-ingress": "true"}, 80)
	status, err := w.tryEnsure(w.provider(), svc)
	if err != nil || status == nil || len(status.Ingress) != 0 {
		t.Errorf("got %+v, %v", status, err)
	}
}

// The service controller waits longer after each error that names no delay.
func TestTheDelayGrowsUnderARateLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	w.wire.setIntercept(func(*http.Request) *http.Response { return apiError(http.StatusTooManyRequests, "rate_limit_exceeded") })
	_, err := w.tryEnsure(w.provider(), newService("web", nil, 80))
	var retry *cloudapi.RetryError
	if err == nil || errors.As(err, &retry) {
		t.Errorf("got %v with delay %v", err, retry)
	}
}

// The state of the nodes cannot be read: nothing is taken off, and ports follow the Service.
func TestServersThatCannotBeReadStayTargets(t *testing.T) {
	t.Parallel()
	w, _, svc := newServingWorld(t, "instant", 3, nil, 80)
	want := serverIDs(w.nodes)
	setPorts(svc, 80, 81)
	w.refuseAs(503, "unavailable", func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/v1/servers") })
	w.expectError(w.provider(), svc)
	if lb := w.theLoadBalancer(); !slices.Equal(targetIDs(lb), want) || !slices.Equal(listenPorts(lb), []int{80, 81}) {
		t.Errorf("targets %v, ports %v", targetIDs(lb), listenPorts(lb))
	}
}
