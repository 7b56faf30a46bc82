package cloud

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
)

// networkCloud returns a cloud with one location in each of two zones, and a network
// 10.0.0.0/16 with the subnet 10.0.1.0/24 in eu-central.
func networkCloud(t *testing.T) (Project, *Network, *testclock.FakeClock) {
	t.Helper()
	p, clk := serverCloud(t, Options{})
	return p, lbNetwork(t, p, "net", "10.0"), clk
}

// putServer stores a server that is not in any network.
func putServer(t *testing.T, p Project, name, location string) *Server {
	t.Helper()
	var s *Server
	_, err := p.update(func(tx *Tx) error {
		l, _ := tx.Catalogue.Location(location)
		s = &Server{Meta: tx.NewMeta(name, nil), Status: ServerRunning, Location: l}
		tx.Servers.Put(s)
		return nil
	})
	check(t, err)
	return s
}

// codeOf returns the code of an API error, or for invalid_input the name of the first field.
func codeOf(err error) string {
	var e *Error
	switch {
	case err == nil:
		return ""
	case !errors.As(err, &e):
		return "not an API error: " + err.Error()
	case e.Code == "invalid_input" && len(e.Fields) > 0:
		return e.Fields[0].Name
	case e.Code == "invalid_input":
		return e.Message
	}
	return string(e.Code)
}

func TestTheSubnetOfAVSwitchDoesNotBeginWithItsNetwork(t *testing.T) {
	t.Parallel()
	p, _, _ := networkCloud(t)
	create := func(name string, subnets ...Subnet) (*Network, error) {
		n, _, err := p.CreateNetwork(CreateNetwork{Name: name, IPRange: netip.MustParsePrefix("10.0.0.0/16"), Subnets: subnets})
		return n, err
	}
	vSwitch := Subnet{Type: SubnetVSwitch, NetworkZone: "eu-central", VSwitchID: MinVSwitchID}
	for _, first := range []string{"10.0.0.0/16", "10.0.0.0/24"} {
		vSwitch.IPRange = netip.MustParsePrefix(first)
		if _, err := create("first", vSwitch); codeOf(err) != "subnets[0].ip_range" {
			t.Errorf("%s: %v", first, err)
		}
	}
	vSwitch.IPRange = netip.Prefix{}
	n, err := create("free", vSwitch)
	if err != nil || n.Subnets[0].IPRange.String() != "10.0.1.0/24" {
		t.Errorf("without a range: %+v, %v", n, err)
	}
	other := vSwitch
	other.NetworkZone = "us-east"
	if _, err := create("other", other); codeOf(err) != "subnets[0].network_zone" {
		t.Errorf("in another zone: %v", err)
	}
}

func TestASubnetWithoutARangeGetsTheFirstFree24(t *testing.T) {
	t.Parallel()
	p, n, clk := networkCloud(t)
	for _, want := range []string{"10.0.0.0/24", "10.0.2.0/24", "10.0.3.0/24"} {
		before, _ := p.View().Networks.Get(n.ID)
		did(p.AddSubnet(n.ID, Subnet{Type: "cloud", NetworkZone: "eu-central"}))(t)
		if _, _, err := p.AddSubnet(n.ID, Subnet{Type: "cloud", NetworkZone: "eu-central"}); codeOf(err) != "conflict" {
			t.Errorf("while a change runs: %v, want conflict", err)
		}
		clk.Step(time.Second)
		after, _ := p.View().Networks.Get(n.ID)
		got := after.Subnets[len(after.Subnets)-1]
		if len(after.Subnets) != len(before.Subnets)+1 || got.IPRange.String() != want || got.Gateway.String() != "10.0.0.1" {
			t.Errorf("got %+v, want %s via 10.0.0.1", got, want)
		}
	}
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ destination, gateway, want string }{
		"outside the network":           {"10.244.1.0/24", "10.0.1.5", ""},
		"inside the network, no subnet": {"10.0.9.0/24", "10.0.1.5", ""},
		"a host":                        {"192.168.7.7/32", "10.0.1.5", ""},
		"the default route":             {"0.0.0.0/0", "10.0.1.5", ""},
		"not RFC 1918":                  {"8.8.8.0/24", "10.0.1.5", "destination"},
		"into a subnet":                 {"10.0.1.128/25", "10.0.1.5", "destination"},
		"around a subnet":               {"10.0.0.0/8", "10.0.1.5", "destination"},
		"around the public gateway":     {"172.31.1.0/24", "10.0.1.5", "destination"},
		"host bits":                     {"10.244.1.1/24", "10.0.1.5", "destination"},
		"the same destination":          {"10.100.0.0/24", "10.0.1.6", "destination"},
		"a part of another destination": {"10.100.0.0/25", "10.0.1.6", "destination"},
		"via the network's own gateway": {"10.244.1.0/24", "10.0.0.1", "gateway"},
		"via the public gateway":        {"10.244.1.0/24", "172.31.1.1", "gateway"},
		"via an address outside":        {"10.244.1.0/24", "10.1.0.5", "gateway"},
		"via IPv6":                      {"10.244.1.0/24", "fd00::1", "gateway"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, n, clk := networkCloud(t)
			existing := Route{netip.MustParsePrefix("10.100.0.0/24"), netip.MustParseAddr("10.0.1.4")}
			did(p.AddRoute(n.ID, existing))(t)
			clk.Step(time.Second)
			r := Route{netip.MustParsePrefix(tc.destination), netip.MustParseAddr(tc.gateway)}
			_, st, err := p.AddRoute(n.ID, r)
			if codeOf(err) != tc.want {
				t.Fatalf("%v, want %q", err, tc.want)
			}
			if tc.want != "" {
				return
			}
			if got, _ := st.Networks.Get(n.ID); len(got.Routes) != 1 {
				t.Errorf("the route exists before its action succeeded: %v", got.Routes)
			}
			clk.Step(time.Second)
			if got, _ := p.View().Networks.Get(n.ID); !slices.Equal(got.Routes, []Route{existing, r}) {
				t.Errorf("routes %v", got.Routes)
			}
			if _, _, err := p.DeleteRoute(n.ID, Route{r.Destination, netip.MustParseAddr("10.0.1.77")}); codeOf(err) != "not_found" {
				t.Errorf("deleting with another gateway: %v", err)
			}
			did(p.DeleteRoute(n.ID, r))(t)
			clk.Step(time.Second)
			if got, _ := p.View().Networks.Get(n.ID); !slices.Equal(got.Routes, []Route{existing}) {
				t.Errorf("after deleting: %v", got.Routes)
			}
		})
	}
}

func TestAnAliasIPIsFreeWhenItsServerHasGivenItUp(t *testing.T) {
	t.Parallel()
	p, n, clk := networkCloud(t)
	s, other := putServer(t, p, "s", "fsn1"), putServer(t, p, "other", "fsn1")
	alias := netip.MustParseAddr("10.0.1.50")
	did(p.AttachServerToNetwork(s.ID, AttachServerToNetwork{Network: n.ID, AliasIPs: []netip.Addr{alias}}))(t)
	net, _ := p.View().Networks.Get(n.ID)
	m, _ := net.Member(s.Ref())
	if in := server(t, p, s.ID).PrivateNets; len(in) != 0 || m.Status != MemberAttaching || m.IP.String() != "10.0.1.1" {
		t.Fatalf("while attaching: %v, %+v", in, m)
	}
	if err := p.DeleteNetwork(n.ID); codeOf(err) != "conflict" {
		t.Errorf("deleting the network while attaching: %v", err)
	}
	clk.Step(time.Second)
	did(p.ChangeAliasIPs(s.ID, n.ID, []netip.Addr{netip.MustParseAddr("10.0.1.51")}))(t)
	for _, want := range []string{"ip_not_available", ""} {
		if _, _, err := p.AttachServerToNetwork(other.ID, AttachServerToNetwork{Network: n.ID, IP: alias}); codeOf(err) != want {
			t.Errorf("an alias IP that is given up: %v, want %q", err, want)
		}
		clk.Step(time.Second)
	}
}

func TestInvalidAttachmentsAreRefused(t *testing.T) {
	t.Parallel()
	p, n, clk := networkCloud(t)
	s := putServer(t, p, "s", "fsn1")
	taken := putServer(t, p, "taken", "fsn1")
	wanted := AttachServerToNetwork{Network: n.ID, IP: netip.MustParseAddr("10.0.1.9")}
	did(p.AttachServerToNetwork(taken.ID, wanted))(t)
	clk.Step(time.Second)
	addr := netip.MustParseAddr
	for name, tc := range map[string]struct {
		in   AttachServerToNetwork
		want string
	}{
		"no such network":            {AttachServerToNetwork{Network: 5}, "network"},
		"an IP in no subnet":         {AttachServerToNetwork{Network: n.ID, IP: addr("10.0.7.9")}, "ip_not_available"},
		"the broadcast address":      {AttachServerToNetwork{Network: n.ID, IP: addr("10.0.1.255")}, "ip_not_available"},
		"the subnet's first address": {AttachServerToNetwork{Network: n.ID, IP: addr("10.0.1.0")}, "ip_not_available"},
		"an unknown subnet": {AttachServerToNetwork{Network: n.ID, IPRange: netip.MustParsePrefix("10.0.2.0/24")},
			"ip_range"},
		"an IP outside the subnet": {AttachServerToNetwork{Network: n.ID, IPRange: netip.MustParsePrefix("10.0.1.0/24"),
			IP: addr("10.0.2.4")}, "ip"},
		"an alias that is taken": {AttachServerToNetwork{Network: n.ID, AliasIPs: []netip.Addr{addr("10.0.1.9")}},
			"ip_not_available"},
		"the same alias twice": {AttachServerToNetwork{Network: n.ID, AliasIPs: []netip.Addr{addr("10.0.1.20"), addr("10.0.1.20")}},
			"ip_not_available"},
		"six aliases": {AttachServerToNetwork{Network: n.ID, AliasIPs: []netip.Addr{
			addr("10.0.1.20"), addr("10.0.1.21"), addr("10.0.1.22"), addr("10.0.1.23"), addr("10.0.1.24"), addr("10.0.1.25"),
		}}, "resource_limit_exceeded"},
	} {
		if _, _, err := p.AttachServerToNetwork(s.ID, tc.in); codeOf(err) != tc.want {
			t.Errorf("%s: %v, want %s", name, err, tc.want)
		}
	}
	if got, _ := p.View().Networks.Get(n.ID); len(got.Members) != 1 {
		t.Errorf("refused servers left something: %v", got.Members)
	}
}

func TestASubnetRunsOutOfAddresses(t *testing.T) {
	t.Parallel()
	p, _, clk := networkCloud(t)
	small := did(p.CreateNetwork(CreateNetwork{
		Name: "small", IPRange: netip.MustParsePrefix("10.9.0.0/24"),
		Subnets: []Subnet{{Type: "cloud", IPRange: netip.MustParsePrefix("10.9.0.0/29"), NetworkZone: "eu-central"}},
	}))(t)
	// Three of the eight addresses are reserved: the first, the gateway's and the broadcast address.
	seen := map[netip.Addr]bool{}
	for i := range 6 {
		s := putServer(t, p, fmt.Sprintf("s%d", i), "fsn1")
		_, _, err := p.AttachServerToNetwork(s.ID, AttachServerToNetwork{Network: small.ID})
		if i == 5 {
			if codeOf(err) != "no_subnet_available" {
				t.Errorf("the sixth server: %v", err)
			}
			continue
		}
		check(t, err)
		clk.Step(time.Second)
		got, _ := p.View().Servers.Get(s.ID)
		if ip := got.PrivateNets[0].IP; seen[ip] || ip.String() == "10.9.0.1" {
			t.Errorf("address %s is the gateway's, or was handed out twice", ip)
		}
		seen[got.PrivateNets[0].IP] = true
	}
}
