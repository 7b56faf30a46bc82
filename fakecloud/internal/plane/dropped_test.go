package plane

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// The data plane stops what a dropped project had, and keeps nothing of it.
func TestADroppedProjectLeavesTheDataPlane(t *testing.T) {
	t.Parallel()
	core, plane := startStill(t)
	first, _ := core.Project(cloud.FirstProject)
	for i := range 200 {
		p := core.AddProject(fmt.Sprint(i))
		tcp, port := "tcp", 8080
		lb, _, _, err := p.CreateLoadBalancer(cloud.CreateLoadBalancer{
			Name: "lb", Type: "lb11", Location: "fsn1",
			Services: []cloud.ServiceInput{{Protocol: &tcp, ListenPort: &port, DestinationPort: &port}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 { // else the data plane may hear of both at once
			plane.awaitEvents()
			if len(plane.Endpoints(lb.ID)) == 0 {
				t.Fatal("the load balancer does not listen")
			}
		}
		core.DropProject(p.ID())
		network := cloud.CreateNetwork{Name: fmt.Sprint(i), IPRange: netip.MustParsePrefix("10.0.0.0/16")}
		if _, _, err := first.CreateNetwork(network); err != nil {
			t.Fatal(err)
		}
		plane.awaitEvents()
		if e := plane.Endpoints(lb.ID); len(e) != 0 {
			t.Fatalf("the load balancer of a dropped project listens on %v", e)
		}
	}
	plane.mu.Lock()
	defer plane.mu.Unlock()
	if n := len(plane.states); n > 50 {
		t.Errorf("%d states are kept, but one project exists", n)
	}
}
