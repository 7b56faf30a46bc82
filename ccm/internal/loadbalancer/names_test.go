package loadbalancer_test

import (
	"slices"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// A person's load balancer, which a Service got by its name, outlives the Service.
func TestALoadBalancerThatAPersonMadeIsGivenBack(t *testing.T) {
	t.Parallel()
	for value, stays := range map[string]bool{"": true, "true": true, "false": false} {
		t.Run("keep-on-delete "+value, func(t *testing.T) {
			t.Parallel()
			eachDeath(t, func(cutAt int, after bool) []string {
				w := newWorld(t, "instant", 1)
				made := w.create(hcloud.LoadBalancerCreateOpts{Name: "edge", Labels: map[string]string{"team": "net"}})
				w.addForeignPort(made, 9000)
				svc := newService("web", map[string]string{"name": "edge"}, 80)
				if value != "" {
					annotate(svc, map[string]string{"keep-on-delete": value})
				}
				w.wire.reset(cutAt, after)
				_, _ = w.tryEnsure(w.provider(), svc)
				calls := w.wire.take()
				w.wire.reset(0, false)
				w.ensure(w.provider(), svc)
				w.remove(w.provider(), svc)
				left := w.loadBalancers()
				if stays && (len(left) != 1 || left[0].ID != made.ID || !slices.Equal(listenPorts(left[0]), []int{9000}) ||
					len(left[0].Labels) != 1) || !stays && len(left) != 0 {
					t.Fatalf("died at call %d (answered: %t): left: %+v", cutAt, after, left)
				}
				w.fake.Close()
				return calls
			})
		})
	}
}

// A name that another load balancer has. Nothing frees it, so that the error says what to do.
func TestATakenNameIsReported(t *testing.T) {
	t.Parallel()
	w, cloud, svc := newServingWorld(t, "instant", 1, map[string]string{"name": "one"}, 80)
	w.create(hcloud.LoadBalancerCreateOpts{Name: "taken"})
	annotate(svc, map[string]string{"name": "taken"})
	w.expectError(cloud, svc, "already used", "rename the other load balancer first")
	if lb, _, err := w.api.LoadBalancer.GetByName(t.Context(), "one"); err != nil || lb == nil {
		t.Error("the load balancer has lost its name", err)
	}
}
