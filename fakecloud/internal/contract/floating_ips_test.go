package contract_test

import (
	"encoding/json"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

func smallFloatingIP(_ *world, name string) object {
	return object{"name": name, "type": "ipv4", "home_location": "fsn1"}
}

func populateFloatingIPs(w *world) {
	w.Helper()
	server := json.Number(idOf(w.first("/servers", "servers")))
	w.create("floating_ip", "/floating_ips", object{"name": "free", "type": "ipv4", "home_location": "fsn1",
		"labels": object{"env": "test"}})
	w.create("floating_ip", "/floating_ips", object{"name": "used", "type": "ipv6", "server": server, "description": "moves"})
	w.finish()
	w.act("/floating_ips/"+w.create("floating_ip", "/floating_ips", smallFloatingIP(w, "kept")), "change_protection",
		object{"delete": true})
}

func floatingIPScenario(w *world) {
	created := w.do(201, "POST", "/floating_ips", object{"name": "v4", "type": "ipv4", "home_location": "nbg1", "labels": object{"a": "b"}})
	path, address := "/floating_ips/"+idOf(created["floating_ip"]), at(created, "floating_ip", "ip")
	if action, present := created["action"]; !present || action != nil {
		w.Errorf("action of an address without a server: %v, present: %t", action, present)
	}
	w.do(200, "GET", "/floating_ips?name=v4&label_selector=a", nil)
	w.do(200, "PUT", path, object{"name": "renamed", "description": "of the ingress", "labels": object{}})
	w.refuse(409, "uniqueness_error", "POST", "/floating_ips", smallFloatingIP(w, "renamed"))
	w.act(path, "change_dns_ptr", object{"ip": address, "dns_ptr": "a.example.com"})
	w.act(path, "change_dns_ptr", object{"ip": address, "dns_ptr": nil})
	w.refuseAction("invalid_input", path, "change_dns_ptr", object{"ip": "192.0.2.1", "dns_ptr": "a.example.com"})
	w.act(path, "change_protection", object{"delete": true})
	w.refuse(423, "protected", "DELETE", path, nil)
	w.act(path, "change_protection", object{"delete": false})

	one, two := json.Number(w.server(smallServer(w, "one"))), json.Number(w.server(smallServer(w, "two")))
	w.act(path, "assign", object{"server": one})
	w.refuseAction("invalid_input", path, "assign", object{"server": json.Number(absentID)})
	w.act(path, "assign", object{"server": two}) // failover controllers move it
	w.expectFloatingIPs(one)
	w.expectFloatingIPs(two, path)
	network := w.do(201, "POST", "/floating_ips", object{"type": "ipv6", "server": two})
	if at(network, "action", "command") != "assign_floating_ip" || !strings.HasSuffix(at(network, "floating_ip", "ip").(string), "::/64") ||
		at(network, "floating_ip", "name") == "" {
		w.Errorf("an IPv6 network for a server: %v", network)
	}
	w.finish()
	w.expectFloatingIPs(two, path, "/floating_ips/"+idOf(network["floating_ip"]))
	w.act(path, "unassign", nil)
	w.do(200, "DELETE", "/servers/"+two.String(), nil)
	w.finish()
	if left := at(w.do(200, "GET", "/floating_ips/"+idOf(network["floating_ip"]), nil), "floating_ip", "server"); left != nil {
		w.Errorf("server of a Floating IP whose server was deleted: %v", left)
	}
	action := idOf(w.first(path+"/actions", "actions"))
	w.do(200, "GET", path+"/actions/"+action, nil)
	w.do(200, "GET", "/floating_ips/actions", nil)
	w.do(200, "GET", "/floating_ips/actions/"+action, nil)
	w.do(204, "DELETE", path, nil)
}

// expectFloatingIPs compares the Floating IPs that a server shows.
func (w *world) expectFloatingIPs(server json.Number, paths ...string) {
	w.Helper()
	shown := at(w.do(200, "GET", "/servers/"+server.String(), nil), "server", "public_net", "floating_ips").([]any)
	if len(shown) != len(paths) {
		w.Fatalf("Floating IPs of server %s: %v, want %v", server, shown, paths)
	}
	for i, path := range paths {
		if got := "/floating_ips/" + idOf(object{"id": shown[i]}); got != path {
			w.Errorf("Floating IP %d of server %s: %s, want %s", i, server, got, path)
		}
	}
}

func (w walk) floatingIPs() {
	server := w.createServer("node")
	created := of(w.FloatingIP.Create(w.ctx, hcloud.FloatingIPCreateOpts{
		Name: new("one"), Type: hcloud.FloatingIPTypeIPv4, HomeLocation: &hcloud.Location{Name: "fsn1"}, Description: new("first"),
	})).must(w)
	ip := created.FloatingIP
	read[hcloud.FloatingIP](w, &w.FloatingIP, ip.ID, "one")
	of(w.FloatingIP.Update(w.ctx, ip, hcloud.FloatingIPUpdateOpts{Name: "renamed", Description: "second",
		Labels: map[string]string{"a": "b"}})).must(w)
	w.done(w.FloatingIP.Assign(w.ctx, ip, server))
	if s := of(w.Server.GetByID(w.ctx, server.ID)).must(w); len(s.PublicNet.FloatingIPs) != 1 || s.PublicNet.FloatingIPs[0].ID != ip.ID {
		w.Errorf("Floating IPs of the server: %+v", s.PublicNet.FloatingIPs)
	}
	w.done(w.FloatingIP.ChangeDNSPtr(w.ctx, ip, ip.IP.String(), new("a.example.com")))
	w.done(w.RDNS.ChangeDNSPtr(w.ctx, ip, ip.IP, nil))
	w.done(w.FloatingIP.ChangeProtection(w.ctx, ip, hcloud.FloatingIPChangeProtectionOpts{Delete: new(true)}))
	w.done(w.FloatingIP.ChangeProtection(w.ctx, ip, hcloud.FloatingIPChangeProtectionOpts{Delete: new(false)}))
	w.done(w.FloatingIP.Unassign(w.ctx, ip))
	actionsOf(w, w.FloatingIP.Action.All, w.FloatingIP.Action.AllFor, w.FloatingIP.Action.GetByID, ip)
	w.gone(w.FloatingIP.Delete(w.ctx, ip))
	network := of(w.FloatingIP.Create(w.ctx, hcloud.FloatingIPCreateOpts{Type: hcloud.FloatingIPTypeIPv6, Server: server})).must(w)
	w.wait(network.Action)
	if bits, _ := network.FloatingIP.Network.Mask.Size(); bits != 64 {
		w.Errorf("IPv6 network: %v", network.FloatingIP.Network)
	}
}
