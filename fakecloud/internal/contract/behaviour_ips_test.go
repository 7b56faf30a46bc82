package contract_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/contract"
)

// refusals are cases of requests that must be refused, by their names.
type refusals map[string]func(*world)

// run runs each case in a new world. It records the exchanges, unless recorder is nil.
func (cases refusals) run(t *testing.T, recorder *contract.Recorder) {
	t.Helper()
	for name, refuse := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refuse(newWorld(t, recorder))
		})
	}
}

// runningServer makes a server that runs, with both addresses.
func (w *world) runningServer(name string) json.Number {
	w.Helper()
	return json.Number(w.server(smallServer(w, name)))
}

// offServer makes a server that is off, with both addresses.
func (w *world) offServer(name string) json.Number {
	w.Helper()
	body := smallServer(w, name)
	body["start_after_create"] = false
	return json.Number(w.server(body))
}

func (w *world) primaryIP(kind string) string {
	w.Helper()
	return "/primary_ips/" + w.create("primary_ip", "/primary_ips", object{"name": kind, "type": kind, "location": "fsn1"})
}

func toAssignee(server json.Number) object {
	return object{"assignee_type": "server", "assignee_id": server}
}

// newPrimaryIP returns a request for a Primary IP of a server.
func newPrimaryIP(kind string, server json.Number) object {
	body := toAssignee(server)
	body["name"], body["type"] = "new", kind
	return body
}

func TestErrorsOfIPs(t *testing.T) {
	t.Parallel()
	errorsOfIPs().run(t, nil)
}

func errorsOfIPs() refusals {
	cases := refusals{
		"an assigned Floating IP is deleted": func(w *world) {
			body := object{"type": "ipv4", "server": w.runningServer("a")}
			path := "/floating_ips/" + w.create("floating_ip", "/floating_ips", body)
			w.finish()
			w.refuse(422, "must_be_unassigned", "DELETE", path, nil)
			w.act(path, "unassign", nil)
			w.do(204, "DELETE", path, nil)
		},
		"a Floating IP that the server has": func(w *world) {
			server := w.runningServer("a")
			path := "/floating_ips/" + w.create("floating_ip", "/floating_ips", object{"type": "ipv4", "server": server})
			w.finish()
			w.refuseAction("floating_ip_assigned", path, "assign", object{"server": server})
		},
		"an assigned Primary IP is deleted": func(w *world) {
			ip := w.primaryIP("ipv4")
			w.act(ip, "assign", toAssignee(w.serverWithoutPublicIPs("a")))
			w.refuse(422, "must_be_unassigned", "DELETE", ip, nil)
			w.act(ip, "unassign", nil)
			w.do(204, "DELETE", ip, nil)
		},
		"a Primary IP of another server": func(w *world) {
			ip := w.primaryIP("ipv4")
			w.act(ip, "assign", toAssignee(w.serverWithoutPublicIPs("a")))
			w.refuseAction("primary_ip_already_assigned", ip, "assign", toAssignee(w.serverWithoutPublicIPs("b")))
		},
		"protection of a Primary IP that is deleted with its server": func(w *world) {
			ip := w.primaryIP("ipv4")
			w.do(200, "PUT", ip, object{"auto_delete": true})
			w.refuseAction("invalid_input", ip, "change_protection", object{"delete": true})
		},
		"a Primary IP is taken from a running server": func(w *world) {
			w.runningServer("a")
			w.refuseAction("server_not_stopped", "/primary_ips/"+idOf(w.first("/primary_ips", "primary_ips")), "unassign", nil)
		},
		"a Primary IP is taken from a target": func(w *world) {
			target := object{"type": "server", "server": object{"id": w.offServer("a")}}
			w.act(w.loadBalancer(smallLoadBalancer(w, "lb")), "add_target", target)
			w.refuseAction("server_is_load_balancer_target", "/primary_ips/"+idOf(w.first("/primary_ips", "primary_ips")), "unassign", nil)
		},
		"a Primary IP for a running server": func(w *world) {
			w.refuseAction("server_not_stopped", w.primaryIP("ipv4"), "assign", toAssignee(w.runningServerWithoutIPv4()))
		},
		"a new Primary IP for a running server": func(w *world) {
			w.refuse(422, "server_not_stopped", "POST", "/primary_ips", newPrimaryIP("ipv4", w.runningServerWithoutIPv4()))
		},
	}
	for kind, name := range map[string]string{"a new IPv4 for a server that has one": "ipv4",
		"a new IPv6 for a server that has one": "ipv6"} {
		cases[kind] = func(w *world) {
			w.refuse(422, "server_has_"+name, "POST", "/primary_ips", newPrimaryIP(name, w.offServer("a")))
		}
	}
	for kind, name := range map[string]string{"a second IPv4 for a server": "ipv4", "a second IPv6 for a server": "ipv6"} {
		cases[kind] = func(w *world) {
			w.refuseAction("server_has_"+name, w.primaryIP(name), "assign", toAssignee(w.offServer("a")))
		}
	}
	return cases
}

func (w *world) runningServerWithoutIPv4() json.Number {
	w.Helper()
	body := smallServer(w, "only-v6")
	body["public_net"] = object{"enable_ipv4": false}
	return json.Number(w.server(body))
}

func TestANewFloatingIPHasAServerOrAHome(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	server := w.runningServer("a")
	assigned := w.do(201, "POST", "/floating_ips", object{"type": "ipv4", "server": server})
	if home := at(assigned, "floating_ip", "home_location", "name"); home != "fsn1" ||
		at(assigned, "action", "command") != "assign_floating_ip" {
		t.Errorf("a Floating IP for a server: %v", assigned)
	}
	w.finish()
	w.expectFloatingIPs(server, "/floating_ips/"+idOf(assigned["floating_ip"]))
	free := w.do(201, "POST", "/floating_ips", object{"type": "ipv4", "home_location": "hel1"})
	if at(free, "floating_ip", "home_location", "name") != "hel1" || at(free, "floating_ip", "server") != nil || free["action"] != nil {
		t.Errorf("a Floating IP with a home: %v", free)
	}
	w.refuse(422, "invalid_input", "POST", "/floating_ips", object{"type": "ipv4"})
}

func TestAFloatingIPMovesToAServerInAnotherLocation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	path := "/floating_ips/" + w.create("floating_ip", "/floating_ips", smallFloatingIP(w, "ip"))
	one := w.runningServer("one")
	far := smallServer(w, "two")
	far["location"] = "hel1"
	two := json.Number(w.server(far))
	w.act(path, "assign", object{"server": one})
	w.expectFloatingIPs(one, path)
	w.act(path, "assign", object{"server": two})
	w.expectFloatingIPs(one)
	w.expectFloatingIPs(two, path)
	if home := at(w.do(200, "GET", path, nil), "floating_ip", "home_location", "name"); home != "fsn1" {
		t.Errorf("its home is %v", home)
	}
}

func TestAnUnassignedFloatingIPCanBeAssignedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	path := "/floating_ips/" + w.create("floating_ip", "/floating_ips", smallFloatingIP(w, "ip"))
	server := w.runningServer("a")
	w.act(path, "assign", object{"server": server})
	w.act(path, "unassign", nil)
	w.expectFloatingIPs(server)
	if left := at(w.do(200, "GET", path, nil), "floating_ip", "server"); left != nil {
		t.Errorf("it is still assigned to %v", left)
	}
	w.act(path, "assign", object{"server": server})
	w.expectFloatingIPs(server, path)
}

func TestANewPrimaryIPHasAnAssigneeOrALocation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	server := w.serverWithoutPublicIPs("a")
	assigned := w.do(201, "POST", "/primary_ips", newPrimaryIP("ipv4", server))
	w.finish()
	got := w.do(200, "GET", "/primary_ips/"+idOf(assigned["primary_ip"]), nil)
	if idOf(object{"id": at(got, "primary_ip", "assignee_id")}) != server.String() || at(got, "primary_ip", "location", "name") != "fsn1" {
		t.Errorf("a Primary IP for a server: %v", got)
	}
	elsewhere := newPrimaryIP("ipv6", server)
	elsewhere["name"], elsewhere["location"] = "elsewhere", "hel1"
	w.refuse(422, "invalid_input", "POST", "/primary_ips", elsewhere)
	w.refuse(422, "invalid_input", "POST", "/primary_ips", object{"name": "nowhere", "type": "ipv4"})
	w.do(200, "GET", w.primaryIP("ipv6"), nil)
}

func TestAPrimaryIPMovesBetweenServersThatAreOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	ip := w.primaryIP("ipv4")
	for _, server := range []json.Number{w.serverWithoutPublicIPs("a"), w.serverWithoutPublicIPs("b")} {
		path := serverPath(server)
		expect := func(when, want string) {
			t.Helper()
			if got := idOf(at(w.do(200, "GET", path, nil), "server", "public_net", "ipv4")); got != want {
				t.Errorf("%s %s has the Primary IP %s, want %s", when, path, got, want)
			}
		}
		action := w.startAction(ip, "assign", toAssignee(server))
		expect("before the end of the action,", "0")
		w.refuse(423, "locked", "POST", path+"/actions/poweron", nil)
		w.finish()
		w.expectAction(action, "success")
		expect("after the action,", idIn(ip).String())
		w.act(ip, "unassign", nil)
		expect("without it,", "0")
	}
}

func TestAProtectedPrimaryIPIsNotDeletedWithItsServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	body := smallPrimaryIP(w, "ip")
	body["auto_delete"] = true
	ip := "/primary_ips/" + w.create("primary_ip", "/primary_ips", body)
	w.refuseAction("invalid_input", ip, "change_protection", object{"delete": true})
	w.do(200, "PUT", ip, object{"auto_delete": false})
	w.act(ip, "change_protection", object{"delete": true})
	w.refuse(422, "invalid_input", "PUT", ip, object{"auto_delete": true})
}

func TestAPrimaryIPStaysInItsLocation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	far := smallServer(w, "far")
	far["location"], far["start_after_create"], far["public_net"] = "hel1", false, object{"enable_ipv4": false, "enable_ipv6": false}
	w.refuseAction("invalid_input", w.primaryIP("ipv4"), "assign", toAssignee(json.Number(w.server(far))))
}

func TestUntilMay2026APrimaryIPOfAServerThatIsOffCouldBeDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, func(o *fakecloud.Options) { o.APIDate = "2026-04-30" })
	path := "/servers/" + w.runningServer("a").String()
	ip := "/primary_ips/" + idOf(at(w.do(200, "GET", path, nil), "server", "public_net", "ipv4"))
	w.refuse(422, "server_not_stopped", "DELETE", ip, nil)
	w.act(path, "poweroff", nil)
	w.do(204, "DELETE", ip, nil)
	if left := at(w.do(200, "GET", path, nil), "server", "public_net", "ipv4"); left != nil {
		t.Errorf("the server still has %v", left)
	}
}

func TestAnIPv6AddressIsANetwork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for path, key := range map[string]string{
		w.primaryIP("ipv6"): "primary_ip",
		"/floating_ips/" + w.create("floating_ip", "/floating_ips", object{"type": "ipv6", "home_location": "fsn1"}): "floating_ip",
	} {
		ip := at(w.do(200, "GET", path, nil), key, "ip").(string)
		if !strings.HasSuffix(ip, "::/64") {
			t.Errorf("%s: %s", path, ip)
		}
		found := w.list("/primary_ips?ip="+strings.TrimSuffix(ip, "/64")+"1", "primary_ips")
		if key == "primary_ip" && len(found) != 1 {
			t.Errorf("%d Primary IPs are found by the first address of %s", len(found), ip)
		}
	}
}
