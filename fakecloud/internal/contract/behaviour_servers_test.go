package contract_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// refuseServer refuses a new server with the given public addresses.
func refuseServer(w *world, status int, code, location string, public object) {
	w.Helper()
	body := smallServer(w, "new")
	body["location"], body["public_net"] = location, public
	w.refuse(status, code, "POST", "/servers", body)
}

func idIn(path string) json.Number { return json.Number(path[strings.LastIndex(path, "/")+1:]) }

func TestErrorsOfServers(t *testing.T) {
	t.Parallel()
	errorsOfServers().run(t, nil)
}

func errorsOfServers() refusals {
	group := func(w *world) object {
		return object{"placement_group": json.Number(w.create("placement_group", "/placement_groups", smallPlacementGroup(w, "g")))}
	}
	net := func(w *world) object { return object{"network": idIn(w.network(fullNetwork))} }
	return refusals{
		"a Primary IP of the wrong version": func(w *world) {
			refuseServer(w, 412, "primary_ip_version_mismatch", "fsn1", object{"ipv4": idIn(w.primaryIP("ipv6"))})
		},
		"a Primary IP elsewhere": func(w *world) {
			refuseServer(w, 422, "primary_ip_datacenter_mismatch", "hel1", object{"ipv4": idIn(w.primaryIP("ipv4"))})
		},
		"a Primary IP of another server": func(w *world) {
			ip := w.primaryIP("ipv4")
			w.act(ip, "assign", toAssignee(w.serverWithoutPublicIPs("a")))
			refuseServer(w, 422, "primary_ip_assigned", "fsn1", object{"ipv4": idIn(ip)})
		},
		"a full placement group": func(w *world) {
			body := group(w)
			for i := range 11 {
				server := smallServer(w, fmt.Sprint("node-", i))
				server["placement_group"] = body["placement_group"]
				if i == 10 {
					message := fmt.Sprintf("placement group with ID %s contains already 10 servers", body["placement_group"])
					w.refuse(422, "placement_group_member_limit_reached: "+message, "POST", "/servers", server)
					w.refuseAction("placement_group_member_limit_reached", serverPath(w.offServer("late")), "add_to_placement_group", body)
					return
				}
				w.do(201, "POST", "/servers", server)
			}
		},
		"a running server joins a placement group": func(w *world) {
			w.refuseAction("server_not_stopped", serverPath(w.runningServer("a")), "add_to_placement_group", group(w))
		},
		"a server in a placement group joins one": func(w *world) {
			path, body := serverPath(w.offServer("a")), group(w)
			w.act(path, "add_to_placement_group", body)
			w.act(path, "poweroff", nil)
			w.refuseAction("already_in_placement_group", path, "add_to_placement_group", body)
		},
		"attached twice": func(w *world) {
			path, body := serverPath(w.runningServer("a")), net(w)
			w.act(path, "attach_to_network", body)
			w.refuseAction("server_already_attached", path, "attach_to_network", body)
		},
		"an address that is taken": func(w *world) {
			body := net(w)
			body["ip"] = "10.0.1.5"
			w.act(serverPath(w.runningServer("a")), "attach_to_network", body)
			w.refuseAction("ip_not_available", serverPath(w.runningServer("b")), "attach_to_network", body)
		},
		"a network without a subnet": func(w *world) {
			empty := object{"network": idIn(w.network(smallNetwork(w, "empty")))}
			w.refuseAction("no_subnet_available", serverPath(w.runningServer("a")), "attach_to_network", empty)
		},
		"a network that overlaps": func(w *world) {
			path := serverPath(w.runningServer("a"))
			w.act(path, "attach_to_network", net(w))
			other := object{"name": "other", "ip_range": "10.0.0.0/16", "subnets": fullNetwork["subnets"]}
			w.refuseAction("networks_overlap", path, "attach_to_network", object{"network": idIn(w.network(other))})
		},
		"a server without an interface starts": func(w *world) {
			path := serverPath(w.serverWithoutPublicIPs("cut-off"))
			for _, action := range []string{"poweron", "reset", "reset_password"} {
				w.refuseAction("unsupported_error", path, action, nil)
			}
		},
		"a protected server is rebuilt": func(w *world) {
			path := serverPath(w.runningServer("a"))
			for _, different := range []object{{"delete": true, "rebuild": false}, {"delete": true}, {"rebuild": true}} {
				w.refuseAction("invalid_input", path, "change_protection", different)
			}
			w.act(path, "change_protection", object{"delete": true, "rebuild": true})
			w.refuse(423, "protected", "POST", path+"/actions/rebuild", object{"image": "debian-13"})
		},
		"the type of a running server": func(w *world) {
			w.refuseAction("server_not_stopped", serverPath(w.runningServer("a")), "change_type",
				object{"server_type": "cx33", "upgrade_disk": false})
		},
		"a type that does not fit": func(w *world) {
			path := serverPath(w.offServer("a"))
			for _, kind := range []string{"cax11", "cx11"} { // another architecture; deprecated
				w.refuseAction("invalid_server_type", path, "change_type", object{"server_type": kind, "upgrade_disk": false})
			}
		},
	}
}

func TestADeletedServerIsGoneWhenItsActionEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	path := serverPath(w.runningServer("a"))
	w.do(200, "DELETE", path, nil)
	w.clock.Step(actionTime)
	w.refuse(404, "not_found", "GET", path, nil)
}

func TestDeletingAServerDetachesItsResources(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	group := "/placement_groups/" + w.create("placement_group", "/placement_groups", smallPlacementGroup(w, "g"))
	ip := w.primaryIP("ipv4")
	volume := w.volume("v")
	body := smallServer(w, "a")
	body["placement_group"], body["volumes"], body["public_net"] = idIn(group), []any{idIn(volume)}, object{"ipv4": idIn(ip)}
	server := json.Number(w.server(body))
	w.finish()
	floating := "/floating_ips/" + w.create("floating_ip", "/floating_ips", object{"type": "ipv4", "server": server})
	w.finish()
	firewall := w.firewall(object{"name": "f", "apply_to": []object{toServer(server)}})
	type part struct {
		path  string
		where []string
		free  string
	}
	parts := []part{
		{volume, []string{"volume", "server"}, "<nil>"}, {floating, []string{"floating_ip", "server"}, "<nil>"},
		{ip, []string{"primary_ip", "assignee_id"}, "<nil>"}, {firewall, []string{"firewall", "applied_to"}, "[]"},
		{group, []string{"placement_group", "servers"}, "[]"},
	}
	for _, p := range parts {
		if got := fmt.Sprint(at(w.do(200, "GET", p.path, nil), p.where...)); got == p.free {
			t.Errorf("%s is not attached", p.path)
		}
	}
	w.do(200, "DELETE", serverPath(server), nil)
	w.finish()
	for _, p := range parts {
		if got := fmt.Sprint(at(w.do(200, "GET", p.path, nil), p.where...)); got != p.free {
			t.Errorf("%s: %v is %s, want %s", p.path, p.where, got, p.free)
		}
	}
}

func TestNamesOfServersAreUniqueHostnames(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.runningServer("taken")
	path := serverPath(w.runningServer("a"))
	for _, name := range []string{"a", "A-1.example.com", "0", strings.Repeat("n", 63)} {
		w.do(200, "PUT", path, object{"name": name})
	}
	for _, name := range []string{"", "a_b", "-a", "a-", "a b", "a..b", "ä", strings.Repeat("n", 64)} {
		w.refuse(422, "invalid_input", "PUT", path, object{"name": name})
	}
	w.refuse(409, "uniqueness_error", "PUT", path, object{"name": "taken"})
	w.as(otherToken).do(201, "POST", "/servers", smallServer(w, "taken"))
}

func TestAServerJoinsAndLeavesAPlacementGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	group := w.create("placement_group", "/placement_groups", smallPlacementGroup(w, "g"))
	server := w.offServer("a")
	members := func() []any {
		return at(w.do(200, "GET", "/placement_groups/"+group, nil), "placement_group", "servers").([]any)
	}
	w.act(serverPath(server), "add_to_placement_group", object{"placement_group": json.Number(group)})
	if got := members(); len(got) != 1 || idOf(object{"id": got[0]}) != server.String() {
		t.Errorf("servers of the group: %v", got)
	}
	w.act(serverPath(server), "remove_from_placement_group", nil)
	if got := members(); len(got) != 0 {
		t.Errorf("servers of the group: %v", got)
	}
}

// privateNet returns what a server shows of its only network.
func (w *world) privateNet(path string) object {
	w.Helper()
	all := at(w.do(200, "GET", path, nil), "server", "private_net").([]any)
	if len(all) != 1 {
		w.Fatalf("networks of %s: %v", path, all)
	}
	return all[0].(object)
}

func TestAServerJoinsANetworkNextToItsPublicInterface(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	path, network := serverPath(w.runningServer("a")), idIn(w.network(fullNetwork))
	public := fmt.Sprint(at(w.do(200, "GET", path, nil), "server", "public_net"))
	w.act(path, "attach_to_network", object{"network": network})
	if got := w.privateNet(path); idOf(object{"id": got["network"]}) != network.String() || got["mac_address"] == "" {
		t.Errorf("network: %v", got)
	}
	if now := fmt.Sprint(at(w.do(200, "GET", path, nil), "server", "public_net")); now != public {
		t.Errorf("public_net was %s, is %s", public, now)
	}
	w.act(path, "detach_from_network", object{"network": network})
	if got := at(w.do(200, "GET", path, nil), "server", "private_net").([]any); len(got) != 0 {
		t.Errorf("networks: %v", got)
	}
}

func TestAServerGetsAnAddressOfASubnetInItsZone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var subnets []object
	for i, kind := range []string{"server", "cloud"} {
		subnets = append(subnets, object{"type": kind, "ip_range": fmt.Sprintf("10.0.%d.0/24", i+1), "network_zone": "eu-central"})
	}
	network := idIn(w.network(object{"name": "net", "ip_range": "10.0.0.0/16", "subnets": subnets}))
	path := serverPath(w.runningServer("a"))
	w.act(path, "attach_to_network", object{"network": network})
	if ip := w.privateNet(path)["ip"].(string); !strings.HasPrefix(ip, "10.0.1.") {
		t.Errorf("address %s, want one of the first subnet", ip)
	}
	far := smallServer(w, "far")
	far["location"], far["server_type"] = "ash", "cpx11"
	w.refuseAction("no_subnet_available", serverPath(json.Number(w.server(far))), "attach_to_network", object{"network": network})
}

func TestNewAliasIPsReplaceTheOldOnes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	path, network := serverPath(w.runningServer("a")), idIn(w.network(fullNetwork))
	w.act(path, "attach_to_network", object{"network": network, "alias_ips": []string{"10.0.1.6"}})
	for _, aliases := range [][]string{{"10.0.1.7", "10.0.1.8"}, {"10.0.1.8"}, {}} {
		w.act(path, "change_alias_ips", object{"network": network, "alias_ips": aliases})
		var got []string
		for _, ip := range w.privateNet(path)["alias_ips"].([]any) {
			got = append(got, ip.(string))
		}
		if slices.Sort(got); !slices.Equal(got, aliases) {
			t.Errorf("aliases %v, want %v", got, aliases)
		}
	}
}
