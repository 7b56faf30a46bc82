package example

import (
	"net/netip"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud/example"
)

func (p *pair) routes() cloudprovider.Routes {
	r, _ := p.provider.Routes()
	return r
}

func TestRoutesLeadToNodes(t *testing.T) {
	t.Parallel()
	g, p := NewWithT(t), newPair(t, "node-1", "node-2", "no-node")
	ctx := t.Context()
	_, err := p.routes().ListRoutes(ctx, "")
	g.Expect(err).To(MatchError(ContainSubstring("not known yet")), "all routes would be black holes")

	p.nodes[0].Name = "worker-1" // the provider ID decides
	p.know(t, p.nodes[:2]...)
	g.Expect(p.routes().ListRoutes(ctx, "")).To(BeEmpty())
	one := &cloudprovider.Route{TargetNode: "worker-1", DestinationCIDR: "10.244.1.0/24"}
	g.Expect(p.routes().CreateRoute(ctx, "", "hint", one)).To(Succeed())
	g.Expect(p.routes().CreateRoute(ctx, "", "hint", one)).To(Succeed(), "creating it again")
	_, err = p.SetRoute(netip.MustParsePrefix("10.244.9.0/24"), p.instance(t, "no-node").ID)
	g.Expect(err).NotTo(HaveOccurred())
	created := example.Route{Prefix: netip.MustParsePrefix("10.244.1.0/24"), Instance: p.instance(t, "node-1").ID}
	g.Expect(p.Routes()).To(ContainElement(created))
	listed, err := p.routes().ListRoutes(ctx, "")
	g.Expect(err).NotTo(HaveOccurred())
	for _, r := range listed {
		r.Name = ""
	}
	g.Expect(listed).To(ConsistOf(
		&cloudprovider.Route{TargetNode: "worker-1", DestinationCIDR: "10.244.1.0/24"},
		&cloudprovider.Route{DestinationCIDR: "10.244.9.0/24", Blackhole: true},
	))
	listed, err = p.routes().ListRoutes(ctx, "")
	g.Expect(err).NotTo(HaveOccurred())

	// The route was replaced between list and deletion.
	two := &cloudprovider.Route{TargetNode: "node-2", DestinationCIDR: "10.244.1.0/24"}
	g.Expect(p.routes().CreateRoute(ctx, "", "hint", two)).To(Succeed())
	for _, r := range listed {
		if r.DestinationCIDR == one.DestinationCIDR {
			g.Expect(p.routes().DeleteRoute(ctx, "", r)).NotTo(Succeed())
		}
	}
	g.Expect(p.Routes()).To(HaveLen(2))
	listed, err = p.routes().ListRoutes(ctx, "")
	g.Expect(err).NotTo(HaveOccurred())
	for _, r := range listed {
		g.Expect(p.routes().DeleteRoute(ctx, "", r)).To(Succeed())
	}
	g.Expect(p.Routes()).To(BeEmpty())
}

func TestRoutesOfOtherNodesAreNotMade(t *testing.T) {
	t.Parallel()
	g, p := NewWithT(t), newPair(t)
	p.know(t,
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "fresh"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}, Spec: corev1.NodeSpec{ProviderID: "hcloud://1"}})
	writes := p.writes()
	for _, r := range []*cloudprovider.Route{
		{TargetNode: "fresh", DestinationCIDR: "10.244.1.0/24"}, {TargetNode: "foreign", DestinationCIDR: "10.244.1.0/24"},
		{TargetNode: "gone", DestinationCIDR: "10.244.1.0/24"}, {TargetNode: "fresh", DestinationCIDR: "everything"},
	} {
		g.Expect(p.routes().CreateRoute(t.Context(), "", "", r)).To(MatchError(ContainSubstring(string(r.TargetNode))))
	}
	g.Expect(writes()).To(BeEmpty())
	fresh := &cloudprovider.Route{TargetNode: "fresh", DestinationCIDR: "10.244.1.0/24"}
	g.Expect(p.routes().CreateRoute(t.Context(), "", "", fresh)).To(MatchError(ContainSubstring("when it is initialised")))
}

// TestNoRouteIsListedWithoutAnAnswer shows that an answer that is not the list is an error, and that an empty one deletes nothing.
func TestNoRouteIsListedWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	everyEffect(t, func(t *testing.T, effect string) {
		g, p := NewWithT(t), newPairFor(t, effect, "node-1")
		p.know(t, p.nodes...)
		r := &cloudprovider.Route{TargetNode: "node-1", DestinationCIDR: "10.244.1.0/24"}
		g.Expect(p.routes().CreateRoute(t.Context(), "", "", r)).To(Succeed())
		remove := p.fault(t, example.Fault{Effect: effect})
		listed, err := p.routes().ListRoutes(t.Context(), "")
		if err == nil {
			for _, r := range listed {
				g.Expect(r.Blackhole).To(BeFalse(), "the route would be deleted")
			}
		}
		g.Expect(p.Routes()).To(HaveLen(1))
		remove()
		g.Expect(p.routes().ListRoutes(t.Context(), "")).To(HaveLen(1))
	})
}
