package contract_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/contract"
)

// beyondHcloud reports whether hcloud-go lacks an operation. It lacks the deprecated ones that read an action of a
// resource.
func beyondHcloud(op *contract.Operation) bool { return strings.HasSuffix(op.Path, "/{action_id}") }

// lenient are requests of hcloud-go that the document does not allow, "operation violation". The real API accepts them, and
// so does fakecloud.
var lenient = []string{
	"POST /servers /image: want string, got number",
	"POST /servers /ssh_keys/0: want string, got number",
	"POST /servers/{id}/actions/attach_iso /iso: want string, got number",
	"POST /load_balancers /services/0/health_check: want present (required), got missing", // the cloud uses the default
}

var anyNumber = regexp.MustCompile(`number \d+`)

// walk is a walk over the methods of an unmodified hcloud-go.
type walk struct {
	*world
	*hcloud.Client
	ctx context.Context
}

// TestContractHcloudGoWorksUnmodified walks over the methods of hcloud-go for all modelled resources and validates every
// exchange. It waits for each action, like users. It fails if it does not reach an operation that hcloud-go has.
func TestContractHcloudGoWorksUnmodified(t *testing.T) {
	t.Parallel()
	document := contract.ForTest(t)
	recorder := contract.NewRecorder(document)
	for name, about := range topics {
		if about.walk == nil {
			continue
		}
		w := bareWorld(t, nil, func(o *fakecloud.Options) { o.UnknownFields = "refuse" })
		step := func(int) time.Duration { // instead of waiting
			w.clock.Step(actionTime / 4)
			return 0
		}
		client := w.cloud.Client(
			hcloud.WithHTTPClient(&http.Client{Transport: recorder.Transport(w.cloud.Transport())}),
			hcloud.WithPollOpts(hcloud.PollOpts{BackoffFunc: step}),
			hcloud.WithRetryOpts(hcloud.RetryOpts{BackoffFunc: step, MaxRetries: 5}),
		)
		t.Run(name, func(t *testing.T) {
			w.T = t
			about.walk(walk{world: w, Client: client, ctx: t.Context()})
		})
	}
	if err := recorder.Err(); err != nil {
		t.Error(err)
	}
	var sent []string
	for _, exchange := range recorder.Undocumented() {
		var wrong *contract.Error
		if !errors.As(exchange.Err, &wrong) {
			t.Fatal(exchange)
		}
		for _, violation := range wrong.Violations {
			sent = append(sent, anyNumber.ReplaceAllString(wrong.Operation.String()+" "+violation.String(), "number"))
		}
	}
	slices.Sort(sent)
	if sent = slices.Compact(sent); !slices.Equal(sent, slices.Sorted(slices.Values(lenient))) {
		t.Errorf("hcloud-go sent requests that the document does not allow:\n%s\nwant only\n%s", strings.Join(sent, "\n"),
			strings.Join(lenient, "\n"))
	}
	reached := 0
	for _, op := range document.Operations() {
		got := recorder.State(op) == contract.Implemented
		if want := !beyondHcloud(op); got != want {
			t.Errorf("%s (%s) was reached: %t, want %t", op.ID, op, got, want)
		}
		if got {
			reached++
		}
	}
	t.Logf("%d operations, %d exchanges", reached, recorder.Exchanges())
}

// result has the results of a method of hcloud-go.
type result[T any] struct {
	value T
	err   error
}

// of is for methods that return one value, listed for methods that walk over pages.
func of[T any](value T, _ *hcloud.Response, err error) result[T] { return result[T]{value, err} }

func listed[T any](values []T, err error) result[[]T] {
	if err == nil && len(values) == 0 {
		err = errors.New("nothing is listed")
	}
	return result[[]T]{values, err}
}

// must returns the value, and fails the test if there was an error.
func (r result[T]) must(w walk) T {
	w.Helper()
	if r.err != nil {
		w.Fatal(r.err)
	}
	return r.value
}

// done waits for the action that a method of hcloud-go started.
func (w walk) done(action *hcloud.Action, _ *hcloud.Response, err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
	w.wait(action)
}

func (w walk) wait(actions ...*hcloud.Action) {
	w.Helper()
	if err := w.Action.WaitFor(w.ctx, actions...); err != nil {
		w.Fatal(err)
	}
}

// gone is done for deletions.
func (w walk) gone(_ *hcloud.Response, err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// readable has the methods that the clients of most resources share.
type readable[T any] interface {
	GetByID(ctx context.Context, id int64) (*T, *hcloud.Response, error)
	GetByName(ctx context.Context, name string) (*T, *hcloud.Response, error)
	Get(ctx context.Context, idOrName string) (*T, *hcloud.Response, error)
	All(ctx context.Context) ([]*T, error)
}

// read reads a resource in each way, and one that does not exist: hcloud-go returns nil for it.
func read[T any](w walk, client readable[T], id int64, name string) {
	w.Helper()
	for how, found := range map[string]*T{
		"id":         of(client.GetByID(w.ctx, id)).must(w),
		"name":       of(client.GetByName(w.ctx, name)).must(w),
		"id as text": of(client.Get(w.ctx, strconv.FormatInt(id, 10))).must(w),
		"list":       listed(client.All(w.ctx)).must(w)[0],
	} {
		if found == nil {
			w.Errorf("not found by %s: %d %s", how, id, name)
		}
	}
	if absent := of(client.GetByID(w.ctx, 4999999999999999)).must(w); absent != nil {
		w.Errorf("found what does not exist: %v", absent)
	}
	if absent := of(client.Get(w.ctx, "no-such-name")).must(w); absent != nil {
		w.Errorf("found what does not exist: %v", absent)
	}
}

// actionsOf reads the actions of a resource in each way.
func actionsOf[R any](w walk, list func(context.Context, hcloud.ActionListOpts) ([]*hcloud.Action, error),
	allFor func(context.Context, R, hcloud.ActionListOpts) ([]*hcloud.Action, error),
	get func(context.Context, int64) (*hcloud.Action, *hcloud.Response, error), resource R,
) {
	w.Helper()
	opts := hcloud.ActionListOpts{Status: []hcloud.ActionStatus{hcloud.ActionStatusSuccess}, Sort: []string{"id:desc"}}
	latest := listed(list(w.ctx, opts)).must(w)[0]
	if listed(allFor(w.ctx, resource, opts)).must(w)[0].ID != latest.ID || of(get(w.ctx, latest.ID)).must(w) == nil {
		w.Errorf("action %d is not the resource's latest, or is not found", latest.ID)
	}
}

func ipNet(text string) *net.IPNet {
	_, network, err := net.ParseCIDR(text)
	if err != nil {
		panic(err)
	}
	return network
}

func (w walk) network(name string) *hcloud.Network {
	w.Helper()
	return of(w.Network.Create(w.ctx, hcloud.NetworkCreateOpts{
		Name: name, IPRange: ipNet("10.0.0.0/16"), Labels: map[string]string{"env": "test"},
		Subnets: []hcloud.NetworkSubnet{{Type: hcloud.NetworkSubnetTypeCloud, IPRange: ipNet("10.0.1.0/24"),
			NetworkZone: hcloud.NetworkZoneEUCentral}},
	})).must(w)
}

func (w walk) createServer(name string, change ...func(*hcloud.ServerCreateOpts)) *hcloud.Server {
	w.Helper()
	opts := hcloud.ServerCreateOpts{
		Name: name, ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "ubuntu-24.04"},
		Location: &hcloud.Location{Name: "fsn1"}, Labels: map[string]string{"env": "test"},
	}
	for _, f := range change {
		f(&opts)
	}
	created := of(w.Server.Create(w.ctx, opts)).must(w)
	w.wait(append(created.NextActions, created.Action)...)
	return of(w.Server.GetByID(w.ctx, created.Server.ID)).must(w)
}

func (w walk) actions() {
	server := w.createServer("one")
	action := listed(w.Action.AllWithOpts(w.ctx,
		hcloud.ActionListOpts{ID: []int64{1000001, 1000002, 1000003, 1000004, 1000005, 1000006}})).must(w)[0]
	if of(w.Action.GetByID(w.ctx, action.ID)).must(w).Resources[0].ID != server.ID {
		w.Errorf("the first action is not the server's: %+v", action)
	}
	running := of(w.Server.Poweroff(w.ctx, server)).must(w)
	if _, _, err := w.Server.Poweron(w.ctx, server); !hcloud.IsError(err, hcloud.ErrorCodeLocked) {
		w.Errorf("while an action is running: %v, want locked", err)
	}
	w.wait(running)
	_, err := w.Datacenter.All(w.ctx) //nolint:staticcheck // this checks that it is removed
	if !hcloud.IsError(err, "deprecated_api_endpoint") {
		w.Errorf("data centers: %v", err)
	}
	if _, _, err := w.Datacenter.GetByID(w.ctx, 1); !hcloud.IsError(err, "deprecated_api_endpoint") { //nolint:staticcheck // as above
		w.Errorf("a data center: %v", err)
	}
	if _, _, err := w.Action.List(w.ctx, hcloud.ActionListOpts{}); !hcloud.IsError(err, hcloud.ErrorCodeInvalidInput) {
		w.Errorf("all actions: %v, want invalid_input", err)
	}
}

func (w walk) catalogue() {
	location := of(w.Location.GetByName(w.ctx, "fsn1")).must(w)
	read[hcloud.Location](w, &w.Location, location.ID, "fsn1")
	serverType := of(w.ServerType.GetByName(w.ctx, "cx23")).must(w)
	read[hcloud.ServerType](w, &w.ServerType, serverType.ID, "cx23")
	if len(serverType.Locations) == 0 || serverType.Architecture != hcloud.ArchitectureX86 || len(serverType.Pricings) == 0 {
		w.Errorf("server type: %+v", serverType)
	}
	balancerType := of(w.LoadBalancerType.GetByName(w.ctx, "lb11")).must(w)
	read[hcloud.LoadBalancerType](w, &w.LoadBalancerType, balancerType.ID, "lb11")
	iso := listed(w.ISO.AllWithOpts(w.ctx, hcloud.ISOListOpts{Architecture: []hcloud.Architecture{hcloud.ArchitectureX86},
		IncludeArchitectureWildcard: true})).must(w)[0]
	read[hcloud.ISO](w, &w.ISO, iso.ID, iso.Name)
	pricing := of(w.Pricing.Get(w.ctx)).must(w)
	if len(pricing.ServerTypes) == 0 || len(pricing.PrimaryIPs) != 2 || pricing.Currency == "" {
		w.Errorf("pricing: %+v", pricing)
	}
}

func (w walk) sshKeys() {
	key := of(w.SSHKey.Create(w.ctx, hcloud.SSHKeyCreateOpts{Name: "one", PublicKey: publicKey,
		Labels: map[string]string{"env": "test"}})).must(w)
	read[hcloud.SSHKey](w, &w.SSHKey, key.ID, "one")
	if found := of(w.SSHKey.GetByFingerprint(w.ctx, key.Fingerprint)).must(w); found == nil {
		w.Errorf("not found by its fingerprint %s", key.Fingerprint)
	}
	of(w.SSHKey.Update(w.ctx, key, hcloud.SSHKeyUpdateOpts{Name: "two", Labels: map[string]string{}})).must(w)
	w.gone(w.SSHKey.Delete(w.ctx, key))
}

func (w walk) placementGroups() {
	created := of(w.PlacementGroup.Create(w.ctx, hcloud.PlacementGroupCreateOpts{Name: "spread",
		Type: hcloud.PlacementGroupTypeSpread})).must(w)
	group := created.PlacementGroup
	read[hcloud.PlacementGroup](w, &w.PlacementGroup, group.ID, "spread")
	of(w.PlacementGroup.Update(w.ctx, group, hcloud.PlacementGroupUpdateOpts{Name: "other", Labels: map[string]string{"a": "b"}})).must(w)
	server := w.createServer("node", func(o *hcloud.ServerCreateOpts) { o.PlacementGroup, o.StartAfterCreate = group, new(false) })
	if server.PlacementGroup == nil || server.PlacementGroup.ID != group.ID {
		w.Errorf("placement group of the server: %+v", server.PlacementGroup)
	}
	w.done(w.Server.RemoveFromPlacementGroup(w.ctx, server))
	w.done(w.Server.AddToPlacementGroup(w.ctx, server, group))
	w.gone(w.PlacementGroup.Delete(w.ctx, group))
}

func (w walk) networks() {
	network := w.network("net")
	read[hcloud.Network](w, &w.Network, network.ID, "net")
	of(w.Network.Update(w.ctx, network, hcloud.NetworkUpdateOpts{
		Name: "renamed", Labels: map[string]string{"a": "b"}, ExposeRoutesToVSwitch: new(true),
	})).must(w)
	w.done(w.Network.ChangeIPRange(w.ctx, network, hcloud.NetworkChangeIPRangeOpts{IPRange: ipNet("10.0.0.0/12")}))
	subnet := hcloud.NetworkSubnet{Type: hcloud.NetworkSubnetTypeCloud, IPRange: ipNet("10.0.2.0/24"),
		NetworkZone: hcloud.NetworkZoneEUCentral}
	w.done(w.Network.AddSubnet(w.ctx, network, hcloud.NetworkAddSubnetOpts{Subnet: subnet}))
	w.done(w.Network.AddSubnet(w.ctx, network, hcloud.NetworkAddSubnetOpts{
		Subnet: hcloud.NetworkSubnet{Type: hcloud.NetworkSubnetTypeCloud, NetworkZone: hcloud.NetworkZoneEUCentral},
	}))
	// During a change of a network, another change is a conflict, and hcloud-go retries it.
	running := of(w.Network.ChangeIPRange(w.ctx, network, hcloud.NetworkChangeIPRangeOpts{IPRange: ipNet("10.0.0.0/11")})).must(w)
	of(w.Network.Update(w.ctx, network, hcloud.NetworkUpdateOpts{Name: "again"})).must(w)
	if action := of(w.Action.GetByID(w.ctx, running.ID)).must(w); action.Status != hcloud.ActionStatusSuccess {
		w.Errorf("the change was made while %s was %s", action.Command, action.Status)
	}
	route := hcloud.NetworkRoute{Destination: ipNet("192.168.0.0/24"), Gateway: net.ParseIP("10.0.1.9")}
	w.done(w.Network.AddRoute(w.ctx, network, hcloud.NetworkAddRouteOpts{Route: route}))
	if n := of(w.Network.GetByID(w.ctx, network.ID)).must(w); len(n.Subnets) != 3 || len(n.Routes) != 1 ||
		!n.Routes[0].Gateway.Equal(route.Gateway) {
		w.Errorf("network: %+v", n)
	}
	w.done(w.Network.DeleteRoute(w.ctx, network, hcloud.NetworkDeleteRouteOpts{Route: route}))
	w.done(w.Network.DeleteSubnet(w.ctx, network, hcloud.NetworkDeleteSubnetOpts{Subnet: subnet}))
	w.done(w.Network.ChangeProtection(w.ctx, network, hcloud.NetworkChangeProtectionOpts{Delete: new(true)}))
	if _, err := w.Network.Delete(w.ctx, network); !hcloud.IsError(err, hcloud.ErrorCodeProtected) {
		w.Errorf("deletion of a protected network: %v", err)
	}
	w.done(w.Network.ChangeProtection(w.ctx, network, hcloud.NetworkChangeProtectionOpts{Delete: new(false)}))
	actionsOf(w, w.Network.Action.All, w.Network.Action.AllFor, w.Network.Action.GetByID, network)
	w.gone(w.Network.Delete(w.ctx, network))
}

func (w walk) primaryIPs() {
	server := w.createServer("off", func(o *hcloud.ServerCreateOpts) {
		o.StartAfterCreate, o.PublicNet = new(false), &hcloud.ServerCreatePublicNet{}
	})
	created := of(w.PrimaryIP.Create(w.ctx, hcloud.PrimaryIPCreateOpts{
		Name: "kept", Type: hcloud.PrimaryIPTypeIPv4, AssigneeType: "server", Location: "fsn1", AutoDelete: new(false),
		Labels: map[string]string{"a": "b"},
	})).must(w)
	ip := created.PrimaryIP
	read[hcloud.PrimaryIP](w, &w.PrimaryIP, ip.ID, "kept")
	if found := of(w.PrimaryIP.GetByIP(w.ctx, ip.IP.String())).must(w); found == nil || found.ID != ip.ID || found.Location.Name != "fsn1" {
		w.Errorf("found by address %s: %+v", ip.IP, found)
	}
	of(w.PrimaryIP.Update(w.ctx, ip, hcloud.PrimaryIPUpdateOpts{Name: "renamed", Labels: &map[string]string{},
		AutoDelete: new(false)})).must(w)
	w.done(w.PrimaryIP.Assign(w.ctx, hcloud.PrimaryIPAssignOpts{ID: ip.ID, AssigneeID: server.ID, AssigneeType: "server"}))
	if s := of(w.Server.GetByID(w.ctx, server.ID)).must(w); !s.PublicNet.IPv4.IP.Equal(ip.IP) || s.PublicNet.IPv4.ID != ip.ID ||
		!s.PublicNet.IPv6.IsUnspecified() {
		w.Errorf("public net of the server: %+v", s.PublicNet)
	}
	w.done(w.PrimaryIP.ChangeDNSPtr(w.ctx, hcloud.PrimaryIPChangeDNSPtrOpts{ID: ip.ID, IP: ip.IP.String(), DNSPtr: "a.example.com"}))
	w.done(w.PrimaryIP.ChangeProtection(w.ctx, hcloud.PrimaryIPChangeProtectionOpts{ID: ip.ID, Delete: true}))
	w.done(w.PrimaryIP.ChangeProtection(w.ctx, hcloud.PrimaryIPChangeProtectionOpts{ID: ip.ID, Delete: false}))
	w.done(w.RDNS.ChangeDNSPtr(w.ctx, ip, ip.IP, nil))
	w.done(w.PrimaryIP.Unassign(w.ctx, ip.ID))
	actionsOf(w, w.PrimaryIP.Action.All, w.PrimaryIP.Action.AllFor, w.PrimaryIP.Action.GetByID, ip)
	w.gone(w.PrimaryIP.Delete(w.ctx, ip))
	assigned := of(w.PrimaryIP.Create(w.ctx, hcloud.PrimaryIPCreateOpts{
		Name: "v6", Type: hcloud.PrimaryIPTypeIPv6, AssigneeType: "server", AssigneeID: new(server.ID),
	})).must(w)
	w.wait(assigned.Action)
}

func (w walk) servers() {
	key := of(w.SSHKey.Create(w.ctx, hcloud.SSHKeyCreateOpts{Name: "one", PublicKey: publicKey})).must(w)
	server := w.createServer("node", func(o *hcloud.ServerCreateOpts) {
		o.SSHKeys, o.UserData, o.Automount = []*hcloud.SSHKey{key}, "#cloud-config\n", new(false)
		o.PublicNet = &hcloud.ServerCreatePublicNet{EnableIPv4: true, EnableIPv6: true}
	})
	read[hcloud.Server](w, &w.Server, server.ID, "node")
	if server.Status != hcloud.ServerStatusRunning || server.PublicNet.IPv4.IP == nil || server.PublicNet.IPv6.Network == nil ||
		server.Location == nil {
		w.Errorf("server: %+v", server)
	}
	of(w.Server.Update(w.ctx, server, hcloud.ServerUpdateOpts{Name: "renamed", Labels: map[string]string{"a": "b"}})).must(w)
	for _, act := range []func(context.Context, *hcloud.Server) (*hcloud.Action, *hcloud.Response, error){
		w.Server.Reboot, w.Server.Reset, w.Server.Shutdown, w.Server.Poweron, w.Server.DisableRescue, w.Server.DetachISO, w.Server.Poweroff,
	} {
		w.done(act(w.ctx, server))
	}
	w.done(w.Server.ChangeType(w.ctx, server, hcloud.ServerChangeTypeOpts{ServerType: &hcloud.ServerType{Name: "cx33"}}))
	w.done(w.Server.ChangeProtection(w.ctx, server, hcloud.ServerChangeProtectionOpts{Delete: new(true), Rebuild: new(true)}))
	w.done(w.Server.ChangeProtection(w.ctx, server, hcloud.ServerChangeProtectionOpts{Delete: new(false), Rebuild: new(false)}))
	w.done(w.Server.ChangeDNSPtr(w.ctx, server, server.PublicNet.IPv4.IP.String(), new("node.example.com")))
	w.done(w.Server.ChangeDNSPtr(w.ctx, server, server.PublicNet.IPv4.IP.String(), nil))
	w.done(w.Server.AttachISO(w.ctx, server, listed(w.ISO.All(w.ctx)).must(w)[0]))
	password := of(w.Server.ResetPassword(w.ctx, server)).must(w)
	if password.RootPassword == "" {
		w.Error("no password")
	}
	w.wait(password.Action)
	rescue := of(w.Server.EnableRescue(w.ctx, server, hcloud.ServerEnableRescueOpts{Type: hcloud.ServerRescueTypeLinux64,
		SSHKeys: []*hcloud.SSHKey{key}})).must(w)
	w.wait(rescue.Action)
	console := of(w.Server.RequestConsole(w.ctx, server)).must(w)
	if console.WSSURL == "" || console.Password == "" {
		w.Errorf("console: %+v", console)
	}
	w.wait(console.Action)
	w.metrics(server)
	rebuilt := of(w.Server.RebuildWithResult(w.ctx, server, hcloud.ServerRebuildOpts{Image: &hcloud.Image{Name: "debian-13"}})).must(w)
	w.wait(rebuilt.Action)
	actionsOf(w, w.Server.Action.All, w.Server.Action.AllFor, w.Server.Action.GetByID, server)
	deleted := of(w.Server.DeleteWithResult(w.ctx, server)).must(w)
	w.wait(deleted.Action)
	if got := of(w.Server.GetByID(w.ctx, server.ID)).must(w); got != nil {
		w.Errorf("still there: %+v", got)
	}
}

func (w walk) metrics(server *hcloud.Server) {
	w.Helper()
	w.clock.Step(time.Hour)
	metrics := of(w.Server.GetMetrics(w.ctx, server, hcloud.ServerGetMetricsOpts{
		Types: []hcloud.ServerMetricType{hcloud.ServerMetricCPU, hcloud.ServerMetricDisk, hcloud.ServerMetricNetwork},
		Start: w.clock.Now().Add(-time.Hour), End: w.clock.Now(), Step: 60,
	})).must(w)
	if len(metrics.TimeSeries["cpu"]) == 0 || len(metrics.TimeSeries) != 9 {
		w.Errorf("metrics: %+v", metrics)
	}
}

func (w walk) serverNetworks() {
	network := w.network("net")
	server := w.createServer("private", func(o *hcloud.ServerCreateOpts) {
		o.Networks, o.PublicNet = []*hcloud.Network{network}, &hcloud.ServerCreatePublicNet{}
	})
	if len(server.PrivateNet) != 1 || !server.PublicNet.IPv4.IsUnspecified() || !server.PublicNet.IPv6.IsUnspecified() {
		w.Errorf("a server without public addresses: %+v %+v", server.PrivateNet, server.PublicNet)
	}
	w.done(w.Server.ChangeAliasIPs(w.ctx, server, hcloud.ServerChangeAliasIPsOpts{Network: network,
		AliasIPs: []net.IP{net.ParseIP("10.0.1.50")}}))
	if member := listed(w.Network.AllMembers(w.ctx, network)).must(w)[0]; len(member.AliasIPs) != 1 {
		w.Errorf("member: %+v", member)
	}
	w.done(w.Server.ChangeAliasIPs(w.ctx, server, hcloud.ServerChangeAliasIPsOpts{Network: network}))
	w.done(w.Server.DetachFromNetwork(w.ctx, server, hcloud.ServerDetachFromNetworkOpts{Network: network}))
	w.done(w.Server.AttachToNetwork(w.ctx, server, hcloud.ServerAttachToNetworkOpts{
		Network: network, IP: net.ParseIP("10.0.1.7"), AliasIPs: []net.IP{net.ParseIP("10.0.1.8")}, IPRange: ipNet("10.0.1.0/24"),
	}))
	if s := of(w.Server.GetByID(w.ctx, server.ID)).must(w); !s.PrivateNet[0].IP.Equal(net.ParseIP("10.0.1.7")) ||
		len(s.PrivateNet[0].Aliases) != 1 {
		w.Errorf("private net: %+v", s.PrivateNet)
	}
	w.gone(w.Network.Delete(w.ctx, network))
}

func (w walk) images() {
	server := w.createServer("imaged")
	w.done(w.Server.EnableBackup(w.ctx, server, ""))
	created := of(w.Server.CreateImage(w.ctx, server, &hcloud.ServerCreateImageOpts{
		Type: hcloud.ImageTypeSnapshot, Description: new("before"), Labels: map[string]string{"a": "b"},
	})).must(w)
	w.wait(created.Action)
	image := of(w.Image.GetByID(w.ctx, created.Image.ID)).must(w)
	if image.Status != hcloud.ImageStatusAvailable || image.CreatedFrom == nil || image.CreatedFrom.ID != server.ID ||
		image.Deprecation != nil {
		w.Errorf("image: %+v", image)
	}
	listed(w.Image.All(w.ctx)).must(w)
	system := of(w.Image.GetForArchitecture(w.ctx, "ubuntu-24.04", hcloud.ArchitectureARM)).must(w)
	if system == nil || system.Architecture != hcloud.ArchitectureARM {
		w.Errorf("system image for arm: %+v", system)
	}
	of(w.Image.Update(w.ctx, image, hcloud.ImageUpdateOpts{Description: new("after"), Labels: map[string]string{}})).must(w)
	w.done(w.Image.ChangeProtection(w.ctx, image, hcloud.ImageChangeProtectionOpts{Delete: new(true)}))
	w.done(w.Image.ChangeProtection(w.ctx, image, hcloud.ImageChangeProtectionOpts{Delete: new(false)}))
	actionsOf(w, w.Image.Action.All, w.Image.Action.AllFor, w.Image.Action.GetByID, image)
	fromImage := w.createServer("from-image", func(o *hcloud.ServerCreateOpts) { o.Image = image })
	if fromImage.Image == nil || fromImage.Image.ID != image.ID {
		w.Errorf("image of the server: %+v", fromImage.Image)
	}
	w.gone(w.Image.Delete(w.ctx, image))
	w.done(w.Server.DisableBackup(w.ctx, server))
}

func (w walk) certificates() {
	body := uploadedCertificate(w.world, "uploaded")
	uploaded := of(w.Certificate.Create(w.ctx, hcloud.CertificateCreateOpts{
		Name: "uploaded", Type: hcloud.CertificateTypeUploaded,
		Certificate: body["certificate"].(string), PrivateKey: body["private_key"].(string), Labels: map[string]string{"a": "b"},
	})).must(w)
	read[hcloud.Certificate](w, &w.Certificate, uploaded.ID, "uploaded")
	if uploaded.Fingerprint == "" || uploaded.Status != nil || uploaded.NotValidAfter.IsZero() {
		w.Errorf("uploaded certificate: %+v", uploaded)
	}
	of(w.Certificate.Update(w.ctx, uploaded, hcloud.CertificateUpdateOpts{Name: "renamed", Labels: map[string]string{}})).must(w)
	w.gone(w.Certificate.Delete(w.ctx, uploaded))

	managed := of(w.Certificate.CreateCertificate(w.ctx, hcloud.CertificateCreateOpts{
		Name: "managed", Type: hcloud.CertificateTypeManaged, DomainNames: []string{"www.once-ca-dns-validation-failed.invalid"},
	})).must(w)
	var failed hcloud.ActionError
	if err := w.Action.WaitFor(w.ctx, managed.Action); !errors.As(err, &failed) || failed.Code != "ca_dns_validation_failed" {
		w.Errorf("first issuance: %v", err)
	}
	w.done(w.Certificate.RetryIssuance(w.ctx, managed.Certificate))
	certificate := of(w.Certificate.GetByID(w.ctx, managed.Certificate.ID)).must(w)
	if certificate.Status == nil || certificate.Status.Issuance != hcloud.CertificateStatusTypeCompleted || certificate.Certificate == "" {
		w.Errorf("managed certificate: %+v", certificate)
	}
	actionsOf(w, w.Certificate.Action.All, w.Certificate.Action.AllFor, w.Certificate.Action.GetByID, certificate)
}
