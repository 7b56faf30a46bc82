package cloud

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
)

// testNow is when the tests of servers begin.
var testNow = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// serverCatalogue is small enough to reason about: two locations in two zones, types that differ in one
// thing each, images of both architectures.
func serverCatalogue() *Catalogue {
	fsn := &Location{ID: 1, Name: "fsn1", NetworkZone: "eu-central"}
	ash := &Location{ID: 2, Name: "ash", NetworkZone: "us-east"}
	in := func(l *Location, available bool, gone ...time.Time) ServerTypeLocation {
		tl := ServerTypeLocation{Location: l, Available: available}
		if len(gone) > 0 {
			tl.Deprecation = &Deprecation{Announced: gone[0].AddDate(0, -3, 0), UnavailableAfter: gone[0]}
		}
		return tl
	}
	kind := func(id int64, name, arch string, disk int, locations ...ServerTypeLocation) *ServerType {
		return &ServerType{
			ID: id, Name: name, Architecture: arch, Disk: disk, Cores: 2, Memory: 4,
			StorageType: "local", CPUType: "shared", Locations: locations,
		}
	}
	image := func(id int64, name, arch string, disk float64) *Image {
		return &Image{
			Meta: Meta{ID: id, Name: name, Created: testNow}, Type: ImageSystem, Status: "available", Architecture: arch, DiskSize: disk,
		}
	}
	old := image(105, "old", "x86", 5)
	old.Deprecation = &Deprecation{UnavailableAfter: testNow.Add(-time.Hour)}
	return &Catalogue{
		Locations: []*Location{fsn, ash},
		ServerTypes: []*ServerType{
			kind(1, "small", "x86", 40, in(fsn, true), in(ash, true)),
			kind(2, "big", "x86", 80, in(fsn, true)),
			kind(3, "arm", "arm", 40, in(fsn, true)),
			kind(4, "soldout", "x86", 40, in(fsn, false), in(ash, true)),
			kind(5, "retired", "x86", 40, in(fsn, true, testNow.Add(-time.Hour))),
			kind(6, "retiring", "x86", 40, in(fsn, true, testNow.Add(time.Hour))),
			kind(7, "tiny", "x86", 4, in(fsn, true)),
		},
		Images: []*Image{
			image(101, "debian", "x86", 5), image(102, "debian", "arm", 5), image(103, "onlyx86", "x86", 5),
			image(104, "huge", "x86", 60), old,
		},
		LoadBalancerTypes: []*LoadBalancerType{{ID: 301, Name: "lb", MaxServices: 5, MaxTargets: 25}},
		ISOs: []*ISO{
			{ID: 201, Name: "any.iso", Type: "public"}, {ID: 202, Name: "arm.iso", Type: "public", Architecture: "arm"},
			{ID: 203, Name: "gone.iso", Type: "public", Deprecation: &Deprecation{UnavailableAfter: testNow.Add(-time.Hour)}},
		},
	}
}

// serverCloud returns a cloud whose actions take a second on a clock that only the test moves.
func serverCloud(t *testing.T, o Options) (Project, *testclock.FakeClock) {
	t.Helper()
	clk := testclock.NewFakeClock(testNow)
	o.Clock = clk
	if o.Profile == nil {
		o.Profile = ProfileFixed(time.Second)
	}
	if o.Catalogue == nil {
		o.Catalogue = serverCatalogue()
	}
	c := New(o)
	t.Cleanup(c.Close)
	p, _ := c.Project(1)
	return p, clk
}

// smallServer is a request that works.
func smallServer(name string) CreateServer {
	return CreateServer{
		Name: name, ServerType: "small", Image: "debian", Location: "fsn1", StartAfterCreate: true,
		IPv4: ServerPublicIP{Enabled: true}, IPv6: ServerPublicIP{Enabled: true},
	}
}

func mustCreate(t *testing.T, p Project, in CreateServer) CreatedServer {
	t.Helper()
	out, _, err := p.CreateServer(in)
	if err != nil {
		t.Fatalf("create %s: %v", in.Name, err)
	}
	return out
}

// offServer creates a server that is powered off and not locked.
func offServer(t *testing.T, p Project, clk *testclock.FakeClock, in CreateServer) *Server {
	t.Helper()
	in.StartAfterCreate = false
	id := mustCreate(t, p, in).Server.ID
	clk.Step(time.Minute)
	return server(t, p, id)
}

func runningServer(t *testing.T, p Project, clk *testclock.FakeClock, in CreateServer) *Server {
	t.Helper()
	id := mustCreate(t, p, in).Server.ID
	clk.Step(time.Minute)
	return server(t, p, id)
}

func server(t *testing.T, p Project, id int64) *Server {
	t.Helper()
	s, ok := p.View().Servers.Get(id)
	if !ok {
		t.Fatalf("server %d is gone", id)
	}
	return s
}

func wantStatus(t *testing.T, p Project, id int64, want ServerStatus, locked bool) {
	t.Helper()
	st := p.View()
	s, ok := st.Servers.Get(id)
	if !ok {
		t.Fatalf("server %d is gone, want it %s", id, want)
	}
	if got := st.Actions.Locked(s.Ref()); s.Status != want || got != locked {
		t.Fatalf("server is %s, locked %v; want %s, locked %v", s.Status, got, want, locked)
	}
}

func wantAction(t *testing.T, p Project, id int64, command string, want ActionStatus) {
	t.Helper()
	a, ok := p.View().Actions.Get(id)
	if !ok || a.Command != command || a.Status != want {
		t.Fatalf("action %d: %+v, want %s %s", id, a, command, want)
	}
}

func wantCode(t *testing.T, what string, err error, want string) {
	t.Helper()
	if got := codeOf(err); got != want {
		t.Errorf("%s: got %q (%v), want %q", what, got, err, want)
	}
}

func TestAServerIsInitializingThenStartingThenRunning(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	out := mustCreate(t, p, smallServer("a"))
	id := out.Server.ID
	if out.RootPassword == "" || len(out.NextActions) != 1 {
		t.Fatalf("created: %+v", out)
	}
	wantStatus(t, p, id, ServerInitializing, true)
	wantAction(t, p, out.Action, "create_server", ActionRunning)
	wantAction(t, p, out.NextActions[0], "start_server", ActionRunning)
	_, _, err := p.PowerOffServer(id)
	wantCode(t, "power off while it is created", err, "locked")
	_, _, err = p.DeleteServer(id)
	wantCode(t, "delete while it is created", err, "locked")

	clk.Step(time.Second)
	wantStatus(t, p, id, ServerStarting, true)
	wantAction(t, p, out.Action, "create_server", ActionSuccess)
	wantAction(t, p, out.NextActions[0], "start_server", ActionRunning)
	clk.Step(time.Second)
	wantStatus(t, p, id, ServerRunning, false)
	wantAction(t, p, out.NextActions[0], "start_server", ActionSuccess)
	if s := server(t, p, id); !s.Started.Equal(testNow.Add(2 * time.Second)) {
		t.Errorf("started at %s", s.Started)
	}
}

func TestAServerThatIsNotStartedIsOff(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	in := smallServer("a")
	in.StartAfterCreate = false
	out := mustCreate(t, p, in)
	if len(out.NextActions) != 0 {
		t.Fatalf("next actions: %v", out.NextActions)
	}
	wantStatus(t, p, out.Server.ID, ServerInitializing, true)
	clk.Step(time.Second)
	wantStatus(t, p, out.Server.ID, ServerOff, false)
}

func TestWithTheInstantProfileAServerRunsWhenTheRequestIsAnswered(t *testing.T) {
	t.Parallel()
	p, _ := serverCloud(t, Options{Profile: ProfileInstant})
	out, st, err := p.CreateServer(smallServer("a"))
	if err != nil {
		t.Fatal(err)
	}
	s, _ := st.Servers.Get(out.Server.ID)
	a, _ := st.Actions.Get(out.NextActions[0])
	if s.Status != ServerRunning || a.Status != ActionSuccess || st.Actions.Locked(s.Ref()) {
		t.Fatalf("server %s, action %s", s.Status, a.Status)
	}
}

func TestServersThatCannotBeCreatedLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	taken := mustCreate(t, p, smallServer("taken"))
	clk.Step(time.Minute)
	used := server(t, p, taken.Server.ID)
	elsewhere, _, _, err := p.CreatePrimaryIP(CreatePrimaryIP{Name: "ash", Type: IPv4, Location: "ash"})
	if err != nil {
		t.Fatal(err)
	}
	v6, _, _, err := p.CreatePrimaryIP(CreatePrimaryIP{Name: "v6", Type: IPv6, Location: "fsn1"})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*CreateServer)
		want   string
	}{
		"name in use":             {func(in *CreateServer) { in.Name = "taken" }, "uniqueness_error"},
		"bad label":               {func(in *CreateServer) { in.Labels = map[string]string{"-": ""} }, "labels"},
		"user data too long":      {func(in *CreateServer) { in.UserData = strings.Repeat("ä", MaxUserDataBytes/2+1) }, "user_data"},
		"no such type":            {func(in *CreateServer) { in.ServerType = "none" }, "server_type"},
		"no such image":           {func(in *CreateServer) { in.Image = "none" }, "image"},
		"retired image":           {func(in *CreateServer) { in.Image = "old" }, "image"},
		"retired image by id":     {func(in *CreateServer) { in.Image = "105" }, "image"},
		"image of other arch":     {func(in *CreateServer) { in.ServerType = "arm"; in.Image = "onlyx86" }, "image"},
		"image id of other arch":  {func(in *CreateServer) { in.Image = "102" }, "image"},
		"image bigger than disk":  {func(in *CreateServer) { in.Image = "huge" }, "image"},
		"no such location":        {func(in *CreateServer) { in.Location = "none" }, "location"},
		"type not in location":    {func(in *CreateServer) { in.ServerType = "big"; in.Location = "ash" }, "location"},
		"type sold out":           {func(in *CreateServer) { in.ServerType = "soldout" }, "resource_unavailable"},
		"type retired":            {func(in *CreateServer) { in.ServerType = "retired" }, "server_type"},
		"no such SSH key":         {func(in *CreateServer) { in.SSHKeys = []string{"none"} }, "ssh_keys.0"},
		"no such network":         {func(in *CreateServer) { in.Networks = []int64{1} }, "networks.0"},
		"no such placement group": {func(in *CreateServer) { in.PlacementGroup = 1 }, "placement_group"},
		"volumes":                 {func(in *CreateServer) { in.Volumes = []int64{1} }, "volumes"},
		"firewalls":               {func(in *CreateServer) { in.Firewalls = []int64{1} }, "firewalls"},
		"no interface": {func(in *CreateServer) {
			in.IPv4.Enabled, in.IPv6.Enabled = false, false
		}, "public_net"},
		"primary IP for a disabled interface": {func(in *CreateServer) { in.IPv6 = ServerPublicIP{PrimaryIP: v6.ID} }, "public_net.ipv6"},
		"no such primary IP":                  {func(in *CreateServer) { in.IPv4.PrimaryIP = 1 }, "public_net.ipv4"},
		"primary IP of other version":         {func(in *CreateServer) { in.IPv4.PrimaryIP = v6.ID }, "primary_ip_version_mismatch"},
		"primary IP in use":                   {func(in *CreateServer) { in.IPv4.PrimaryIP = used.PublicIPv4 }, "primary_ip_assigned"},
		"primary IP in another location":      {func(in *CreateServer) { in.IPv4.PrimaryIP = elsewhere.ID }, "primary_ip_datacenter_mismatch"},
	} {
		in := smallServer("new")
		c.change(&in)
		before := p.View()
		_, after, err := p.CreateServer(in)
		wantCode(t, name, err, c.want)
		if after != before {
			t.Errorf("%s: something was changed", name)
		}
	}
}

func TestWhereAServerIsPut(t *testing.T) {
	t.Parallel()
	p, _ := serverCloud(t, Options{})
	n, _, err := p.CreateNetwork(CreateNetwork{
		Name: "us", IPRange: netip.MustParsePrefix("10.0.0.0/16"),
		Subnets: []Subnet{{Type: SubnetCloud, IPRange: netip.MustParsePrefix("10.0.1.0/24"), NetworkZone: "us-east"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ip, _, _, err := p.CreatePrimaryIP(CreatePrimaryIP{Name: "ash", Type: IPv4, Location: "ash"})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*CreateServer)
		want   string
	}{
		"by id":                       {func(in *CreateServer) { in.Location = "2" }, "ash"},
		"first that has the type":     {func(in *CreateServer) { in.Location = ""; in.ServerType = "soldout" }, "ash"},
		"first of all":                {func(in *CreateServer) { in.Location = "" }, "fsn1"},
		"where the network is":        {func(in *CreateServer) { in.Location = ""; in.Networks = []int64{n.ID} }, "ash"},
		"where the primary IP is":     {func(in *CreateServer) { in.Location = ""; in.IPv4.PrimaryIP = ip.ID }, "ash"},
		"deprecated, not retired yet": {func(in *CreateServer) { in.ServerType = "retiring" }, "fsn1"},
	} {
		in := smallServer(strings.ReplaceAll(name, " ", "-"))
		c.change(&in)
		out, _, err := p.CreateServer(in)
		if err != nil || out.Server.Location.Name != c.want {
			t.Errorf("%s: %v in %+v, want %s", name, err, out.Server, c.want)
		}
	}
	nowhere := smallServer("nowhere")
	nowhere.Location, nowhere.ServerType, nowhere.Networks = "", "big", []int64{n.ID}
	_, _, err = p.CreateServer(nowhere)
	wantCode(t, "type and network that never meet", err, "resource_unavailable")
}

func TestANameOfAnImageFindsTheOneForTheArchitecture(t *testing.T) {
	t.Parallel()
	p, _ := serverCloud(t, Options{})
	in := smallServer("a")
	in.ServerType = "arm"
	if out := mustCreate(t, p, in); out.Server.Image.ID != 102 {
		t.Errorf("image %d", out.Server.Image.ID)
	}
}

func TestSSHKeysReplaceTheRootPassword(t *testing.T) {
	t.Parallel()
	p, _ := serverCloud(t, Options{})
	var keys []*SSHKey
	_, err := p.update(func(tx *Tx) error {
		keys = []*SSHKey{putKey(tx, "one"), putKey(tx, "two")}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	in := smallServer("a")
	in.SSHKeys = []string{"one", strconv.FormatInt(keys[1].ID, 10), strconv.FormatInt(keys[0].ID, 10)}
	out := mustCreate(t, p, in)
	if out.RootPassword != "" || !slices.Equal(out.Server.SSHKeys, []int64{keys[0].ID, keys[1].ID}) {
		t.Errorf("password %q, keys %v", out.RootPassword, out.Server.SSHKeys)
	}
}

func TestLimitsOfServersAndPrimaryIPs(t *testing.T) {
	t.Parallel()
	p, _ := serverCloud(t, Options{Limits: Limits{Servers: 2, PrimaryIPs: 3, PlacementGroups: 1}})
	mustCreate(t, p, smallServer("a"))
	before := p.View()
	_, after, err := p.CreateServer(smallServer("b"))
	wantCode(t, "fourth primary IP", err, "resource_limit_exceeded")
	if after != before || len(p.cloud.ips.v4.used) != 1 {
		t.Error("the refused server left something behind")
	}
	v6only := smallServer("b")
	v6only.IPv4.Enabled = false
	mustCreate(t, p, v6only)
	v6only.Name = "c"
	_, _, err = p.CreateServer(v6only)
	wantCode(t, "third server", err, "resource_limit_exceeded")
	if _, _, err := p.CreatePlacementGroup(CreatePlacementGroup{Name: "g", Type: "spread"}); err != nil {
		t.Fatal(err)
	}
	_, _, err = p.CreatePlacementGroup(CreatePlacementGroup{Name: "h", Type: "spread"})
	wantCode(t, "second group", err, "resource_limit_exceeded")
}

// testNetwork creates a network with one small subnet in eu-central.
func testNetwork(t *testing.T, p Project, name, ipRange string) *Network {
	t.Helper()
	r := netip.MustParsePrefix(ipRange)
	n, _, err := p.CreateNetwork(CreateNetwork{
		Name: name, IPRange: r, Subnets: []Subnet{{Type: SubnetCloud, IPRange: netip.PrefixFrom(r.Addr(), 28), NetworkZone: "eu-central"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAServerIsAttachedToItsNetworksAfterItStarts(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	n := testNetwork(t, p, "n", "10.0.0.0/24")
	in := smallServer("a")
	in.Networks = []int64{n.ID}
	out := mustCreate(t, p, in)
	wantAction(t, p, out.NextActions[0], "start_server", ActionRunning)
	wantAction(t, p, out.NextActions[1], "attach_to_network", ActionRunning)
	clk.Step(2 * time.Second)
	wantStatus(t, p, out.Server.ID, ServerRunning, true) // the attaching still runs
	if len(server(t, p, out.Server.ID).PrivateNets) != 0 {
		t.Error("attached before the action has ended")
	}
	clk.Step(time.Second)
	wantStatus(t, p, out.Server.ID, ServerRunning, false)
	if _, ok := server(t, p, out.Server.ID).PrivateNet(n.ID); !ok {
		t.Error("not attached")
	}
}

func TestAPrivateServerIsAttachedBeforeItStarts(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	n := testNetwork(t, p, "n", "10.0.0.0/24")
	in := smallServer("a")
	in.IPv4.Enabled, in.IPv6.Enabled, in.Networks = false, false, []int64{n.ID}
	out := mustCreate(t, p, in)
	wantAction(t, p, out.NextActions[0], "attach_to_network", ActionRunning)
	clk.Step(2 * time.Second)
	wantStatus(t, p, out.Server.ID, ServerStarting, true)
	if _, ok := server(t, p, out.Server.ID).PrivateNet(n.ID); !ok {
		t.Error("starting without an interface")
	}
}

func TestAFailedCreationLeavesAServerThatIsOffAndCanBeDeleted(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	n := testNetwork(t, p, "n", "10.0.0.0/24")
	in := smallServer("a")
	in.Networks = []int64{n.ID}
	out := mustCreate(t, p.WithOutcome(&ActionOutcome{Fail: true}), in)
	clk.Step(time.Second)
	wantAction(t, p, out.Action, "create_server", ActionFailed)
	wantAction(t, p, out.NextActions[0], "start_server", ActionFailed)
	wantAction(t, p, out.NextActions[1], "attach_to_network", ActionFailed)
	wantStatus(t, p, out.Server.ID, ServerOff, false)
	if net, _ := p.View().Networks.Get(n.ID); len(net.Members) != 0 {
		t.Errorf("the place in the network is still taken: %v", net.Members)
	}
	if _, _, err := p.DeleteServer(out.Server.ID); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second)
	checkInvariants(t, p.View(), p.cloud)
}

func TestPower(t *testing.T) {
	t.Parallel()
	type step struct {
		do   func(Project, int64) (int64, *State, error)
		name string
		// during, atEnd and later are the statuses while the action runs, when it has ended and a second
		// after that.
		during, atEnd, later ServerStatus
	}
	on := func(d, e, l ServerStatus) step { return step{Project.PowerOnServer, "poweron", d, e, l} }
	off := func(d, e, l ServerStatus) step { return step{Project.PowerOffServer, "poweroff", d, e, l} }
	shutdown := func(d, e, l ServerStatus) step { return step{Project.ShutdownServer, "shutdown", d, e, l} }
	reboot := func(d, e, l ServerStatus) step { return step{Project.RebootServer, "reboot", d, e, l} }
	reset := func(d, e, l ServerStatus) step { return step{Project.ResetServer, "reset", d, e, l} }
	for name, steps := range map[string][]step{
		"off and on": {
			off(ServerStopping, ServerOff, ServerOff), off(ServerOff, ServerOff, ServerOff),
			on(ServerStarting, ServerRunning, ServerRunning), on(ServerRunning, ServerRunning, ServerRunning),
		},
		"shutdown ends after its action": {
			shutdown(ServerRunning, ServerStopping, ServerOff), shutdown(ServerOff, ServerOff, ServerOff),
		},
		"reboot keeps the machine running": {reboot(ServerRunning, ServerRunning, ServerRunning)},
		"reset":                            {reset(ServerStarting, ServerRunning, ServerRunning)},
		"off does not react to a reboot": {
			off(ServerStopping, ServerOff, ServerOff), reboot(ServerOff, ServerOff, ServerOff),
			reset(ServerStarting, ServerRunning, ServerRunning),
		},
	} {
		p, clk := serverCloud(t, Options{})
		id := runningServer(t, p, clk, smallServer("a")).ID
		for i, s := range steps {
			action, _, err := s.do(p, id)
			if err != nil {
				t.Fatalf("%s: %s: %v", name, s.name, err)
			}
			_, _, err = s.do(p, id)
			wantCode(t, name+": "+s.name+" twice", err, "locked")
			wantStatus(t, p, id, s.during, true)
			clk.Step(time.Second)
			wantStatus(t, p, id, s.atEnd, false)
			if a, _ := p.View().Actions.Get(action); a.Status != ActionSuccess {
				t.Errorf("%s: step %d: %+v", name, i, a)
			}
			clk.Step(time.Second)
			wantStatus(t, p, id, s.later, false)
		}
	}
}

func TestAServerThatIsStartedAgainWhileItShutsDownStaysOn(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	id := runningServer(t, p, clk, smallServer("a")).ID
	if _, _, err := p.ShutdownServer(id); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second)
	wantStatus(t, p, id, ServerStopping, false)
	p.cloud.SetProfile(ProfileInstant)
	if _, _, err := p.PowerOnServer(id); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Hour)
	wantStatus(t, p, id, ServerRunning, false)
}

func TestAFailedPowerActionChangesNothing(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	id := runningServer(t, p, clk, smallServer("a")).ID
	for _, do := range []func(Project, int64) (int64, *State, error){Project.PowerOffServer, Project.ResetServer, Project.DeleteServer} {
		if _, _, err := do(p.WithOutcome(&ActionOutcome{Fail: true}), id); err != nil {
			t.Fatal(err)
		}
		clk.Step(time.Second)
		wantStatus(t, p, id, ServerRunning, false)
	}
	if _, _, err := p.PowerOffServer(id); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second)
	if _, _, err := p.WithOutcome(&ActionOutcome{Fail: true}).PowerOnServer(id); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second)
	wantStatus(t, p, id, ServerOff, false)
}

func TestAServerWithoutAnInterfaceCannotBePoweredOn(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	in := smallServer("a")
	in.IPv4.Enabled, in.IPv6.Enabled = false, false
	id := offServer(t, p, clk, in).ID
	_, _, err := p.PowerOnServer(id)
	wantCode(t, "power on", err, "unsupported_error")
	_, _, err = p.ResetServer(id)
	wantCode(t, "reset", err, "unsupported_error")
	wantStatus(t, p, id, ServerOff, false)
}

func TestRescueModeLastsUntilTheNextBootOrAnHour(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	id := runningServer(t, p, clk, smallServer("a")).ID
	enable := func() {
		t.Helper()
		if password, _, _, err := p.EnableServerRescue(id, nil); err != nil || password == "" {
			t.Fatal(password, err)
		}
		clk.Step(time.Second)
	}
	want := func(what string, on bool) {
		t.Helper()
		if server(t, p, id).RescueEnabled != on {
			t.Fatalf("%s: rescue mode is %v", what, !on)
		}
	}
	enable()
	want("enabled", true)
	if _, _, err := p.RebootServer(id); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second)
	want("after a reboot", false)

	enable()
	clk.Step(59 * time.Minute)
	enable() // the hour begins anew
	clk.Step(30 * time.Minute)
	want("half an hour after it was enabled again", true)
	clk.Step(30 * time.Minute)
	want("after an hour", false)

	enable()
	if _, _, err := p.DisableServerRescue(id); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second)
	want("disabled", false)
	_, _, _, err := p.EnableServerRescue(id, []int64{1})
	wantCode(t, "unknown SSH key", err, "ssh_keys")
}

func TestChangeOfType(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	running := runningServer(t, p, clk, smallServer("running")).ID
	id := offServer(t, p, clk, smallServer("off")).ID
	for name, c := range map[string]struct {
		id      int64
		to      string
		upgrade bool
		want    string
	}{
		"running":                {running, "big", true, "server_not_stopped"},
		"no such type":           {id, "none", true, "server_type"},
		"the same":               {id, "small", true, "invalid_server_type"},
		"other architecture":     {id, "arm", true, "invalid_server_type"},
		"smaller disk":           {id, "tiny", false, "invalid_server_type"},
		"retired":                {id, "retired", false, "invalid_server_type"},
		"sold out":               {id, "soldout", false, "resource_unavailable"},
		"server that is unknown": {1, "big", false, "not_found"},
	} {
		_, _, err := p.ChangeServerType(c.id, c.to, c.upgrade)
		wantCode(t, name, err, c.want)
	}

	change := func(to string, upgrade bool, disk int) {
		t.Helper()
		if _, _, err := p.ChangeServerType(id, to, upgrade); err != nil {
			t.Fatal(err)
		}
		wantStatus(t, p, id, ServerMigrating, true)
		clk.Step(time.Second)
		wantStatus(t, p, id, ServerRunning, false)
		if s := server(t, p, id); s.Type.Name != to || s.PrimaryDisk != disk {
			t.Fatalf("type %s, disk %d", s.Type.Name, s.PrimaryDisk)
		}
		if _, _, err := p.PowerOffServer(id); err != nil {
			t.Fatal(err)
		}
		clk.Step(time.Second)
	}
	change("big", false, 40)
	change("small", false, 40)
	change("big", true, 80)
	_, _, err := p.ChangeServerType(id, "small", false)
	wantCode(t, "back after the disk has grown", err, "invalid_server_type")
}

func TestRebuild(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	in := smallServer("a")
	in.UserData = "first"
	id := runningServer(t, p, clk, in).ID
	for image, want := range map[string]string{"none": "image", "102": "image", "huge": "image", "old": "image"} {
		_, _, _, err := p.RebuildServer(id, RebuildServer{Image: image})
		wantCode(t, image, err, want)
	}
	long := strings.Repeat("x", MaxUserDataBytes+1)
	_, _, _, err := p.RebuildServer(id, RebuildServer{Image: "debian", UserData: &long})
	wantCode(t, "user data too long", err, "user_data")

	second := "second"
	for _, c := range []struct {
		in   RebuildServer
		data string
	}{{RebuildServer{Image: "onlyx86"}, "first"}, {RebuildServer{Image: "debian", UserData: &second}, "second"}} {
		password, _, _, err := p.RebuildServer(id, c.in)
		if err != nil || password == "" {
			t.Fatal(password, err)
		}
		wantStatus(t, p, id, ServerRebuilding, true)
		clk.Step(time.Second)
		wantStatus(t, p, id, ServerRunning, false)
		if s := server(t, p, id); s.Image.Name != c.in.Image || s.UserData != c.data {
			t.Errorf("image %s, user data %q", s.Image.Name, s.UserData)
		}
	}
}

func TestProtectionOfAServer(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	id := runningServer(t, p, clk, smallServer("a")).ID
	yes, no := true, false
	for _, c := range [][2]*bool{{&yes, &no}, {&yes, nil}, {nil, &yes}} {
		_, _, err := p.ChangeServerProtection(id, c[0], c[1])
		wantCode(t, "different values", err, "delete")
	}
	if _, _, err := p.ChangeServerProtection(id, &yes, &yes); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second)
	_, _, err := p.DeleteServer(id)
	wantCode(t, "delete", err, "protected")
	_, _, _, err = p.RebuildServer(id, RebuildServer{Image: "debian"})
	wantCode(t, "rebuild", err, "protected")
	if _, _, err := p.ChangeServerProtection(id, &no, &no); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second)
	if _, _, err := p.DeleteServer(id); err != nil {
		t.Error(err)
	}
}

func TestISOs(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	id := runningServer(t, p, clk, smallServer("a")).ID
	for _, iso := range []string{"none", "arm.iso", "gone.iso"} {
		_, _, err := p.AttachServerISO(id, iso)
		wantCode(t, iso, err, "iso")
	}
	if _, _, err := p.AttachServerISO(id, "201"); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second)
	if s := server(t, p, id); s.ISO == nil || s.ISO.Name != "any.iso" {
		t.Fatalf("ISO %+v", s.ISO)
	}
	for _, immediate := range []bool{false, true} {
		action, st, err := p.DetachServerISO(id)
		if err != nil {
			t.Fatal(err)
		}
		if a, _ := st.Actions.Get(action); (a.Status == ActionSuccess) != immediate {
			t.Errorf("detach: %s, at once: %v", a.Status, immediate)
		}
		clk.Step(time.Second)
	}
	if server(t, p, id).ISO != nil {
		t.Error("still attached")
	}
}

func TestImagesOfAServer(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	id := runningServer(t, p, clk, smallServer("a")).ID
	_, _, _, err := p.CreateServerImage(id, CreateServerImage{Type: ImageBackup})
	wantCode(t, "backup that is not enabled", err, "type")

	snap, _, st, err := p.CreateServerImage(id, CreateServerImage{Type: ImageSnapshot, Labels: map[string]string{"a": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	if i, _ := st.Images.Get(snap.ID); i.Status != "creating" || i.ImageSize != 0 || i.Description == "" {
		t.Errorf("at first: %+v", i)
	}
	_, _, err = p.DeleteServer(id)
	wantCode(t, "delete while the image is created", err, "locked")
	wantCode(t, "delete the image while it is created", p.DeleteImage(snap.ID), "locked")
	_, _, err = p.CreateServer(func() CreateServer {
		in := smallServer("b")
		in.Image = strconv.FormatInt(snap.ID, 10)
		return in
	}())
	wantCode(t, "server from an image that is not there yet", err, "image")
	clk.Step(time.Second)
	i, _ := p.View().Images.Get(snap.ID)
	if i.Status != "available" || i.ImageSize <= 0 || i.DiskSize != 40 || i.CreatedFrom.ID != id || i.CreatedFromName != "a" || i.BoundTo != 0 {
		t.Errorf("then: %+v", i)
	}

	if _, _, err := p.EnableServerBackup(id); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second)
	if server(t, p, id).BackupWindow == "" {
		t.Fatal("backups are not enabled")
	}
	for range MaxBackupsPerServer + 2 {
		if _, _, _, err := p.CreateServerImage(id, CreateServerImage{Type: ImageBackup}); err != nil {
			t.Fatal(err)
		}
		clk.Step(time.Second)
	}
	backups := func() (ids []int64) {
		for i := range p.View().Images.All() {
			if i.Type == ImageBackup {
				ids = append(ids, i.ID)
				if i.BoundTo != id {
					t.Errorf("bound to %d", i.BoundTo)
				}
			}
		}
		return ids
	}
	if got := backups(); len(got) != MaxBackupsPerServer {
		t.Fatalf("backups: %v", got)
	}
	if _, _, err := p.DisableServerBackup(id); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second)
	if got := backups(); len(got) != 0 || server(t, p, id).BackupWindow != "" {
		t.Errorf("after disabling: %v", got)
	}

	failed, action, _, err := p.WithOutcome(&ActionOutcome{Fail: true}).CreateServerImage(id, CreateServerImage{Type: ImageSnapshot})
	if err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second)
	wantAction(t, p, action, "create_image", ActionFailed)
	if _, ok := p.View().Images.Get(failed.ID); ok {
		t.Error("the image of a failed action stays")
	}

	restored := smallServer("restored")
	restored.Image = strconv.FormatInt(snap.ID, 10)
	if out := mustCreate(t, p, restored); out.Server.Image.ID != snap.ID {
		t.Errorf("image %+v", out.Server.Image)
	}
}

func TestDeletingAServerTakesItOutOfEverything(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	n := testNetwork(t, p, "n", "10.0.0.0/24")
	g, _, err := p.CreatePlacementGroup(CreatePlacementGroup{Name: "g", Type: "spread"})
	if err != nil {
		t.Fatal(err)
	}
	keep, _, _, err := p.CreatePrimaryIP(CreatePrimaryIP{Name: "keep", Type: IPv6, Location: "fsn1"})
	if err != nil {
		t.Fatal(err)
	}
	in := smallServer("a")
	in.Networks, in.PlacementGroup, in.IPv6.PrimaryIP = []int64{n.ID}, g.ID, keep.ID
	s := runningServer(t, p, clk, in)
	if _, _, err := p.EnableServerBackup(s.ID); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second)
	for _, kind := range []string{ImageBackup, ImageSnapshot} {
		if _, _, _, err := p.CreateServerImage(s.ID, CreateServerImage{Type: kind}); err != nil {
			t.Fatal(err)
		}
		clk.Step(time.Second)
	}

	action, _, err := p.DeleteServer(s.ID)
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, p, s.ID, ServerDeleting, true)
	clk.Step(time.Second)
	wantAction(t, p, action, "delete_server", ActionSuccess)
	st := p.View()
	if _, ok := st.Servers.Get(s.ID); ok {
		t.Error("the server is still there")
	}
	if net, _ := st.Networks.Get(n.ID); len(net.Members) != 0 {
		t.Errorf("network members: %v", net.Members)
	}
	if group, _ := st.PlacementGroups.Get(g.ID); len(group.Servers) != 0 {
		t.Errorf("placement group: %v", group.Servers)
	}
	if _, ok := st.PrimaryIPs.Get(s.PublicIPv4); ok {
		t.Error("the auto-delete primary IP is still there")
	}
	if ip, ok := st.PrimaryIPs.Get(keep.ID); !ok || ip.Assigned() {
		t.Errorf("the other primary IP: %+v", ip)
	}
	if st.Images.Len() != 1 {
		t.Errorf("%d images, want the snapshot alone", st.Images.Len())
	}
	if st.Actions.Locked(s.Ref()) {
		t.Error("the lock stays")
	}
	checkInvariants(t, st, p.cloud)
}

func TestPlacementGroups(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	g, _, err := p.CreatePlacementGroup(CreatePlacementGroup{Name: "g", Type: "spread"})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = p.CreatePlacementGroup(CreatePlacementGroup{Name: "g", Type: "spread"})
	wantCode(t, "name in use", err, "uniqueness_error")
	_, _, err = p.CreatePlacementGroup(CreatePlacementGroup{Name: "h", Type: "pack"})
	wantCode(t, "other type", err, "type")

	running := runningServer(t, p, clk, smallServer("running")).ID
	_, _, err = p.AddServerToPlacementGroup(running, g.ID)
	wantCode(t, "running server", err, "server_not_stopped")
	first := offServer(t, p, clk, smallServer("first")).ID
	_, _, err = p.AddServerToPlacementGroup(first, 1)
	wantCode(t, "no such group", err, "placement_group")
	if _, _, err := p.AddServerToPlacementGroup(first, g.ID); err != nil {
		t.Fatal(err)
	}
	if server(t, p, first).PlacementGroup != 0 {
		t.Error("in the group before the action has ended")
	}
	clk.Step(time.Second)
	if server(t, p, first).PlacementGroup != g.ID {
		t.Error("not in the group")
	}
	_, _, err = p.AddServerToPlacementGroup(first, g.ID)
	wantCode(t, "already in it", err, "already_in_placement_group")

	// Nine others fill it; the tenth other finds it full, at the request or at the end of the action.
	last := offServer(t, p, clk, smallServer("last")).ID
	lost, _, err := p.AddServerToPlacementGroup(last, g.ID)
	if err != nil {
		t.Fatal(err)
	}
	for i := range MaxServersPerPlacementGroup - 1 {
		in := smallServer("n" + strconv.Itoa(i))
		in.PlacementGroup = g.ID
		mustCreate(t, p, in)
	}
	full := smallServer("full")
	full.PlacementGroup = g.ID
	_, _, err = p.CreateServer(full)
	wantCode(t, "eleventh server", err, "placement_error")
	clk.Step(time.Minute)
	_, _, err = p.AddServerToPlacementGroup(last, g.ID)
	wantCode(t, "add an eleventh server", err, "resource_limit_exceeded")
	if a, _ := p.View().Actions.Get(lost); a.Status != ActionFailed || a.ErrorCode != "resource_limit_exceeded" {
		t.Errorf("action that came too late: %+v", a)
	}

	if _, _, err := p.RemoveServerFromPlacementGroup(first); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second)
	if group, _ := p.View().PlacementGroups.Get(g.ID); slices.Contains(group.Servers, first) || len(group.Servers) != 9 {
		t.Errorf("group: %v", group.Servers)
	}
	if err := p.DeletePlacementGroup(g.ID); err != nil {
		t.Fatal(err)
	}
	for s := range p.View().Servers.All() {
		if s.PlacementGroup != 0 {
			t.Errorf("server %d is still in the deleted group", s.ID)
		}
	}
	checkInvariants(t, p.View(), p.cloud)
}

func TestChangesOfWhatAServerShowsMakeANewVersionOfIt(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	g, _, err := p.CreatePlacementGroup(CreatePlacementGroup{Name: "g", Type: "spread"})
	if err != nil {
		t.Fatal(err)
	}
	in := smallServer("a")
	in.PlacementGroup = g.ID
	s := runningServer(t, p, clk, in)
	ptr := "example.com"
	v4, _ := p.View().PrimaryIPs.Get(s.PublicIPv4)
	for name, change := range map[string]func() error{
		"group's name": func() error {
			name := "h"
			_, err := p.UpdatePlacementGroup(g.ID, UpdateResource{Name: &name})
			return err
		},
		"another server in the group": func() error {
			other := smallServer("b")
			other.PlacementGroup = g.ID
			_, _, err := p.CreateServer(other)
			return err
		},
		"reverse DNS": func() error {
			_, _, err := p.ChangePrimaryIPDNSPtr(v4.ID, ChangeDNSPtr{IP: v4.IP.Addr(), Ptr: &ptr})
			clk.Step(time.Second)
			return err
		},
		"lock": func() error {
			_, _, err := p.PowerOnServer(s.ID)
			return err
		},
	} {
		before, _ := p.View().Servers.Entry(s.ID)
		if err := change(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if after, _ := p.View().Servers.Entry(s.ID); after == before {
			t.Errorf("%s: the server's JSON would be the old one", name)
		}
		clk.Step(time.Minute)
	}
}

func TestPasswordsAndConsoles(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	id := runningServer(t, p, clk, smallServer("a")).ID
	seen := map[string]bool{}
	for range 3 {
		password, _, _, err := p.ResetServerPassword(id)
		if err != nil || len(password) != 20 || seen[password] {
			t.Fatalf("password %q: %v", password, err)
		}
		seen[password] = true
		clk.Step(time.Second)
	}
	c, _, _, err := p.RequestServerConsole(id)
	if err != nil || !strings.HasPrefix(c.URL, "wss://") || c.Password == "" {
		t.Errorf("console %+v: %v", c, err)
	}
	clk.Step(time.Second)
	off := offServer(t, p, clk, smallServer("off")).ID
	_, _, _, err = p.ResetServerPassword(off)
	wantCode(t, "password of a server that is off", err, "unsupported_error")
}

func TestMetricsOfAServer(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	s := runningServer(t, p, clk, smallServer("a"))
	clk.Step(40 * 24 * time.Hour)
	now := p.cloud.Now()
	metrics := func(start, end time.Time, step time.Duration) (MetricRange, []MetricSeries) {
		t.Helper()
		r, err := NewMetricRange(start, end, step)
		if err != nil {
			t.Fatal(err)
		}
		out, err := p.ServerMetrics(s.ID, []string{"cpu", "disk", "network"}, r)
		if err != nil || len(out) != 9 {
			t.Fatalf("%d series, %v", len(out), err)
		}
		return r, out
	}
	for name, c := range map[string]struct {
		start, end time.Time
		step       time.Duration
		wantStep   time.Duration
		samples    int
	}{
		"chosen step":          {now.Add(-time.Hour), now, 0, 18 * time.Second, 200},
		"wanted step":          {now.Add(-time.Hour), now, time.Minute, time.Minute, 60},
		"too fine a step":      {now.Add(-time.Hour), now, time.Second, 8 * time.Second, 450},
		"half a second":        {now.Add(-time.Minute), now, 500 * time.Millisecond, time.Second, 60},
		"future":               {now.Add(time.Second), now.Add(time.Hour), time.Minute, time.Minute, 0},
		"more than 30 days":    {now.Add(-40 * 24 * time.Hour), now, 24 * time.Hour, 24 * time.Hour, 30},
		"before the creation":  {testNow.Add(-2 * time.Hour), testNow.Add(-time.Hour), 0, 18 * time.Second, 0},
		"longer than a human":  {time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), time.Second, 0, 0},
		"end not on the grid":  {now.Add(-90 * time.Second), now, time.Minute, time.Minute, 2},
		"less than one second": {now.Add(-1500 * time.Millisecond), now, 0, time.Second, 2},
	} {
		r, series := metrics(c.start, c.end, c.step)
		if n := len(series[0].Times); c.wantStep != 0 && (r.Step != c.wantStep || n != c.samples) || n > MaxMetricSamples {
			t.Errorf("%s: step %s, %d samples; want %s, %d", name, r.Step, n, c.wantStep, c.samples)
		}
	}
	_, one := metrics(now.Add(-time.Hour), now, time.Minute)
	_, two := metrics(now.Add(-time.Hour), now, time.Minute)
	if !slices.Equal(one[0].Values, two[0].Values) {
		t.Error("the same question has two answers")
	}
	if slices.Max(one[0].Values) <= 0 || slices.Min(one[0].Values) < 0 {
		t.Errorf("values of a running server: %v", one[0].Values)
	}
	if _, _, err := p.PowerOffServer(s.ID); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Hour)
	now = p.cloud.Now()
	if _, out := metrics(now.Add(-30*time.Minute), now, time.Minute); slices.Max(out[0].Values) != 0 {
		t.Errorf("values of a server that is off: %v", out[0].Values)
	}
	_, err := NewMetricRange(now, now, 0)
	wantCode(t, "empty period", err, "end")
}
