package contract_test

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestErrorsOfLoadBalancers(t *testing.T) {
	t.Parallel()
	errorsOfLoadBalancers().run(t, nil)
}

func errorsOfLoadBalancers() refusals {
	small := func(w *world) string { return w.loadBalancer(smallLoadBalancer(w, "lb")) }
	net := func(w *world) object { return object{"network": idIn(w.network(fullNetwork))} }
	return refusals{
		"a new one with a port twice": func(w *world) {
			body := smallLoadBalancer(w, "new")
			body["services"] = []object{tcpService(80), tcpService(80)}
			w.refuse(412, "source_port_already_used", "POST", "/load_balancers", body)
		},
		"a port that has a service": func(w *world) {
			path := small(w)
			w.act(path, "add_service", tcpService(80))
			w.refuse(412, "source_port_already_used", "POST", path+"/actions/add_service", tcpService(80))
		},
		"a redirect of HTTP from a port that has a service": func(w *world) {
			path := small(w)
			w.act(path, "add_service", tcpService(80))
			certificate := w.create("certificate", "/certificates", uploadedCertificate(w, "web"))
			https := httpService("https", 443, json.Number(certificate))
			https["http"].(object)["redirect_http"] = false
			w.act(path, "add_service", https)
			w.refuseAction("source_port_already_used", path, "update_service",
				object{"listen_port": 443, "http": object{"redirect_http": true}})
			w.refuse(422, "service_error", "DELETE", "/certificates/"+certificate, nil)
			w.act(path, "delete_service", object{"listen_port": 443})
			w.do(204, "DELETE", "/certificates/"+certificate, nil)
		},
		"attached twice": func(w *world) {
			path, body := small(w), net(w)
			w.act(path, "attach_to_network", body)
			w.refuseAction("load_balancer_already_attached", path, "attach_to_network", body)
		},
		"an address that is taken": func(w *world) {
			body := net(w)
			body["ip"] = "10.0.1.5"
			w.act(serverPath(w.runningServer("a")), "attach_to_network", body)
			w.refuseAction("ip_not_available", small(w), "attach_to_network", body)
		},
		"a network without a subnet": func(w *world) {
			empty := object{"network": idIn(w.network(smallNetwork(w, "empty")))}
			w.refuseAction("no_subnet_available", small(w), "attach_to_network", empty)
			body := smallLoadBalancer(w, "new")
			body["network"] = empty["network"]
			w.refuse(422, "no_subnet_available", "POST", "/load_balancers", body)
		},
		"a type that is too small": func(w *world) {
			body := smallLoadBalancer(w, "large")
			body["load_balancer_type"] = "lb21"
			var services []object
			for port := range 6 { // lb11 allows five
				services = append(services, tcpService(1+port))
			}
			body["services"] = services
			path := w.loadBalancer(body)
			w.refuseAction("invalid_load_balancer_type", path, "change_type", object{"load_balancer_type": "lb11"})
			w.act(path, "delete_service", object{"listen_port": 1})
			w.act(path, "change_type", object{"load_balancer_type": "lb11"})
		},
		"no network and no public interface": func(w *world) {
			w.refuseAction("load_balancer_not_attached_to_network", small(w), "disable_public_interface", nil)
		},
		"public targets and no public interface": func(w *world) {
			path := small(w)
			w.act(path, "attach_to_network", net(w))
			for _, target := range []object{toServer(w.runningServer("a")), dedicated("203.0.113.1")(w), toSelector("env=test")} {
				w.act(path, "add_target", target)
				w.refuseAction("targets_without_use_private_ip", path, "disable_public_interface", nil)
				w.act(path, "remove_target", target)
			}
		},
	}
}

// targetCase is a target that must be refused. network is that of the load balancer, if it has one.
type targetCase struct {
	code    string
	network func(*world) string
	private bool // the load balancer has no public interface
	target  func(*world) object
}

func dedicated(ip string) func(*world) object {
	return func(*world) object { return object{"type": "ip", "ip": object{"ip": ip}} }
}

func private(target object) object {
	target["use_private_ip"] = true
	return target
}

var targetCases = map[string]targetCase{
	"an address that is not a dedicated server's": {code: "ip_not_owned", target: func(w *world) object {
		server := w.do(200, "GET", serverPath(w.runningServer("a")), nil)
		return dedicated(at(server, "server", "public_net", "ipv4", "ip").(string))(w)
	}},
	"a private target without a network": {code: "load_balancer_not_attached_to_network", target: func(*world) object {
		return private(toSelector("env=test"))
	}},
	"a private target outside of the network": {
		code: "resolve_cloud_private_targets_error", network: func(w *world) string { return w.network(fullNetwork) },
		target: func(w *world) object { return private(toServer(w.runningServer("a"))) },
	},
	"a public target without an IPv4": {code: "resolve_cloud_public_targets_error", target: func(w *world) object {
		return toServer(w.runningServerWithoutIPv4())
	}},
	"a public target without a public interface": {
		code: "load_balancer_public_interface_disabled", network: func(w *world) string { return w.network(fullNetwork) }, private: true,
		target: func(w *world) object { return toServer(w.runningServer("a")) },
	},
	"an address that is not the server's": {code: "ip_not_assigned_to_server", target: func(w *world) object {
		return object{"type": "server", "server": object{"id": w.runningServer("a"), "ip": "192.0.2.1"}}
	}},
	"a private address without a vSwitch": {
		code: "network_has_no_vswitch_subnet", network: func(w *world) string { return w.network(fullNetwork) },
		target: dedicated("10.0.7.9"),
	},
	"a private address outside of the vSwitch": {code: "ip_not_in_vswitch_subnet", network: func(w *world) string {
		path := w.network(fullNetwork)
		w.act(path, "add_subnet", object{"type": "vswitch", "ip_range": "10.0.8.0/24", "network_zone": "eu-central", "vswitch_id": 1000})
		return path
	}, target: dedicated("10.0.7.9")},
	"a target twice": {code: "target_already_defined"},
}

func TestErrorsOfTargets(t *testing.T) {
	t.Parallel()
	errorsOfTargets().run(t, nil)
}

// errorsOfTargets adds each target to an existing load balancer and to a new one.
func errorsOfTargets() refusals {
	cases := make(refusals)
	for name, c := range targetCases {
		cases[name] = func(w *world) {
			body := smallLoadBalancer(w, "old")
			if c.network != nil {
				body["network"] = idIn(c.network(w))
			}
			body["public_interface"] = !c.private
			path := w.loadBalancer(body)
			body["name"] = "new"
			if c.target == nil {
				target := toSelector("env=test")
				w.act(path, "add_target", target)
				w.refuseAction(c.code, path, "add_target", target)
				w.refuse(422, c.code, "POST", "/load_balancers", withTargets(body, target, target))
				return
			}
			target := c.target(w)
			w.refuseAction(c.code, path, "add_target", target)
			w.refuse(422, c.code, "POST", "/load_balancers", withTargets(body, target))
		}
	}
	return cases
}

func (w *world) loadBalancerField(path, field string) []any {
	w.Helper()
	return at(w.do(200, "GET", path, nil), "load_balancer", field).([]any)
}

// change starts an action that must change a load balancer when it ends, and not before.
func (w *world) change(path, name string, body any) {
	w.Helper()
	before := w.do(200, "GET", path, nil)
	w.do(201, "POST", path+"/actions/"+name, body)
	if during := w.do(200, "GET", path, nil); !reflect.DeepEqual(during, before) {
		w.Errorf("%s takes effect before it ends: %v, before %v", name, during, before)
	}
	w.finish()
	if after := w.do(200, "GET", path, nil); reflect.DeepEqual(after, before) {
		w.Errorf("%s has no effect: %v", name, after)
	}
}

func TestALoadBalancerShowsItsAddressesWhenItIsCreated(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	made := w.do(201, "POST", "/load_balancers", smallLoadBalancer(w, "lb"))["load_balancer"]
	path := "/load_balancers/" + idOf(made)
	for _, shown := range []bool{false, true} {
		for _, version := range []string{"ipv4", "ipv6"} {
			ip := at(w.do(200, "GET", path, nil), "load_balancer", "public_net", version, "ip")
			if (ip != nil) != shown {
				t.Errorf("%s: %v, want an address: %t", version, ip, shown)
			}
		}
		w.finish()
	}
}

func TestServicesAreAddedUpdatedAndDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	path := w.loadBalancer(smallLoadBalancer(w, "lb"))
	w.change(path, "add_service", tcpService(80))
	w.act(path, "add_service", httpService("http", 81))
	w.change(path, "update_service", object{"listen_port": 80, "destination_port": 8080})
	services := w.loadBalancerField(path, "services")
	if len(services) != 2 || at(services[0].(object), "destination_port") != 8080.0 ||
		at(services[1].(object), "destination_port") != 30081.0 {
		t.Errorf("services: %v", services)
	}
	w.change(path, "delete_service", object{"listen_port": 80})
	if left := w.loadBalancerField(path, "services"); len(left) != 1 || at(left[0].(object), "listen_port") != 81.0 {
		t.Errorf("services: %v", left)
	}
}

func TestATargetIsAddedAndRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	path := w.loadBalancer(smallLoadBalancer(w, "lb"))
	for _, target := range []object{toServer(w.runningServer("a")), toSelector("env=test"), dedicated("203.0.113.1")(w)} {
		w.change(path, "add_target", target)
		if got := w.loadBalancerField(path, "targets"); len(got) != 1 || at(got[0].(object), "type") != target["type"] {
			t.Errorf("targets: %v", got)
		}
		w.change(path, "remove_target", target)
		if got := w.loadBalancerField(path, "targets"); len(got) != 0 {
			t.Errorf("targets: %v", got)
		}
	}
}

func TestALoadBalancerIsInOneNetwork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	path, network := w.loadBalancer(smallLoadBalancer(w, "lb")), idIn(w.network(fullNetwork))
	w.change(path, "attach_to_network", object{"network": network, "ip": "10.0.1.77"})
	if got := w.loadBalancerField(path, "private_net"); len(got) != 1 || at(got[0].(object), "ip") != "10.0.1.77" {
		t.Errorf("networks: %v", got)
	}
	other := object{"name": "other", "ip_range": "10.0.0.0/16", "subnets": fullNetwork["subnets"]}
	w.refuseAction("load_balancer_already_attached", path, "attach_to_network", object{"network": idIn(w.network(other))})
	w.act(path, "detach_from_network", object{"network": network})
	if got := w.loadBalancerField(path, "private_net"); len(got) != 0 {
		t.Errorf("networks: %v", got)
	}
	w.refuseAction("invalid_input", path, "detach_from_network", object{"network": network})
}

func TestTheAlgorithmOfALoadBalancerChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	path := w.loadBalancer(smallLoadBalancer(w, "lb"))
	for _, algorithm := range []string{"least_connections", "round_robin"} {
		w.change(path, "change_algorithm", object{"type": algorithm})
		if got := at(w.do(200, "GET", path, nil), "load_balancer", "algorithm", "type"); got != algorithm {
			t.Errorf("algorithm %v, want %s", got, algorithm)
		}
	}
}

func TestThePublicInterfaceOfALoadBalancerIsSwitchedOffAndOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	path := w.loadBalancer(smallLoadBalancer(w, "lb"))
	w.change(path, "attach_to_network", object{"network": json.Number(w.create("network", "/networks", fullNetwork))})
	for i, name := range []string{"disable_public_interface", "enable_public_interface"} {
		w.change(path, name, nil)
		if got := at(w.do(200, "GET", path, nil), "load_balancer", "public_net", "enabled"); got != (i == 1) {
			t.Errorf("%s: enabled is %v", name, got)
		}
	}
}
