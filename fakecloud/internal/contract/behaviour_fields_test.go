package contract_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
)

// These tests guard what the document says about single fields of requests.

func ruleWith(changes object) []any {
	rule := object{"direction": "in", "protocol": "tcp", "port": "22", "source_ips": []any{"192.0.2.1/32"}}
	maps.Copy(rule, changes)
	return []any{rule}
}

func TestARuleOfAFirewallHasAddressesOfItsDirectionAndPortsOfItsProtocol(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	out := []any{"192.0.2.1/32"}
	for name, changes := range map[string]object{
		"outbound with sources":       {"direction": "out"},
		"inbound with targets":        {"source_ips": []any{}, "destination_ips": out},
		"ICMP with a port":            {"protocol": "icmp"},
		"TCP without a port":          {"port": nil},
		"a range that goes back":      {"port": "90-80"},
		"an address without bits":     {"source_ips": []any{"192.0.2.1"}},
		"a port beyond the end":       {"port": "65536"},
		"GRE with a port":             {"protocol": "gre"},
		"a block with set bits":       {"source_ips": []any{"192.0.2.1/24"}},
		"a range without an end":      {"port": "80-"},
		"an unknown protocol":         {"protocol": "sctp"},
		"more than 100 blocks":        {"source_ips": blocks(101)},
		"outbound to 101 blocks":      {"direction": "out", "source_ips": []any{}, "destination_ips": blocks(101)},
		"a port that is not a number": {"port": "ssh"},
		"port 0":                      {"port": "0"},
		"no port":                     {"port": ""},
		"a port with a sign":          {"port": "+80"},
		"a port with a space":         {"port": " 80"},
		"a port with a leading zero":  {"port": "080"},
		"a range from a leading zero": {"port": "080-90"},
		"a range to a leading zero":   {"port": "80-090"},
		"a range of three ports":      {"port": "80-90-99"},
		"inbound, with targets, too":  {"destination_ips": out},
		"an address of IPv4 as IPv6":  {"source_ips": []any{"::1/128", "::ffff:192.0.2.1/128"}},
		"a very long description":     {"description": strings.Repeat("ü", 256)},
	} {
		if response := w.send("POST", "/firewalls", object{"name": "new", "rules": ruleWith(changes)}); response.Code != 422 {
			t.Errorf("%s: %d %s", name, response.Code, response.Body)
		}
	}
	for name, changes := range map[string]object{
		"a range":    {"port": "1024-5000"},
		"a last one": {"port": "65535"},
		"any port":   {"port": "any"},
		"all of v6":  {"source_ips": []any{"::/0"}},
		"described":  {"description": strings.Repeat("ü", 255)},
		"100 blocks": {"source_ips": blocks(100)},
		"a network":  {"source_ips": []any{"10.0.1.0/24", "2001:db8:ff00:42::/64"}},
		"outbound":   {"direction": "out", "source_ips": []any{}, "destination_ips": out},
	} {
		if response := w.send("POST", "/firewalls", object{"name": name, "rules": ruleWith(changes)}); response.Code != 201 {
			t.Errorf("%s: %d %s", name, response.Code, response.Body)
		}
	}
}

func blocks(n int) []any {
	var all []any
	for i := range n {
		all = append(all, fmt.Sprintf("10.0.%d.0/24", i))
	}
	return all
}

func TestRangesOfNetworksAndSubnetsHaveASmallestSize(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for ipRange, ok := range map[string]bool{
		"10.0.0.0/24": true, "10.0.0.0/25": false, "8.8.8.0/24": false, "192.168.0.0/16": true, "172.16.0.0/12": true,
		"172.16.0.0/11": false, "192.168.0.0/15": false, "10.1.0.1/16": false, "fd00::/64": false, "0.0.0.0/0": false,
	} {
		if code := w.send("POST", "/networks", object{"name": ipRange, "ip_range": ipRange}).Code; (code == 201) != ok {
			t.Errorf("network %s: %d", ipRange, code)
		}
	}
	path := w.network(fullNetwork) + "/actions/add_subnet"
	for _, ipRange := range []string{"10.0.2.0/31", "10.1.0.0/24", "10.0.1.0/25", "10.0.0.0/8", "10.0.2.1/24"} {
		w.refuse(422, "invalid_input", "POST", path, object{"type": "cloud", "network_zone": "eu-central", "ip_range": ipRange})
	}
	for kind, zone := range map[string]string{"cloud": "us-east", "vswitch": "us-east", "server": "mars"} {
		subnet := object{"type": kind, "network_zone": zone, "ip_range": "10.0.2.0/24"}
		if kind == "vswitch" {
			subnet["vswitch_id"] = 1000
		}
		w.refuse(422, "invalid_input", "POST", path, subnet)
	}
	w.refuse(422, "invalid_input", "POST", path, object{"type": "cloud", "network_zone": "eu-central", "ip_range": "10.0.2.0/24",
		"vswitch_id": 1000})
	w.do(201, "POST", path, object{"type": "cloud", "network_zone": "eu-central", "ip_range": "10.0.2.0/30"})
}

func TestAnAddressOutsideOfTheAskedSubnetIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	network := idIn(w.network(fullNetwork))
	path := w.loadBalancer(smallLoadBalancer(w, "lb"))
	w.act("/networks/"+network.String(), "add_subnet", object{"type": "cloud", "network_zone": "eu-central", "ip_range": "10.0.2.0/24"})
	if response := w.send("POST", path+"/actions/attach_to_network",
		object{"network": network, "ip": "10.0.1.5", "ip_range": "10.0.2.0/24"}); response.Code != 422 {
		t.Errorf("%d %s", response.Code, response.Body)
	}
	w.act(path, "attach_to_network", object{"network": network, "ip_range": "10.0.2.0/24"})
	if got := at(w.loadBalancerField(path, "private_net")[0].(object), "ip").(string); !strings.HasPrefix(got, "10.0.2.") {
		t.Errorf("address %s", got)
	}
}

func TestAutoDeleteDeletesAPrimaryIPWithItsServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	server := w.serverWithoutPublicIPs("a")
	kept := newPrimaryIP("ipv4", server)
	kept["name"], kept["auto_delete"] = "kept", false
	follows := newPrimaryIP("ipv6", server)
	follows["auto_delete"] = true
	a := "/primary_ips/" + w.create("primary_ip", "/primary_ips", kept)
	w.finish()
	b := "/primary_ips/" + w.create("primary_ip", "/primary_ips", follows)
	w.finish()
	w.do(200, "DELETE", serverPath(server), nil)
	w.finish()
	w.do(200, "GET", a, nil)
	w.refuse(404, "not_found", "GET", b, nil)
}

func TestStartAfterCreateIsANextAction(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for start, want := range map[bool]int{true: 1, false: 0} {
		body := smallServer(w, fmt.Sprint("node-", want))
		body["start_after_create"] = start
		next := w.do(201, "POST", "/servers", body)["next_actions"].([]any)
		if len(next) != want || want == 1 && at(next[0].(object), "command") != "start_server" {
			t.Errorf("start %v: next actions %v", start, next)
		}
	}
}

func TestUserDataHasAtMost32KiB(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for size, ok := range map[int]bool{32 << 10: true, 32<<10 + 1: false} {
		body := smallServer(w, "a")
		body["user_data"] = strings.Repeat("x", size)
		if code := w.send("POST", "/servers", body).Code; (code == 201) != ok {
			t.Errorf("%d bytes: %d", size, code)
		}
	}
}

func TestAnImageWithoutADescriptionGetsOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	path := w.imageOf(serverPath(w.runningServer("a")), "snapshot")
	if got := at(w.do(200, "GET", path, nil), "image", "description"); got == "" || got == nil {
		t.Errorf("description %v", got)
	}
}

func TestAutomountOfANewVolumeNeedsAServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	body := smallVolume(w, "v")
	body["automount"] = true
	w.refuse(422, "invalid_input", "POST", "/volumes", body)
}

func TestANewZoneIgnoresTheFieldsOfTheOtherMode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	servers := []any{object{"address": "198.51.100.1"}}
	sets := []any{object{"name": "www", "type": "A", "records": records("198.51.100.1")}}
	primary := w.do(201, "POST", "/zones", object{"name": "one.example", "mode": "primary", "primary_nameservers": servers})
	if got, _ := at(primary, "zone", "primary_nameservers").([]any); len(got) > 0 {
		t.Errorf("primary name servers of a primary zone: %v", got)
	}
	for name, body := range map[string]object{
		"two.example":   {"mode": "secondary", "primary_nameservers": servers, "rrsets": sets},
		"three.example": {"mode": "secondary", "primary_nameservers": servers, "zonefile": "no zone file"},
	} {
		body["name"] = name
		if response := w.send("POST", "/zones", body); response.Code != 201 {
			t.Errorf("%s: %d %s", name, response.Code, response.Body)
		}
	}
}

func TestANewZoneHasRecordSetsOrAZoneFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	file := at(w.do(200, "GET", w.zone("primary")+"/zonefile", nil), "zonefile").(string)
	file = strings.ReplaceAll(file, "primary.example", "new.example") + "www\tIN\tA\t198.51.100.1\n"
	body := object{"name": "new.example", "mode": "primary", "zonefile": file,
		"rrsets": []any{object{"name": "a", "type": "A", "records": records("198.51.100.1")}}}
	w.refuse(422, "invalid_input", "POST", "/zones", body)
	delete(body, "rrsets")
	path := "/zones/" + w.create("zone", "/zones", body)
	if got := w.valuesOf(path + "/rrsets/www/A"); len(got) != 1 {
		t.Errorf("records: %v", got)
	}
}

func TestZonesAndRecordSetsHaveLowerCaseNamesAndATTLInItsRange(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for name, ok := range map[string]bool{"Upper.example": false, "dot.example.": false, "xn--4bi.example": true} {
		if code := w.send("POST", "/zones", object{"name": name, "mode": "primary"}).Code; (code == 201) != ok {
			t.Errorf("zone %s: %d", name, code)
		}
	}
	zone := w.zone("primary")
	for name, ok := range map[string]bool{"WWW": false, "www.": false, "www.primary.example": false, "@": true, "www": true,
		"xn--4bi": true} {
		body := object{"name": name, "type": "A", "records": records("198.51.100.1")}
		if code := w.send("POST", zone+"/rrsets", body).Code; (code == 201) != ok {
			t.Errorf("record set %s: %d", name, code)
		}
		w.finish()
	}
	for ttl, ok := range map[json.Number]bool{"59": false, "60": true, "2147483647": true, "2147483648": false} {
		for _, path := range []string{zone, zone + "/rrsets/www/A"} {
			if code := w.send("POST", path+"/actions/change_ttl", object{"ttl": ttl}).Code; (code == 201) != ok {
				t.Errorf("%s with TTL %s: %d", path, ttl, code)
			}
			w.finish()
		}
	}
}

func TestRecordsAreDistinctAndNotEmpty(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	set := w.recordSet(w.zone("primary"), "198.51.100.1")
	for _, name := range []string{"set_records", "add_records", "remove_records", "update_records"} {
		comment := object{"value": "198.51.100.1", "comment": "c"}
		for _, wrong := range [][]any{{}, {comment, comment}} {
			w.refuseAction("invalid_input", set, name, object{"records": wrong})
		}
	}
}

func TestAddedRecordsHaveTheTTLOfTheirRecordSet(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	set := w.recordSet(w.zone("primary"), "198.51.100.1")
	w.act(set, "change_ttl", object{"ttl": 600})
	w.refuseAction("invalid_input", set, "add_records", object{"ttl": 601, "records": records("198.51.100.2")})
	w.act(set, "add_records", object{"ttl": 600, "records": records("198.51.100.2")})
	w.act(set, "add_records", object{"records": records("198.51.100.3")})
}

func TestANewServerHasItsVolumesNetworksFirewallsAndGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	volume, network, firewall := idIn(w.volume("v")), idIn(w.network(fullNetwork)), w.firewall(smallFirewall(w, "f"))
	group := w.create("placement_group", "/placement_groups", smallPlacementGroup(w, "g"))
	body := smallServer(w, "a")
	body["volumes"], body["networks"], body["placement_group"] = []any{volume}, []any{network}, json.Number(group)
	body["firewalls"] = []any{object{"firewall": idIn(firewall)}}
	far := smallServer(w, "far")
	far["location"], far["volumes"] = "hel1", []any{volume}
	if code := w.send("POST", "/servers", far).Code; code != 422 {
		t.Errorf("a server that is not where its volume is: %d", code)
	}
	server := json.Number(w.server(body))
	w.finish()
	w.expectVolumes(server, "/volumes/"+volume.String())
	w.expectFirewall(server, "applied", firewall)
	path := serverPath(server)
	if got := w.privateNet(path); idOf(object{"id": got["network"]}) != network.String() {
		t.Errorf("network %v", got)
	}
	if got := idOf(at(w.do(200, "GET", path, nil), "server", "placement_group")); got != group {
		t.Errorf("placement group %s", got)
	}
}

func TestANewServerHasOnlyTheAddressesThatAreEnabled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for has, without := range map[string]string{"ipv4": "ipv6", "ipv6": "ipv4"} {
		body := smallServer(w, "only-"+has)
		body["public_net"] = object{"enable_" + without: false}
		public := at(w.do(200, "GET", "/servers/"+w.server(body), nil), "server", "public_net").(object)
		if public[without] != nil || idOf(public[has]) == "0" {
			t.Errorf("only %s: %v", has, public)
		}
	}
}

func TestADirectFirewallIsRemovedFromAServerThatASelectorSelects(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	server := w.runningServer("a")
	path := w.firewall(object{"name": "f", "apply_to": []object{toServer(server), toSelector("env=test")}})
	w.do(201, "POST", path+"/actions/remove_from_resources", removeFrom(toServer(server)))
	w.finish()
	w.expectFirewall(server, "applied", path) // by the selector
	w.refuseAction("firewall_managed_by_label_selector", path, "remove_from_resources", removeFrom(toServer(server)))
}

func TestANewLoadBalancerHasItsNetworkItsInterfaceAndItsLocation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	body := object{"name": "a", "load_balancer_type": "lb11", "network_zone": "eu-central", "network": idIn(w.network(fullNetwork)),
		"public_interface": false}
	got := w.do(200, "GET", w.loadBalancer(body), nil)
	if at(got, "load_balancer", "location", "network_zone") != "eu-central" || at(got, "load_balancer", "public_net", "enabled") != false ||
		len(at(got, "load_balancer", "private_net").([]any)) != 1 {
		t.Errorf("load balancer: %v", got)
	}
	got = w.do(200, "GET", w.loadBalancer(object{"name": "b", "load_balancer_type": "lb11", "location": "hel1"}), nil)
	if at(got, "load_balancer", "location", "name") != "hel1" || at(got, "load_balancer", "public_net", "enabled") != true {
		t.Errorf("load balancer: %v", got)
	}
}
