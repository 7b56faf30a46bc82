package contract_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/api"
)

// The tests of the files behaviour_….go are named after the sentences of the API document that they guard; see
// the page of `make behaviour`. Here are those of sentences that several kinds of resources share.

// each creates a resource of each kind with labels. visit gets its collection, path and key.
func each(w *world, visit func(collection, path, key string)) {
	w.Helper()
	eachCreation(w, func(route api.Route, body object) {
		body["labels"] = object{"made": "here"}
		key := strings.TrimPrefix(route.OperationID, "create_")
		path := route.Pattern + "/" + w.create(key, route.Pattern, body)
		w.finish()
		visit(route.Pattern, path, key)
	})
}

func TestANewResourceCanBeReadByItsID(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	each(w, func(_, path, key string) {
		got, _ := w.do(200, "GET", path, nil)[key].(object)
		if name, _ := got["name"].(string); !strings.HasPrefix(name, "a") || at(got, "labels", "made") != "here" {
			t.Errorf("%s: %v", path, got)
		}
	})
}

func TestAResourceOfAnotherProjectIsNotFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	each(w, func(_, path, _ string) { w.as(otherToken).refuse(404, "not_found", "GET", path, nil) })
}

func TestAListHasTheNewResourcesOfItsProjectOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	each(w, func(collection, path, _ string) {
		ids := idsIn(w.list(collection, collection[1:]))
		if !slices.Contains(ids, path[len(collection)+1:]) {
			t.Errorf("%s has %v, but not %s", collection, ids, path)
		}
		if others := w.as(otherToken).list(collection, collection[1:]); len(others) > 0 {
			t.Errorf("%s of another project has %v", collection, others)
		}
	})
}

func idsIn(entries []any) []string {
	var ids []string
	for _, entry := range entries {
		ids = append(ids, idOf(entry))
	}
	return ids
}

func TestAListAndAReadByIDShowTheSameResource(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	populate(w)
	for _, route := range api.Routes() {
		collection, ok := strings.CutSuffix(strings.Replace(route.Pattern, "_or_name}", "}", 1), "/{id}")
		if !ok || route.Method != http.MethodGet || strings.Count(collection, "/") > 1 || collection == "/actions" ||
			collection == "/datacenters" {
			continue
		}
		entries := w.list(collection+"?per_page=50", collection[1:])
		if len(entries) == 0 {
			t.Errorf("%s is empty", collection)
		}
		for _, entry := range entries {
			one := w.do(200, "GET", collection+"/"+idOf(entry), nil)[strings.TrimSuffix(collection[1:], "s")]
			if !reflect.DeepEqual(one, entry) {
				t.Errorf("%s lists %v, the read by id shows %v", collection, entry, one)
			}
		}
	}
}

func TestAnUpdateChangesTheNameAndTheLabels(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	each(w, func(collection, path, key string) {
		if collection == "/zones" { // their name never changes
			return
		}
		w.do(200, "PUT", path, object{"name": "renamed", "labels": object{"changed": "there"}})
		got := w.do(200, "GET", path, nil)
		if at(got, key, "name") != "renamed" || fmt.Sprint(at(got, key, "labels")) != "map[changed:there]" {
			t.Errorf("%s: %v", path, got)
		}
	})
}

func TestADeletedResourceIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	each(w, func(collection, path, _ string) {
		if response := w.send("DELETE", path, nil); response.Code/100 != 2 {
			t.Errorf("%s: %d %s", path, response.Code, response.Body)
		}
		w.finish()
		w.refuse(404, "not_found", "GET", path, nil)
		if left := idsIn(w.list(collection, collection[1:])); slices.Contains(left, path[len(collection)+1:]) {
			t.Errorf("%s still lists %s", collection, path)
		}
	})
}

func TestAProtectedResourceIsNotDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	snapshot := idOf(w.do(201, "POST", "/servers/"+w.server(smallServer(w, "imaged"))+"/actions/create_image", object{})["image"])
	w.finish()
	w.keepProtected("/images/"+snapshot, "image", object{"delete": true})
	each(w, func(collection, path, key string) {
		switch collection {
		case "/servers":
			w.keepProtected(path, key, object{"delete": true, "rebuild": true})
		case "/floating_ips", "/load_balancers", "/networks", "/primary_ips", "/volumes", "/zones":
			w.keepProtected(path, key, object{"delete": true})
		}
	})
}

// keepProtected protects a resource, tries to delete it, ends the protection and deletes it.
func (w *world) keepProtected(path, key string, protection object) {
	w.Helper()
	w.act(path, "change_protection", protection)
	if got := at(w.do(200, "GET", path, nil), key, "protection", "delete"); got != true {
		w.Errorf("%s: delete protection is %v", path, got)
	}
	w.refuse(423, "protected", "DELETE", path, nil)
	for name := range protection {
		protection[name] = false
	}
	w.act(path, "change_protection", protection)
	if response := w.send("DELETE", path, nil); response.Code/100 != 2 {
		w.Errorf("%s is not protected any more: %d %s", path, response.Code, response.Body)
	}
}

// collectionsWithActions returns the collections whose resources have actions.
func collectionsWithActions() []string {
	var collections []string
	for _, route := range api.Routes() {
		if collection, ok := strings.CutSuffix(route.Pattern, "/actions"); ok && collection != "" && !strings.Contains(collection, "{") {
			collections = append(collections, collection)
		}
	}
	return collections
}

func TestAnActionIsTheSameInEachOperationThatReadsIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	populate(w)
	for _, collection := range collectionsWithActions() {
		want := w.first(collection+"/actions", "actions")
		var resource string
		for _, r := range want["resources"].([]any) {
			if "/"+r.(object)["type"].(string)+"s" == collection {
				resource = idOf(r)
			}
		}
		id := idOf(want)
		for _, path := range []string{"/actions/", collection + "/actions/", collection + "/" + resource + "/actions/"} {
			if got := w.do(200, "GET", path+id, nil)["action"]; !reflect.DeepEqual(got, any(want)) {
				t.Errorf("%s: %v, want %v", path+id, got, want)
			}
		}
	}
}

func TestTheActionsOfAResourceAreThoseThatNameIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	populate(w)
	for _, collection := range collectionsWithActions() {
		of := make(map[string][]string)
		for _, action := range w.list(collection+"/actions?per_page=50", "actions") {
			named := false
			for _, r := range action.(object)["resources"].([]any) {
				if "/"+r.(object)["type"].(string)+"s" == collection {
					of[idOf(r)], named = append(of[idOf(r)], idOf(action)), true
				}
			}
			if !named {
				t.Errorf("%s/actions has %v", collection, action)
			}
		}
		if len(of) == 0 {
			t.Errorf("%s/actions is empty", collection)
		}
		for id, want := range of {
			if got := idsIn(w.list(collection+"/"+id+"/actions", "actions")); !slices.Equal(got, want) {
				t.Errorf("%s/%s/actions has %v, want %v", collection, id, got, want)
			}
		}
	}
}

func TestActionsAreReadByTheirIDs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	populate(w)
	all := idsIn(w.list("/servers/actions", "actions"))
	if got := idsIn(w.list("/actions?id="+all[0]+"&id="+all[2], "actions")); !slices.Equal(got, []string{all[0], all[2]}) {
		t.Errorf("actions %v, want the first and the third of %v", got, all)
	}
	w.refuse(422, "invalid_input", "GET", "/actions", nil)
}

func TestALocationIsAnIDOrAName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	location := w.first("/locations?name=nbg1", "locations")
	for i, value := range []any{"nbg1", idOf(location)} {
		for path, body := range map[string]object{
			"/primary_ips": {"type": "ipv4", "name": fmt.Sprint("ip-", i)}, "/volumes": {"size": 10, "name": fmt.Sprint("volume-", i)},
		} {
			body["location"] = value
			if got := at(w.do(201, "POST", path, body), path[1:len(path)-1], "location", "name"); got != "nbg1" {
				t.Errorf("%s with location %v is in %v", path, value, got)
			}
		}
	}
}

func TestAResourceThatIsBeingChangedIsNotUpdated(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"firewalls", "primary_ips"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			about := topics["/"+kind]
			path := "/" + kind + "/" + w.create(kind[:len(kind)-1], "/"+kind, about.simple(w, "a"))
			w.finish()
			if kind == "firewalls" { // the change takes time if there is a server to change
				w.act(path, "apply_to_resources", object{"apply_to": []any{toServer(json.Number(w.server(smallServer(w, "a"))))}})
			}
			w.do(201, "POST", path+"/actions/"+about.busy, about.with)
			w.refuse(409, "conflict", "PUT", path, object{"name": "renamed"})
			w.finish()
			w.do(200, "PUT", path, object{"name": "renamed"})
		})
	}
}

func TestReverseDNSChangesForEachKindOfAddress(t *testing.T) {
	t.Parallel()
	for name, where := range map[string][]string{
		"floating_ips": {"floating_ip"}, "primary_ips": {"primary_ip"}, "load_balancers": {"load_balancer", "public_net", "ipv4"},
		"servers": {"server", "public_net", "ipv4"}, "load_balancers ": {"load_balancer", "public_net", "ipv6"},
		"servers ": {"server", "public_net", "ipv6"},
	} {
		t.Run(strings.Join(where, " "), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			collection := "/" + strings.TrimSpace(name)
			path := collection + "/" + w.create(where[0], collection, topics[collection].simple(w, "a"))
			w.finish()
			entry := func() object { return at(w.do(200, "GET", path, nil), where...).(object) }
			before := entry()
			address := strings.Replace(before["ip"].(string), "::/64", "::1", 1)
			v6 := strings.Contains(address, ":")
			if v6 == strings.Contains(fmt.Sprint(before["dns_ptr"]), ".clients.your-server.de") {
				t.Errorf("reverse DNS of %s: %v", address, before["dns_ptr"])
			}
			w.act(path, "change_dns_ptr", object{"ip": address, "dns_ptr": "mail.example.com"})
			if now := entry(); !strings.Contains(fmt.Sprint(now["dns_ptr"]), "mail.example.com") {
				t.Errorf("reverse DNS: %v", now)
			}
			w.act(path, "change_dns_ptr", object{"ip": address, "dns_ptr": nil})
			if now := entry(); !reflect.DeepEqual(now, before) {
				t.Errorf("reverse DNS after its reset: %v, before: %v", now, before)
			}
			for ip, name := range map[string]string{"192.0.2.1": "mail.example.com", address: "not a name"} {
				w.refuseAction("invalid_input", path, "change_dns_ptr", object{"ip": ip, "dns_ptr": name})
			}
		})
	}
}

func TestReverseDNSOfFloatingIPsStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	server := w.server(smallServer(w, "a"))
	floating := "/floating_ips/" + w.create("floating_ip", "/floating_ips", object{"type": "ipv4", "server": json.Number(server)})
	lb := w.loadBalancer(smallLoadBalancer(w, "lb"))
	w.finish()
	before := w.do(200, "GET", floating, nil)
	for path, key := range map[string]string{"/servers/" + server: "server", lb: "load_balancer"} {
		address := at(w.do(200, "GET", path, nil), key, "public_net", "ipv4", "ip")
		w.act(path, "change_dns_ptr", object{"ip": address, "dns_ptr": "mail.example.com"})
	}
	if after := w.do(200, "GET", floating, nil); !reflect.DeepEqual(after, before) {
		t.Errorf("the Floating IP was %v, is %v", before, after)
	}
}
