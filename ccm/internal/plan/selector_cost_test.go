package plan

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// selectedBy returns the input of a Service with a server selector, whose load balancer serves n servers with it.
func selectedBy(n int) Input {
	selector := selectorTarget{Selector: "pool=web"}
	target := hcloud.LoadBalancerTarget{Type: hcloud.LoadBalancerTargetTypeLabelSelector,
		LabelSelector: &hcloud.LoadBalancerTargetLabelSelector{Selector: selector.Selector}}
	in := Input{Service: &corev1.Service{ObjectMeta: metav1.ObjectMeta{UID: "uid"}}, Settings: &Settings{ServerSelector: selector.Selector},
		Servers: map[int64]*hcloud.Server{}, Wrong: map[string]bool{}}
	for i := range n {
		server := &hcloud.Server{ID: int64(i + 1), Labels: map[string]string{"pool": "web"}}
		server.PublicNet.IPv4.IP = []byte{203, 0, byte(i / 256), byte(i % 256)}
		in.Servers[server.ID] = server
		in.Nodes = append(in.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)},
			Spec: corev1.NodeSpec{ProviderID: fmt.Sprintf("ccm-from-scratch://%d", server.ID)}})
		target.Targets = append(target.Targets, hcloud.LoadBalancerTarget{Type: hcloud.LoadBalancerTargetTypeServer,
			Server: &hcloud.LoadBalancerTargetServer{Server: server}})
	}
	in.Current = &hcloud.LoadBalancer{ID: 1, Labels: recorded(nil, owns("uid"), selects(selector.Selector)),
		Targets: []hcloud.LoadBalancerTarget{target}, PublicNet: hcloud.LoadBalancerPublicNet{Enabled: true}}
	return in
}

// Not parallel: it measures what the whole process allocates. Twice the nodes may cost a little more than twice as much.
func TestThePlanOfASelectorCostsWhatItsNodesCost(t *testing.T) {
	cost := func(n int) uint64 {
		in := selectedBy(n)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 3 {
			if p, _ := Compute(in); len(Diff(p, in.Current)) != 0 || p.Selector.Selector == "" {
				t.Fatalf("the load balancer differs from its plan: %v", Diff(p, in.Current))
			}
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	if few, many := cost(200), cost(800); many > 6*few {
		t.Errorf("200 nodes take %d bytes, and 800 take %d: %.1f times as many", few, many, float64(many)/float64(few))
	}
}
