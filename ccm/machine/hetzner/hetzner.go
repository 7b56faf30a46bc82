// Package hetzner makes servers in the Hetzner Cloud for Machines. It is the provider "hetzner" of package machine.
//
// A server carries the UID of its Machine as a label. Only a server with that label is the Machine's. Without it, a server is never
// touched: a person removed the label, or the server has the Machine's name by chance.
//
// Not modelled: volumes, Primary IPs that exist already, rebuilding or changing a server in place.
package hetzner

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/v1alpha1"
)

// Name is the name of the provider.
const Name = "hetzner"

// Labels of servers.
const (
	// LabelUID is the UID of the server's Machine.
	LabelUID = "machine.ccm-from-scratch.dev/uid"
	// LabelName is the name of the Machine, for people.
	LabelName = "machine.ccm-from-scratch.dev/name"
)

// requestTimeout limits a request until its whole answer is there, as in the CCM. After a creation without one, Get looks for the server.
const requestTimeout = 10 * time.Second

// actionTimeout is how long Create and Cleanup wait for actions. What takes longer is looked for later.
const actionTimeout = 30 * time.Second

// releaseTimeout is how long Cleanup waits until no load balancer sends requests to the server. The controller has told the
// cloud-controller-manager so when the deletion began; a load balancer of someone else may never let go.
const releaseTimeout = 2 * time.Minute

func init() { machine.Register(Name, New) }

// machines is the provider's own metric. It cannot be told from the Machines of another controller that runs in the same process.
var machines = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "machine_controller_hetzner_machines", Help: "Number of Machines in the Hetzner Cloud.",
}, []string{"size", "location"})

func init() { metrics.Registry.MustRegister(machines) }

type provider struct {
	resolver *machine.Resolver
	// prefix is the beginning of provider IDs.
	prefix string

	mu      sync.Mutex
	clients map[[2]string]*hcloud.Client // by endpoint and token
}

// New returns the provider. Its provider IDs are those that the CCM writes: HCLOUD_INSTANCES_PROVIDER_ID_PREFIX chooses the
// prefix for both.
func New(r *machine.Resolver) machine.Provider {
	getenv := r.Getenv
	if getenv == nil {
		getenv = os.Getenv
	}
	prefix := cmp.Or(getenv("HCLOUD_INSTANCES_PROVIDER_ID_PREFIX"), ccm.ProviderName) + "://"
	return &provider{resolver: r, prefix: prefix, clients: map[[2]string]*hcloud.Client{}}
}

// client returns the settings of a spec, and a client for them. Clients are kept, so that they keep connections.
func (p *provider) client(ctx context.Context, spec v1alpha1.MachineSpec) (*hcloud.Client, settings, error) {
	s, err := p.read(ctx, spec)
	if err != nil {
		return nil, s, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	key := [2]string{s.endpoint, s.token}
	c := p.clients[key]
	if c == nil {
		opts := []hcloud.ClientOption{hcloud.WithToken(s.token), hcloud.WithApplication("machine-controller", ccm.Version()),
			hcloud.WithHTTPClient(&http.Client{Transport: stableErrors{}, Timeout: requestTimeout}),
			// the controller tries again, with growing delays
			hcloud.WithRetryOpts(hcloud.RetryOpts{MaxRetries: 1, BackoffFunc: hcloud.ConstantBackoff(200 * time.Millisecond)})}
		if s.endpoint != "" {
			opts = append(opts, hcloud.WithEndpoint(s.endpoint))
		}
		c = hcloud.NewClient(opts...)
		p.clients[key] = c
	}
	return c, s, nil
}

// stableErrors sends requests, and logs the correlation IDs of answers that are errors. hcloud-go would put them into the texts of its
// errors. Then no two would be equal: each try would change the status of its Machine and record another event.
type stableErrors struct{}

func (stableErrors) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	const key = "X-Correlation-Id"
	if id := answer.Header.Get(key); id != "" && answer.StatusCode >= 400 {
		klog.V(1).InfoS("The API answered with an error", "method", r.Method, "path", r.URL.Path, "status", answer.StatusCode,
			"correlationID", id)
	}
	answer.Header.Del(key)
	return answer, nil
}

// servers returns the servers of the Machine: those that carry its UID and are not copies, since they have its name or its provider
// ID. If the list shows none, the answer to the ID of the Machine's server counts. It returns a terminal error that wraps
// [machine.ErrInstanceNotOwned] if that server lacks the UID. It also returns the client and the settings of the Machine.
func (p *provider) servers(ctx context.Context, m *v1alpha1.Machine) (own []*hcloud.Server, c *hcloud.Client, s settings, err error) {
	if c, s, err = p.client(ctx, m.Spec); err != nil {
		return nil, nil, s, err
	}
	if m.UID == "" {
		return nil, nil, s, errors.New("the Machine has no UID")
	}
	all, err := list(ctx, c, LabelUID+"="+string(m.UID))
	if err != nil {
		return nil, nil, s, err
	}
	id := serverID(m.Spec.ProviderID)
	own = slices.DeleteFunc(all, func(s *hcloud.Server) bool { return s.Name != m.Name && s.ID != id })
	if len(own) > 0 || id == 0 {
		return own, c, s, nil
	}
	server, resp, err := c.Server.GetByID(ctx, id)
	switch {
	case err != nil:
		return nil, c, s, fmt.Errorf("cannot get server %d: %w", id, err)
	case server == nil && resp.StatusCode != http.StatusNotFound, server != nil && server.ID != id:
		return nil, c, s, fmt.Errorf("cannot get server %d: the answer lacks the server", id)
	case server == nil:
		return nil, c, s, nil
	case server.Labels[LabelUID] != string(m.UID): // a person may have removed it
		return nil, c, s, &machine.TerminalError{Reason: machine.ReasonInvalidConfiguration, Err: machine.ErrInstanceNotOwned,
			Message: fmt.Sprintf("server %d does not have the label %s=%s: put it back, or delete the Machine, which leaves the server "+
				"alone", id, LabelUID, m.UID)}
	}
	return []*hcloud.Server{server}, c, s, nil
}

// list returns all servers that a selector chooses. An answer without the list is an error.
func list(ctx context.Context, c *hcloud.Client, selector string) (all []*hcloud.Server, err error) {
	for page := 1; page > 0; {
		opts := hcloud.ListOpts{LabelSelector: selector, Page: page, PerPage: 50}
		servers, resp, err := c.Server.List(ctx, hcloud.ServerListOpts{ListOpts: opts})
		if err != nil {
			return nil, fmt.Errorf("cannot list servers: %w", err)
		}
		if resp.Meta.Pagination == nil {
			return nil, errors.New("cannot list servers: the answer lacks the pagination")
		}
		all, page = append(all, servers...), resp.Meta.Pagination.NextPage
	}
	return all, nil
}

// Account implements [machine.Provider].
func (p *provider) Account(ctx context.Context, spec v1alpha1.MachineSpec) (string, error) {
	_, s, err := p.client(ctx, spec)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(s.endpoint + " " + s.token))
	return hex.EncodeToString(sum[:8]), nil
}

// Shows implements [machine.Provider].
func (p *provider) Shows(ctx context.Context, spec v1alpha1.MachineSpec, providerIDs []string) (map[string]bool, error) {
	c, _, err := p.client(ctx, spec)
	if err != nil {
		return nil, err
	}
	all, err := list(ctx, c, "")
	if err != nil {
		return nil, err
	}
	there, shows := map[int64]bool{}, map[string]bool{}
	for _, s := range all {
		there[s.ID] = true
	}
	for _, text := range providerIDs {
		if id := serverID(text); id != 0 {
			shows[text] = there[id]
		}
	}
	return shows, nil
}

func (p *provider) providerID(id int64) string { return p.prefix + strconv.FormatInt(id, 10) }

// serverID returns the ID in a provider ID, whichever of the prefixes it has; 0 if it is another cloud's.
func serverID(providerID string) int64 {
	id, _ := nodeinfo.ParseProviderID(providerID)
	return id
}

// Get implements [machine.Provider].
func (p *provider) Get(ctx context.Context, m *v1alpha1.Machine) (machine.Instance, error) {
	own, _, _, err := p.servers(ctx, m)
	switch {
	case err != nil:
		return nil, err
	case len(own) == 0:
		return nil, machine.ErrInstanceNotFound
	}
	return p.instance(m, own)
}

// instance returns the oldest of the servers. It is an error if that is being deleted and the Machine has no provider ID yet: the
// Machine gets another one when this one and its name are gone.
func (p *provider) instance(m *v1alpha1.Machine, own []*hcloud.Server) (machine.Instance, error) {
	oldest := slices.MinFunc(own, func(a, b *hcloud.Server) int { return cmp.Compare(a.ID, b.ID) })
	if m.Spec.ProviderID == "" && oldest.Status == hcloud.ServerStatusDeleting {
		return nil, fmt.Errorf("server %d (%s) could not be created and is being deleted: will create another one when it is gone",
			oldest.ID, oldest.Name)
	}
	return &instance{oldest, cmp.Or(m.Spec.ProviderID, p.providerID(oldest.ID))}, nil
}

// GetCloudConfig implements [machine.Provider]. A cloud-controller-manager does the work, so that the kubelet needs no
// configuration.
func (p *provider) GetCloudConfig(context.Context, v1alpha1.MachineSpec) (config, name string, err error) {
	return "", "external", nil
}

// Create implements [machine.Provider].
func (p *provider) Create(ctx context.Context, m *v1alpha1.Machine, _ *machine.Data, userData string) (machine.Instance, error) {
	own, c, s, err := p.servers(ctx, m)
	if err != nil {
		return nil, err
	}
	if len(own) > 0 {
		return p.instance(m, own)
	}
	found, err := lookUp(ctx, c, s)
	if err != nil {
		return nil, err
	}
	if s.groupPrefix != "" {
		if found.group, err = groupWithRoom(ctx, c, s.groupPrefix); err != nil {
			return nil, err
		}
	}
	opts := hcloud.ServerCreateOpts{
		Name: m.Name, UserData: userData, ServerType: &hcloud.ServerType{Name: s.serverType}, Image: imageOf(s.image),
		Labels:   labels.Merge(s.labels, labels.Set{LabelUID: string(m.UID), LabelName: m.Name}),
		Networks: found.networks, Firewalls: found.firewalls, SSHKeys: found.keys, PlacementGroup: found.group,
		PublicNet: &hcloud.ServerCreatePublicNet{EnableIPv4: s.assignPublicIPv4, EnableIPv6: s.assignPublicIP6},
	}
	if s.location != "" {
		opts.Location = &hcloud.Location{Name: s.location}
	}
	created, _, err := c.Server.Create(ctx, opts)
	if err != nil {
		return nil, createError(m, err)
	}
	if created.Server == nil || created.Server.ID == 0 {
		return nil, errors.New("cannot create the server: the answer lacks the server") // the next attempt finds it
	}
	waiting, cancel := context.WithTimeout(ctx, actionTimeout)
	defer cancel()
	err = c.Action.WaitFor(waiting, created.Action) // first: the others fail with it, and say less
	if err == nil {
		err = c.Action.WaitFor(waiting, created.NextActions...)
	}
	if _, failed := errors.AsType[hcloud.ActionError](err); failed {
		// It never becomes a Node. The next attempt makes another one.
		_, _, deletion := c.Server.DeleteWithResult(ctx, created.Server)
		return nil, errors.Join(fmt.Errorf("cannot create server %d (%s): %w", created.Server.ID, m.Name, err), deletion)
	}
	// An action that takes longer, or cannot be read now, may still succeed: Get tells.
	if s, _, err := c.Server.GetByID(ctx, created.Server.ID); err == nil && s != nil && s.ID == created.Server.ID {
		return p.instance(m, []*hcloud.Server{s})
	}
	return p.instance(m, []*hcloud.Server{created.Server})
}

// maxGroup is the number of servers that a placement group of type spread holds:
// https://docs.hetzner.com/cloud/placement-groups/overview/#limits
const maxGroup = 10

// groupWithRoom returns a placement group with a prefix in its name and room for a server, or makes one.
func groupWithRoom(ctx context.Context, c *hcloud.Client, prefix string) (*hcloud.PlacementGroup, error) {
	all, err := c.PlacementGroup.AllWithOpts(ctx, hcloud.PlacementGroupListOpts{Type: hcloud.PlacementGroupTypeSpread})
	if err != nil {
		return nil, fmt.Errorf("cannot list placement groups: %w", err)
	}
	taken := map[string]bool{}
	for _, g := range all {
		if taken[g.Name] = true; strings.HasPrefix(g.Name, prefix+"-") && len(g.Servers) < maxGroup {
			return g, nil
		}
	}
	n := 1
	for taken[fmt.Sprintf("%s-%d", prefix, n)] {
		n++
	}
	made, _, err := c.PlacementGroup.Create(ctx, hcloud.PlacementGroupCreateOpts{Name: fmt.Sprintf("%s-%d", prefix, n),
		Type: hcloud.PlacementGroupTypeSpread})
	if err != nil {
		return nil, fmt.Errorf("cannot make a placement group: %w", err)
	}
	return made.PlacementGroup, nil
}

// imageOf returns an image by its name or its ID. The API takes the one of the server type's architecture.
func imageOf(nameOrID string) *hcloud.Image {
	if id, err := strconv.ParseInt(nameOrID, 10, 64); err == nil {
		return &hcloud.Image{ID: id}
	}
	return &hcloud.Image{Name: nameOrID}
}

// createError explains why the API refused to create a server.
func createError(m *v1alpha1.Machine, err error) error {
	switch {
	case hcloud.IsError(err, hcloud.ErrorCodeInvalidInput, hcloud.ErrorCodeInvalidServerType, hcloud.ErrorCodeNetworksOverlap):
		return &machine.TerminalError{Reason: machine.ReasonCreateFailed, Err: err,
			Message: fmt.Sprintf("the API refuses to create the server: %v: change the Machine's spec", err)}
	case hcloud.IsError(err, hcloud.ErrorCodeUniquenessError):
		return fmt.Errorf("cannot create the server: another server of the project has the name %s: rename or delete it: %w", m.Name, err)
	}
	return fmt.Errorf("cannot create the server: %w", err)
}

// Start implements [machine.Starter].
func (p *provider) Start(ctx context.Context, m *v1alpha1.Machine) error {
	own, c, _, err := p.servers(ctx, m)
	for _, server := range own {
		if _, _, failed := c.Server.Poweron(ctx, server); failed != nil {
			err = errors.Join(err, fmt.Errorf("cannot start server %d: %w", server.ID, failed))
		}
	}
	return err
}

// Cleanup implements [machine.Provider]. It waits until no load balancer has the server as a target, for a limited time.
func (p *provider) Cleanup(ctx context.Context, m *v1alpha1.Machine, _ *machine.Data) (bool, error) {
	own, c, _, err := p.servers(ctx, m)
	if err != nil {
		return false, err
	}
	if len(own) == 0 {
		return false, machine.ErrInstanceNotFound
	}
	if m.DeletionTimestamp != nil && time.Since(m.DeletionTimestamp.Time) < releaseTimeout {
		used, err := isTarget(ctx, c, own)
		if err != nil || used {
			return false, err
		}
	}
	removed := true
	var errs []error
	for _, s := range own {
		is, err := remove(ctx, c, s)
		removed, errs = removed && is, append(errs, err)
	}
	return removed, errors.Join(errs...)
}

// remove deletes a server and waits for the end of the action, for a limited time. It returns true when the action has succeeded:
// that proves more than a list without the server.
func remove(ctx context.Context, c *hcloud.Client, s *hcloud.Server) (bool, error) {
	if s.Status == hcloud.ServerStatusDeleting {
		return false, nil
	}
	deletion, _, err := c.Server.DeleteWithResult(ctx, s)
	switch {
	case hcloud.IsError(err, hcloud.ErrorCodeProtected):
		return false, fmt.Errorf("cannot delete server %d: it is protected: remove its delete protection: %w", s.ID, err)
	case hcloud.IsError(err, hcloud.ErrorCodeNotFound):
		return false, nil
	case err != nil:
		if _, refused := errors.AsType[hcloud.Error](err); !refused {
			err = fmt.Errorf("%w: %w", machine.ErrRemovalUnknown, err)
		}
		return false, fmt.Errorf("cannot delete server %d: %w", s.ID, err)
	case deletion.Action.ID == 0:
		return false, fmt.Errorf("cannot delete server %d: the answer lacks the action", s.ID)
	}
	waiting, cancel := context.WithTimeout(ctx, actionTimeout)
	defer cancel()
	err = c.Action.WaitFor(waiting, deletion.Action)
	if _, failed := errors.AsType[hcloud.ActionError](err); failed {
		return false, fmt.Errorf("cannot delete server %d: %w", s.ID, err)
	}
	return err == nil, nil // an action that takes longer, or whose state cannot be read now, may still succeed
}

// isTarget reports whether a load balancer has one of the servers as a target, by its ID. One that selects servers by a label is
// not looked at: it loses the server with its deletion.
func isTarget(ctx context.Context, c *hcloud.Client, own []*hcloud.Server) (bool, error) {
	all, err := c.LoadBalancer.All(ctx)
	if err != nil {
		return false, fmt.Errorf("cannot list load balancers: %w", err)
	}
	for _, lb := range all {
		for _, t := range lb.Targets {
			if t.Server != nil && slices.ContainsFunc(own, func(s *hcloud.Server) bool { return s.ID == t.Server.Server.ID }) {
				return true, nil
			}
		}
	}
	return false, nil
}

// MachineMetricsLabels implements [machine.Provider]. A size that is not written inline is "unknown".
func (p *provider) MachineMetricsLabels(m *v1alpha1.Machine) (map[string]string, error) {
	c, err := decode(m.Spec)
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"size":     cmp.Or(c.ServerType.Value, "unknown"),
		"location": cmp.Or(c.Location.Value, "unknown"),
		"image":    cmp.Or(c.Image.Value, "unknown"),
	}, nil
}

// MigrateUID implements [machine.Provider].
func (p *provider) MigrateUID(ctx context.Context, m *v1alpha1.Machine, newUID types.UID) error {
	own, c, _, err := p.servers(ctx, m)
	if len(own) == 0 && (err == nil || errors.Is(err, machine.ErrInstanceNotOwned)) {
		moved := m.DeepCopy()
		moved.UID = newUID
		if own, _, _, other := p.servers(ctx, moved); len(own) > 0 || other != nil {
			return other
		}
		return machine.ErrInstanceNotFound
	}
	if err != nil {
		return err
	}
	for _, s := range own {
		update := hcloud.ServerUpdateOpts{Labels: labels.Merge(s.Labels, labels.Set{LabelUID: string(newUID)})}
		if _, _, err := c.Server.Update(ctx, s, update); err != nil {
			return fmt.Errorf("cannot change the label %s of server %d: %w", LabelUID, s.ID, err)
		}
	}
	return nil
}

// SetMetricsForMachines implements [machine.Provider].
func (p *provider) SetMetricsForMachines(list v1alpha1.MachineList) error {
	counts := map[[2]string]float64{}
	var errs []error
	for i := range list.Items {
		values, err := p.MachineMetricsLabels(&list.Items[i])
		errs = append(errs, err)
		counts[[2]string{values["size"], values["location"]}]++
	}
	machines.Reset() // and at once the new numbers, so that nobody reads a part of them
	for key, n := range counts {
		machines.WithLabelValues(key[0], key[1]).Set(n)
	}
	return errors.Join(errs...)
}

// instance is a server.
type instance struct {
	*hcloud.Server
	providerID string
}

func (i *instance) Name() string       { return i.Server.Name }
func (i *instance) ID() string         { return strconv.FormatInt(i.Server.ID, 10) }
func (i *instance) ProviderID() string { return i.providerID }

// Addresses returns the private addresses first, as the CCM does.
func (i *instance) Addresses() (all []corev1.NodeAddress) {
	add := func(kind corev1.NodeAddressType, ip netip.Addr) {
		if ip.IsValid() {
			all = append(all, corev1.NodeAddress{Type: kind, Address: ip.String()})
		}
	}
	for _, n := range i.PrivateNet {
		ip, _ := netip.AddrFromSlice(n.IP)
		add(corev1.NodeInternalIP, ip.Unmap())
	}
	add(corev1.NodeExternalIP, nodeinfo.PublicIPv4(i.Server))
	add(corev1.NodeExternalIP, nodeinfo.PublicIPv6(i.Server))
	return append(all, corev1.NodeAddress{Type: corev1.NodeHostName, Address: i.Server.Name})
}

// statuses are those of servers, as the machine controller names them.
var statuses = map[hcloud.ServerStatus]machine.Status{
	hcloud.ServerStatusInitializing: machine.StatusCreating, hcloud.ServerStatusStarting: machine.StatusCreating,
	hcloud.ServerStatusOff: machine.StatusStopped, hcloud.ServerStatusStopping: machine.StatusStopped,
	hcloud.ServerStatusRunning: machine.StatusRunning, hcloud.ServerStatusDeleting: machine.StatusDeleting,
}

func (i *instance) Status() machine.Status {
	return cmp.Or(statuses[i.Server.Status], machine.StatusUnknown)
}
