package framework

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
)

// CreateServer creates a server that is attached to the network and runs, and returns it as it is
// then. Its node registers by itself.
func (e *Env) CreateServer(ctx context.Context, name string, change ...func(*hcloud.ServerCreateOpts)) *hcloud.Server {
	GinkgoHelper()
	if e.Kind == Existing {
		Skip("needs a new server that joins the cluster by itself: runs with E2E_CLUSTER=kind or embedded")
	}
	opts := hcloud.ServerCreateOpts{
		Name: name, ServerType: &hcloud.ServerType{Name: ServerType}, Image: &hcloud.Image{Name: "debian-13"},
		Location: &hcloud.Location{Name: Location}, Networks: []*hcloud.Network{e.Network},
	}
	for _, c := range change {
		c(&opts)
	}
	opts.Labels = e.tagged(opts.Labels)
	result, _, err := e.HCloud.Server.Create(ctx, opts)
	Expect(err).NotTo(HaveOccurred())
	e.owned.addServer(result.Server)
	e.Wait(ctx, append(result.NextActions, result.Action)...)
	server, _, err := e.HCloud.Server.GetByID(ctx, result.Server.ID)
	Expect(err).NotTo(HaveOccurred())
	Expect(server).NotTo(BeNil())
	return server
}

// CreateServers is CreateServer for several servers, which are created at the same time.
func (e *Env) CreateServers(ctx context.Context, names ...string) []*hcloud.Server {
	GinkgoHelper()
	servers := make([]*hcloud.Server, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			defer GinkgoRecover()
			servers[i] = e.CreateServer(ctx, name)
		})
	}
	wg.Wait()
	return servers
}

// CreateNodes creates servers and waits until their nodes are initialized.
func (e *Env) CreateNodes(ctx context.Context, names ...string) []*hcloud.Server {
	GinkgoHelper()
	var servers []*hcloud.Server
	for _, name := range names {
		servers = append(servers, e.CreateServer(ctx, name))
	}
	for _, name := range names {
		e.AwaitInitialized(ctx, name)
	}
	return servers
}

// Wait waits until actions have succeeded.
func (e *Env) Wait(ctx context.Context, actions ...*hcloud.Action) {
	GinkgoHelper()
	Expect(e.HCloud.Action.WaitFor(ctx, actions...)).To(Succeed())
}

// Started waits for the action that a call has started: Started(ctx)(client.Server.Poweroff(…)).
func (e *Env) Started(ctx context.Context) func(*hcloud.Action, *hcloud.Response, error) {
	return func(a *hcloud.Action, _ *hcloud.Response, err error) {
		GinkgoHelper()
		Expect(err).NotTo(HaveOccurred())
		e.Wait(ctx, a)
	}
}

// DeleteServer deletes a server and waits until it is gone.
func (e *Env) DeleteServer(ctx context.Context, s *hcloud.Server) {
	GinkgoHelper()
	result, _, err := e.HCloud.Server.DeleteWithResult(ctx, s)
	Expect(err).NotTo(HaveOccurred())
	e.Wait(ctx, result.Action)
}

// Node returns a node of the cluster, or nil if there is none.
func (e *Env) Node(ctx context.Context, name string) *corev1.Node {
	GinkgoHelper()
	n, err := e.Kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	Expect(err).NotTo(HaveOccurred())
	return n
}

// AwaitNode waits until a node is as the checks say.
func (e *Env) AwaitNode(ctx context.Context, name string, check func(Gomega, *corev1.Node)) *corev1.Node {
	GinkgoHelper()
	var found *corev1.Node
	Eventually(func(g Gomega) {
		n, err := e.Kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		check(g, n)
		found = n
	}).WithContext(ctx).WithTimeout(Timeout).WithPolling(Polling).Should(Succeed())
	return found
}

// AwaitInitialized waits until the CCM has initialized a node, whose server must have an address that
// the CCM shows.
func (e *Env) AwaitInitialized(ctx context.Context, name string) *corev1.Node {
	GinkgoHelper()
	return e.AwaitNode(ctx, name, func(g Gomega, n *corev1.Node) {
		g.Expect(n.Spec.ProviderID).NotTo(BeEmpty())
		g.Expect(n).NotTo(HaveTaint(cloudproviderapi.TaintExternalCloudProvider))
		// They come in a second request; kubelet has filled in the hostname.
		g.Expect(n.Status.Addresses).To(ContainElement(HaveField("Type", Not(Equal(corev1.NodeHostName)))))
	})
}

// AwaitReady waits until a node is Ready, or until it is not.
func (e *Env) AwaitReady(ctx context.Context, name string, ready bool) *corev1.Node {
	GinkgoHelper()
	return e.AwaitNode(ctx, name, func(g Gomega, n *corev1.Node) {
		g.Expect(IsReady(n)).To(Equal(ready))
	})
}

// IsReady tells whether a node's Ready condition is True.
func IsReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// AddressesOf returns a node's addresses of one type.
func AddressesOf(n *corev1.Node, kind corev1.NodeAddressType) []string {
	var all []string
	for _, a := range n.Status.Addresses {
		if a.Type == kind {
			all = append(all, a.Address)
		}
	}
	return all
}

// IPNet parses a network in CIDR notation.
func IPNet(s string) *net.IPNet {
	_, n, err := net.ParseCIDR(s)
	Expect(err).NotTo(HaveOccurred())
	return n
}

// PowerOff takes a server's power away.
func (e *Env) PowerOff(ctx context.Context, s *hcloud.Server) {
	GinkgoHelper()
	e.Started(ctx)(e.HCloud.Server.Poweroff(ctx, s))
}

// PowerOn gives a server its power back.
func (e *Env) PowerOn(ctx context.Context, s *hcloud.Server) {
	GinkgoHelper()
	e.Started(ctx)(e.HCloud.Server.Poweron(ctx, s))
}

// ProviderID returns the provider ID of a server's node.
func (s *Suite) ProviderID(server *hcloud.Server) string {
	return fmt.Sprintf("%s%d", s.Subject.ProviderPrefix, server.ID)
}

// RenameServer gives a server another name.
func (e *Env) RenameServer(ctx context.Context, s *hcloud.Server, name string) {
	GinkgoHelper()
	_, _, err := e.HCloud.Server.Update(ctx, s, hcloud.ServerUpdateOpts{Name: name})
	Expect(err).NotTo(HaveOccurred())
}
