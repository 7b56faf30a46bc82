package contract_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// sample is a valid request: the resource that it is for, and how its body differs from the document's example.
type sample struct {
	id     string // for the path's {id}; empty: a new resource that differs in nothing
	fields object // JSON pointers and values; absent removes a field
}

// absent is the value of a field that a sample does not have.
const absent = "absent"

// samples make what a request needs, for each operation whose example in the document is not valid in an empty project, or
// that has fields which exclude each other.
var samples = map[string][]func(*world) sample{
	"create_certificate": {func(w *world) sample {
		body := uploadedCertificate(w, "a")
		return sample{"", object{"/certificate": body["certificate"], "/private_key": body["private_key"]}}
	}},
	"create_firewall":             {firewallSample("/apply_to")},
	"apply_firewall_to_resources": {firewallSample("/apply_to")},
	"remove_firewall_from_resources": {func(w *world) sample {
		server := w.id("server")
		firewall := w.create("firewall", "/firewalls", object{"name": "a", "apply_to": []any{toServer(server)}})
		return sample{firewall, object{"/remove_from/0/server/id": server}}
	}},

	"create_floating_ip": {
		func(*world) sample { return sample{"", object{"/server": absent}} },
		func(w *world) sample { return sample{"", object{"/home_location": absent, "/server": w.id("server")}} },
	},
	"assign_floating_ip":         {withID("server", "/server")},
	"change_floating_ip_dns_ptr": {dnsSample("floating_ip", "ip")},

	"update_image":            {imageSample},
	"change_image_protection": {imageSample},

	"create_primary_ip": {
		func(*world) sample { return sample{"", object{"/assignee_id": absent}} },
		func(w *world) sample {
			return sample{"", object{"/location": absent, "/assignee_id": w.privateServer()}}
		},
	},
	"assign_primary_ip":         {func(w *world) sample { return sample{"", object{"/assignee_id": w.privateServer()}} }},
	"change_primary_ip_dns_ptr": {dnsSample("primary_ip", "ip")},

	"create_network": {
		func(*world) sample {
			return sample{"", object{"/subnets/0/vswitch_id": absent, "/routes/0/gateway": "10.0.1.9"}}
		},
		func(*world) sample {
			return sample{"", object{"/subnets/0/type": "vswitch", "/routes": absent}}
		},
	},
	"add_network_subnet": {
		func(*world) sample { return sample{"", object{"/vswitch_id": absent}} },
		func(*world) sample { return sample{"", object{"/type": "vswitch"}} },
	},
	"add_network_route":       {networkSample(object{"/gateway": "10.0.1.9"})},
	"delete_network_route":    {networkSample(object{"/destination": "192.168.0.0/24", "/gateway": "10.0.1.7"})},
	"delete_network_subnet":   {networkSample(object{"/ip_range": "10.0.1.0/24"})},
	"change_network_ip_range": {networkSample(object{"/ip_range": "10.0.0.0/12"})},

	"create_volume": {
		func(*world) sample { return sample{"", object{"/server": absent, "/automount": false}} },
		func(w *world) sample { return sample{"", object{"/location": absent, "/server": w.id("server")}} },
	},
	"attach_volume":  {withID("server", "/server")},
	"create_ssh_key": {func(*world) sample { return sample{"", object{"/public_key": publicKey}} }},

	"create_zone": {
		func(*world) sample { return sample{"", object{"/primary_nameservers": absent, "/zonefile": absent}} },
		func(*world) sample { return sample{"", object{"/primary_nameservers": absent, "/rrsets": absent}} },
		func(*world) sample {
			return sample{"", object{"/mode": "secondary", "/rrsets": absent, "/zonefile": absent, "/ttl": absent,
				"/primary_nameservers/0/tsig_key": "c2VjcmV0"}}
		},
	},
	"change_zone_primary_nameservers": {func(w *world) sample {
		body := object{"name": "b.example", "mode": "secondary", "primary_nameservers": []any{object{"address": "198.51.100.7"}}}
		return sample{w.create("zone", "/zones", body), object{"/primary_nameservers/0/tsig_key": "c2VjcmV0"}}
	}},
	"import_zone_zonefile": {func(w *world) sample {
		return sample{w.create("zone", "/zones", object{"name": "example.com", "mode": "primary"}), nil}
	}},
	"add_zone_rrset_records":    {func(w *world) sample { return sample{string(w.id("zone")), nil} }},
	"remove_zone_rrset_records": {manyRecords},
	"update_zone_rrset_records": {manyRecords},
}

// serverSamples are the samples of servers.
var serverSamples = map[string][]func(*world) sample{
	"create_server": {serverSample},
	"add_server_to_placement_group": {func(w *world) sample {
		return sample{string(w.idWith("server", object{"start_after_create": false})), object{"/placement_group": w.id("placement_group")}}
	}},
	"attach_server_iso": {func(w *world) sample {
		return sample{"", object{"/iso": w.first("/isos", "isos")["name"]}}
	}},
	"attach_server_to_network": {func(w *world) sample {
		return sample{"", object{"/network": json.Number(w.create("network", "/networks", fullNetwork)), "/ip": "10.0.1.5",
			"/alias_ips/0": "10.0.1.6"}}
	}},
	"change_server_alias_ips": {attachedServer},
	"detach_server_from_network": {func(w *world) sample {
		s := attachedServer(w)
		delete(s.fields, "/alias_ips/0")
		return s
	}},
	"change_server_dns_ptr": {dnsSample("server", "public_net", "ipv4", "ip")},
	"change_server_type": {func(w *world) sample {
		return sample{string(w.idWith("server", object{"start_after_create": false})), object{"/server_type": "cx33"}}
	}},
	"create_server_image": {func(w *world) sample {
		path := "/servers/" + string(w.id("server"))
		w.do(201, "POST", path+"/actions/enable_backup", nil)
		return sample{strings.TrimPrefix(path, "/servers/"), nil}
	}},
	"enable_server_rescue": {withID("ssh_key", "/ssh_keys/0")},
}

func serverSample(w *world) sample {
	return sample{"", object{
		"/location": "fsn1", "/server_type": "cx23", "/ssh_keys/0": string(w.id("ssh_key")), "/placement_group": w.id("placement_group"),
		"/networks/0": json.Number(w.create("network", "/networks", fullNetwork)), "/volumes/0": w.id("volume"),
		"/firewalls/0/firewall": w.id("firewall"),
		"/public_net/ipv4":      w.id("primary_ip"), "/public_net/ipv6": w.idWith("primary_ip", object{"type": "ipv6"}),
	}}
}

// attachedServer returns a request about the network of a server.
func attachedServer(w *world) sample {
	network := json.Number(w.create("network", "/networks", fullNetwork))
	return sample{string(w.idWith("server", object{"networks": []any{network}})), object{"/network": network, "/alias_ips/0": "10.0.1.6"}}
}

// loadBalancerSamples are the samples of load balancers.
var loadBalancerSamples = map[string][]func(*world) sample{
	"create_load_balancer": {
		func(w *world) sample { return balancerSample(w, "/network_zone") },
		func(w *world) sample { return balancerSample(w, "/location") },
	},
	"add_load_balancer_service": {withID("certificate", "/http/certificates/0")},
	"update_load_balancer_service": {func(w *world) sample {
		certificate := w.id("certificate")
		balancer := w.idWith("load_balancer", object{"services": []any{httpService("https", 443, certificate)}})
		return sample{string(balancer), object{"/http/certificates/0": certificate}}
	}},
	"delete_load_balancer_service": {func(w *world) sample {
		return sample{string(w.idWith("load_balancer", object{"services": []any{tcpService(443)}})), nil}
	}},
	"add_load_balancer_target": {func(w *world) sample {
		network := json.Number(w.create("network", "/networks", fullNetwork))
		server := w.idWith("server", object{"networks": []any{network}})
		return sample{string(w.idWith("load_balancer", object{"network": network})), object{"/server/id": server, "/server/ip": absent}}
	}, func(w *world) sample {
		server := w.id("server")
		return sample{"", object{"/server/id": server, "/server/ip": w.address(server), "/use_private_ip": false}}
	}},
	"remove_load_balancer_target": {func(w *world) sample {
		server := w.id("server")
		return sample{string(w.idWith("load_balancer", object{"targets": []any{toServer(server)}})),
			object{"/server/id": server, "/server/ip": w.address(server)}}
	}},
	"attach_load_balancer_to_network": {func(w *world) sample {
		return sample{"", object{"/network": json.Number(w.create("network", "/networks", fullNetwork)), "/ip": "10.0.1.5"}}
	}},
	"detach_load_balancer_from_network": {func(w *world) sample {
		network := json.Number(w.create("network", "/networks", fullNetwork))
		return sample{string(w.idWith("load_balancer", object{"network": network})), object{"/network": network}}
	}},
	"change_load_balancer_dns_ptr": {dnsSample("load_balancer", "public_net", "ipv4", "ip")},
}

// address returns the public IPv4 of a server.
func (w *world) address(server json.Number) any {
	w.Helper()
	return at(w.do(200, "GET", "/servers/"+string(server), nil), "server", "public_net", "ipv4", "ip")
}

// balancerSample returns a request for a load balancer without one of two fields that exclude each other.
func balancerSample(w *world, without string) sample {
	server := w.id("server")
	return sample{"", object{
		without: absent, "/network": json.Number(w.create("network", "/networks", fullNetwork)),
		"/public_net/ipv4": w.id("primary_ip"), "/public_net/ipv6": w.idWith("primary_ip", object{"type": "ipv6"}),
		"/services/0/listen_port": 22, "/services/1/listen_port": 8080, "/services/2/http/certificates/0": w.id("certificate"),
		"/targets/0/server/id": server, "/targets/0/server/ip": w.address(server), "/targets/0/use_private_ip": false,
	}}
}

// id makes the simple resource of a collection and returns its id.
func (w *world) id(kind string) json.Number {
	w.Helper()
	path := "/" + kind + "s"
	return json.Number(w.create(kind, path, topics[path].simple(w, "x"+strings.ReplaceAll(kind, "_", "-"))))
}

// idWith makes a resource with more than the simple one has.
func (w *world) idWith(kind string, more object) json.Number {
	w.Helper()
	path := "/" + kind + "s"
	body := topics[path].simple(w, "y"+strings.ReplaceAll(kind, "_", "-"))
	maps.Copy(body, more)
	return json.Number(w.create(kind, path, body))
}

// privateServer makes a server that is off and has no public address.
func (w *world) privateServer() json.Number {
	w.Helper()
	network := json.Number(w.create("network", "/networks", fullNetwork))
	return w.idWith("server", object{
		"start_after_create": false, "networks": []any{network}, "public_net": object{"enable_ipv4": false, "enable_ipv6": false},
	})
}

func withID(kind, pointer string) func(*world) sample {
	return func(w *world) sample { return sample{"", object{pointer: w.id(kind)}} }
}

// manyRecords returns a request about one record of an RRSet that has as many as a request may have.
func manyRecords(w *world) sample {
	var values []string
	for i := range 50 {
		values = append(values, fmt.Sprintf("%d.51.100.1", 100+i))
	}
	set := object{"name": "www", "type": "A", "records": records(values...)}
	return sample{string(w.idWith("zone", object{"rrsets": []any{set}})), object{"/records/0/value": values[0]}}
}

func firewallSample(list string) func(*world) sample {
	return withID("server", list+"/0/server/id")
}

func networkSample(fields object) func(*world) sample {
	return func(w *world) sample { return sample{w.create("network", "/networks", fullNetwork), fields} }
}

func imageSample(w *world) sample {
	path := "/servers/" + string(w.id("server"))
	return sample{idOf(w.do(201, "POST", path+"/actions/create_image", nil)["image"]), nil}
}

// dnsSample returns a request for the reverse DNS of the first address of a new resource.
func dnsSample(kind string, address ...string) func(*world) sample {
	return func(w *world) sample {
		id := string(w.id(kind))
		resource := w.do(200, "GET", "/"+kind+"s/"+id, nil)[kind].(object)
		return sample{id, object{"/ip": at(resource, address...)}}
	}
}
