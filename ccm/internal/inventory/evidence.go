// Package inventory knows which servers, load balancers and which network there are, at a cost of few calls, and whether an answer of
// the API proves that something is gone.
package inventory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/clock"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/apicall"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/evidence"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

const (
	// massHold is how long many servers or load balancers must be missing before the provider believes it.
	massHold = evidence.Hold
	// recogniseInterval is the least time between two searches for something of the cluster.
	recogniseInterval = 10 * time.Second
)

// Evidence decides whether the API's answers prove that servers and load balancers are gone. Two things
// make such an answer doubtful although it is correct:
//
//   - The token belongs to another project, for example after a rotation of the Secret. The project is
//     recognised once one of the cluster's servers or load balancers is visible with the token. Until then
//     nothing is gone and nothing is created.
//   - Many servers or load balancers disappear at once. They count as gone once they have been missing
//     for massHold.
//
// A person confirms a disappearance earlier by deleting the Nodes, or with HCLOUD_DISABLE_PROJECT_CHECK.
type Evidence struct {
	disabled bool
	clock    clock.PassiveClock
	token    func() (string, error)
	// listServers fetches all servers, which calls sawServers. visibleServices returns the UIDs of Services whose
	// load balancers are visible, and allLoadBalancers all load balancers; nil: load balancers are disabled.
	listServers      func(context.Context) error
	visibleServices  func(context.Context) (map[string]bool, error)
	allLoadBalancers func(context.Context) ([]*hcloud.LoadBalancer, error)

	doubted *prometheus.GaugeVec

	mu         sync.Mutex
	nodes      corelisters.NodeLister    // nil until SetInformers
	services   corelisters.ServiceLister // nil until SetInformers
	recognised string                    // token with which something of the cluster was visible
	missing    map[int64]time.Time
	missingLB  map[string]time.Time
	doubts     map[string]*apicall.DoubtError
	// doubtedWith and doubtedAt are the token and the time of the last search for something of the cluster.
	doubtedWith string
	doubtedAt   time.Time
}

// The reasons of a doubt: values of the metric's label.
const (
	doubtProject = "other_project"
	doubtServers = "servers_disappeared"
	doubtLBs     = "load_balancers_disappeared"
)

// NewEvidence returns the evidence. disabled switches its doubts off.
func NewEvidence(clk clock.PassiveClock, reg prometheus.Registerer, disabled bool, token func() (string, error)) *Evidence {
	e := &Evidence{clock: clk, disabled: disabled, token: token, missing: map[int64]time.Time{}, missingLB: map[string]time.Time{},
		doubts: map[string]*apicall.DoubtError{},
		doubted: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ccm_answers_doubted",
			Help: "1 while the provider does not believe that servers or load balancers are gone, by reason.",
		}, []string{"reason"})}
	reg.MustRegister(e.doubted)
	for _, reason := range []string{doubtProject, doubtServers, doubtLBs} {
		e.doubted.WithLabelValues(reason).Set(0)
	}
	return e
}

// SetListers sets the listers of Nodes and Services.
func (e *Evidence) SetListers(nodes corelisters.NodeLister, services corelisters.ServiceLister) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.nodes, e.services = nodes, services
}

// Listers returns the listers; nil before they are known.
func (e *Evidence) Listers() (corelisters.NodeLister, corelisters.ServiceLister) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.nodes, e.services
}

// Ready returns an error while the provider doubts the API's answers.
func (e *Evidence) Ready() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, reason := range []string{doubtProject, doubtServers, doubtLBs} {
		if d := e.doubts[reason]; d != nil {
			return d
		}
	}
	return nil
}

// setDoubt records a doubt, or its end if d is nil. The caller holds mu.
func (e *Evidence) setDoubt(reason string, d *apicall.DoubtError) {
	value := 0.0
	if d != nil {
		value = 1
	}
	e.doubts[reason] = d
	e.doubted.WithLabelValues(reason).Set(value)
}

// currentToken returns the token, or "" if it cannot be read: then no request succeeds.
func (e *Evidence) currentToken() string {
	token, err := e.token()
	if err != nil {
		return ""
	}
	return token
}

// SameToken returns a function that returns an error if the token has changed in between. Then what was not found
// with the old token may exist, although something of the cluster is visible with the new one.
func (e *Evidence) SameToken() func() error {
	token := e.currentToken()
	return func() error {
		if token != e.currentToken() {
			return errors.New("the token changed during the search for the load balancer; will try again")
		}
		return nil
	}
}

// SawOne is told that one of the cluster's servers or load balancers was visible with the token.
func (e *Evidence) SawOne(token string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.recognised = token
	e.setDoubt(doubtProject, nil)
}

// sawServers is told of each list of all servers, and of the token that was valid before its request.
func (e *Evidence) sawServers(token string, listed map[int64]bool) {
	known := e.KnownServers()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.missing = stillMissing(e.missing, known, listed, e.clock.Now())
	if len(e.missing) < len(known) && token == e.currentToken() {
		e.recognised = token
		e.setDoubt(doubtProject, nil)
	}
	e.setDoubt(doubtServers, doubtOf(doubtServers, "servers", e.missing, len(known), e.clock.Now()))
}

// sawLoadBalancers is told, with each list, the UIDs of all Services whose load balancers are visible.
func (e *Evidence) sawLoadBalancers(listed map[string]bool) {
	known := map[string]bool{}
	for uid := range e.knownServices() {
		known[uid] = true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.missingLB = stillMissing(e.missingLB, known, listed, e.clock.Now())
	e.setDoubt(doubtLBs, doubtOf(doubtLBs, "load balancers", e.missingLB, len(known), e.clock.Now()))
}

// stillMissing returns since when each known object is missing.
func stillMissing[K comparable](before map[K]time.Time, known, listed map[K]bool, now time.Time) map[K]time.Time {
	missing := map[K]time.Time{}
	for key := range known {
		if listed[key] {
			continue
		}
		if since, ok := before[key]; ok {
			missing[key] = since
		} else {
			missing[key] = now
		}
	}
	return missing
}

// doubtOf returns a doubt if too many objects disappeared within massHold, or nil.
func doubtOf[K comparable](reason, what string, missing map[K]time.Time, known int, now time.Time) *apicall.DoubtError {
	if !evidence.TooMany(len(missing), known) {
		return nil
	}
	for _, since := range missing {
		if now.Sub(since) < massHold {
			return &apicall.DoubtError{Reason: reason,
				Text: fmt.Sprintf("%d of the cluster's %d %s have disappeared: they count as gone once they have been missing for %v",
					len(missing), known, what, massHold)}
		}
	}
	return nil
}

// KnownServers returns the IDs of the servers of the cluster's Nodes.
func (e *Evidence) KnownServers() map[int64]bool {
	known := map[int64]bool{}
	nodes, _ := e.Listers()
	for _, n := range nodeinfo.List(nodes) {
		if id, err := nodeinfo.ParseProviderID(n.Spec.ProviderID); err == nil {
			known[id] = true
		}
	}
	return known
}

// knownServices returns the Services that show a load balancer, by their UIDs.
func (e *Evidence) knownServices() map[string]*corev1.Service {
	known := map[string]*corev1.Service{}
	_, lister := e.Listers()
	if lister == nil || e.visibleServices == nil {
		return known
	}
	services, err := lister.List(labels.Everything())
	if err != nil {
		return known // the lister reads from memory and returns no error
	}
	for _, svc := range services {
		if svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.Spec.LoadBalancerClass == nil &&
			len(svc.Status.LoadBalancer.Ingress) > 0 {
			known[string(svc.UID)] = svc
		}
	}
	return known
}

// serverGone returns nil if the server, which neither the list nor the API's answer to its ID shows,
// is gone. The caller has fetched the list just now.
func (e *Evidence) serverGone(ctx context.Context, id int64) error {
	if e.disabled {
		return nil
	}
	known := e.KnownServers()
	known[id] = true // a Node with this ID exists
	if err := e.recognise(ctx, len(known), nil); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	since, tracked := e.missing[id]
	return e.hold(doubtServers, tracked, since)
}

// Disappeared reports whether many servers disappeared a short time ago.
func (e *Evidence) Disappeared() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.doubts[doubtServers] != nil
}

// Project returns nil if the token belongs to the cluster's project, or if the cluster has no servers and
// load balancers that could show that.
func (e *Evidence) Project(ctx context.Context) error {
	if e.disabled || e.isRecognised(e.currentToken()) {
		return nil
	}
	return e.recognise(ctx, len(e.KnownServers()), e.listServers)
}

// isRecognised reports whether something of the cluster was visible with the token. What was asked with a token counts with
// that one only, also if it changes meanwhile.
func (e *Evidence) isRecognised(token string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.recognised == token && token != ""
}

// recognise returns nil if something of the cluster is visible with the token, or if nothing is known.
func (e *Evidence) recognise(ctx context.Context, servers int, list func(context.Context) error) error {
	token := e.currentToken()
	services := e.knownServices()
	if e.isRecognised(token) {
		return nil
	}
	if servers+len(services) == 0 {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.setDoubt(doubtProject, nil)
		return nil
	}
	e.mu.Lock()
	last := e.doubts[doubtProject]
	soon := last != nil && e.doubtedWith == token && e.clock.Since(e.doubtedAt) < recogniseInterval
	e.mu.Unlock()
	if soon {
		return last
	}
	if list != nil && servers > 0 {
		if err := list(ctx); err != nil {
			return err
		}
	}
	if !e.isRecognised(token) && len(services) > 0 {
		visible, err := e.showsOne(ctx, services)
		if err != nil {
			return err
		}
		if visible && token == e.currentToken() {
			e.SawOne(token)
		}
	}
	if e.isRecognised(token) {
		return nil
	}
	d := &apicall.DoubtError{Reason: doubtProject, Text: fmt.Sprintf(
		"none of the cluster's %d servers and %d load balancers is visible with this token, which may belong to another project: nothing "+
			"is deleted or created; correct the token, or set HCLOUD_DISABLE_PROJECT_CHECK=true if all of them are gone",
		servers, len(services))}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.setDoubt(doubtProject, d)
	e.doubtedWith, e.doubtedAt = token, e.clock.Now()
	return d
}

// showsOne reports whether a load balancer of one of the Services is visible: by its label, or else by its
// address, because a person may have removed all labels to keep the load balancers.
func (e *Evidence) showsOne(ctx context.Context, services map[string]*corev1.Service) (bool, error) {
	visible, err := e.visibleServices(ctx)
	if err != nil {
		return false, err
	}
	for uid := range services {
		if visible[uid] {
			return true, nil
		}
	}
	all, err := e.allLoadBalancers(ctx)
	for _, lb := range all {
		for _, svc := range services {
			if plan.ShowsPublicAddressOf(svc, lb) {
				return true, nil
			}
		}
	}
	return false, err
}

// LoadBalancerGone returns nil if a Service without a visible load balancer may get a new one.
func (e *Evidence) LoadBalancerGone(ctx context.Context, svc *corev1.Service) error {
	if e.disabled {
		return nil
	}
	if err := e.Project(ctx); err != nil {
		return err
	}
	known := e.knownServices()
	if known[string(svc.UID)] == nil || !evidence.TooMany(len(known), len(known)) {
		return nil
	}
	if _, err := e.visibleServices(ctx); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	since, tracked := e.missingLB[string(svc.UID)]
	return e.hold(doubtLBs, tracked, since)
}

// hold returns the doubt if an object has been missing for less than massHold. The caller holds mu.
func (e *Evidence) hold(reason string, missing bool, since time.Time) error {
	if d := e.doubts[reason]; d != nil && missing && e.clock.Since(since) < massHold {
		return d
	}
	return nil
}
