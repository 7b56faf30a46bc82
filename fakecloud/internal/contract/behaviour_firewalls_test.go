package contract_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

func (w *world) firewall(body object) string {
	w.Helper()
	path := "/firewalls/" + w.create("firewall", "/firewalls", body)
	w.finish()
	return path
}

func applyTo(resources ...object) object    { return object{"apply_to": resources} }
func removeFrom(resources ...object) object { return object{"remove_from": resources} }

func TestErrorsOfFirewalls(t *testing.T) {
	t.Parallel()
	errorsOfFirewalls().run(t, nil)
}

func errorsOfFirewalls() refusals {
	refuseNew := func(code string, resources ...object) func(*world) {
		return func(w *world) {
			body := applyTo(resources...)
			body["name"] = "new"
			w.refuse(422, code, "POST", "/firewalls", body)
		}
	}
	unknown := toServer(json.Number(absentID))
	return refusals{
		"a new firewall for an unknown server": refuseNew("firewall_resource_not_found", unknown),
		"a server twice in a new firewall": func(w *world) {
			server := toServer(w.runningServer("a"))
			refuseNew("server_already_added", server, server)(w)
		},
		"a new firewall for a server without a public interface": func(w *world) {
			refuseNew("incompatible_network_type", toServer(w.privateServer()))(w)
		},
		"an applied firewall is deleted": func(w *world) {
			path := w.firewall(object{"name": "a", "apply_to": []object{toSelector("env=test")}})
			w.refuse(422, "resource_in_use", "DELETE", path, nil)
		},
		"an unknown server": func(w *world) {
			path := w.firewall(smallFirewall(w, "a")) + "/actions/apply_to_resources"
			w.refuse(404, "firewall_resource_not_found", "POST", path, applyTo(unknown))
		},
		"removed from an unknown server": func(w *world) {
			path := w.firewall(smallFirewall(w, "a")) + "/actions/remove_from_resources"
			w.refuse(404, "firewall_resource_not_found", "POST", path, removeFrom(unknown))
		},
		"a server that has the firewall": func(w *world) {
			server := toServer(w.runningServer("a"))
			path := w.firewall(object{"name": "a", "apply_to": []object{server}})
			w.refuseAction("firewall_already_applied", path, "apply_to_resources", applyTo(server))
		},
		"a server without a public interface": func(w *world) {
			path := w.firewall(smallFirewall(w, "a"))
			w.refuseAction("private_net_only_server", path, "apply_to_resources", applyTo(toServer(w.privateServer())))
		},
		"removed from a server that a selector selects": func(w *world) {
			server := toServer(w.runningServer("a"))
			path := w.firewall(object{"name": "a", "apply_to": []object{toSelector("env=test")}})
			says := fmt.Sprintf("firewall with ID %s has been applied via label selector.", idIn(path))
			w.refuseAction("firewall_managed_by_label_selector: "+says, path, "remove_from_resources", removeFrom(server))
		},
	}
}

func TestAFirewallIsAppliedToServersAndSelectorsWhenItsActionEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	direct, other := smallServer(w, "direct"), w.runningServer("selected")
	direct["labels"] = object{}
	server := json.Number(w.server(direct))
	path := w.firewall(smallFirewall(w, "a"))
	actions := w.do(201, "POST", path+"/actions/apply_to_resources", applyTo(toServer(server), toSelector("env=test")))["actions"].([]any)
	for _, action := range actions {
		if command := at(action.(object), "command"); command != "apply_firewall" {
			t.Errorf("action %v", command)
		}
	}
	w.expectFirewall(server, "pending", path)
	w.finish()
	w.expectFirewall(server, "applied", path)
	w.expectFirewall(other, "applied", path)
	if got := at(w.do(200, "GET", path, nil), "firewall", "applied_to").([]any); len(got) != 2 || len(actions) != 2 {
		t.Errorf("%d actions, applied to %v", len(actions), got)
	}
}

func TestAFirewallIsRemovedWhenItsActionEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	one, two := w.runningServer("one"), w.runningServer("two")
	path := w.firewall(object{"name": "a", "apply_to": []object{toServer(one), toServer(two)}})
	actions := w.do(201, "POST", path+"/actions/remove_from_resources", removeFrom(toServer(one), toServer(two)))["actions"].([]any)
	if command := at(actions[0].(object), "command"); command != "remove_firewall" {
		t.Errorf("action %v", command)
	}
	w.expectFirewall(one, "pending", path)
	w.finish()
	w.expectFirewall(one, "")
	w.expectFirewall(two, "")
}

func TestAFirewallFollowsTheLabelsOfAServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	path := w.firewall(object{"name": "a", "apply_to": []object{toSelector("role=web")}})
	server := w.runningServer("a")
	w.expectFirewall(server, "")
	w.do(200, "PUT", "/servers/"+server.String(), object{"labels": object{"role": "web"}})
	w.clock.Step(5 * time.Second)
	w.expectFirewall(server, "applied", path)
	w.do(200, "PUT", "/servers/"+server.String(), object{"labels": object{}})
	w.clock.Step(5 * time.Second)
	w.expectFirewall(server, "")
}

func (w *world) rulesOf(firewall string) []any {
	w.Helper()
	return at(w.do(200, "GET", firewall, nil), "firewall", "rules").([]any)
}

func TestNewRulesReplaceAllRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	path := w.firewall(object{"name": "a", "rules": []any{sshRule}})
	w.act(path, "set_rules", object{"rules": []any{pingRule}})
	if got := w.rulesOf(path); len(got) != 1 || at(got[0].(object), "protocol") != "icmp" {
		t.Errorf("rules %v", got)
	}
	w.act(path, "set_rules", object{"rules": []any{}})
	if got := w.rulesOf(path); len(got) != 0 {
		t.Errorf("rules %v, want none", got)
	}
}

// Clients read without waiting for the action, and the CLI's output has the rules for `in` first.
func TestNewRulesAreShownAtOnceAndInboundOnesFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	web := object{"direction": "in", "protocol": "tcp", "port": "80", "source_ips": []any{"0.0.0.0/0"}}
	all := object{"direction": "out", "protocol": "gre", "destination_ips": []any{"0.0.0.0/0"}}
	rules, want := []any{pingRule, web, all, sshRule}, "[tcp 80] [tcp 22] [icmp <nil>] [gre <nil>]"
	expect := func(when string, shown []any) {
		t.Helper()
		var got []string
		for _, r := range shown {
			got = append(got, fmt.Sprint([]any{at(r.(object), "protocol"), at(r.(object), "port")}))
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%s: rules %s, want %s", when, text, want)
		}
	}
	created := w.do(201, "POST", "/firewalls", object{"name": "a", "rules": rules})
	expect("created", at(created, "firewall", "rules").([]any))
	path := "/firewalls/" + idOf(created["firewall"])
	w.finish()
	w.act(path, "set_rules", object{"rules": []any{}})
	w.do(201, "POST", path+"/actions/set_rules", object{"rules": rules})
	expect("set", w.rulesOf(path))
	w.finish()
	expect("when the action has ended", w.rulesOf(path))
}

// cluster-autoscaler 1.36 (hetzner) waits for the action and all next actions of a new server, attaches it to its network at
// once, and deletes it at once when that fails. It knows nothing of the firewalls that label selectors apply.
func TestANewServerWithFirewallsIsFreeWhenItsActionsHaveEnded(t *testing.T) {
	t.Parallel()
	for _, started := range []bool{true, false} {
		for kind, body := range map[string]object{"direct": {}, "by label": {"labels": object{"role": "web"}}} {
			t.Run(fmt.Sprintf("%s, start_after_create %t", kind, started), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, nil, func(o *fakecloud.Options) { o.Actions = "realistic" })
				network := json.Number(w.create("network", "/networks", fullNetwork))
				f := w.firewall(object{"name": "a", "rules": []any{sshRule}, "apply_to": []object{toSelector("role=web")}})
				maps.Copy(body, object{"server_type": "cx23", "image": "ubuntu-24.04", "location": "fsn1", "start_after_create": started})
				if kind == "direct" {
					body["firewalls"] = []object{{"firewall": json.Number(idOf(w.do(200, "GET", f, nil)["firewall"]))}}
				}
				var created []object
				for i := range 12 {
					body["name"] = fmt.Sprint("node-", i)
					created = append(created, w.do(201, "POST", "/servers", body))
				}
				for i, c := range created {
					w.await(slices.Concat([]any{c["action"]}, c["next_actions"].([]any)))
					server := json.Number(idOf(c["server"]))
					if i%2 == 0 {
						attached := w.do(201, "POST", "/servers/"+server.String()+"/actions/attach_to_network", object{"network": network})
						w.await([]any{attached["action"]})
					}
					w.expectFirewall(server, "applied", f)
					w.await([]any{w.do(200, "DELETE", "/servers/"+server.String(), nil)["action"]})
				}
				if left := w.list("/servers", "servers"); len(left) > 0 {
					t.Errorf("%d servers are left", len(left))
				}
			})
		}
	}
}

// await steps the clock in small steps until actions have succeeded.
func (w *world) await(actions []any) {
	w.Helper()
	for _, a := range actions {
		path := "/actions/" + idOf(a)
		for range 1000 {
			status := at(w.do(200, "GET", path, nil), "action", "status")
			if status == "success" {
				break
			}
			if status != "running" {
				w.Fatalf("%s: %v", path, status)
			}
			w.clock.Step(100 * time.Millisecond)
		}
	}
}

func TestAFirewallHasAtMostFiftyRulesAnd500EffectiveOnes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	rules := func(count, ips int) object {
		rule := object{"direction": "in", "protocol": "tcp", "port": "80", "source_ips": slices.Repeat([]any{"192.0.2.0/24"}, ips)}
		return object{"rules": slices.Repeat([]any{rule}, count)}
	}
	path := w.firewall(smallFirewall(w, "a"))
	for _, possible := range []object{rules(50, 10), rules(5, 100)} {
		w.act(path, "set_rules", possible)
		if got, want := w.rulesOf(path), possible["rules"].([]any); len(got) != len(want) {
			t.Errorf("%d rules, want %d", len(got), len(want))
		}
	}
	for name, impossible := range map[string]object{"51 rules": rules(51, 1), "504 effective rules": rules(6, 84)} {
		response := w.send("POST", path+"/actions/set_rules", impossible)
		if response.Code/100 != 4 || !strings.Contains(response.Body.String(), "rule") {
			t.Errorf("%s: %d %s", name, response.Code, response.Body)
		}
	}
}
