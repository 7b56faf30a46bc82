package budget

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// table makes TestTable print what it measures (make bench-ccm).
var table = flag.Bool("table", false, "measure the table of ccm/README.md")

// row is a row of the table, with the figures that were measured of the production CCM (v1.35), side by side with an
// earlier version of this one, on the same cloud and control plane.
func row(what, nodes, ours, production string) {
	_, _ = fmt.Fprintf(os.Stderr, "| %s | %s | %s | %s |\n", what, nodes, ours, production)
}

// TestTable measures what typical operations cost, in requests and in the bubble's time.
func TestTable(t *testing.T) {
	if !*table {
		t.Skip("measures nothing that is checked: make bench-ccm")
	}
	row("", "nodes", "ours", "production")
	row("---", "--:", "--:", "--:")
	front := map[string]string{"load-balancer.hetzner.cloud/type": "lb31", "load-balancer.hetzner.cloud/node-selector": "pool=front"}
	for i, n := range []int{10, 100} {
		inBubble(t, n, false, func(c *cluster) {
			c.settle()
			all, took := c.until(func() { c.addServices(1, map[string]string{"load-balancer.hetzner.cloud/type": "lb31"}) },
				func() bool { return c.targets() == n && c.addressed() })
			row("first Service, 2 ports, until it has targets and an address; the creation alone takes 2 s", fmt.Sprint(n), cost(all, took),
				[]string{"42, 11 s", "214, 54 s"}[i])
		})
	}
	for i, n := range []int{10, 1000} {
		inBubble(t, n, false, func(c *cluster) {
			c.settle()
			services := c.addServices(5, front)
			time.Sleep(7 * time.Minute)
			c.ensure(services) // as a change of metadata does
			time.Sleep(time.Minute)
			all := c.during(func() { c.ensure(services[:1]) })
			row("sync of a Service without a change", fmt.Sprint(n), fmt.Sprint(len(all)), "6, 2 of them writes")
			before := c.targets()
			c.addServer()
			time.Sleep(time.Minute)
			all, took := c.until(func() { c.label(c.addNode()) }, func() bool { return c.targets() == before+5 })
			row("one node more, 5 Services with 10 nodes each", fmt.Sprint(n), cost(all, took), []string{"43", "61"}[i])
		})
	}
	inBubble(t, 90, true, func(c *cluster) {
		all, took := c.until(func() { c.start(true) }, func() bool { return len(c.networkRoutes()) == 90 })
		row("cold start with routes", "90", cost(all, took), "1,665, 124 s")
	})
	inBubble(t, 1000, false, func(c *cluster) {
		all, _ := c.until(func() { c.start(true) }, func() bool { return c.initialized() == 1000 })
		row("cold start", "1,000", fmt.Sprint(len(all)), "301")
	})
	for i, n := range []int{10, 100, 1000} {
		inBubble(t, n, n < 100, func(c *cluster) {
			c.settle()
			c.addServices(5, front)
			time.Sleep(40 * time.Minute)
			all := c.during(hour)
			t.Log(summary(all), c.metric("ccm_api_requests_total"))
			row("steady, 5 Services, per hour", fmt.Sprint(n), fmt.Sprint(len(all)), []string{"12", "24", "240"}[i])
			if n < 100 {
				return
			}
			c.notReady(1)
			row("the same with 1 node that has become NotReady", fmt.Sprint(n), fmt.Sprint(len(c.during(hour))),
				[]string{"", "720", "7,200"}[i])
			c.ready(1)
			time.Sleep(time.Minute)
			c.notReady(10)
			row("the same with 10", fmt.Sprint(n), fmt.Sprint(len(c.during(hour))), []string{"", "720", "7,200"}[i])
		})
	}
}

// settle starts the CCM and waits until it has initialized all Nodes. The first ten get a label.
func (c *cluster) settle() {
	for _, n := range c.currentNodes()[:10] {
		c.label(n)
	}
	c.start(true)
	time.Sleep(10 * time.Minute)
}

// until returns the requests that the CCM makes after do until done is true, and the time.
func (c *cluster) until(do func(), done func() bool) ([]journal.Entry, time.Duration) {
	c.t.Helper()
	start, took := time.Now(), time.Duration(0)
	all := c.during(func() {
		do()
		for !done() {
			if took = time.Since(start); took > 15*time.Minute {
				c.t.Fatal("it takes more than 15 minutes")
			}
			time.Sleep(100 * time.Millisecond)
		}
		took = time.Since(start)
	})
	return all, took
}

// targets returns the number of targets of all load balancers.
func (c *cluster) targets() (n int) {
	all, err := c.api.LoadBalancer.All(c.t.Context())
	c.must(err)
	for _, lb := range all {
		n += len(lb.Targets)
	}
	return n
}

// addressed reports whether all Services show the address of their load balancer.
func (c *cluster) addressed() bool {
	list, err := c.kube.CoreV1().Services("").List(c.t.Context(), metav1.ListOptions{})
	c.must(err)
	return !slices.ContainsFunc(list.Items, func(s corev1.Service) bool { return len(s.Status.LoadBalancer.Ingress) == 0 })
}

func cost(all []journal.Entry, took time.Duration) string {
	return fmt.Sprintf("%d, %.1f s", len(all), took.Seconds())
}

// label gives a Node the label of the Services' node selector.
func (c *cluster) label(n *corev1.Node) {
	n.Labels = map[string]string{"pool": "front"}
	_, err := c.kube.CoreV1().Nodes().Update(c.t.Context(), n, metav1.UpdateOptions{})
	c.must(err)
}
