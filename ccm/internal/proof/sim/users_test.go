//go:build sim

package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
)

const (
	handmade    = "handmade" // name of a load balancer that a person made
	foreignPort = 19000
)

// act is a step of a user: who says of what (a Service or a machine), n and m choose among variants. What
// cannot be done now is not done.
type act func(w *world, who string, n, m int)

// people are the steps of users, on both sides.
var people = map[string]act{
	"service":        func(w *world, who string, n, m int) { w.putService(who, n, m) },
	"service delete": func(w *world, who string, _, _ int) { w.withService(who, w.kube.deleteService) },
	"service type":   toggleType,
	"service flap":   flapType,
	"service class":  toggleClass,
	"service force":  removeByForce,

	"node add":     func(w *world, who string, _, _ int) { w.addServer(who, 20*time.Second) },
	"node refused": addRefused,
	"node delete":  func(w *world, who string, _, _ int) { w.deleteNode(who) },
	"node exclude": excludeNode,
	"node brief": func(w *world, who string, n, _ int) { // its machine is gone when, or before, it is initialized
		w.addServer(who, 20*time.Second)
		w.pass(time.Duration(20+n%20)*time.Second, 0)
		w.deleteServer(who)
	},
	"node twin":   func(w *world, who string, _, _ int) { w.register(who, who+"-twin") },
	"pool switch": switchPool,

	"server delete": func(w *world, who string, _, _ int) { w.deleteServer(who) },
	"server off": func(w *world, who string, _, _ int) {
		w.withServer(who, func(s *hcloud.Server) error { _, _, err := w.api.Server.Poweroff(ctx, s); return err })
	},
	"server on": func(w *world, who string, _, _ int) {
		w.withServer(who, func(s *hcloud.Server) error { _, _, err := w.api.Server.Poweron(ctx, s); return err })
	},
	"server detach": detachServer,
	"server attach": func(w *world, who string, _, _ int) { w.withServer(who, w.attachServer) },

	"lb delete": onLB(func(w *world, lb *hcloud.LoadBalancer, _ int) error {
		_, _, err := w.api.LoadBalancer.DeleteWithResult(ctx, lb)
		return err
	}),
	"lb port delete": onLB(func(w *world, lb *hcloud.LoadBalancer, n int) error {
		if len(lb.Services) == 0 {
			return nil
		}
		_, _, err := w.api.LoadBalancer.DeleteService(ctx, lb, lb.Services[n%len(lb.Services)].ListenPort)
		return err
	}),
	"lb port change": onLB(func(w *world, lb *hcloud.LoadBalancer, n int) error {
		if len(lb.Services) == 0 {
			return nil
		}
		dest := 29000 + n
		_, _, err := w.api.LoadBalancer.UpdateService(ctx, lb, lb.Services[n%len(lb.Services)].ListenPort,
			hcloud.LoadBalancerUpdateServiceOpts{DestinationPort: &dest})
		return err
	}),
	"lb port add": onLB(func(w *world, lb *hcloud.LoadBalancer, _ int) error {
		port := foreignPort
		_, _, err := w.api.LoadBalancer.AddService(ctx, lb, hcloud.LoadBalancerAddServiceOpts{Protocol: "tcp", ListenPort: &port,
			DestinationPort: &port})
		return err
	}),
	"lb target remove": onLB(func(w *world, lb *hcloud.LoadBalancer, n int) error {
		ids := serverTargets(lb)
		if len(ids) == 0 {
			return nil
		}
		_, _, err := w.api.LoadBalancer.RemoveServerTarget(ctx, lb, &hcloud.Server{ID: ids[n%len(ids)]})
		return err
	}),
	"lb fill":    onLB(func(w *world, lb *hcloud.LoadBalancer, n int) error { return fillLB(w, lb, 2+n%3) }),
	"lb private": onLB(togglePublic),
	"lb detach": onLB(func(w *world, lb *hcloud.LoadBalancer, _ int) error {
		if len(lb.PrivateNet) == 0 {
			return nil
		}
		w.guard.loses(lb)
		_, _, err := w.api.LoadBalancer.DetachFromNetwork(ctx, lb,
			hcloud.LoadBalancerDetachFromNetworkOpts{Network: lb.PrivateNet[0].Network})
		return err
	}),
	"lb algorithm": onLB(func(w *world, lb *hcloud.LoadBalancer, n int) error {
		kinds := []hcloud.LoadBalancerAlgorithmType{hcloud.LoadBalancerAlgorithmTypeRoundRobin,
			hcloud.LoadBalancerAlgorithmTypeLeastConnections}
		_, _, err := w.api.LoadBalancer.ChangeAlgorithm(ctx, lb, hcloud.LoadBalancerChangeAlgorithmOpts{Type: kinds[n%2]})
		return err
	}),
	"lb rename": onLB(func(w *world, lb *hcloud.LoadBalancer, n int) error {
		_, _, err := w.api.LoadBalancer.Update(ctx, lb, hcloud.LoadBalancerUpdateOpts{Name: fmt.Sprintf("renamed-%d-%d", lb.ID, n)})
		return err
	}),
	"lb protect": onLB(func(w *world, lb *hcloud.LoadBalancer, _ int) error {
		on := !lb.Protection.Delete
		_, _, err := w.api.LoadBalancer.ChangeProtection(ctx, lb, hcloud.LoadBalancerChangeProtectionOpts{Delete: &on})
		return err
	}),
	"lb label remove": onLB(removeLabel),
	"lb label copy":   onLB(copyLabel),

	"route add":    func(w *world, _ string, n, _ int) { w.addRoute(fmt.Sprintf("192.168.%d.0/24", n), "10.0.77.7") },
	"route stale":  func(w *world, _ string, n, _ int) { w.addRoute(fmt.Sprintf("10.244.%d.0/24", n), "10.0.88.8") },
	"route delete": deleteRoute,
	"network anew": func(w *world, _ string, _, _ int) { w.networkAnew() },

	"handmade":      func(w *world, _ string, _, _ int) { w.try(w.createLB(handmade, nil, 0)) },
	"pool split":    func(w *world, _ string, _, _ int) { w.splitPool() },
	"other cluster": func(w *world, _ string, n, _ int) { w.otherCluster(n) },
	"other delete":  func(w *world, _ string, n, _ int) { w.deleteOther(n) },
}

var ctx = context.Background()

// try notes what the cloud says to a person. A refusal, such as locked, is not a failure of the CCM.
func (w *world) try(err error) {
	if err != nil {
		var refusal hcloud.Error
		if errors.As(err, &refusal) {
			err = errors.New(string(refusal.Code)) // its correlation ID is another one each time
		}
		w.say("  refused: %v", err)
	}
}

func (w *world) withService(name string, do func(*corev1.Service)) {
	if s := w.kube.service(name); s != nil {
		w.guard.userChanges(s)
		do(s)
	}
}

// addServer creates a server, which gets a Node after some time.
func (w *world) addServer(name string, after time.Duration) {
	if w.guard.serverNamed(name) != nil {
		return
	}
	network := w.guard.network()
	if network == nil {
		return
	}
	_, _, err := w.api.Server.Create(ctx, hcloud.ServerCreateOpts{Name: name, ServerType: &hcloud.ServerType{Name: "cx23"},
		Image: &hcloud.Image{Name: "ubuntu-24.04"}, Location: &hcloud.Location{Name: "fsn1"}, Networks: []*hcloud.Network{network}})
	w.try(err)
	w.joins = append(w.joins, join{time.Now().Add(after), name, name})
}

// addRefused adds a server that the cloud refuses as a target, for as long as it exists, such as one in another network zone.
func addRefused(w *world, who string, _, _ int) {
	if w.guard.serverNamed(who) == nil {
		w.guard.unfit[who] = true
		w.addServer(who, 20*time.Second)
	}
}

// refuses returns the cloud's refusal of a request with such a server or with a port that it refuses, or nil. It takes some servers: then
// the action fails.
func (w *world) refuses(c *call) (refusal *http.Response, fails bool) {
	if c.method != http.MethodPost || strings.HasSuffix(c.path, "/remove_target") || strings.HasSuffix(c.path, "/update_service") {
		return nil, false
	}
	w.guard.mu.Lock()
	defer w.guard.mu.Unlock()
	refused := w.guard.unfitPort != 0 && bytes.Contains(c.body, fmt.Appendf(nil, `"listen_port":%d,`, w.guard.unfitPort))
	for id, s := range w.guard.servers {
		if w.guard.unfit[s.Name] && bytes.Contains(c.body, fmt.Appendf(nil, `"server":{"id":%d}`, id)) {
			fails = id%2 == 1 && strings.HasSuffix(c.path, "/add_target")
			refused = !fails
		}
	}
	if fails {
		_, err := w.fake.Faults().Add(ctx, fault.Rule{Path: c.path, Max: 1, Effect: fault.FailAction("", "")})
		must(err)
	}
	if !refused {
		return nil, fails
	}
	return &http.Response{StatusCode: http.StatusUnprocessableEntity, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(`{"error":{"code":"unsupported_error","message":"unsupported target or port"}}`))}, false
}

// register makes the Node of a server, as its kubelet does.
func (w *world) register(server, name string) {
	s := w.guard.serverNamed(server)
	if s == nil || w.kube.node(name) != nil || s.Status != hcloud.ServerStatusRunning {
		return
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("node-" + name)},
		Spec:   corev1.NodeSpec{PodCIDRs: []string{podRangeOf(name)}, PodCIDR: podRangeOf(name)},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	if server == name {
		n.Spec.Taints = []corev1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider, Effect: corev1.TaintEffectNoSchedule,
			Value: "true"}}
	} else {
		n.Spec.ProviderID = providerID(s.ID) // its machine says so
	}
	must(w.kube.Create(nodesResource, n, ""))
}

func providerID(id int64) string { return fmt.Sprintf("%s://%d", ccm.ProviderName, id) }

func serverIDOf(n *corev1.Node) int64 {
	id, _ := strconv.ParseInt(strings.TrimPrefix(n.Spec.ProviderID, ccm.ProviderName+"://"), 10, 64)
	return id
}

// podRangeOf returns the pod range of a Node, which its name decides: n7 has 10.244.7.0/24, and m7 10.245.7.0/24.
func podRangeOf(name string) string {
	number, _ := strconv.Atoi(strings.TrimSuffix(name[1:], "-twin"))
	if strings.HasSuffix(name, "-twin") {
		number += 100
	}
	cluster := 244
	if isSecond(name) {
		cluster++
	}
	return fmt.Sprintf("10.%d.%d.0/24", cluster, number)
}

// kubelets reports the state of servers on their Nodes: a Node is not ready 40 s after its server stopped. A
// Node has a twin if its machine has registered again under another name: then the first one is not ready.
func (w *world) kubelets(now time.Time) {
	for _, n := range w.kube.nodes() {
		server := w.guard.serverNamed(strings.TrimSuffix(n.Name, "-twin"))
		if id := serverIDOf(n); id != 0 {
			server = w.guard.server(id)
		}
		runs := server != nil && server.Status == hcloud.ServerStatusRunning && w.kube.node(n.Name+"-twin") == nil
		want := corev1.ConditionTrue
		if !runs {
			if w.notReady[n.Name].IsZero() {
				w.notReady[n.Name] = now
			}
			if now.Sub(w.notReady[n.Name]) < 40*time.Second {
				continue
			}
			want = corev1.ConditionUnknown
		} else {
			delete(w.notReady, n.Name)
		}
		i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
		if n.Status.Conditions[i].Status != want {
			n.Status.Conditions[i].Status = want
			must(w.kube.Update(nodesResource, n, ""))
		}
	}
}

func (w *world) deleteNode(name string) {
	if n := w.kube.node(name); n != nil && name != "n1" {
		w.guard.nodesChange()
		must(w.kube.ObjectTracker.Delete(nodesResource, "", name))
	}
}

// isExcluded reports whether a Node is kept out of load balancers.
func isExcluded(n *corev1.Node) bool {
	_, is := n.Labels[corev1.LabelNodeExcludeBalancers]
	return is
}

func excludeNode(w *world, who string, _, _ int) {
	if n := w.kube.node(who); n != nil {
		w.exclude(n)
	}
}

// exclude keeps Nodes out of load balancers, or no longer those that are excluded. A person cordons them, too.
func (w *world) exclude(nodes ...*corev1.Node) {
	w.guard.nodesChange()
	for _, n := range nodes {
		excluded := isExcluded(n)
		if n.Labels = labels.Merge(n.Labels, labels.Set{corev1.LabelNodeExcludeBalancers: ""}); excluded {
			delete(n.Labels, corev1.LabelNodeExcludeBalancers)
		}
		n.Spec.Unschedulable = !excluded
		must(w.kube.Update(nodesResource, n, ""))
	}
	w.guard.nodesChange() // there are other targets to want now
}

// splitPool excludes every second Node, so that a switch has something to switch to.
func (w *world) splitPool() {
	for i, n := range w.kube.nodes() {
		if i%2 == 1 {
			excludeNode(w, n.Name, 0, 0)
		}
	}
}

// switchPool exchanges the Nodes that are excluded and those that are not.
func switchPool(w *world, _ string, _, _ int) { w.exclude(w.kube.nodes()...) }

func (w *world) withServer(name string, do func(*hcloud.Server) error) {
	if s := w.guard.serverNamed(name); s != nil {
		w.guard.nodesChange()
		w.try(do(s))
	}
}

func (w *world) deleteServer(name string) {
	if name == "n1" {
		return // some server of the cluster always exists
	}
	w.withServer(name, func(s *hcloud.Server) error {
		_, _, err := w.api.Server.DeleteWithResult(ctx, s)
		if err == nil {
			delete(w.guard.unfit, s.Name)
			w.guard.deletedServer[s.ID], w.guard.lost[s.ID] = true, true
		}
		return err
	})
}

func detachServer(w *world, who string, _, _ int) {
	w.withServer(who, func(s *hcloud.Server) error {
		if len(s.PrivateNet) == 0 {
			return nil
		}
		w.guard.lost[s.ID] = true
		_, _, err := w.api.Server.DetachFromNetwork(ctx, s, hcloud.ServerDetachFromNetworkOpts{Network: s.PrivateNet[0].Network})
		return err
	})
}

func (w *world) attachServer(s *hcloud.Server) error {
	network := w.guard.network()
	if len(s.PrivateNet) > 0 || network == nil {
		return nil
	}
	_, _, err := w.api.Server.AttachToNetwork(ctx, s, hcloud.ServerAttachToNetworkOpts{Network: network})
	return err
}

func (w *world) addRoute(destination, gateway string) {
	if network := w.guard.network(); network != nil {
		_, _, err := w.api.Network.AddRoute(ctx, network,
			hcloud.NetworkAddRouteOpts{Route: hcloud.NetworkRoute{Destination: cidr(destination), Gateway: net.ParseIP(gateway)}})
		w.try(err)
	}
}

func deleteRoute(w *world, _ string, n, _ int) {
	if network := w.guard.network(); network != nil && len(network.Routes) > 0 {
		_, _, err := w.api.Network.DeleteRoute(ctx, network, hcloud.NetworkDeleteRouteOpts{Route: network.Routes[n%len(network.Routes)]})
		w.try(err)
	}
}

// networkAnew deletes the network and makes another one with its name, to which it attaches all servers.
func (w *world) networkAnew() {
	network := w.guard.network()
	if network == nil {
		return
	}
	w.guard.everythingChanges()
	if _, err := w.api.Network.Delete(ctx, network); err != nil {
		w.try(err)
		return
	}
	_, _, err := w.api.Network.Create(ctx, networkOpts())
	w.try(err)
	w.pass(time.Second, 0)
	for _, s := range w.guard.allServers() {
		w.try(w.attachServer(s))
		w.pass(5*time.Second, 0)
	}
}

// otherCluster makes n load balancers of another cluster's CCM in the same project.
func (w *world) otherCluster(n int) {
	for i := range n {
		w.try(w.createLB(fmt.Sprintf("other-%02d", i), map[string]string{uidLabel: fmt.Sprintf("uid-other-%02d", i)}, 0))
	}
	w.quietly(5 * time.Second)
}

func (w *world) deleteOther(n int) {
	for _, lb := range w.guard.loadBalancers() {
		if lb.Name == fmt.Sprintf("other-%02d", n) {
			_, _, err := w.api.LoadBalancer.DeleteWithResult(ctx, lb)
			w.try(err)
		}
	}
}
