package loadbalancer_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
)

// The CCM dies before it writes the address of what it has created or joined. With more than one page of load balancers, that
// one is not on the first.
func TestAServiceThatShowsNoAddressGetsNoSecondLoadBalancer(t *testing.T) {
	t.Parallel()
	for _, others := range []int{0, 60} {
		t.Run(fmt.Sprint(others), func(t *testing.T) {
			t.Parallel()
			w := newSharingWorld(t, "instant", 1)
			for i := range others {
				w.create(hcloud.LoadBalancerCreateOpts{Name: fmt.Sprintf("other-%d", i)})
			}
			first, second := w.shared()
			second.Annotations = nil // it is no longer shared
			cloud := w.provider()
			for range 2 {
				for _, svc := range []*corev1.Service{first, second} {
					svc.Status = corev1.ServiceStatus{}
					w.ensure(cloud, svc)
				}
			}
			if n := len(w.loadBalancers()); n != others+1 {
				t.Errorf("%d load balancers, want %d", n, others+1)
			}
		})
	}
}

// An answer of a gateway, without a page of a list, does not prove that there is no load balancer.
func TestAnAnswerWithoutPagesIsNotAllLoadBalancers(t *testing.T) {
	t.Parallel()
	w, _, svc := newServingWorld(t, "instant", 1, nil, 80)
	svc.Status = corev1.ServiceStatus{}
	w.wire.setIntercept(func(r *http.Request) *http.Response {
		if strings.HasSuffix(r.URL.Path, "/load_balancers") && r.Method == http.MethodGet && !r.URL.Query().Has("label_selector") {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(strings.NewReader(`{"load_balancers":[]}`))}
		}
		return nil
	})
	w.ensure(w.provider(), svc)
	w.theLoadBalancer()
}
