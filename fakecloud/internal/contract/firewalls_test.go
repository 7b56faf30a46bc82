package contract_test

import (
	"encoding/json"
	"fmt"
	"net"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

var (
	sshRule = object{"direction": "in", "protocol": "tcp", "port": "22", "source_ips": []any{"192.0.2.0/24", "2001:0db8:0:0::/64"},
		"description": "administrators"}
	pingRule = object{"direction": "out", "protocol": "icmp", "destination_ips": []any{"0.0.0.0/0"}}
)

func smallFirewall(_ *world, name string) object { return object{"name": name} }

func toServer(id any) object { return object{"type": "server", "server": object{"id": id}} }

func toSelector(selector string) object {
	return object{"type": "label_selector", "label_selector": object{"selector": selector}}
}

func populateFirewalls(w *world) {
	w.Helper()
	rules := []any{sshRule, pingRule, object{"direction": "in", "protocol": "udp", "port": "1024-5000", "source_ips": []any{"::/0"}}}
	for _, protocol := range []string{"esp", "gre"} {
		rules = append(rules, object{"direction": "in", "protocol": protocol, "source_ips": []any{"192.0.2.7/32"}})
	}
	server := json.Number(idOf(w.first("/servers", "servers")))
	w.create("firewall", "/firewalls", object{"name": "ssh", "labels": object{"env": "test"}, "rules": rules,
		"apply_to": []any{toServer(server), toSelector("env"), toSelector("env=nothing-has-it")}})
	w.create("firewall", "/firewalls", smallFirewall(w, "unused"))
	w.finish()
}

func firewallScenario(w *world) {
	labelled := smallServer(w, "labelled")
	labelled["labels"] = object{"role": "web"}
	one, two := json.Number(w.server(smallServer(w, "one"))), json.Number(w.server(labelled))
	private := smallServer(w, "private")
	private["networks"], private["public_net"] = []json.Number{json.Number(w.create("network", "/networks", fullNetwork))},
		object{"enable_ipv4": false, "enable_ipv6": false}
	hidden := json.Number(w.server(private))

	created := w.do(201, "POST", "/firewalls", object{"name": "web", "labels": object{"a": "b"}, "rules": []any{sshRule, pingRule},
		"apply_to": []any{toServer(one), toSelector("role=web")}})
	path := "/firewalls/" + idOf(created["firewall"])
	var commands []any
	for _, a := range created["actions"].([]any) {
		commands = append(commands, at(a.(object), "command"))
	}
	if fmt.Sprint(commands) != "[set_firewall_rules apply_firewall apply_firewall]" {
		w.Errorf("actions of a new firewall: %v", commands)
	}
	if rules := at(created, "firewall", "rules").([]any); fmt.Sprint(at(rules[0].(object), "source_ips"),
		at(rules[1].(object), "port")) != "[192.0.2.0/24 2001:db8::/64] <nil>" {
		w.Errorf("rules: %v", rules)
	}
	w.expectFirewall(one, "pending", path)
	w.refuse(409, "conflict", "DELETE", path, nil)
	w.finish()
	w.expectFirewall(one, "applied", path)
	w.expectFirewall(two, "applied", path)
	applied := at(w.do(200, "GET", path, nil), "firewall", "applied_to").([]any)
	if selected := at(applied[1].(object), "applied_to_resources").([]any); len(applied) != 2 || len(selected) != 1 ||
		idOf(at(selected[0].(object), "server")) != two.String() {
		w.Errorf("applied to %v", applied)
	}

	w.do(200, "GET", "/firewalls?name=web&label_selector=a&sort=created:desc", nil)
	w.do(200, "PUT", path, object{"name": "renamed", "labels": object{}})
	w.refuse(409, "uniqueness_error", "POST", "/firewalls", smallFirewall(w, "renamed"))
	w.refuseAction("firewall_already_removed", path, "remove_from_resources", object{"remove_from": []any{toServer(hidden)}})
	w.refuseAction("invalid_input", path, "remove_from_resources", object{"remove_from": []any{object{"type": "label_selector"}}})
	w.refuseAction("invalid_input", path, "set_rules",
		object{"rules": []any{object{"direction": "in", "protocol": "udp", "port": "x", "source_ips": []any{"::/0"}}}})

	w.do(201, "POST", path+"/actions/set_rules", object{"rules": []any{}})
	w.expectFirewall(one, "pending", path)
	w.finish()
	w.refuse(422, "resource_in_use", "DELETE", path, nil)
	w.do(201, "POST", path+"/actions/remove_from_resources", object{"remove_from": []any{toServer(one), toSelector("role=web")}})
	w.finish()
	w.expectFirewall(one, "")
	w.do(201, "POST", path+"/actions/apply_to_resources", object{"apply_to": []any{toServer(one)}})
	w.finish()

	body := smallServer(w, "born with it")
	body["name"], body["firewalls"] = "born", []any{object{"firewall": json.Number(idOf(created["firewall"]))}}
	w.expectFirewall(json.Number(w.server(body)), "applied", path)
	private["name"], private["firewalls"] = "no-interface", body["firewalls"]
	w.refuse(422, "invalid_input", "POST", "/servers", private)
	body["name"], body["firewalls"] = "none", []any{object{"firewall": json.Number(absentID)}}
	w.refuse(422, "invalid_input", "POST", "/servers", body)

	action := idOf(w.first(path+"/actions", "actions"))
	w.do(200, "GET", path+"/actions/"+action, nil)
	w.do(200, "GET", "/firewalls/actions", nil)
	w.do(200, "GET", "/firewalls/actions/"+action, nil)
	w.do(204, "DELETE", "/firewalls/"+w.create("firewall", "/firewalls", smallFirewall(w, "unused")), nil)
}

// expectFirewall compares the status of the only firewall of a server; "" for none.
func (w *world) expectFirewall(server json.Number, status string, path ...string) {
	w.Helper()
	shown := at(w.do(200, "GET", "/servers/"+server.String(), nil), "server", "public_net", "firewalls").([]any)
	if len(shown) != len(path) || len(shown) > 0 && ("/firewalls/"+idOf(shown[0]) != path[0] || at(shown[0].(object), "status") != status) {
		w.Errorf("firewalls of server %s: %v, want %v %s", server, shown, path, status)
	}
}

func (w walk) firewalls() {
	server := w.createServer("node")
	_, anywhere, err := net.ParseCIDR("0.0.0.0/0")
	if err != nil {
		w.Fatal(err)
	}
	rule := hcloud.FirewallRule{Direction: hcloud.FirewallRuleDirectionIn, Protocol: hcloud.FirewallRuleProtocolTCP, Port: new("80-90"),
		SourceIPs: []net.IPNet{*anywhere}, Description: new("web")}
	byLabel := hcloud.FirewallResource{Type: hcloud.FirewallResourceTypeLabelSelector,
		LabelSelector: &hcloud.FirewallResourceLabelSelector{Selector: "role=web"}}
	direct := hcloud.FirewallResource{Type: hcloud.FirewallResourceTypeServer, Server: &hcloud.FirewallResourceServer{ID: server.ID}}
	created := of(w.Firewall.Create(w.ctx, hcloud.FirewallCreateOpts{
		Name: "one", Labels: map[string]string{"a": "b"}, Rules: []hcloud.FirewallRule{rule}, ApplyTo: []hcloud.FirewallResource{byLabel},
	})).must(w)
	w.waitAll(created.Actions)
	f := created.Firewall
	read[hcloud.Firewall](w, &w.Firewall, f.ID, "one")
	of(w.Firewall.Update(w.ctx, f, hcloud.FirewallUpdateOpts{Name: "renamed", Labels: map[string]string{}})).must(w)
	w.waitAll(of(w.Firewall.ApplyResources(w.ctx, f, []hcloud.FirewallResource{direct})).must(w))
	if s := of(w.Server.GetByID(w.ctx, server.ID)).must(w); len(s.PublicNet.Firewalls) != 1 ||
		s.PublicNet.Firewalls[0].Status != hcloud.FirewallStatusApplied {
		w.Errorf("firewalls of the server: %+v", s.PublicNet.Firewalls)
	}
	w.waitAll(of(w.Firewall.SetRules(w.ctx, f, hcloud.FirewallSetRulesOpts{Rules: []hcloud.FirewallRule{rule, rule}})).must(w))
	if now := of(w.Firewall.GetByID(w.ctx, f.ID)).must(w); len(now.Rules) != 2 || *now.Rules[0].Port != "80-90" ||
		len(now.AppliedTo) != 2 || now.AppliedTo[0].LabelSelector.Selector != "role=web" {
		w.Errorf("firewall: %+v", now)
	}
	w.waitAll(of(w.Firewall.RemoveResources(w.ctx, f, []hcloud.FirewallResource{direct, byLabel})).must(w))
	actionsOf(w, w.Firewall.Action.All, w.Firewall.Action.AllFor, w.Firewall.Action.GetByID, f)
	w.gone(w.Firewall.Delete(w.ctx, f))
}

func (w walk) waitAll(actions []*hcloud.Action) {
	for _, a := range actions {
		w.wait(a)
	}
}
