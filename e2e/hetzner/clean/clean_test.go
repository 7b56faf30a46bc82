package clean

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fakecloudtest"
)

// newCloud makes a cloud with load balancers, servers and networks with labels. Some of the load balancers are protected.
func newCloud(t *testing.T, things map[string]map[string]string) *hcloud.Client {
	t.Helper()
	cloud := fakecloudtest.NewWith(t, fakecloud.Options{Actions: "instant"})
	client := cloud.Client(hcloud.WithPollOpts(hcloud.PollOpts{BackoffFunc: hcloud.ConstantBackoff(10 * time.Millisecond)}))
	for name, labels := range things {
		network, _, err := client.Network.Create(t.Context(), hcloud.NetworkCreateOpts{Name: name, Labels: labels,
			IPRange: &net.IPNet{IP: net.IPv4(10, 0, 0, 0), Mask: net.CIDRMask(16, 32)}, Subnets: []hcloud.NetworkSubnet{
				{Type: hcloud.NetworkSubnetTypeCloud, NetworkZone: hcloud.NetworkZoneEUCentral,
					IPRange: &net.IPNet{IP: net.IPv4(10, 0, 0, 0), Mask: net.CIDRMask(24, 32)}}}})
		check(t, err)
		lb, _, err := client.LoadBalancer.Create(t.Context(), hcloud.LoadBalancerCreateOpts{Name: name, Labels: labels, Network: network,
			LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: &hcloud.Location{Name: "fsn1"}})
		check(t, err)
		check(t, client.Action.WaitFor(t.Context(), lb.Action))
		server, _, err := client.Server.Create(t.Context(), hcloud.ServerCreateOpts{Name: name, Labels: labels,
			Networks:   []*hcloud.Network{network},
			ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-13"},
			Location: &hcloud.Location{Name: "fsn1"}})
		check(t, err)
		check(t, client.Action.WaitFor(t.Context(), append(server.NextActions, server.Action)...))
		yes, done := true, done(t.Context(), client)
		check(t, done(client.LoadBalancer.ChangeProtection(t.Context(), lb.LoadBalancer,
			hcloud.LoadBalancerChangeProtectionOpts{Delete: &yes})))
		check(t, done(client.Server.ChangeProtection(t.Context(), server.Server,
			hcloud.ServerChangeProtectionOpts{Delete: &yes, Rebuild: &yes})))
		check(t, done(client.Network.ChangeProtection(t.Context(), network, hcloud.NetworkChangeProtectionOpts{Delete: &yes})))
		_, _, err = client.Certificate.CreateCertificate(t.Context(), hcloud.CertificateCreateOpts{Name: name, Labels: labels,
			Type: hcloud.CertificateTypeManaged, DomainNames: []string{name + ".example.com"}})
		check(t, err)
	}
	return client
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// left returns what a cloud has, as "server a".
func left(t *testing.T, client *hcloud.Client) []string {
	t.Helper()
	var all []string
	for _, list := range []func(context.Context, *hcloud.Client) ([]resource, error){loadBalancers, servers, certificates, networks} {
		resources, err := list(t.Context(), client)
		check(t, err)
		for _, r := range resources {
			all = append(all, r.kind+" "+r.name)
		}
	}
	slices.Sort(all)
	return all
}

func of(names ...string) []string {
	var all []string
	for _, kind := range []string{"certificate", "load balancer", "network", "server"} {
		for _, name := range names {
			all = append(all, kind+" "+name)
		}
	}
	return all
}

func TestTheCloudLosesWhatRunsHaveLeft(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		run      string
		services []string
		left     []string
	}{
		"of all runs":      {"", nil, of("mine", "of-a-service")},
		"of one run":       {"first", nil, of("mine", "of-a-service", "second")},
		"of none":          {"third", nil, of("first", "mine", "of-a-service", "second")},
		"and its Services": {"second", []string{"uid-1", "uid-2"}, of("first", "mine")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newCloud(t, map[string]map[string]string{
				"mine": {"team": "edge"}, "first": {LabelRun: "first"}, "second": {LabelRun: "second"},
				"of-a-service": {"example.com/uid": "uid-1"},
			})
			var out strings.Builder
			if err := Cloud(t.Context(), client, c.run, c.services, &out); err != nil {
				t.Fatal(err)
			}
			got := left(t, client)
			if !slices.Equal(got, c.left) {
				t.Errorf("left are %q\nwant     %q", got, c.left)
			}
			if n := strings.Count(out.String(), "removed the "); n != 16-len(c.left) {
				t.Errorf("%d were removed, but it said\n%s", 16-len(c.left), out.String())
			}
		})
	}
}

func TestARefusalOfTheCloudIsReported(t *testing.T) {
	t.Parallel()
	client := fakecloudtest.New(t).Client(hcloud.WithToken("wrong"))
	if err := Cloud(t.Context(), client, "", nil, &strings.Builder{}); !hcloud.IsError(err, hcloud.ErrorCodeUnauthorized) {
		t.Errorf("got %v", err)
	}
}

// newCluster makes a cluster with a namespace for each run and one without a run. Each has a Service with a
// finalizer that only a CCM removes.
func newCluster(withCCM bool) *fake.Clientset {
	var objects []runtime.Object
	for name, labels := range map[string]map[string]string{"mine": nil, "spec-a": {LabelRun: "first"}, "spec-b": {LabelRun: "second"}} {
		objects = append(objects,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}},
			&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: name, UID: types.UID("uid-of-" + name),
				Finalizers: []string{"ccm"}}})
	}
	kube := fake.NewClientset(objects...)
	if !withCCM {
		kube.PrependReactor("delete", "services", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, nil })
		kube.PrependReactor("patch", "services", func(a clienttesting.Action) (bool, runtime.Object, error) {
			p := a.(clienttesting.PatchAction)
			return true, &corev1.Service{}, kube.Tracker().Delete(a.GetResource(), p.GetNamespace(), p.GetName())
		})
	}
	return kube
}

func TestTheClusterLosesTheNamespacesOfRuns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		run      string
		withCCM  bool
		left     []string
		services []string
	}{
		"of all runs":           {"", true, []string{"mine"}, []string{"uid-of-spec-a", "uid-of-spec-b"}},
		"of one run":            {"first", true, []string{"mine", "spec-b"}, []string{"uid-of-spec-a"}},
		"though no CCM removes": {"second", false, []string{"mine", "spec-a"}, []string{"uid-of-spec-b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kube := newCluster(c.withCCM)
			var out strings.Builder
			services, err := Cluster(t.Context(), kube, c.run, time.Millisecond, &out)
			check(t, err)
			slices.Sort(services)
			if !slices.Equal(services, c.services) {
				t.Errorf("met the Services %q, want %q", services, c.services)
			}
			var namespaces, with []string
			list, err := kube.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
			check(t, err)
			for _, ns := range list.Items {
				namespaces = append(namespaces, ns.Name)
			}
			all, err := kube.CoreV1().Services("").List(t.Context(), metav1.ListOptions{})
			check(t, err)
			for _, s := range all.Items {
				with = append(with, s.Namespace)
			}
			slices.Sort(namespaces)
			slices.Sort(with)
			if !slices.Equal(namespaces, c.left) || !slices.Equal(with, c.left) {
				t.Errorf("left are the namespaces %q, and Services in %q; want %q", namespaces, with, c.left)
			}
			if told := strings.Contains(out.String(), "finalizers are taken away"); told == c.withCCM {
				t.Errorf("it said\n%s", out.String())
			}
		})
	}
}
