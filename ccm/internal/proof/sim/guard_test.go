//go:build sim

package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// grace is how old what the CCM has read may be when it writes: one sync lasts up to two minutes.
const grace = 3 * time.Minute

// failure is a broken promise.
type failure struct{ rule, text string }

func (f *failure) Error() string { return f.rule + ": " + f.text }

// guard knows the state of the cloud, and checks each request of the CCM and each change.
type guard struct {
	world *world

	mu       sync.Mutex
	failed   *failure
	steady   string          // see setSteady
	refused  bool            // see setRefused
	forced   map[string]bool // UIDs of Services whose finalizer a person has removed
	sudden   map[string]bool // those of them that nobody had deleted before
	lbs      map[int64]*hcloud.LoadBalancer
	servers  map[int64]*hcloud.Server
	networks map[int64]*hcloud.Network
	certs    map[int64]*hcloud.Certificate
	others   map[string]bool // paths of what the other cluster owns

	person   map[int64]time.Time  // load balancers that a person made
	released map[int64]time.Time  // load balancers whose label a person has removed
	ended    map[int64]time.Time  // load balancers that the CCM, too, has taken from their owner: it may repeat the request
	opened   map[int64]bool       // load balancers whose public interface a person has enabled
	adopted  map[int64]bool       // load balancers of a person that the CCM may have
	alone    map[int64]bool       // those of a person that have been the only one of their Service
	changed  map[string]time.Time // Services that a user has changed
	put      map[string]time.Time // Services whose settings a user has changed
	// deletedServer holds servers that a person deletes, lost also those that are detached: the cloud drops
	// them as targets.
	deletedServer, lost map[int64]bool
	// unfit holds the names of servers that the cloud refuses as targets.
	unfit map[string]bool
	// unfitPort is a port that the cloud refuses on all load balancers that do not have it.
	unfitPort int32
	// routed holds the servers that have been the gateway of a route.
	routed map[int64]bool
	// moved is when each load balancer has got its private address.
	moved map[int64]time.Time
	// open holds, by the Service's UID, ports that were reachable before the Service became private.
	open map[string]map[int]bool
	// healthyAt is when a server has last been healthy as a target, by load balancer. left is when healthy ones have been removed.
	healthyAt map[int64]map[int64]time.Time
	left      map[int64][]time.Time
	nodesAt   time.Time // the last change of Nodes or servers
	// taken are the healthy targets that the CCM has taken away.
	taken   map[takenTarget]taking
	portsAt map[lbPort]time.Time // since when load balancers have their ports
	// hidden is when a Service last asked that its load balancer leaves the public interface or its network, by UID.
	hidden map[string]time.Time
	// settings are the last annotations of each Service; inherited are those that a load balancer may have from its former owners.
	settings  map[string][]map[string]string
	inherited map[int64][]map[string]string
	// low is the smallest number of targets that each load balancer had or should have had since all was quiet.
	low map[int64]int
}

func newGuard(w *world) *guard {
	return &guard{world: w, forced: map[string]bool{}, sudden: map[string]bool{}, unfit: map[string]bool{},
		lbs: map[int64]*hcloud.LoadBalancer{}, servers: map[int64]*hcloud.Server{}, networks: map[int64]*hcloud.Network{},
		others: map[string]bool{}, ended: map[int64]time.Time{},
		person: map[int64]time.Time{}, released: map[int64]time.Time{}, opened: map[int64]bool{}, adopted: map[int64]bool{},
		alone: map[int64]bool{}, changed: map[string]time.Time{}, put: map[string]time.Time{},
		certs: map[int64]*hcloud.Certificate{}, routed: map[int64]bool{}, moved: map[int64]time.Time{},
		deletedServer: map[int64]bool{}, lost: map[int64]bool{}, open: map[string]map[int]bool{}, low: map[int64]int{},
		healthyAt: map[int64]map[int64]time.Time{}, left: map[int64][]time.Time{},
		taken: map[takenTarget]taking{}, portsAt: map[lbPort]time.Time{}, hidden: map[string]time.Time{},
		settings: map[string][]map[string]string{}, inherited: map[int64][]map[string]string{}}
}

// fail records the first failure. The caller holds mu.
func (g *guard) fail(rule, format string, args ...any) {
	if g.failed == nil {
		g.failed = &failure{rule, fmt.Sprintf(format, args...)}
		if g.world.host != nil {
			g.world.host.failNow(rule, "in the second cluster: "+g.failed.text)
		}
		g.world.poke()
	}
}

func (g *guard) ok() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failed == nil
}

// event is told of each change in the cloud.
func (g *guard) event(e fakecloud.Event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e.Project != fakecloud.DefaultProject {
		if e.Kind == "load_balancer" && e.Type == fakecloud.EventCreated {
			g.fail("project", "load balancer %d was created in another project", e.ID)
		}
		return
	}
	if e.Type == fakecloud.EventDeleted {
		delete(g.lbs, e.ID)
		delete(g.servers, e.ID)
		delete(g.networks, e.ID)
		delete(g.certs, e.ID)
		return
	}
	v, err := decode(e.Resource, e.Kind)
	must(err)
	switch v := v.(type) {
	case *hcloud.LoadBalancer:
		if !g.isOthers("load_balancers", v.ID, v.Labels) {
			g.loadBalancerChanged(v)
		}
	case *hcloud.Server:
		g.servers[v.ID] = v
		g.noteStopped(v)
	case *hcloud.Certificate:
		if !g.isOthers("certificates", v.ID, v.Labels) {
			g.certs[v.ID] = v
		}
	case *hcloud.Action:
		g.actionChanged(v)
	case *hcloud.Network:
		g.networks[v.ID] = v
		for _, r := range v.Routes {
			for _, s := range g.servers {
				g.routed[s.ID] = g.routed[s.ID] || privateIP(s, v) == r.Gateway.String()
			}
		}
	}
}

// actionChanged allows one target less where the cloud has failed to add one: the next sync starts from what there is.
func (g *guard) actionChanged(a *hcloud.Action) {
	if a.Command != "add_target" || a.Status != hcloud.ActionStatusError {
		return
	}
	for _, r := range a.Resources {
		if r.Type == hcloud.ActionResourceTypeLoadBalancer {
			g.low[r.ID]--
		}
	}
}

func (g *guard) loadBalancerChanged(v *hcloud.LoadBalancer) {
	before := g.lbs[v.ID]
	g.noteHealth(before)
	g.lbs[v.ID] = v
	g.noteHealth(v)
	g.noteTaken(v)
	if len(v.PrivateNet) > 0 && (before == nil || len(before.PrivateNet) == 0) {
		g.moved[v.ID] = time.Now()
	}
	if before != nil && before.PublicNet.Enabled && !v.PublicNet.Enabled {
		delete(g.opened, v.ID)
	}
	if before != nil && before.Labels[uidLabel] != v.Labels[uidLabel] {
		g.ownerChanges(before, v)
	}
	g.checkExposure(v)
	if before != nil {
		g.checkTargets(before, v)
	}
}

// checkExposure makes sure that a private Service's ports are not reachable from the internet.
func (g *guard) checkExposure(lb *hcloud.LoadBalancer) {
	s := g.ownerOf(lb)
	if s == nil {
		return
	}
	if !lb.PublicNet.Enabled {
		if g.long(g.changed[string(s.UID)]) { // a sync that began when the Service was public may still run
			delete(g.open, string(s.UID))
		}
		return
	}
	if !isPrivate(s) || g.opened[lb.ID] {
		return
	}
	for _, p := range s.Spec.Ports {
		if byGuest(lb, int(p.Port)) {
			continue // a guest's port, which is public
		}
		listens := slices.ContainsFunc(lb.Services, func(l hcloud.LoadBalancerService) bool {
			return l.ListenPort == int(p.Port) && l.DestinationPort == int(p.NodePort) // else it is still what was there before
		})
		if listens && !g.open[string(s.UID)][int(p.Port)] {
			g.fail("exposure", "port %d of the private Service %s is reachable from the internet on load balancer %d", p.Port, s.Name,
				lb.ID)
		}
	}
}

// checkTargets makes sure that there are never fewer targets than before, than wanted, or than fit, less one.
func (g *guard) checkTargets(before, after *hcloud.LoadBalancer) {
	low, known := g.low[after.ID]
	had, has := serverTargets(before), serverTargets(after)
	if s := g.ownerOf(after); !known || len(has) >= len(had) || s != nil && g.mustLeave(s, before) ||
		!slices.ContainsFunc(before.Services, func(l hcloud.LoadBalancerService) bool {
			return time.Since(g.portsAt[lbPort{after.ID, l.ListenPort}]) > 15*time.Second
		}) || // it serves nothing, such as that of an heir, or no target has been checked yet
		g.forced[after.Labels[uidLabel]] { // a protected load balancer of a Service that has vanished follows the Nodes
		return
	}
	if len(has) == 0 && time.Since(after.Created) < time.Minute {
		return // its creation has failed in the cloud
	}
	for _, id := range had {
		if g.lost[id] && !slices.Contains(has, id) {
			low--
		}
	}
	g.low[after.ID] = low
	if len(has) < low-1 {
		g.fail("targets", "load balancer %d has %d targets, and had %d; at least %d are possible", after.ID, len(has), len(had), low-1)
	}
}

// note remembers how many targets there are and should be.
func (g *guard) note() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.noteAll(false)
}

func (g *guard) noteAll(anew bool) {
	for _, s := range g.world.kube.services() {
		g.seen(s)
	}
	for _, lb := range g.lbs {
		g.noteLow(lb, anew)
	}
}

// noteLow remembers how many targets the load balancer has and should have.
func (g *guard) noteLow(lb *hcloud.LoadBalancer, anew bool) {
	s := g.ownerOf(lb)
	if s == nil {
		return
	}
	n := min(len(serverTargets(lb)), len(g.wantedTargets(s, lb, g.world.kube.nodes())), room(lb))
	if g.leavesNetwork(s, lb) {
		n = 0
	}
	if low, known := g.low[lb.ID]; known && !anew {
		n = min(n, low)
	}
	g.low[lb.ID] = n
}

// leavesNetwork reports whether the load balancer has to leave its network, with its private targets, because the
// Service wants another private address and private targets. It must not leave for an address that it cannot have.
func (g *guard) leavesNetwork(s *corev1.Service, lb *hcloud.LoadBalancer) bool {
	want := setting(s, "private-ipv4")
	if want == noAddress || slices.ContainsFunc(g.sortedLBs(), func(o *hcloud.LoadBalancer) bool {
		return o != lb && hasAddress(o, want) &&
			g.long(g.moved[o.ID])
	}) {
		return false
	}
	private := slices.ContainsFunc(lb.Targets, func(t hcloud.LoadBalancerTarget) bool { return t.UsePrivateIP })
	return private && usesPrivateIP(s, lb) && want != "" && len(lb.PrivateNet) > 0 && lb.PrivateNet[0].IP.String() != want
}

// loses is called before the cloud itself takes all targets off a load balancer.
func (g *guard) loses(lb *hcloud.LoadBalancer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.low[lb.ID] = 0
}

// nodesChange is called before a user changes Nodes or servers.
func (g *guard) nodesChange() {
	g.note()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.nodesAt = time.Now()
}

// everythingChanges is called before a change that takes targets away by itself.
func (g *guard) everythingChanges() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id := range g.lbs {
		g.low[id] = 0
	}
	for id := range g.servers {
		g.lost[id] = true
	}
}

// userChanges is called before a user changes a Service.
func (g *guard) userChanges(s *corev1.Service) {
	g.note()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.changed[string(s.UID)] = time.Now()
	for _, lb := range g.ownedLocked(s) {
		g.mustLeave(s, lb) // a sync that has begun may still do it
	}
	if isPrivate(s) {
		return
	}
	for _, p := range s.Spec.Ports {
		g.allow(s, int(p.Port))
	}
	for _, lb := range g.ownedLocked(s) {
		g.allowPorts(s, lb)
	}
}

// puts is called before a user changes the settings of a Service.
func (g *guard) puts(s *corev1.Service) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.put[string(s.UID)] = time.Now()
}

// personChanges is called before a person changes a Service's load balancer.
func (g *guard) personChanges(lb *hcloud.LoadBalancer) {
	g.note()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.low[lb.ID]-- // it may be a target that goes
	if s := g.ownerOf(lb); s != nil {
		g.allowPorts(s, lb)
		for _, p := range s.Spec.Ports {
			g.allow(s, int(p.Port))
		}
	}
}

func (g *guard) allowPorts(s *corev1.Service, lb *hcloud.LoadBalancer) {
	for _, l := range lb.Services {
		g.allow(s, l.ListenPort)
	}
}

func (g *guard) allow(s *corev1.Service, port int) {
	ports := g.open[string(s.UID)]
	if ports == nil {
		ports = map[int]bool{}
		g.open[string(s.UID)] = ports
	}
	ports[port] = true
}

// request checks a write of the CCM before it is sent.
func (g *guard) request(c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	parts := strings.Split(strings.Trim(strings.SplitN(c.path, "?", 2)[0], "/"), "/")
	id := int64(0)
	if len(parts) > 1 {
		id, _ = strconv.ParseInt(parts[1], 10, 64)
	}
	switch {
	case c.process != g.world.current:
		g.fail("leader", "ccm %d writes %s %s although ccm %d leads", c.process.id, c.method, c.path, g.world.current.id)
	case g.world.away: // the other project is watched by event
	case g.others[strings.Join(parts[:min(2, len(parts))], "/")]:
		g.fail("foreign", "%s %s: it is the other cluster's", c.method, c.path)
	case parts[0] == "load_balancers" && id == 0:
		g.checkCreate(c)
	case parts[0] == "load_balancers":
		g.checkChange(c, g.lbs[id])
		g.checkUnasked(parts[len(parts)-1], g.lbs[id])
		g.checkNewTarget(parts[len(parts)-1], c.body)
		g.checkRemoval(parts[len(parts)-1], c.body, g.lbs[id])
		g.checkCapacity(parts[len(parts)-1], c.body, g.lbs[id])
	case parts[0] == "networks" && len(parts) == 4 && parts[3] == "delete_route":
		g.checkDeleteRoute(c, g.networks[id])
	case parts[0] == "networks" && len(parts) == 4 && parts[3] == "add_route", parts[0] == "certificates":
	default:
		g.fail("foreign", "the CCM must not send %s %s", c.method, c.path)
	}
}

func (g *guard) checkCreate(c *call) {
	var body struct {
		Labels  map[string]string
		Targets []json.RawMessage
	}
	must(json.Unmarshal(c.body, &body))
	for _, target := range body.Targets {
		g.checkNewTarget("add_target", target)
	}
	uid := body.Labels[uidLabel]
	s := g.serviceByUID(uid)
	ends := s == nil && g.forced[uid] || s != nil && !wantsOurs(s)
	switch {
	case s == nil && !ends, ends && g.long(g.changed[uid]):
		g.fail("orphan", "a load balancer is created for %q, which wants none", uid)
	case ends: // a sync that began before may still run
	case !g.refused && slices.ContainsFunc(g.ownedLocked(s), func(lb *hcloud.LoadBalancer) bool { return g.person[lb.ID].IsZero() }):
		g.fail("second", "a second load balancer is created for the Service %s", s.Name)
	}
}

// checkNewTarget makes sure that a server becomes a target only after its Node has got a route. Nothing marks the second
// Node of a machine, which registers with a provider ID.
func (g *guard) checkNewTarget(action string, body []byte) {
	var target struct{ Server struct{ ID int64 } }
	if action != "add_target" {
		return
	}
	must(json.Unmarshal(body, &target))
	if s := g.servers[target.Server.ID]; s != nil && isSecond(s.Name) != (g.world.host != nil) {
		g.fail("foreign", "server %s of the other cluster becomes a target", s.Name)
	}
	if id := target.Server.ID; id != 0 && !g.routed[id] && !g.twinned(id) {
		g.fail("route", "server %d becomes a target before its Node has a route", id)
	}
}

// checkUnasked makes sure that what no annotation chooses stays as it is.
func (g *guard) checkUnasked(action string, lb *hcloud.LoadBalancer) {
	name := map[string]string{"change_type": "type", "change_algorithm": "algorithm-type", "change_protection": "delete-protection"}[action]
	if name == "" || lb == nil {
		return
	}
	s := g.ownerOf(lb)
	chosen := func(s *corev1.Service) bool { return setting(s, name) != "" }
	if s != nil && !slices.ContainsFunc(g.asServed(g.serviceByUID(string(s.UID)), lb), chosen) && g.long(g.changed[string(s.UID)]) {
		g.fail("unasked", "%s of load balancer %d (%s), although the Service %s has no annotation %s", action, lb.ID, lb.Name, s.Name, name)
	}
}

// long reports whether something happened so long ago that the CCM must know of it.
func (g *guard) long(at time.Time) bool { return at.IsZero() || time.Since(at) > grace }

func (g *guard) checkChange(c *call, lb *hcloud.LoadBalancer) {
	if lb == nil {
		return
	}
	what := fmt.Sprintf("%s %s: load balancer %s, labels %v", c.method, c.path, lb.Name, lb.Labels)
	made, isPersons := g.person[lb.ID]
	s := g.ownerOf(lb)
	guests := g.guestsOf(lb)
	adopts := c.method == http.MethodPut && s == nil && bytes.Contains(c.body, []byte(uidLabel)) && g.asksFor(lb.Name)
	again := bytes.Contains(c.body, fmt.Appendf(nil, "%q:%q", uidLabel, lb.Labels["ccm-from-scratch/last-owner"]))
	// A guest that has vanished takes its ports along, also if the owner's label is gone: others may get the node ports.
	vanished := slices.ContainsFunc(slices.Collect(maps.Keys(lb.Labels)), func(key string) bool {
		uid, guest := strings.CutPrefix(key, guestLabel)
		return guest && g.forced[uid]
	})
	if at, ok := g.released[lb.ID]; ok && g.long(at) && len(guests) == 0 && !vanished && !(adopts && !again) {
		g.fail("released", "%s: a person has removed the label", what)
	}
	if adopts { // by its first Service, or by another one that asks for it by name
		g.adopted[lb.ID] = true
		delete(g.released, lb.ID)
		return
	}
	if isPersons && s != nil && len(g.ownedLocked(s)) == 1 { // the person has deleted the other one
		g.alone[lb.ID] = true
	}
	switch {
	case isPersons && !g.adopted[lb.ID] && g.long(made) && (s == nil || !g.alone[lb.ID]):
		g.fail("foreign", "%s: a person made it", what)
	case s == nil && !isPersons && len(guests) == 0 && !vanished && g.long(g.changed[lb.Labels[uidLabel]]) && g.long(g.released[lb.ID]) &&
		g.long(g.ended[lb.ID]) && !g.forced[lb.Labels[uidLabel]]:
		g.fail("foreign", "%s: it belongs to no Service", what)
	}
	if c.method == http.MethodDelete && g.sudden[lb.Labels[uidLabel]] {
		g.fail("deletion", "%s: nobody has asked for it: its Service has vanished", what)
	}
	if c.method != http.MethodDelete || s == nil {
		return
	}
	for _, guest := range guests {
		if guest.DeletionTimestamp == nil && wantsOurs(guest) && g.long(g.changed[string(guest.UID)]) {
			g.fail("deletion", "%s: the Service %s shares it", what, guest.Name)
		}
	}
	if g.long(g.put[string(s.UID)]) && (setting(s, "keep-on-delete") == "true" || plan.RecordOf(lb).Lent) {
		g.fail("deletion", "%s: the Service %s has to leave it behind", what, s.Name)
	}
	if isPersons && g.adopted[lb.ID] && g.long(g.put[string(s.UID)]) && setting(s, "keep-on-delete") != "false" {
		g.fail("deletion", "%s: a person made it", what)
	}
	if s.DeletionTimestamp == nil && wantsOurs(s) && (g.steady == string(s.UID) || g.long(g.changed[string(s.UID)])) {
		g.fail("deletion", "%s: the Service %s needs it", what, s.Name)
	}
	for _, other := range g.ownedLocked(s) {
		if other != lb && g.long(g.person[other.ID]) && g.long(g.released[other.ID]) {
			g.fail("deletion", "%s: load balancer %d has the label of the Service %s, too", what, other.ID, s.Name)
		}
	}
}

// asksFor reports whether a Service asks for the load balancer of that name.
func (g *guard) asksFor(name string) bool {
	return slices.ContainsFunc(g.world.kube.services(), func(s *corev1.Service) bool {
		return setting(s, "name") == name || setting(s, "adopt") == name || !g.long(g.changed[string(s.UID)])
	})
}

// checkDeleteRoute makes sure that no route is deleted that a person made or that a Node needs.
func (g *guard) checkDeleteRoute(c *call, network *hcloud.Network) {
	var body struct{ Destination, Gateway string }
	must(json.Unmarshal(c.body, &body))
	if p, err := netip.ParsePrefix(body.Destination); err != nil || !g.world.podRange.Overlaps(p) {
		g.fail("foreign", "the CCM deletes the route to %s, which a person made", body.Destination)
	}
	for _, n := range g.world.kube.nodes() {
		s := g.servers[serverIDOf(n)]
		if s == nil || network == nil || !slices.Contains(n.Spec.PodCIDRs, body.Destination) {
			continue
		}
		if ip := privateIP(s, network); ip == body.Gateway && !g.deletedServer[s.ID] {
			g.fail("route", "the CCM deletes the route of Node %s: %s via %s", n.Name, body.Destination, body.Gateway)
		}
	}
}

// kubeWrite checks a write of the CCM to Kubernetes. after is nil for a deletion.
func (g *guard) kubeWrite(before, after runtime.Object) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch old := before.(type) {
	case *corev1.Node:
		if s := g.servers[serverIDOf(old)]; after == nil && s != nil && !g.deletedServer[s.ID] {
			g.fail("node", "Node %s is deleted although its server %d exists", old.Name, s.ID)
		}
	case *corev1.Service:
		if now, ok := after.(*corev1.Service); ok {
			g.checkAddress(old, now)
		}
	}
}

// checkAddress makes sure that a Service keeps showing the address of a load balancer that serves it.
func (g *guard) checkAddress(before, after *corev1.Service) {
	shows := func(s *corev1.Service, ip string) bool {
		return slices.ContainsFunc(s.Status.LoadBalancer.Ingress, func(i corev1.LoadBalancerIngress) bool { return i.IP == ip })
	}
	if !wantsOurs(after) && after.Spec.LoadBalancerClass != nil && g.long(g.changed[string(after.UID)]) &&
		len(after.Status.LoadBalancer.Ingress) > len(before.Status.LoadBalancer.Ingress) {
		g.fail("class", "the CCM writes an address into the Service %s, which is another controller's", after.Name)
	}
	if isPrivate(after) || after.Annotations[prefix+"hostname"] != "" || after.DeletionTimestamp != nil ||
		!wantsOurs(after) ||
		!g.long(g.changed[string(after.UID)]) {
		return
	}
	for _, lb := range g.ownedLocked(after) {
		ip := lb.PublicNet.IPv4.IP.String()
		if lb.PublicNet.Enabled && shows(before, ip) && !shows(after, ip) {
			g.fail("address", "the Service %s loses the address %s, which load balancer %d still has", after.Name, ip, lb.ID)
		}
	}
}
