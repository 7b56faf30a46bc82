package example

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cloud-provider/api"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud/example"
)

func TestAServiceGetsALoadBalancer(t *testing.T) {
	t.Parallel()
	g, p := NewWithT(t), newPair(t, "node-1", "node-2")
	s := web(8080, 8443)
	status, err := p.ensure(t.Context(), s, p.nodes...)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p.LoadBalancers()).To(HaveLen(1))
	lb := p.LoadBalancers()[0]
	g.Expect(lb.Name).To(Equal("a6f0a0b7c111122223333444455556666"[:32]))
	g.Expect(status.Ingress).To(Equal([]corev1.LoadBalancerIngress{{IP: lb.Address}}))
	g.Expect(p.forwards(t)).To(Equal(map[int][]string{8080: {"node-1", "node-2"}, 8443: {"node-1", "node-2"}}))

	writes := p.writes()
	again, err := p.ensure(t.Context(), s, p.nodes[1], p.nodes[0])
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again).To(Equal(status))
	g.Expect(p.balancers().UpdateLoadBalancer(t.Context(), "", s, p.nodes)).To(Succeed())
	g.Expect(writes()).To(BeEmpty(), "nothing has changed")

	got, exists, err := p.balancers().GetLoadBalancer(t.Context(), "", s)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(exists).To(BeTrue())
	g.Expect(got).To(Equal(status))
	g.Expect(p.balancers().EnsureLoadBalancerDeleted(t.Context(), "", s)).To(Succeed())
	g.Expect(p.LoadBalancers()).To(BeEmpty())
	_, exists, err = p.balancers().GetLoadBalancer(t.Context(), "", s)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(exists).To(BeFalse())
	g.Expect(p.balancers().EnsureLoadBalancerDeleted(t.Context(), "", s)).To(Succeed(), "deleting it again")
}

func TestAChangeDisturbsNothingElse(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ports  []int32
		nodes  []string
		want   map[int][]string
		writes []string
	}{
		"a node comes": {[]int32{8080, 8443}, []string{"a", "b", "c"}, map[int][]string{8080: {"a", "b", "c"}, 8443: {"a", "b", "c"}},
			[]string{"PUT /listeners/{listener}/backends", "PUT /listeners/{listener}/backends"}},
		"a node goes": {[]int32{8080, 8443}, []string{"a"}, map[int][]string{8080: {"a"}, 8443: {"a"}},
			[]string{"PUT /listeners/{listener}/backends", "PUT /listeners/{listener}/backends"}},
		"all nodes go": {[]int32{8080, 8443}, nil, map[int][]string{8080: {}, 8443: {}},
			[]string{"PUT /listeners/{listener}/backends", "PUT /listeners/{listener}/backends"}},
		"a port comes": {[]int32{8080, 8443, 9090}, []string{"a", "b"},
			map[int][]string{8080: {"a", "b"}, 8443: {"a", "b"}, 9090: {"a", "b"}},
			[]string{"POST /listeners"}},
		"a port goes": {[]int32{8443}, []string{"a", "b"}, map[int][]string{8443: {"a", "b"}}, []string{"DELETE /listeners/{listener}"}},
		"a port replaces another": {[]int32{9090, 8443}, []string{"a", "b"}, map[int][]string{9090: {"a", "b"}, 8443: {"a", "b"}},
			[]string{"POST /listeners", "DELETE /listeners/{listener}"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, p := NewWithT(t), newPair(t, "a", "b", "c")
			_, err := p.ensure(t.Context(), web(8080, 8443), p.nodes[:2]...)
			g.Expect(err).NotTo(HaveOccurred())
			other := web(8080)
			other.UID = "another"
			_, err = p.ensure(t.Context(), other, p.nodes...)
			g.Expect(err).NotTo(HaveOccurred())
			untouched := p.Listeners("aanother")
			g.Expect(untouched).To(HaveLen(1))

			var nodes []*corev1.Node
			for _, n := range p.nodes {
				if slices.Contains(tc.nodes, n.Name) {
					nodes = append(nodes, n)
				}
			}
			writes := p.writes()
			_, err = p.ensure(t.Context(), web(tc.ports...), nodes...)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(writes()).To(Equal(tc.writes))
			g.Expect(p.Listeners("aanother")).To(Equal(untouched), "the load balancer of another Service has changed")
			g.Expect(p.balancers().EnsureLoadBalancerDeleted(t.Context(), "", other)).To(Succeed())
			g.Expect(p.forwards(t)).To(Equal(tc.want))
		})
	}
}

func TestAPortStaysUntilItsReplacementIsThere(t *testing.T) {
	t.Parallel()
	g, p := NewWithT(t), newPair(t, "a")
	_, err := p.ensure(t.Context(), web(8080), p.nodes...)
	g.Expect(err).NotTo(HaveOccurred())
	p.fault(t, example.Fault{Writes: true, First: 1, Effect: example.Internal})
	_, err = p.ensure(t.Context(), web(9090), p.nodes...)
	g.Expect(err).To(MatchError(ContainSubstring("cannot forward port 9090")))
	g.Expect(p.forwards(t)).To(Equal(map[int][]string{8080: {"a"}}))
	_, err = p.ensure(t.Context(), web(9090), p.nodes...)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p.forwards(t)).To(Equal(map[int][]string{9090: {"a"}}))
}

func TestNodesThatCannotBeBackends(t *testing.T) {
	t.Parallel()
	g, p := NewWithT(t), newPair(t, "ours", "fresh", "gone")
	fresh := p.nodes[1].DeepCopy()
	fresh.Status.Addresses = nil // its addresses come after its provider ID
	gone := p.nodes[2].DeepCopy()
	gone.Status.Addresses = nil
	g.Expect(p.DeleteInstance(p.instance(t, "gone").ID)).To(Succeed())
	foreign := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}, Spec: corev1.NodeSpec{ProviderID: "hcloud://1"},
		Status: p.nodes[0].Status}
	unknown := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "unknown"}, Status: p.nodes[0].Status}
	_, err := p.ensure(t.Context(), web(8080), p.nodes[0], fresh, gone, foreign, unknown)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p.forwards(t)).To(Equal(map[int][]string{8080: {"fresh", "ours"}}))

	p.fault(t, example.Fault{Effect: example.Unavailable, About: example.AboutInstances})
	_, err = p.ensure(t.Context(), web(8080), p.nodes[0], fresh)
	g.Expect(err).To(HaveOccurred(), "the address is not known")
	g.Expect(p.forwards(t)).To(Equal(map[int][]string{8080: {"fresh", "ours"}}))
}

func TestWhatTheCloudCannotForwardIsAnError(t *testing.T) {
	t.Parallel()
	g, p := NewWithT(t), newPair(t, "a")
	udp, noNodePort := web(53), web(80)
	udp.Spec.Ports[0].Protocol = corev1.ProtocolUDP
	noNodePort.Spec.Ports[0].NodePort = 0
	for want, s := range map[string]*corev1.Service{"UDP": udp, "allocateLoadBalancerNodePorts": noNodePort} {
		_, err := p.ensure(t.Context(), s, p.nodes...)
		g.Expect(err).To(MatchError(ContainSubstring(want)))
	}
	g.Expect(p.LoadBalancers()).To(BeEmpty(), "a load balancer costs money")
	g.Expect(p.balancers().UpdateLoadBalancer(t.Context(), "", web(80), p.nodes)).NotTo(Succeed(), "there is not one to update")
	g.Expect(p.LoadBalancers()).To(BeEmpty())
}

// TestAnAddressIsAwaited shows that the service controller is told to come back while the load balancer is pending.
func TestAnAddressIsAwaited(t *testing.T) {
	t.Parallel()
	g, p := NewWithT(t), newPair(t, "a")
	p.late.Store(true)
	_, err := p.balancers().EnsureLoadBalancer(t.Context(), "", web(80), p.nodes)
	var retry *api.RetryError
	g.Expect(errors.As(err, &retry)).To(BeTrue(), "%v", err)
	g.Expect(retry.RetryAfter()).To(And(BeNumerically(">", 0), BeNumerically("<=", time.Second)))
	g.Expect(p.forwards(t)).To(Equal(map[int][]string{80: {"a"}}), "the listeners need not wait")
	status, exists, err := p.balancers().GetLoadBalancer(t.Context(), "", web(80))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(exists).To(BeTrue())
	g.Expect(status.Ingress).To(BeEmpty())

	writes := p.writes()
	p.late.Store(false)
	status, err = p.balancers().EnsureLoadBalancer(t.Context(), "", web(80), p.nodes)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(status.Ingress).To(HaveLen(1))
	g.Expect(writes()).To(BeEmpty())
}

func TestALimitOfTheAccountIsReported(t *testing.T) {
	t.Parallel()
	g, p := NewWithT(t), newPair(t, "a")
	p.LimitLoadBalancers(0)
	_, err := p.ensure(t.Context(), web(80), p.nodes...)
	g.Expect(err).To(MatchError(ContainSubstring("limit_reached")))
	p.LimitLoadBalancers(-1)
	_, err = p.ensure(t.Context(), web(80), p.nodes...)
	g.Expect(err).NotTo(HaveOccurred())
}

// TestAnyWriteMayFail shows that a Service gets one load balancer, and loses it, although each of the first writes fails in some way.
func TestAnyWriteMayFail(t *testing.T) {
	t.Parallel()
	everyEffect(t, func(t *testing.T, effect string) {
		g, p := NewWithT(t), newPairFor(t, effect, "a", "b")
		again := func(what string, try func() error) {
			t.Helper()
			var err error
			for range 10 {
				if err = try(); err == nil {
					return
				}
			}
			t.Fatalf("%s: %v", what, err)
		}
		for step, s := range []*corev1.Service{web(8080, 8443), web(8443, 9090)} {
			p.fault(t, example.Fault{Writes: true, First: 2, Effect: effect})
			again(fmt.Sprint("step ", step), func() error {
				_, err := p.ensure(t.Context(), s, p.nodes[step:]...)
				return err
			})
		}
		g.Expect(p.forwards(t)).To(Equal(map[int][]string{8443: {"b"}, 9090: {"b"}}))
		g.Expect(p.LoadBalancers()).To(HaveLen(1))
		p.fault(t, example.Fault{Writes: true, First: 2, Effect: effect})
		again("delete", func() error { return p.balancers().EnsureLoadBalancerDeleted(t.Context(), "", web()) })
		g.Expect(p.LoadBalancers()).To(BeEmpty())
		g.Expect(p.Listeners("")).To(BeEmpty())
	})
}

// TestAnyRequestMayBeTheLast kills the CCM before and after each of its requests. Another one ends what it has begun, or removes it.
func TestAnyRequestMayBeTheLast(t *testing.T) {
	t.Parallel()
	steps := []func(*testing.T, *pair) error{
		func(t *testing.T, p *pair) error {
			_, err := p.ensure(t.Context(), web(8080, 8443), p.nodes[:2]...)
			return err
		},
		func(t *testing.T, p *pair) error {
			_, err := p.ensure(t.Context(), web(8443, 9090), p.nodes[1:]...)
			return err
		},
		func(t *testing.T, p *pair) error {
			return p.balancers().EnsureLoadBalancerDeleted(t.Context(), "", web())
		},
	}
	after := []map[int][]string{{8080: {"a", "b"}, 8443: {"a", "b"}}, {8443: {"b", "c"}, 9090: {"b", "c"}}, {}}
	deaths := 0
	for step, do := range steps {
		for request := 1; ; request++ {
			died := false
			for _, carriedOut := range []bool{false, true} {
				g, p := NewWithT(t), newPair(t, "a", "b", "c")
				for _, before := range steps[:step] {
					g.Expect(before(t, p)).To(Succeed())
				}
				p.wire.die(request, carriedOut)
				err := do(t, p)
				if !p.wire.isDead() {
					g.Expect(err).NotTo(HaveOccurred())
					continue
				}
				died = true
				deaths++
				where := fmt.Sprintf("step %d, request %d, carried out: %v", step, request, carriedOut)
				g.Expect(err).To(HaveOccurred(), where)
				if step == 1 { // what is there before and after, is there meanwhile
					g.Expect(p.forwards(t)).To(HaveKeyWithValue(8443, ContainElement("b")), where)
				}
				p.wire.die(0, false) // another process
				g.Expect(do(t, p)).To(Succeed(), where)
				g.Expect(p.forwards(t)).To(Equal(after[step]), where)
				g.Expect(len(p.LoadBalancers())).To(Equal(min(len(after[step]), 1)), where)
				g.Expect(steps[2](t, p)).To(Succeed(), where)
				g.Expect(p.LoadBalancers()).To(BeEmpty(), where)
				g.Expect(p.Listeners("")).To(BeEmpty(), where)
			}
			if !died {
				break
			}
		}
	}
	if deaths < 30 {
		t.Errorf("the CCM has died %d times only", deaths)
	}
}
