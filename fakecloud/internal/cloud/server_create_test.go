package cloud

import (
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

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

func TestARefusedServerLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	p, _ := serverCloud(t, Options{})
	const gone = "unsupported location for server type"
	for name, c := range map[string]struct {
		change func(*CreateServer)
		want   string
	}{
		"bad label":               {func(in *CreateServer) { in.Labels = map[string]string{"-": ""} }, "labels"},
		"user data too long":      {func(in *CreateServer) { in.UserData = strings.Repeat("ä", MaxUserDataBytes/2+1) }, "user_data"},
		"retired image":           {func(in *CreateServer) { in.Image = "old" }, "image not found"},
		"retired image by id":     {func(in *CreateServer) { in.Image = "105" }, "image not found"},
		"image of other arch":     {func(in *CreateServer) { in.ServerType = "arm"; in.Image = "onlyx86" }, "image has wrong architecture"},
		"image id of other arch":  {func(in *CreateServer) { in.Image = "102" }, "image has wrong architecture"},
		"image bigger than disk":  {func(in *CreateServer) { in.Image = "huge" }, "image disk is bigger than server type disk"},
		"type not in location":    {func(in *CreateServer) { in.ServerType = "big"; in.Location = "ash" }, gone},
		"type sold out":           {func(in *CreateServer) { in.ServerType = "soldout" }, "resource_unavailable"},
		"type retired":            {func(in *CreateServer) { in.ServerType = "retired" }, "server type 5 is deprecated"},
		"no such network":         {func(in *CreateServer) { in.Networks = []int64{1} }, "networks"},
		"no such placement group": {func(in *CreateServer) { in.PlacementGroup = 1 }, "placement_group"},
		"volumes":                 {func(in *CreateServer) { in.Volumes = []int64{1} }, "volumes"},
		"firewalls":               {func(in *CreateServer) { in.Firewalls = []int64{1} }, "firewalls"},
		"no interface": {func(in *CreateServer) { in.IPv4.Enabled, in.IPv6.Enabled = false, false },
			"invalid input: server must be attached to at least one of: primary_ipv4, primary_ipv6, private_network"},
		"no such primary IP": {func(in *CreateServer) { in.IPv4.PrimaryIP = 1 }, "primary_ip_not_found"},
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

func TestTheLocationOfANewServer(t *testing.T) {
	t.Parallel()
	p, _ := serverCloud(t, Options{})
	n := did(p.CreateNetwork(CreateNetwork{
		Name: "us", IPRange: netip.MustParsePrefix("10.0.0.0/16"),
		Subnets: []Subnet{{Type: SubnetCloud, IPRange: netip.MustParsePrefix("10.0.1.0/24"), NetworkZone: "us-east"}},
	}))(t)
	ip, _, _, err := p.CreatePrimaryIP(CreatePrimaryIP{Name: "ash", Type: IPv4, Location: "ash"})
	check(t, err)
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
	wantCode(t, "no location has the type and the network", err, "resource_unavailable")
}

func TestTheNameOfAnImageMeansTheOneForTheArchitecture(t *testing.T) {
	t.Parallel()
	p, _ := serverCloud(t, Options{})
	in := smallServer("a")
	in.ServerType = "arm"
	if out := mustCreate(t, p, in); out.Server.Image.ID != 102 {
		t.Errorf("image %d", out.Server.Image.ID)
	}
}

// testNetwork creates a network with one small subnet in eu-central.
func testNetwork(t testing.TB, p Project, name, ipRange string) *Network {
	t.Helper()
	r := netip.MustParsePrefix(ipRange)
	n := did(p.CreateNetwork(CreateNetwork{
		Name: name, IPRange: r, Subnets: []Subnet{{Type: SubnetCloud, IPRange: netip.PrefixFrom(r.Addr(), 28), NetworkZone: "eu-central"}},
	}))(t)
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
	did(p.DeleteServer(out.Server.ID))(t)
	clk.Step(time.Second)
	checkInvariants(t, p.View(), p.cloud)
}

func TestServersWithEqualLabelsShareThem(t *testing.T) {
	t.Parallel()
	p, _ := serverCloud(t, Options{})
	var labels [2]map[string]string
	for i := range labels {
		in := smallServer(strconv.Itoa(i))
		in.Labels = map[string]string{"role": "web"}
		labels[i] = server(t, p, mustCreate(t, p, in).Server.ID).Labels // its Primary IPs have no labels
	}
	if reflect.ValueOf(labels[0]).Pointer() != reflect.ValueOf(labels[1]).Pointer() {
		t.Error("each server has its own copy of the labels; they take a sixth of its memory")
	}
}
