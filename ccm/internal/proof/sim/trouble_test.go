//go:build sim

package sim

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
)

// troubles are the steps that no user makes: the cloud misbehaves, the CCM dies, another one leads, the
// token changes.
var troubles = map[string]act{
	"fault": func(w *world, _ string, n, m int) { w.addFault(n, m) },
	"crash": func(w *world, _ string, n, m int) {
		if w.crash == nil {
			w.crash = &crash{in: 1 + n, after: m%2 == 0, rest: time.Duration(m) * time.Second}
		}
	},
	"delete blind":  func(w *world, _ string, n, _ int) { w.deleteBlind([]string{"a", "b", "c"}[n%3]) },
	"cluster id":    func(w *world, _ string, n, _ int) { w.mistakeClusterID(n) },
	"two clusters":  func(w *world, _ string, n, m int) { w.twoClusters(n, m) },
	"lists empty":   func(w *world, _ string, n, _ int) { w.emptyLists(n) },
	"leader":        func(w *world, _ string, n, _ int) { w.changeLeader(n%3 == 0) },
	"port refused":  func(w *world, _ string, n, _ int) { w.guard.unfitPort = []int32{80, 443, 8080, 0}[n%4] },
	"pool full":     func(w *world, _ string, _, _ int) { w.fillPool() },
	"exclude late":  func(w *world, _ string, n, _ int) { w.excludeLate(n) },
	"others hang":   func(w *world, _ string, n, _ int) { w.othersHang(n) },
	"rate limited":  func(w *world, _ string, n, _ int) { w.rateLimited(n) },
	"server vanish": vanish,
	"network other": func(w *world, _ string, n, _ int) { w.mistakeNetwork(n) },
	"token away":    func(w *world, _ string, _, _ int) { w.useProject(true) },
	"token back":    func(w *world, _ string, _, _ int) { w.useProject(false) },
}

var effects = []fault.Effect{
	fault.HTTPStatus(http.StatusServiceUnavailable), fault.APIError("conflict"), fault.APIError("locked"),
	fault.APIError("rate_limit_exceeded"),
	fault.LoseAnswer(), fault.DropConnection(), fault.CutBody(0), fault.Latency(15 * time.Second), fault.FailAction("", ""),
	fault.HangAction(),
	{Kind: fault.KindHTTPStatus, Status: http.StatusOK, Body: "{}"},
}

// addFault makes some of the CCM's next requests fail.
func (w *world) addFault(n, m int) {
	r := fault.Rule{Client: ccm.ProviderName, Effect: effects[n%len(effects)], Seed: uint64(m) + 1, Max: 3 + m%20,
		Probability: []float64{0, 0.5, 0.2}[m%3]}
	switch n % 4 {
	case 1:
		r.Writes = true
	case 2:
		r.Resource = "load_balancer"
	case 3:
		r.Method = http.MethodGet
	}
	switch r.Effect.Kind {
	case fault.KindFailAction, fault.KindHangAction:
		r.Writes, r.Method = true, ""
	case fault.KindHTTPStatus:
		if r.Effect.Body != "" { // only a read has such an answer
			r.Writes, r.Method = false, http.MethodGet
		}
	}
	_, err := w.fake.Faults().Add(ctx, r)
	must(err)
}

// changeLeader cuts the leader off from the Kubernetes API, except for its informers and the Lease, until another one has
// led for some time. The old one works on until then, as a process does that was frozen. If blind, the old one has been
// replaced by one that could not read its Lease.
func (w *world) changeLeader(blind bool) {
	if w.crash != nil {
		return
	}
	if blind {
		w.current.die()
		w.current = w.startProcess(true)
		w.pass(10*time.Second, 0)
	}
	old := w.current
	old.lost = old.renewed()
	old.cut.Store(true)
	w.pass(time.Until(old.lost.Add(leaseDuration+time.Second)), 0)
	if w.crash != nil {
		return
	}
	w.current = w.startProcess(false)
	old.blind.Store(false)
	w.changeNodePorts() // the old one sees these changes, too
	w.pass(20*time.Second, 0)
	old.die()
}

// changeNodePorts gives all Services other node ports, as a user does who creates them anew.
func (w *world) changeNodePorts() {
	for _, s := range w.kube.services() {
		w.changeNodePort(s.Name)
	}
}

func (w *world) changeNodePort(service string) {
	s := w.kube.service(service)
	if s == nil || s.DeletionTimestamp != nil {
		return
	}
	for i := range s.Spec.Ports {
		s.Spec.Ports[i].NodePort += 1000
	}
	w.guard.userChanges(s)
	must(w.kube.Update(servicesResource, s, namespace))
}

// deleteBlind deletes a Service while all answers of the cloud lack their fields.
func (w *world) deleteBlind(service string) {
	_, err := w.fake.Faults().Add(ctx, fault.Rule{Client: ccm.ProviderName, Method: http.MethodGet, Max: 20,
		Effect: fault.Effect{Kind: fault.KindHTTPStatus, Status: http.StatusOK, Body: "{}"}})
	must(err)
	w.withService(service, w.kube.deleteService)
	w.pass(10*time.Second, 0)
}

// fillPool switches to another pool of Nodes when the load balancers have room for just one of them.
func (w *world) fillPool() {
	if !slices.ContainsFunc(w.kube.nodes(), isExcluded) {
		w.splitPool()
	}
	w.settle()
	for _, s := range w.kube.services() {
		if own := w.guard.owned(s); len(own) == 1 && w.guard.ok() {
			w.guard.personChanges(own[0])
			w.try(fillLB(w, own[0], max(1, len(serverTargets(own[0])))))
		}
	}
	w.settle()
	switchPool(w, "", 0, 0)
	w.pass(time.Minute, 0)
}

// useProject rotates the token to one of another project, or back.
func (w *world) useProject(away bool) {
	if w.away == away {
		return
	}
	w.away = away
	token := w.fake.Token()
	if away {
		token = w.otherToken
	}
	w.useToken(token)
}

// mistakeNetwork configures another network, in which no server is, for some minutes.
func (w *world) mistakeNetwork(n int) {
	if w.crash != nil || w.away {
		return
	}
	_, ipRange, _ := net.ParseCIDR("172.16.0.0/16")
	_, _, err := w.api.Network.Create(ctx, hcloud.NetworkCreateOpts{Name: "other", IPRange: ipRange, Subnets: []hcloud.NetworkSubnet{
		{Type: hcloud.NetworkSubnetTypeCloud, NetworkZone: hcloud.NetworkZoneEUCentral, IPRange: ipRange}}})
	w.try(err) // it may be there already
	w.configure("other")
	w.pass(time.Duration(1+n)*time.Minute, 0)
	w.configure(networkName)
}

// configure sets HCLOUD_NETWORK, and starts the CCM again.
func (w *world) configure(network string) {
	w.configured = network
	if !w.current.dead.Load() {
		w.current.die()
		w.current = w.startProcess(false)
	}
}

// othersHang makes the changes of all load balancers hang except for that of one Service, changes all Services, and makes
// sure that this one does not wait for the others.
func (w *world) othersHang(n int) {
	w.settle()
	own := map[*corev1.Service]*hcloud.LoadBalancer{}
	all := slices.DeleteFunc(w.kube.services(), func(s *corev1.Service) bool {
		lbs := w.guard.owned(s)
		if len(lbs) != 1 || lbs[0].Labels[uidLabel] != string(s.UID) || !w.guard.person[lbs[0].ID].IsZero() ||
			s.DeletionTimestamp != nil || !wantsOurs(s) || isMistyped(s) {
			return true
		}
		own[s] = lbs[0]
		return false
	})
	if len(all) < 2 || !w.guard.ok() {
		return
	}
	served := all[n%len(all)]
	for _, s := range append(slices.DeleteFunc(slices.Clone(all), func(s *corev1.Service) bool { return s == served }), served) {
		if s != served {
			_, err := w.fake.Faults().Add(ctx, fault.Rule{Client: ccm.ProviderName,
				Path: fmt.Sprintf("/load_balancers/%d/actions/update_service", own[s].ID), Effect: fault.HangAction()})
			must(err)
		}
		w.changeNodePort(s.Name)
		w.pass(time.Second, 0)
	}
	w.pass(15*time.Second, 0)
	w.guard.mu.Lock()
	defer w.guard.mu.Unlock()
	if lb := w.guard.lbs[own[served].ID]; lb != nil {
		if err := w.guard.quietPorts(w.kube.service(served.Name), lb); err != nil {
			w.guard.fail("waits", "15 s after a change of the Service %s, while other load balancers hang: %v", served.Name, err)
		}
	}
}

// excludeLate powers a server off, excludes another Node, and makes sure that this one soon has no traffic where a third one serves: a
// person reboots it then.
func (w *world) excludeLate(n int) {
	w.settle()
	nodes := slices.DeleteFunc(w.kube.nodes(), func(n *corev1.Node) bool {
		s := w.guard.server(serverIDOf(n))
		return isExcluded(n) || s == nil || s.Status != hcloud.ServerStatusRunning
	})
	if len(nodes) < 3 || !w.guard.ok() {
		return
	}
	off, excluded := nodes[n%len(nodes)], nodes[(n+1)%len(nodes)]
	w.withServer(off.Name, func(s *hcloud.Server) error { _, _, err := w.api.Server.Poweroff(ctx, s); return err })
	w.pass(2*time.Minute, 0)
	excludeNode(w, excluded.Name, 0, 0)
	w.pass(15*time.Second, 0)
	for _, s := range w.kube.services() {
		lbs := w.guard.owned(s)
		if len(lbs) != 1 || s.DeletionTimestamp != nil || !wantsOurs(s) || lbs[0].Labels[uidLabel] == "" { // a person has released it
			continue
		}
		w.guard.mu.Lock()
		want, late, serve := w.guard.wantedTargets(s, lbs[0], w.kube.nodes()), false, false
		for _, t := range lbs[0].Targets {
			if t.Server != nil {
				id := t.Server.Server.ID
				late = late || id == serverIDOf(excluded) && !slices.Contains(want, id)
				serve = serve || isHealthy(t) && slices.Contains(want, id)
			}
		}
		if late && serve {
			w.guard.fail("late", "15 s after Node %s was excluded, it is still a target of load balancer %d, although others serve",
				excluded.Name, lbs[0].ID)
		}
		w.guard.mu.Unlock()
	}
}

// rateLimited makes the cloud refuse all requests for half an hour, and counts them: with headers that say when there is room again, as
// the API does, or without any, as a proxy does.
func (w *world) rateLimited(n int) {
	w.settle()
	effect, most := fault.HTTPStatus(http.StatusTooManyRequests), 80 // one in 20 s shows whether it still refuses
	if n%2 == 0 {
		// By the headers, one request comes back each second. Of these 1,200, periodic reads take one in 10 s, and the tries of each of
		// four Services, whose pauses double up to 5 minutes, some 20.
		effect, most = fault.APIError("rate_limit_exceeded"), 200
		for _, s := range w.kube.services() {
			// The service controller looks every 30 s at each Service whose deletion waits, for example for a person who ends the
			// protection of its load balancer: six tries each time.
			if len(s.Finalizers) > 0 && (s.DeletionTimestamp != nil || s.Spec.Type != corev1.ServiceTypeLoadBalancer) {
				most += 240
			}
		}
	}
	_, err := w.fake.Faults().Add(ctx, fault.Rule{Name: "429", Client: ccm.ProviderName, Effect: effect})
	must(err)
	w.changeNodePorts()
	w.pass(10*time.Minute, 0)
	before := w.requests
	w.pass(20*time.Minute, 0)
	if sent := w.requests - before; sent > most {
		w.failNow("requests", fmt.Sprintf("%d requests in 20 minutes in which each is refused with 429", sent))
	}
	_, err = w.fake.Faults().Remove(ctx, "429")
	must(err)
}

// vanish powers a server off, and then answers for some minutes that there are no servers. Fewer than three may disappear at once.
func vanish(w *world, who string, n, _ int) {
	few := func() bool {
		known, nodes := map[int64]bool{}, w.kube.nodes()
		for _, node := range nodes {
			if id := serverIDOf(node); w.guard.server(id) != nil {
				known[id] = true
			}
		}
		return len(known) < 3 || len(known) < len(nodes)
	}
	if few() || w.away {
		return
	}
	w.withServer(who, func(s *hcloud.Server) error { _, _, err := w.api.Server.Poweroff(ctx, s); return err })
	defer w.withServer(who, func(s *hcloud.Server) error { _, _, err := w.api.Server.Poweron(ctx, s); return err })
	if w.pass(time.Minute, 0); few() { // a Node may have gone meanwhile
		return
	}
	none := `{"servers":[],"meta":{"pagination":{"page":1,"per_page":50,"previous_page":null,"next_page":null,"last_page":1,"total_entries":0}}}`
	for _, r := range []fault.Rule{
		{Name: "no list", Route: "/servers", Effect: fault.Effect{Kind: fault.KindHTTPStatus, Status: http.StatusOK, Body: none}},
		{Name: "no server", Route: "/servers/{id}", Effect: fault.APIError("not_found")},
	} {
		r.Method, r.Client = http.MethodGet, ccm.ProviderName
		_, err := w.fake.Faults().Add(ctx, r)
		must(err)
	}
	w.pass(2*time.Minute+time.Duration(n)*time.Second, 0)
	for _, name := range []string{"no list", "no server"} {
		_, err := w.fake.Faults().Remove(ctx, name)
		must(err)
	}
}

// settle ends all trouble and waits until everything is as it should be. Then nothing must change any more.
func (w *world) settle() {
	must(w.fake.Faults().Clear(ctx))
	_, err := w.fake.ResumeActions(ctx)
	must(err)
	w.useProject(false)
	if w.crash != nil && w.crash.back.IsZero() {
		w.crash = nil
	}
	deadline := time.Now().Add(40 * time.Minute)
	for w.guard.ok() {
		w.pass(30*time.Second, 0)
		err := w.guard.quiet()
		before, requests := w.writes.Load(), w.requests
		if err == nil && w.crash == nil {
			w.pass(4*time.Minute, 0)
			if err = w.guard.quiet(); err == nil && w.writes.Load() == before {
				// Three Services that a person has to correct are tried six times each, with growing delays.
				if n := w.requests - requests; n > 250 {
					w.failNow("requests", fmt.Sprintf("%d requests in 4 minutes in which nothing happens", n))
				}
				w.guard.settled()
				return
			}
		}
		if time.Now().After(deadline) {
			w.failNow("not settled", fmt.Sprintf("after 40 minutes without trouble: %v; %d writes in the last 4 minutes", err,
				w.writes.Load()-before))
		}
	}
}

func (w *world) failNow(rule, text string) {
	w.guard.mu.Lock()
	defer w.guard.mu.Unlock()
	w.guard.fail(rule, "%s", text)
}
