package hetzner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/hetzner"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/v1alpha1"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// world is a cloud and a provider for it.
type world struct {
	*testing.T
	ctx   context.Context
	cloud *fakecloud.Cloud
	api   *hcloud.Client // of a person
	p     machine.Provider
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, ctx: t.Context(), cloud: fakecloud.New(fakecloud.Options{})}
	t.Cleanup(w.cloud.Close)
	endpoint, err := w.cloud.Start(w.ctx, "127.0.0.1:0")
	w.must(err)
	w.api = w.cloud.Client()
	env := map[string]string{"HCLOUD_TOKEN": w.cloud.Token(), "HCLOUD_ENDPOINT": endpoint}
	w.p = hetzner.New(&machine.Resolver{Getenv: func(name string) string { return env[name] }})
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// machineWith returns a Machine with defaults, whose cloudProviderSpec is JSON.
func (w *world) machineWith(config string) *v1alpha1.Machine {
	w.Helper()
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "worker-1", Namespace: "default", UID: "uid-1"}}
	m.Spec.ProviderSpec = v1alpha1.ProviderSpec{CloudProvider: hetzner.Name, CloudProviderSpec: runtime.RawExtension{Raw: []byte(config)}}
	var err error
	m.Spec, err = w.p.AddDefaults(w.ctx, m.Spec)
	w.must(err)
	return m
}

func (w *world) create(m *v1alpha1.Machine) machine.Instance {
	w.Helper()
	i, err := w.p.Create(w.ctx, m, &machine.Data{}, "#!/bin/sh\n")
	w.must(err)
	return i
}

func (w *world) servers() []*hcloud.Server {
	w.Helper()
	all, err := w.api.Server.All(w.ctx)
	w.must(err)
	return all
}

func (w *world) fault(r fault.Rule) {
	w.Helper()
	r.Client = "machine-controller"
	_, err := w.cloud.Faults().Add(w.ctx, r)
	w.must(err)
}

func TestCreateMakesTheServerThatTheSpecDescribes(t *testing.T) {
	w := newWorld(t)
	network, _, err := w.api.Network.Create(w.ctx, hcloud.NetworkCreateOpts{Name: "internal", IPRange: cidr("10.0.0.0/8"),
		Subnets: []hcloud.NetworkSubnet{{Type: hcloud.NetworkSubnetTypeCloud, NetworkZone: hcloud.NetworkZoneEUCentral,
			IPRange: cidr("10.0.0.0/16")}}})
	w.must(err)
	wall, _, err := w.api.Firewall.Create(w.ctx, hcloud.FirewallCreateOpts{Name: "wall"})
	w.must(err)
	opts := hcloud.PlacementGroupCreateOpts{Name: "apart", Type: hcloud.PlacementGroupTypeSpread}
	group, _, err := w.api.PlacementGroup.Create(w.ctx, opts)
	w.must(err)
	m := w.machineWith(`{"serverType": "cx23", "location": "nbg1", "networks": ["internal"], "firewalls": ["wall"], "placementGroup": "apart",
		"labels": {"pool": "web"}, "assignPublicIPv6": false}`)
	_, err = w.p.Validate(w.ctx, m.Spec)
	w.must(err)
	i := w.create(m)
	s, _, err := w.api.Server.GetByName(w.ctx, "worker-1")
	w.must(err)
	if want := map[string]string{"pool": "web", hetzner.LabelUID: "uid-1", hetzner.LabelName: "worker-1"}; !maps.Equal(s.Labels, want) {
		t.Errorf("labels %v, want %v", s.Labels, want)
	}
	if s.ServerType.Name != "cx23" || s.Location.Name != "nbg1" || s.Image.Name != "ubuntu-24.04" ||
		s.PlacementGroup.ID != group.PlacementGroup.ID ||
		len(s.PrivateNet) != 1 || s.PrivateNet[0].Network.ID != network.ID || len(s.PublicNet.Firewalls) != 1 ||
		s.PublicNet.Firewalls[0].Firewall.ID != wall.Firewall.ID ||
		s.PublicNet.IPv4.IsUnspecified() || !s.PublicNet.IPv6.IsUnspecified() {
		t.Errorf("server %+v", s)
	}
	want := []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: s.PrivateNet[0].IP.String()},
		{Type: corev1.NodeExternalIP, Address: s.PublicNet.IPv4.IP.String()}, {Type: corev1.NodeHostName, Address: "worker-1"}}
	if !slices.Equal(i.Addresses(), want) || i.Status() != machine.StatusRunning || i.Name() != "worker-1" ||
		i.ProviderID() != "ccm-from-scratch://"+i.ID() {
		t.Errorf("instance %s, %s, %s, %v, want addresses %v", i.Name(), i.ProviderID(), i.Status(), i.Addresses(), want)
	}
}

func TestPlacementGroupsAreMadeOnDemand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for n := range 21 {
		m := w.machineWith(`{"serverType": "cx23", "placementGroupPrefix": "pool"}`)
		m.Name, m.UID = fmt.Sprintf("node-%d", n), types.UID(fmt.Sprintf("uid-%d", n))
		_, err := w.p.Create(w.ctx, m, nil, "")
		w.must(err)
	}
	groups, err := w.api.PlacementGroup.All(w.ctx)
	w.must(err)
	sizes := map[string]int{}
	for _, g := range groups {
		sizes[g.Name] = len(g.Servers)
	}
	if !maps.Equal(sizes, map[string]int{"pool-1": 10, "pool-2": 10, "pool-3": 1}) {
		t.Errorf("groups %v", sizes)
	}
}

func TestCreateNeverMakesASecondServer(t *testing.T) {
	for name, effect := range map[string]fault.Effect{"lost answer": fault.LoseAnswer(), "503 after": fault.CutBody(3)} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			m := w.machineWith(`{"serverType": "cx23"}`)
			w.fault(fault.Rule{Operation: "create_server", First: 1, Effect: effect})
			for range 5 {
				if _, err := w.p.Create(w.ctx, m, &machine.Data{}, ""); err != nil {
					t.Log(err)
				}
			}
			if n := len(w.servers()); n != 1 {
				t.Errorf("%d servers, want 1", n)
			}
		})
	}
}

func TestAnAnswerWithoutAServerIsNoServer(t *testing.T) {
	for _, operation := range []string{"create_server", "get_server"} {
		w := newWorld(t)
		m := w.machineWith(`{"serverType": "cx23"}`)
		w.fault(fault.Rule{Operation: operation, First: 1, Effect: fault.Effect{Kind: fault.KindHTTPStatus, Status: http.StatusOK,
			Body: "{}"}})
		if i, err := w.p.Create(w.ctx, m, &machine.Data{}, ""); err == nil && i.ID() == "0" {
			t.Errorf("%s: instance %s", operation, i.ProviderID())
		}
		if id := w.create(m).ID(); id == "0" || len(w.servers()) != 1 {
			t.Errorf("%s: server %s of %d", operation, id, len(w.servers()))
		}
	}
}

func TestCreateRemovesAServerThatCannotStart(t *testing.T) {
	w := newWorld(t)
	m := w.machineWith(`{"serverType": "cx23"}`)
	w.fault(fault.Rule{Operation: "create_server", First: 1, Effect: fault.FailAction("resource_unavailable", "no room")})
	_, err := w.p.Create(w.ctx, m, &machine.Data{}, "")
	if err == nil || !strings.Contains(err.Error(), "no room") || errors.As(err, new(*machine.TerminalError)) {
		t.Errorf("error %v", err)
	}
	if n := len(w.servers()); n != 0 {
		t.Errorf("%d servers are left", n)
	}
	w.create(m)
}

// The deletion of a server whose creation failed takes a few seconds. The Machine must not get its provider ID.
func TestAServerThatIsBeingDeletedIsNoInstanceOfANewMachine(t *testing.T) {
	w := newWorld(t)
	m := w.machineWith(`{"serverType": "cx23"}`)
	w.fault(fault.Rule{Operation: "create_server", First: 1, Effect: fault.FailAction("resource_unavailable", "no room")})
	w.fault(fault.Rule{Operation: "delete_server", First: 1, Effect: fault.HangAction()})
	if _, err := w.p.Create(w.ctx, m, &machine.Data{}, ""); err == nil {
		t.Fatal("no error although the creation failed")
	}
	for name, find := range map[string]func() (machine.Instance, error){
		"Get":    func() (machine.Instance, error) { return w.p.Get(w.ctx, m) },
		"Create": func() (machine.Instance, error) { return w.p.Create(w.ctx, m, &machine.Data{}, "") },
	} {
		if i, err := find(); err == nil || !strings.Contains(err.Error(), "is being deleted") {
			t.Errorf("%s: %v, %v", name, i, err)
		}
	}
	m.Spec.ProviderID = "ccm-from-scratch://" + strconv.FormatInt(w.servers()[0].ID, 10) // it worked before
	if i, err := w.p.Get(w.ctx, m); err != nil || i.Status() != machine.StatusDeleting {
		t.Errorf("the server that the Machine had: %v, %v", i, err)
	}
}

func TestOnlyTheAPICanSayThatAnInstanceIsGone(t *testing.T) {
	for name, effect := range map[string]fault.Effect{
		"429": fault.APIError("rate_limit_exceeded"), "500": fault.HTTPStatus(500), "503": fault.HTTPStatus(503),
		"401":         fault.APIError("unauthorized"),
		"lost answer": fault.LoseAnswer(), "half an answer": fault.CutBody(20),
		"empty object": {Kind: fault.KindHTTPStatus, Status: http.StatusOK, Body: "{}"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			m := w.machineWith(`{"serverType": "cx23"}`)
			m.Spec.ProviderID = w.create(m).ProviderID()
			w.fault(fault.Rule{Method: "GET", Effect: effect})
			if i, err := w.p.Get(w.ctx, m); err == nil || errors.Is(err, machine.ErrInstanceNotFound) {
				t.Errorf("Get: %v, %v", i, err)
			}
			if gone, err := w.p.Cleanup(w.ctx, m, &machine.Data{}); err == nil || gone {
				t.Errorf("Cleanup: %t, %v", gone, err)
			}
		})
	}
	w := newWorld(t)
	m := w.machineWith(`{"serverType": "cx23"}`)
	if _, err := w.p.Get(w.ctx, m); !errors.Is(err, machine.ErrInstanceNotFound) {
		t.Errorf("before the creation: %v", err)
	}
	m.Spec.ProviderID = w.create(m).ProviderID()
	_, _, err := w.api.Server.DeleteWithResult(w.ctx, w.servers()[0])
	w.must(err)
	if _, err := w.p.Get(w.ctx, m); !errors.Is(err, machine.ErrInstanceNotFound) {
		t.Errorf("after the deletion: %v", err)
	}
}

func TestAServerWithoutTheLabelIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	m := w.machineWith(`{"serverType": "cx23"}`)
	m.Spec.ProviderID = w.create(m).ProviderID()
	s := w.servers()[0]
	_, _, err := w.api.Server.Update(w.ctx, s, hcloud.ServerUpdateOpts{Labels: map[string]string{}})
	w.must(err)
	var terminal *machine.TerminalError
	if _, err := w.p.Get(w.ctx, m); !errors.As(err, &terminal) {
		t.Errorf("Get: %v, want a terminal error", err)
	}
	if removed, err := w.p.Cleanup(w.ctx, m, &machine.Data{}); removed || !errors.Is(err, machine.ErrInstanceNotOwned) {
		t.Errorf("Cleanup: %t, %v", removed, err)
	}
	if len(w.servers()) != 1 {
		t.Error("the server was deleted")
	}
}

func TestAStrangerWithTheNameOrACopiedLabelIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	m := w.machineWith(`{"serverType": "cx23"}`)
	for _, o := range []hcloud.ServerCreateOpts{{Name: "worker-1"}, {Name: "copy", Labels: map[string]string{hetzner.LabelUID: "uid-1"}}} {
		o.ServerType, o.Image = &hcloud.ServerType{Name: "cx23"}, &hcloud.Image{Name: "ubuntu-24.04"}
		_, _, err := w.api.Server.Create(w.ctx, o)
		w.must(err)
	}
	if i, err := w.p.Get(w.ctx, m); !errors.Is(err, machine.ErrInstanceNotFound) {
		t.Errorf("Get: %v, %v", i, err)
	}
	if _, err := w.p.Create(w.ctx, m, &machine.Data{}, ""); err == nil || !strings.Contains(err.Error(), "has the name worker-1") {
		t.Errorf("Create: %v", err)
	}
	if removed, err := w.p.Cleanup(w.ctx, m, &machine.Data{}); removed || !errors.Is(err, machine.ErrInstanceNotFound) {
		t.Errorf("Cleanup: %t, %v", removed, err)
	}
	if len(w.servers()) != 2 {
		t.Error("a server was deleted")
	}
}

func TestCleanupIsTrueWhenTheCloudConfirmsIt(t *testing.T) {
	w := newWorld(t)
	m := w.machineWith(`{"serverType": "cx23"}`)
	w.create(m)
	_, _, err := w.api.Server.ChangeProtection(w.ctx, w.servers()[0], hcloud.ServerChangeProtectionOpts{Delete: new(true),
		Rebuild: new(true)})
	w.must(err)
	if gone, err := w.p.Cleanup(w.ctx, m, &machine.Data{}); gone || err == nil ||
		!strings.Contains(err.Error(), "remove its delete protection") {
		t.Errorf("of a protected server: %t, %v", gone, err)
	}
	_, _, err = w.api.Server.ChangeProtection(w.ctx, w.servers()[0], hcloud.ServerChangeProtectionOpts{Delete: new(false),
		Rebuild: new(false)})
	w.must(err)
	w.fault(fault.Rule{Operation: "delete_server", First: 1, Effect: fault.FailAction("", "")})
	if removed, err := w.p.Cleanup(w.ctx, m, &machine.Data{}); removed || err == nil {
		t.Errorf("of a deletion that fails: %t, %v", removed, err)
	}
	if removed, err := w.p.Cleanup(w.ctx, m, &machine.Data{}); !removed || err != nil {
		t.Errorf("first: %t, %v", removed, err)
	}
	if removed, err := w.p.Cleanup(w.ctx, m, &machine.Data{}); removed || !errors.Is(err, machine.ErrInstanceNotFound) {
		t.Errorf("second: %t, %v", removed, err)
	}
	if len(w.servers()) != 0 {
		t.Error("the server is there")
	}
}

func TestCleanupWaitsForLoadBalancersButNotForEver(t *testing.T) {
	for name, end := range map[string]func(*world, *v1alpha1.Machine, *hcloud.LoadBalancer){
		"until they let the server go": func(w *world, _ *v1alpha1.Machine, lb *hcloud.LoadBalancer) {
			_, _, err := w.api.LoadBalancer.RemoveServerTarget(w.ctx, lb, w.servers()[0])
			w.must(err)
		},
		"for no longer than two minutes": func(_ *world, m *v1alpha1.Machine, _ *hcloud.LoadBalancer) {
			m.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(-3 * time.Minute)}
		},
	} {
		w := newWorld(t)
		m := w.machineWith(`{"serverType": "cx23", "location": "fsn1"}`)
		w.create(m)
		lb, _, err := w.api.LoadBalancer.Create(w.ctx, hcloud.LoadBalancerCreateOpts{Name: "lb",
			LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: &hcloud.Location{Name: "fsn1"},
			Targets: []hcloud.LoadBalancerCreateOptsTarget{{Type: hcloud.LoadBalancerTargetTypeServer,
				Server: hcloud.LoadBalancerCreateOptsTargetServer{Server: w.servers()[0]}}}})
		w.must(err)
		m.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		if gone, err := w.p.Cleanup(w.ctx, m, &machine.Data{}); gone || err != nil || len(w.servers()) != 1 {
			t.Errorf("%s: while it is a target: %t, %v, %d servers", name, gone, err, len(w.servers()))
		}
		end(w, m, lb.LoadBalancer)
		if _, err := w.p.Cleanup(w.ctx, m, &machine.Data{}); err != nil || len(w.servers()) != 0 {
			t.Errorf("%s: afterwards: %v, %d servers", name, err, len(w.servers()))
		}
	}
}

func TestMigrateUIDMovesTheServer(t *testing.T) {
	w := newWorld(t)
	m := w.machineWith(`{"serverType": "cx23"}`)
	id := w.create(m).ID()
	w.must(w.p.MigrateUID(w.ctx, m, "uid-2"))
	if _, err := w.p.Get(w.ctx, m); !errors.Is(err, machine.ErrInstanceNotFound) {
		t.Errorf("by the old UID: %v", err)
	}
	if err := w.p.MigrateUID(w.ctx, m, "uid-2"); err != nil {
		t.Errorf("again: %v", err)
	}
	if err := w.p.MigrateUID(w.ctx, m, "uid-3"); !errors.Is(err, machine.ErrInstanceNotFound) {
		t.Errorf("from a UID that nothing has: %v", err)
	}
	m.UID = types.UID("uid-2")
	if i, err := w.p.Get(w.ctx, m); err != nil || i.ID() != id {
		t.Errorf("by the new UID: %v, %v", i, err)
	}
}

func TestValidateSaysWhatToChange(t *testing.T) {
	w := newWorld(t)
	for config, want := range map[string]string{
		`{}`:                     "serverType is missing",
		`{"serverType": "cx99"}`: `no server type "cx99"`,
		`{"serverTyp": "cx23"}`:  "serverTyp",
		`{"serverType": "cx23", "location": "moon"}`: `no location "moon"`,
		`{"serverType": "cx23", "location": "ash"}`:  "not available in ash",
		`{"serverType": "cx23", "image": "debian-13"}`: "debian-13 is debian, and operatingSystem is " +
			"ubuntu",
		`{"serverType": "cx23", "image": "nothing"}`:                                      `no image "nothing"`,
		`{"serverType": "cx23", "networks": ["nothing"]}`:                                 `no network "nothing"`,
		`{"serverType": "cx23", "firewalls": ["nothing"]}`:                                `no firewall "nothing"`,
		`{"serverType": "cx23", "sshKeys": ["nothing"]}`:                                  `no SSH key "nothing"`,
		`{"serverType": "cx23", "placementGroup": "a", "placementGroupPrefix": "b"}`:      "exclude each other",
		`{"serverType": "cx23", "placementGroup": "nothing"}`:                             `no placement group "nothing"`,
		`{"serverType": "cx23", "labels": {"machine.ccm-from-scratch.dev/uid": "other"}}`: "reserved",
		`{"serverType": "cx23", "labels": {"a b": "c"}}`:                                  "labels",
		`{"serverType": "cx23", "assignPublicIPv4": false, "assignPublicIPv6": false}`:    "no address",
	} {
		m := &v1alpha1.Machine{}
		m.Spec.ProviderSpec.CloudProviderSpec.Raw = []byte(config)
		spec, err := w.p.AddDefaults(w.ctx, m.Spec)
		if err == nil {
			_, err = w.p.Validate(w.ctx, spec)
		}
		var terminal *machine.TerminalError
		if !errors.As(err, &terminal) || !strings.Contains(err.Error(), want) || terminal.Reason != machine.ReasonInvalidConfiguration {
			t.Errorf("%s: %v, want a terminal error with %q", config, err, want)
		}
	}
	w.fault(fault.Rule{Effect: fault.APIError("rate_limit_exceeded")})
	if _, err := w.p.Validate(w.ctx, w.machineWith(`{"serverType": "cx23"}`).Spec); err == nil || errors.As(err, new(*machine.TerminalError)) {
		t.Errorf("an API that refuses requests: %v, want an error that is not terminal", err)
	}
}

func TestServerTypesThatRetire(t *testing.T) {
	w := newWorld(t)
	kind, _, err := w.api.ServerType.GetByName(w.ctx, "cx23")
	w.must(err)
	byID := fmt.Sprintf(`{"serverType": "%d"}`, kind.ID)
	validate := func(config string) (string, error) {
		warnings, err := w.p.Validate(w.ctx, w.machineWith(config).Spec)
		return strings.Join(warnings, "\n"), err
	}

	soon, err := w.cloud.Scenarios().Start(w.ctx, "retired=cx23@24h")
	w.must(err)
	kind, _, err = w.api.ServerType.GetByID(w.ctx, kind.ID)
	w.must(err)
	day := kind.Locations[0].UnavailableAfter().Format(time.DateOnly)
	for config, locations := range map[string]int{`{"serverType": "cx23", "location": "fsn1"}`: 1, byID: len(kind.Locations),
		`{"serverType": "cax11"}`: 0} {
		warnings, err := validate(config)
		if err != nil || strings.Count(warnings, "retires in") != locations || strings.Count(warnings, day) != locations {
			t.Errorf("%s: %q, %v, want a warning for %d locations with the day %s", config, warnings, err, locations, day)
		}
	}
	w.must(w.cloud.Scenarios().End(w.ctx, soon.ID))

	_, err = w.cloud.Scenarios().Start(w.ctx, "retired=cx23@0s")
	w.must(err)
	for config, want := range map[string]string{`{"serverType": "cx23"}`: "or it has retired", byID: "not available in any location",
		fmt.Sprintf(`{"serverType": "%d", "location": "fsn1"}`, kind.ID): "not available in fsn1"} {
		warnings, err := validate(config)
		if warnings != "" || !errors.As(err, new(*machine.TerminalError)) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s, retired: %q, %v, want a terminal error with %q", config, warnings, err, want)
		}
	}
}

func TestTheSameRefusalHasTheSameText(t *testing.T) {
	w := newWorld(t)
	w.fault(fault.Rule{Operation: "create_server", Effect: fault.APIError("resource_unavailable")})
	m := w.machineWith(`{"serverType": "cx23"}`)
	refusal := func() string {
		_, err := w.p.Create(w.ctx, m, &machine.Data{}, "")
		return fmt.Sprint(err)
	}
	if first := refusal(); !strings.Contains(first, "(resource_unavailable)") || refusal() != first {
		t.Errorf("two refusals: %q and %q", first, refusal())
	}
}

func TestOperatingSystems(t *testing.T) {
	w := newWorld(t)
	for _, os := range []v1alpha1.OperatingSystem{v1alpha1.Ubuntu, v1alpha1.Debian, v1alpha1.Fedora, v1alpha1.CentOS, v1alpha1.RockyLinux,
		v1alpha1.AlmaLinux, v1alpha1.OpenSUSE} {
		for _, kind := range []string{"cx23", "cax11"} {
			var spec v1alpha1.MachineSpec
			spec.ProviderSpec.OperatingSystem = os
			spec.ProviderSpec.CloudProviderSpec.Raw = []byte(`{"serverType": "` + kind + `"}`)
			spec, err := w.p.AddDefaults(w.ctx, spec)
			w.must(err)
			if _, err := w.p.Validate(w.ctx, spec); err != nil {
				t.Errorf("%s on %s: %v", os, kind, err)
			}
		}
	}
	for _, os := range []v1alpha1.OperatingSystem{v1alpha1.Flatcar, v1alpha1.RHEL, v1alpha1.AmazonLinux, "plan9"} {
		var spec v1alpha1.MachineSpec
		spec.ProviderSpec.OperatingSystem = os
		spec, err := w.p.AddDefaults(w.ctx, spec)
		w.must(err)
		if _, err := w.p.Validate(w.ctx, spec); !errors.Is(err, machine.ErrOSNotSupported) || !errors.As(err, new(*machine.TerminalError)) {
			t.Errorf("%s: %v", os, err)
		}
	}
}

func TestAddDefaultsKeepsWhatIsSet(t *testing.T) {
	w := newWorld(t)
	for config, want := range map[string]string{
		`{"serverType": "cx23"}`:   `{"serverType":"cx23","image":"ubuntu-24.04"}`,
		`{"image": "my-snapshot"}`: `{"image": "my-snapshot"}`,
		`{"token": {"secretKeyRef": {"name": "hcloud", "key": "token"}}}`:             `{"token":{"secretKeyRef":{"name":"hcloud","key":"token"}},"image":"ubuntu-24.04"}`,
		`{"image": {"configMapKeyRef": {"name": "c", "key": "image"}}}`:               `{"image": {"configMapKeyRef": {"name": "c", "key": "image"}}}`,
		`{"labels": {"a": "b"}, "assignPublicIPv4": false, "networks": ["internal"]}`: `{"image":"ubuntu-24.04","networks":["internal"],"labels":{"a":"b"},"assignPublicIPv4":false}`,
	} {
		m := w.machineWith(config)
		var a, b any
		w.must(json.Unmarshal(m.Spec.ProviderSpec.CloudProviderSpec.Raw, &a))
		w.must(json.Unmarshal([]byte(want), &b))
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%s: %v, want %v", config, a, b)
		}
		if again, err := w.p.AddDefaults(w.ctx, m.Spec); err != nil ||
			string(again.ProviderSpec.CloudProviderSpec.Raw) != string(m.Spec.ProviderSpec.CloudProviderSpec.Raw) {
			t.Errorf("%s: the second time %s, %v", config, again.ProviderSpec.CloudProviderSpec.Raw, err)
		}
	}
}

func TestMetricsLabelsAlwaysHaveTheSizeAndCostNoRequest(t *testing.T) {
	w := newWorld(t)
	for config, want := range map[string]string{`{"serverType": "cx33"}`: "cx33",
		`{"serverType": {"secretKeyRef": {"name": "a", "key": "b"}}}`: "unknown"} {
		before := w.requests()
		labels, err := w.p.MachineMetricsLabels(w.machineWith(config))
		if err != nil || labels["size"] != want || w.requests() != before {
			t.Errorf("%s: %v, %v", config, labels, err)
		}
	}
}

func (w *world) requests() int {
	w.Helper()
	n, err := w.cloud.Journal().Count(w.ctx, journal.Filter{})
	w.must(err)
	return n
}

func cidr(s string) *net.IPNet {
	_, n, err := net.ParseCIDR(s)
	if err != nil {
		panic(err)
	}
	return n
}
