package budget

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// budget fails the test if the CCM made more requests than it may.
func (c *cluster) budget(what string, most int, do func()) {
	c.t.Helper()
	all := c.during(do)
	c.t.Logf("%s: %d requests: %v", what, len(all), summary(all))
	if len(all) > most {
		c.t.Errorf("%s: %d requests, want at most %d: %v", what, len(all), most, summary(all))
	}
}

func hour() { time.Sleep(time.Hour) }

// manyNodes returns the number of nodes of a large cluster: 1,000, or a quarter of them with -short.
func manyNodes() int {
	if testing.Short() {
		return 250
	}
	return 1000
}

// The limit of the API is 3600 requests an hour, for everything that runs in the project.
func TestABigClusterLeavesTheRateLimitToOthers(t *testing.T) {
	t.Parallel()
	n := manyNodes()
	inBubble(t, n, false, func(c *cluster) {
		c.budget("cold start", 200, func() {
			c.start(false)
			time.Sleep(10 * time.Minute)
		})
		if got := c.initialized(); got != n {
			t.Fatalf("%d nodes are initialized", got)
		}
		c.ensure(c.addServices(20, nil))
		time.Sleep(5 * time.Minute)
		var steady int
		c.budget("steady state with 20 Services, per hour", 360, func() { steady = len(c.during(hour)) })
		sum := 0.0
		for _, n := range c.metric("ccm_api_requests_total") {
			sum += n
		}
		if n := len(c.requests(0)); int(sum) != n {
			t.Errorf("the metric counts %v requests, the cloud %d: %v", sum, n, c.metric("ccm_api_requests_total"))
		}
		t.Log(c.metric("ccm_api_requests_total"))
		c.notReady(10)
		c.budget("the same with 10 nodes that have become NotReady, in their first hour", steady+120, hour)
		c.notReady(200)
		c.budget("the first look at 200 nodes that have become NotReady: one list", 20, func() { time.Sleep(6 * time.Second) })
	})
}

// Most servers of the project are not the cluster's: a list of all would cost 13 requests.
func TestOtherServersOfTheProjectCostNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, 5, false, func(c *cluster) {
		for i := range 600 {
			_, _, err := c.api.Server.Create(c.t.Context(), hcloud.ServerCreateOpts{Name: fmt.Sprintf("other-%d", i),
				ServerType: &hcloud.ServerType{Name: "cx23"},
				Image:      &hcloud.Image{Name: "ubuntu-24.04"}, Location: &hcloud.Location{Name: "fsn1"},
				Labels: map[string]string{"cluster": "other"}})
			c.must(err)
		}
		time.Sleep(time.Minute)
		c.budget("cold start of 5 nodes", 8, func() {
			c.start(false)
			time.Sleep(10 * time.Minute)
		})
		if n := c.initialized(); n != 5 {
			t.Fatalf("%d nodes are initialized", n)
		}
		c.budget("an hour: each refresh is one list by the label that the cluster's servers share", 6, hour)
	})
}

// One look at the load balancers, the creation, its action, and its result.
func TestTheFirstServiceCostsFourRequests(t *testing.T) {
	t.Parallel()
	inBubble(t, 100, false, func(c *cluster) {
		c.start(false)
		time.Sleep(10 * time.Minute)
		large := map[string]string{"load-balancer.hetzner.cloud/type": "lb31"}
		start := time.Now()
		c.budget("the first Service", 4, func() { c.ensure(c.addServices(1, large)) })
		if took := time.Since(start); took > 2200*time.Millisecond {
			t.Errorf("it took %v; the creation alone takes 2 s", took)
		}
		if n := c.targets(); n != 100 || !c.addressed() {
			t.Errorf("%d targets, want 100; addressed: %t", n, c.addressed())
		}
	})
}

// A server that is deleted while its Node is still there: the cloud refuses it as a target, and is asked which servers there are.
func TestAServerThatIsGoneIsNoTargetOfANewService(t *testing.T) {
	t.Parallel()
	inBubble(t, 10, false, func(c *cluster) {
		c.start(false)
		time.Sleep(10 * time.Minute)
		server, _, err := c.api.Server.GetByName(c.t.Context(), "node-1")
		c.must(err)
		_, _, err = c.api.Server.DeleteWithResult(c.t.Context(), server)
		c.must(err)
		time.Sleep(10 * time.Second)
		all := c.during(func() { c.ensure(c.addServices(1, nil)) })
		t.Logf("%v", summary(all))
		if n := summary(all)["create_load_balancer"]; n != 2 || c.targets() != 9 || len(all) > 12 {
			t.Errorf("%d creations, %d targets, want 9: %v", n, c.targets(), summary(all))
		}
	})
}

func TestASyncWithoutAChangeReadsOnce(t *testing.T) {
	t.Parallel()
	for _, n := range []int{10, manyNodes()} {
		inBubble(t, n, false, func(c *cluster) {
			services := c.serving(10*time.Minute, 20)
			time.Sleep(7 * time.Minute) // not when a comparison has just read
			for _, some := range []int{1, 20} {
				time.Sleep(5 * time.Second)
				all := c.during(func() { c.ensure(services[:some]) })
				t.Logf("%d nodes, %d Services: %v", n, some, summary(all))
				if len(all) > 1 || len(all) == 1 && all[0].Operation != "list_load_balancers" {
					t.Errorf("%d nodes: the sync of %d Services without a change made %v", n, some, summary(all))
				}
			}
		})
	}
}

func TestANewNodeTouchesEachLoadBalancerOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, 5, false, func(c *cluster) {
		services := c.serving(time.Minute, 20)
		time.Sleep(5 * time.Minute)
		c.addServer()
		time.Sleep(time.Minute)
		all := c.during(func() {
			c.addNode()
			time.Sleep(10 * time.Second)
			c.nodesChanged(services)
			time.Sleep(10 * time.Second)
			c.nodesChanged(services)
		})
		t.Logf("%v", summary(all))
		touched := map[string]int{}
		for _, e := range all {
			if e.Method != "GET" {
				touched[e.Path]++
			}
		}
		for path, n := range touched {
			if n != 1 || !strings.HasSuffix(path, "/actions/add_target") {
				t.Errorf("%d times POST %s", n, path)
			}
		}
		if len(touched) != 20 || len(all) > 35 {
			t.Errorf("%d load balancers were changed, want 20; %d requests, want at most 35: %v", len(touched), len(all), summary(all))
		}
	})
}

// The cloud drops a server that is deleted from all load balancers. The Node is still there, and the CCM must not
// try to restore its targets.
func TestATargetThatTheCloudHasDroppedIsNotAddedAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, 5, false, func(c *cluster) {
		services := c.serving(time.Minute, 5)
		time.Sleep(time.Minute)
		server, _, err := c.api.Server.GetByName(c.t.Context(), "node-1")
		c.must(err)
		_, _, err = c.api.Server.DeleteWithResult(c.t.Context(), server)
		c.must(err)
		time.Sleep(30 * time.Second)
		all := c.during(func() { c.nodesChanged(services) })
		t.Logf("%v", summary(all))
		for _, e := range all {
			if e.Method != "GET" {
				t.Errorf("useless: %s %s", e.Method, e.Path)
			}
		}
		if len(all) > 4 {
			t.Errorf("%d requests, want at most 4: %v", len(all), summary(all))
		}
	})
}

// The production CCM makes 12 requests an hour here, and repairs nothing.
func TestAQuietClusterIsSeldomComparedAndYetRepaired(t *testing.T) {
	t.Parallel()
	inBubble(t, 10, true, func(c *cluster) {
		c.serving(time.Minute, 5)
		time.Sleep(time.Hour)
		c.budget("steady state of 10 nodes with routes and 5 Services, per hour", 11, hour)
		repaired := func() time.Duration {
			all, err := c.api.LoadBalancer.All(c.t.Context())
			c.must(err)
			_, _, err = c.api.LoadBalancer.DeleteService(c.t.Context(), all[0], 80)
			c.must(err)
			start := time.Now()
			for {
				time.Sleep(time.Second) // as long as the action takes, or less
				lb, _, err := c.api.LoadBalancer.GetByID(c.t.Context(), all[0].ID)
				c.must(err)
				if took := time.Since(start); len(lb.Services) == 2 || took > time.Hour {
					return took
				}
			}
		}
		if took := repaired(); took > 21*time.Minute {
			t.Errorf("a port that is deleted in a quiet cluster came back after %v", took)
		}
		time.Sleep(time.Minute)
		if took := repaired(); took > 3*time.Minute {
			t.Errorf("one that is deleted soon afterwards came back after %v", took)
		}
		time.Sleep(2 * time.Hour)
		node, err := c.kube.CoreV1().Nodes().Get(c.t.Context(), "node-1", metav1.GetOptions{})
		c.must(err)
		c.label(node)
		time.Sleep(time.Second)
		if took := repaired(); took > 3*time.Minute {
			t.Errorf("one that is deleted after a change of a node's labels came back after %v", took)
		}
	})
}

// 90 routes one after the other: the API allows no more.
func TestManyRoutesCostLittleMoreThanTheirRequests(t *testing.T) {
	t.Parallel()
	const n = 90
	inBubble(t, n, true, func(c *cluster) {
		start := time.Now()
		took := time.Duration(0)
		all := c.during(func() {
			c.start(false)
			for len(c.networkRoutes()) < n && time.Since(start) < 10*time.Minute {
				time.Sleep(time.Second)
			}
			took = time.Since(start)
		})
		t.Logf("%d routes: %v, %d requests: %v", n, took, len(all), summary(all))
		if len(all) > n+40 || took > 110*time.Second || len(c.networkRoutes()) != n {
			t.Errorf("%d of %d routes after %v with %d requests: %v", len(c.networkRoutes()), n, took, len(all), summary(all))
		}
	})
}

func (c *cluster) networkRoutes() []string {
	network, _, err := c.api.Network.GetByID(c.t.Context(), c.network.ID)
	c.must(err)
	var all []string
	for _, r := range network.Routes {
		all = append(all, r.Destination.String())
	}
	return all
}
