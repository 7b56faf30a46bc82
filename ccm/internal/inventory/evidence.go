// Package inventory knows which servers, load balancers and which network there are, at a cost of few calls, and whether an answer of
// the API proves that something is gone.
package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	cloudapi "k8s.io/cloud-provider/api"
	servicehelpers "k8s.io/cloud-provider/service/helpers"
	"k8s.io/utils/clock"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/apicall"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/gone"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// recogniseInterval is the least time between two searches for something of the cluster. A token of another project costs that project
// three requests or more each time.
const recogniseInterval = time.Minute

// Evidence decides whether the API's answers prove that servers and load balancers are gone: it puts the question of package gone
// for the cluster's Nodes and Services, and looks for something of the cluster where the token is not recognised yet.
//
// A person confirms a disappearance earlier by deleting the Nodes, or with HCLOUD_DISABLE_PROJECT_CHECK.
type Evidence struct {
	disabled bool
	question *gone.Question
	// listServers fetches all servers, and so tells the question. visibleServices returns the UIDs of Services with visible
	// load balancers, and listLoadBalancers those that match a label selector; nil: load balancers are disabled.
	listServers       func(context.Context) error
	defaults          map[string]string // of Service annotations
	visibleServices   func(context.Context) (map[string]bool, error)
	listLoadBalancers func(context.Context, string) ([]*hcloud.LoadBalancer, error)

	mu       sync.Mutex
	nodes    corelisters.NodeLister    // nil until SetInformers
	services corelisters.ServiceLister // nil until SetInformers
	// doubtedWith and doubtedAt are the token and the time of the last search for something of the cluster, and project is its
	// result.
	doubtedWith string
	doubtedAt   time.Time
	project     *apicall.DoubtError
}

// The reasons of a doubt: values of the metric's label.
const (
	doubtProject = "other_project"
	doubtServers = "servers_disappeared"
	doubtLBs     = "load_balancers_disappeared"
)

// NewEvidence returns the evidence. disabled switches its doubts off.
func NewEvidence(clk clock.PassiveClock, reg prometheus.Registerer, disabled bool, token func() (string, error)) *Evidence {
	e := &Evidence{disabled: disabled}
	e.question = &gone.Question{Clock: clk, Known: e.known, Token: func() string {
		t, _ := token() // "" with an error: then no request succeeds
		return t
	}}
	for _, reason := range []string{doubtProject, doubtServers, doubtLBs} {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "ccm_answers_doubted",
			Help:        "1 while the provider does not believe that servers or load balancers are gone, by reason.",
			ConstLabels: prometheus.Labels{"reason": reason},
		}, func() float64 {
			if e.standing(reason) != nil {
				return 1
			}
			return 0
		}))
	}
	return e
}

// WaitFor sets how long many things that disappear at once must be missing before they count as gone; 0: gone.Hold.
func (e *Evidence) WaitFor(d time.Duration) { e.question.Hold = d }

// known returns the IDs of the servers of Nodes, or the UIDs of the Services that show a load balancer.
func (e *Evidence) known(kind gone.Kind) map[string]bool {
	known := map[string]bool{}
	switch kind {
	case gone.Server:
		for id := range e.KnownServers() {
			known[strconv.FormatInt(id, 10)] = true
		}
	case gone.LoadBalancer:
		for uid := range e.knownServices() {
			known[uid] = true
		}
	}
	return known
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
	for _, reason := range []string{doubtProject, doubtServers, doubtLBs} {
		if d := e.standing(reason); d != nil {
			return d
		}
	}
	return nil
}

// standing returns a doubt that has no end yet, or nil.
func (e *Evidence) standing(reason string) *apicall.DoubtError {
	if e.disabled {
		return nil
	}
	text := ""
	switch reason {
	case doubtProject:
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.project != nil && e.question.Recognised(e.currentToken()) {
			e.project = nil
		}
		return e.project
	case doubtServers:
		text = e.question.MassDoubt(gone.Server)
	case doubtLBs:
		text = e.question.MassDoubt(gone.LoadBalancer)
	}
	return doubtOf(reason, text)
}

// doubtOf returns a doubt, or nil without a text.
func doubtOf(reason, text string) *apicall.DoubtError {
	if text == "" {
		return nil
	}
	return &apicall.DoubtError{Reason: reason, Text: text}
}

func (e *Evidence) currentToken() string { return e.question.Token() }

// SameToken returns a function that returns an error after a change of the token. Then something that the old token did not show
// may exist, although something of the cluster is visible with the new one.
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
func (e *Evidence) SawOne(token string) { e.question.Saw(token) }

// SawLoadBalancer is told that the load balancer of the Service was visible, such as in an answer about its label.
func (e *Evidence) SawLoadBalancer(uid string) { e.question.Seen(gone.LoadBalancer, uid) }

// KnownServers returns the IDs of the servers of the cluster's Nodes.
func (e *Evidence) KnownServers() map[int64]bool {
	known := map[int64]bool{}
	nodes, _ := e.Listers()
	for id := range nodeinfo.ByServer(nodes) {
		known[id] = true
	}
	return known
}

// Services returns all Services of the cluster, by their UIDs; nil before they are known.
func (e *Evidence) Services() map[string]*corev1.Service {
	_, lister := e.Listers()
	if lister == nil {
		return nil
	}
	services, _ := lister.List(labels.Everything()) // it reads from memory and returns no error
	byUID := map[string]*corev1.Service{}
	for _, svc := range services {
		byUID[string(svc.UID)] = svc
	}
	return byUID
}

// knownServices returns the Services that show a load balancer, by their UIDs.
func (e *Evidence) knownServices() map[string]*corev1.Service {
	known := map[string]*corev1.Service{}
	if e.visibleServices == nil {
		return known
	}
	for uid, svc := range e.Services() {
		shows := len(svc.Status.LoadBalancer.Ingress) > 0 // also while it loses its load balancer
		hides := !plan.WantsLoadBalancer(svc) && servicehelpers.HasLBFinalizer(svc) && plan.HidesAddresses(svc, e.defaults)
		if svc.Spec.LoadBalancerClass == nil && (shows || hides) {
			known[uid] = svc
		}
	}
	return known
}

// serverGone returns nil if a server is gone that neither the list nor the API's answer to its ID shows. The list is new.
func (e *Evidence) serverGone(ctx context.Context, id int64) error {
	if e.disabled {
		return nil
	}
	if err := e.recognise(ctx, 1, nil); err != nil { // a Node with this ID exists
		return err
	}
	return e.judge(gone.Server, strconv.FormatInt(id, 10), doubtServers)
}

// ShowsServer asks the API for all servers, and reports whether it shows one of the cluster. An API that shows nothing proves nothing.
func (e *Evidence) ShowsServer(ctx context.Context) (bool, error) {
	if e.disabled {
		return true, nil
	}
	if err := e.listServers(ctx); err != nil {
		return false, err
	}
	return e.question.Shown(gone.Server), nil
}

// judge returns the doubt about something that the last list lacks, or nil.
func (e *Evidence) judge(kind gone.Kind, id, reason string) error {
	if a := e.question.Judge(kind, id); a.Verdict == gone.Doubtful {
		return doubtOf(reason, a.Evidence)
	}
	return nil
}

// Project returns nil if the token belongs to the cluster's project, or if the cluster has no servers and
// load balancers that could show that.
func (e *Evidence) Project(ctx context.Context) error {
	if e.disabled || e.question.Recognised(e.currentToken()) {
		return nil
	}
	return e.recognise(ctx, 0, e.listServers)
}

// Doubt is Project after a search that has ended in a doubt. Else it is nil, and costs no request.
func (e *Evidence) Doubt(ctx context.Context) error {
	if e.standing(doubtProject) == nil {
		return nil
	}
	return e.Project(ctx)
}

// recognise returns nil if something of the cluster is visible with the token, or if nothing is known. more is the number of
// servers that the caller knows in addition.
func (e *Evidence) recognise(ctx context.Context, more int, list func(context.Context) error) error {
	token := e.currentToken()
	if e.question.ProjectDoubt(more) == "" {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.project = nil
		return nil
	}
	e.mu.Lock()
	last, now := e.project, e.question.Clock.Now()
	if last != nil && e.doubtedWith == token && now.Sub(e.doubtedAt) < recogniseInterval {
		e.mu.Unlock()
		return last
	}
	e.doubtedAt = now // others get the last result during this search
	e.mu.Unlock()
	if list != nil && len(e.KnownServers()) > 0 {
		if err := list(ctx); err != nil {
			return err
		}
	}
	if services := e.knownServices(); !e.question.Recognised(token) && len(services) > 0 {
		visible, err := e.showsOne(ctx, services)
		if err != nil {
			return err
		}
		if visible && token == e.currentToken() {
			e.SawOne(token)
		}
	}
	if e.question.Recognised(token) {
		return nil
	}
	d := doubtOf(doubtProject, e.question.ProjectDoubt(more))
	if d == nil {
		return errors.New("recognising the project: the token changed during the search; will try again")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.project, e.doubtedWith = d, token
	return d
}

// showsOne reports whether a load balancer of one of the Services is visible: by its label, or by its
// address, because a person may have removed all labels to keep the load balancers.
func (e *Evidence) showsOne(ctx context.Context, services map[string]*corev1.Service) (bool, error) {
	all, err := e.listLoadBalancers(ctx, "")
	for _, lb := range all {
		for uid, svc := range services {
			if plan.Serves(lb, uid) || lb.Labels[plan.LabelServiceUIDHcloud] == uid || plan.ShowsPublicAddressOf(svc, lb) {
				return true, nil
			}
		}
	}
	return false, err
}

// MayCreate returns nil if a Service without a visible load balancer may get a new one.
func (e *Evidence) MayCreate(ctx context.Context, svc *corev1.Service) error {
	if e.disabled {
		return nil
	}
	if err := e.Project(ctx); err != nil {
		return err
	}
	if !e.known(gone.LoadBalancer)[string(svc.UID)] {
		return nil
	}
	if _, err := e.visibleServices(ctx); err != nil {
		return err
	}
	return e.judge(gone.LoadBalancer, string(svc.UID), doubtLBs)
}

// MayAsk returns an error if no answer about the load balancer of a Service would help. Most often, that costs no request. known reports
// whether the Service shows one.
func (e *Evidence) MayAsk(ctx context.Context, known bool) error {
	if known || e.disabled {
		return e.Project(ctx)
	}
	return e.awaitNode()
}

// awaitNode returns an error if the cluster has Nodes and none of them is initialized. With the token of another project, none would be,
// and a load balancer would be made there.
func (e *Evidence) awaitNode() error {
	nodes, _ := e.Listers()
	all := nodeinfo.List(nodes)
	if len(all) == 0 || slices.ContainsFunc(all, func(n *corev1.Node) bool { return !nodeinfo.IsUninitialized(n) }) {
		return nil
	}
	return cloudapi.NewRetryError("waiting for the first Node to find its server: if none does, the token may belong to another project",
		2*time.Second)
}

// LoadBalancerGone says whether the load balancer of a Service is gone that the API does not show. Its Service may go then, and nothing
// would look for it any more: so the evidence must be better than for a new one. An empty list is believed at once if the list of all
// load balancers is not empty, or if the answer to an ID confirms it: deleted reports whether the API does not know the load balancer
// that the CCM was deleting.
func (e *Evidence) LoadBalancerGone(ctx context.Context, svc *corev1.Service, deleted func(context.Context) (bool, error)) (gone.Answer,
	error) {
	if e.disabled {
		return gone.Answer{Verdict: gone.Gone, Evidence: "HCLOUD_DISABLE_PROJECT_CHECK is true"}, nil
	}
	if err := e.Project(ctx); err != nil {
		return gone.Answer{}, err
	}
	if !e.known(gone.LoadBalancer)[string(svc.UID)] {
		return gone.Answer{Verdict: gone.Gone, Evidence: "the Service has never shown a load balancer"}, nil
	}
	a := e.question.Ask(ctx, gone.LoadBalancer, string(svc.UID), e.visibleServices)
	if a.Verdict != gone.Doubtful {
		return a, nil
	}
	if a.Evidence == e.question.EmptyDoubt(gone.LoadBalancer, string(svc.UID)) {
		if is, err := deleted(ctx); is || err != nil {
			return gone.Answer{Verdict: gone.Gone, Evidence: "the API does not know the ID of what the CCM has begun to delete"}, err
		}
		all, err := e.listLoadBalancers(ctx, "")
		its := slices.ContainsFunc(all, func(lb *hcloud.LoadBalancer) bool { return plan.Serves(lb, string(svc.UID)) })
		if len(all) > 0 && !its || err != nil {
			return gone.Answer{Verdict: gone.Gone, Evidence: fmt.Sprintf("the API shows %d others", len(all))}, err
		}
	}
	return a, doubtOf(doubtLBs, a.Evidence)
}
