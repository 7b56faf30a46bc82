package recording

import (
	"encoding/json"
	"net/http"
	"path"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// TestARefusalWhileAnActionRanIsTheFirstDifference records a cloud that deletes a server during its power-off. The simulation refuses that.
func TestARefusalWhileAnActionRanIsTheFirstDifference(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		after  func(w *world, action string)
		proven bool
	}{
		"seen running later":     {func(w *world, action string) { w.do("GET", action, nil) }, true},
		"finished later":         {func(w *world, action string) { w.step(time.Minute); w.do("GET", action, nil) }, true},
		"its end is not seen":    {func(*world, string) {}, false},
		"its end proves nothing": {func(w *world, action string) { w.step(time.Minute); w.do("GET", action, nil) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(r *http.Request, a *wrongAnswer) {
				switch {
				case r.Method == "DELETE":
					a.status, a.body = 200, object{"action": object{"id": 990099, "command": "delete_server", "status": "running",
						"progress": 0, "started": "2026-11-20T12:01:00Z", "finished": nil, "error": nil, "resources": []any{}}}
				case r.URL.Path == "/v1/networks":
					a.body["lie"] = true
				case name == "its end proves nothing" && r.Method == "GET" && at(a.body, "action", "command") == "stop_server":
					change(a.body, "action.finished", "2026-11-20T12:01:00Z")
				}
			})
			w.do("GET", "/networks", nil) // another difference, before
			_, server := w.do("POST", "/servers", object{"name": "a", "server_type": "cx23", "image": "debian-13", "location": "fsn1"})
			w.step(time.Minute)
			w.await(server)
			one := "/servers/" + w.idOf(server, "server")
			_, off := w.do("POST", one+"/actions/poweroff", nil)
			w.do("DELETE", one, nil)
			c.after(w, "/actions/"+w.idOf(off, "action"))
			report := w.verify()
			first := report.Differences[0]
			if got := first.What == DiffLocked && first.Method == "DELETE" && first.Fake == "423 locked"; got != c.proven {
				t.Errorf("%+v", report.Differences)
			}
			undecided := len(report.Undecided) == 1 && report.Undecided[0].Method == "DELETE" && report.Operations["delete_server"] == 0
			if undecided == c.proven {
				t.Errorf("undecided: %+v", report.Undecided)
			}
		})
	}
}

// TestActionsThatNobodyAwaitsEndInTime has a client that reads no action. Its cloud is quick, or as slow as the simulation or slower.
func TestActionsThatNobodyAwaitsEndInTime(t *testing.T) {
	t.Parallel()
	for _, actions := range []string{"instant", "10ms", "realistic", "20s"} {
		for _, pause := range []time.Duration{0, time.Second, 5 * time.Second, 25 * time.Second, time.Minute} {
			t.Run(actions+" "+pause.String(), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, nil, func(o *fakecloud.Options) { o.Actions = actions })
				read := func(kind string, body object) string {
					_, made := w.do("POST", "/"+kind+"s", body)
					w.step(pause)
					w.do("GET", "/"+kind+"s/"+w.idOf(made, kind), nil)
					w.do("GET", "/"+kind+"s", nil)
					return "/" + kind + "s/" + w.idOf(made, kind)
				}
				act := func(one, action string, body object) {
					w.do("POST", one+"/actions/"+action, body)
					w.step(pause)
					w.do("GET", one, nil)
					w.do("GET", one+"/actions", nil)
				}
				network := read("network", object{"name": "n", "ip_range": "10.0.0.0/16"})
				act(network, "add_subnet", object{"type": "cloud", "network_zone": "eu-central", "ip_range": "10.0.1.0/24"})
				server := read("server", object{"name": "s", "server_type": "cx23", "image": "debian-13", "location": "fsn1"})
				act(server, "attach_to_network", object{"network": json.Number(path.Base(network))})
				volume := read("volume", object{"name": "v", "size": 10, "location": "fsn1"})
				act(volume, "attach", object{"server": json.Number(path.Base(server))})
				lb := read("load_balancer", object{"name": "lb", "load_balancer_type": "lb11", "location": "fsn1"})
				act(lb, "attach_to_network", object{"network": json.Number(path.Base(network))})
				act(lb, "add_service", object{"protocol": "tcp", "listen_port": 80, "destination_port": 80})
				read("certificate", object{"name": "c", "type": "managed", "domain_names": []string{"a.example.com"}})
				w.step(time.Minute) // the server is free
				ip := read("floating_ip", object{"type": "ipv4", "server": json.Number(path.Base(server))})
				act(ip, "unassign", nil)
				act(server, "shutdown", nil)
				act(server, "poweroff", nil)
				act(server, "change_type", object{"server_type": "cx33", "upgrade_disk": false})
				_, unread := w.do("POST", "/servers", object{"name": "u", "server_type": "cx23", "image": "debian-13", "location": "fsn1",
					"start_after_create": false, "public_net": object{"enable_ipv6": false}})
				_, made := w.do("POST", "/primary_ips", object{"type": "ipv6", "name": "p", "location": "fsn1", "assignee_type": "server"})
				w.step(time.Minute)
				own := "/primary_ips/" + w.idOf(made, "primary_ip")
				w.do("POST", own+"/actions/assign", object{"assignee_id": at(unread, "server", "id"), "assignee_type": "server"})
				w.step(pause)
				w.do("GET", own, nil) // and not its actions
				w.do("POST", own+"/actions/unassign", nil)
				w.do("DELETE", server, nil)
				report := w.verify()
				if len(report.Differences)+len(report.NotReplayable) > 0 {
					t.Errorf("%+v, %+v", report.Differences, report.NotReplayable)
				}
			})
		}
	}
}
