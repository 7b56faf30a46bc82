package contract_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/api"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/contract"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// topic has the test functions for one collection of the API, or for another topic.
type topic struct {
	// scenario reaches the operations, with success and with their own errors.
	scenario func(*world)
	// walk reaches the operations with hcloud-go.
	walk func(walk)
	// simple returns the body of a request that creates a resource with a name.
	simple func(w *world, name string) object
	// busy is an action that makes a resource busy, and with is its body.
	busy string
	with any
	// updatable reports whether name and labels can be changed while an action is running. They can if the document does
	// not have a conflict for the update.
	updatable bool
	// populate makes some resources, unless the populate of all makes them.
	populate func(*world)
}

// topics are all topics. Names that begin with / are collections.
var topics = map[string]topic{
	"/actions":      {walk: walk.actions},
	"/certificates": {walk: walk.certificates, simple: uploadedCertificate, updatable: true},
	"/firewalls": {scenario: firewallScenario, walk: walk.firewalls, simple: smallFirewall, populate: populateFirewalls,
		busy: "set_rules", with: object{"rules": []any{}}},
	"/floating_ips": {scenario: floatingIPScenario, walk: walk.floatingIPs, simple: smallFloatingIP, populate: populateFloatingIPs,
		busy: "change_protection", with: object{"delete": false}, updatable: true},
	"/images": {walk: walk.images, busy: "change_protection", with: object{"delete": false}},
	"/load_balancers": {walk: walk.loadBalancers, simple: smallLoadBalancer, busy: "change_algorithm",
		with: object{"type": "least_connections"}, updatable: true},
	"/networks": {walk: walk.networks, simple: smallNetwork, busy: "delete_subnet",
		with: object{"ip_range": "10.0.9.0/24"}},
	"/placement_groups": {walk: walk.placementGroups, simple: smallPlacementGroup},
	"/primary_ips": {walk: walk.primaryIPs, simple: smallPrimaryIP, busy: "change_protection",
		with: object{"delete": false}},
	"/servers":  {walk: walk.servers, simple: smallServer, busy: "poweroff", updatable: true},
	"/ssh_keys": {walk: walk.sshKeys, simple: smallSSHKey},
	"/zones":    {scenario: zoneScenario, walk: walk.zones, simple: smallZone, populate: populateZones},
	"/volumes": {scenario: volumeScenario, walk: walk.volumes, simple: smallVolume, populate: populateVolumes, busy: "change_protection",
		with: object{"delete": false}, updatable: true},

	"catalogue":                     {scenario: catalogueScenario, walk: walk.catalogue},
	"failed issuance":               {scenario: certificateFailureScenario},
	"servers: without public IPs":   {scenario: privateServerScenario},
	"servers: networks":             {scenario: serverNetworkScenario, walk: walk.serverNetworks},
	"servers: deleted images":       {scenario: deletedImageScenario},
	"servers: not available":        {scenario: (*world).refuseUnavailable},
	"load balancers: targets":       {scenario: loadBalancerTargetScenario},
	"load balancers: their own IPs": {scenario: loadBalancerPrimaryIPScenario},
}

func smallNetwork(_ *world, name string) object {
	return object{"name": name, "ip_range": "10.0.0.0/8"}
}

func smallPlacementGroup(_ *world, name string) object { return object{"name": name, "type": "spread"} }

func smallPrimaryIP(_ *world, name string) object {
	return object{"name": name, "type": "ipv4", "location": "fsn1"}
}

func smallSSHKey(_ *world, name string) object { return object{"name": name, "public_key": publicKey} }

var fullNetwork = object{
	"name": "net", "ip_range": "10.0.0.0/16", "labels": object{"env": "test"}, "expose_routes_to_vswitch": true,
	"subnets": []object{{"type": "cloud", "ip_range": "10.0.1.0/24", "network_zone": "eu-central"}},
	"routes":  []object{{"destination": "192.168.0.0/24", "gateway": "10.0.1.7"}},
}

const otherKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIH6hVLxR1Vf1qBQphdT9WuOk6f02uWeEV5YCbiTVGnX7 other"

// populate makes some resources of all kinds, with different labels, states and times of creation.
func populate(w *world) {
	w.Helper()
	pause := func() { w.clock.Step(time.Second) }
	network := w.create("network", "/networks", fullNetwork)
	w.create("network", "/networks", object{"name": "a second net", "ip_range": "10.0.0.0/8"})
	w.create("ssh_key", "/ssh_keys", object{"name": "one", "public_key": publicKey, "labels": object{"env": "test"}})
	w.create("placement_group", "/placement_groups", object{"name": "b", "type": "spread", "labels": object{"env": "test"}})
	pause()
	w.create("placement_group", "/placement_groups", object{"name": "a", "type": "spread"})
	w.create("primary_ip", "/primary_ips", object{"name": "v4", "type": "ipv4", "location": "fsn1", "labels": object{"env": "test"}})
	pause()
	ip6 := w.create("primary_ip", "/primary_ips", object{"name": "v6", "type": "ipv6", "location": "fsn1"})
	w.act("/primary_ips/"+ip6, "change_protection", object{"delete": true})
	managed := w.create("certificate", "/certificates",
		object{"name": "managed", "type": "managed", "domain_names": []string{"example.com"}})
	w.create("certificate", "/certificates", uploadedCertificate(w, "an uploaded one"))
	for i, name := range []string{"node-b", "node-a", "node-c"} {
		body := smallServer(w, name)
		if i == 0 {
			body["networks"] = []json.Number{json.Number(network)}
			body["start_after_create"] = false
		}
		w.create("server", "/servers", body)
		pause()
	}
	w.finish()
	last := "/servers/" + idOf(w.first("/servers?sort=id:desc", "servers"))
	w.act(last, "enable_backup", nil)
	w.do(201, "POST", last+"/actions/create_image", object{"type": "backup", "labels": object{"env": "test"}})
	w.finish()
	w.do(201, "POST", last+"/actions/create_image", object{"description": "a snapshot"})
	w.finish()
	image := idOf(w.first("/images?type=snapshot", "images"))
	w.act("/images/"+image, "change_protection", object{"delete": true})
	for _, name := range []string{"lb-b", "lb-a"} {
		body := smallLoadBalancer(w, name)
		body["labels"] = object{"env": name}
		body["services"] = []object{tcpService(8022), httpService("https", 443, json.Number(managed))}
		body["targets"] = []object{{"type": "label_selector", "label_selector": object{"selector": "env=test"}}}
		body["network"] = json.Number(network)
		w.create("load_balancer", "/load_balancers", body)
		pause()
	}
	w.finish()
	w.act("/networks/"+network, "add_subnet", object{"type": "cloud", "ip_range": "10.0.9.0/24", "network_zone": "eu-central"})
	for _, about := range topics {
		if about.populate != nil {
			about.populate(w)
		}
	}
}

// refuseWhileBusy tries each change of a resource while an action is running on it.
func refuseWhileBusy(w *world, document *contract.Document) {
	w.Helper()
	populate(w)
	busy := make(map[string]string)
	for collection, about := range topics {
		if about.busy == "" {
			continue
		}
		key := strings.TrimPrefix(collection, "/")
		query := "?sort=id:desc"
		switch collection {
		case "/images":
			query = "?type=snapshot"
		case "/networks":
			query = "?name=net"
		}
		busy[collection] = collection + "/" + idOf(w.first(collection+query, key))
		w.do(201, "POST", busy[collection]+"/actions/"+about.busy, about.with)
	}
	managed := w.create("certificate", "/certificates",
		object{"name": "busy", "type": "managed", "domain_names": []string{"busy.example.com"}})
	busy["/certificates"] = "/certificates/" + managed
	for _, op := range document.Operations() {
		collection, rest, one := strings.Cut(op.Path, "/{id}")
		if !one || op.Method == http.MethodGet {
			continue
		}
		if busy[collection] == "" {
			if strings.HasPrefix(rest, "/actions/") {
				w.Errorf("%s: the topic %s needs an action that makes a resource busy", op, collection)
			}
			continue
		}
		body, err := document.RequestBody(op, contract.Full)
		if err != nil {
			w.Fatal(err)
		}
		if topics[collection].updatable && op.Method == http.MethodPut {
			w.do(200, op.Method, busy[collection]+rest, object{"labels": object{"still": "changed"}})
			continue
		}
		response := w.send(op.Method, busy[collection]+rest, body)
		if response.Code != http.StatusLocked && response.Code != http.StatusConflict {
			w.Errorf("%s on a busy resource: %d %s, want 423 locked or 409 conflict", op, response.Code, response.Body)
		}
	}
}

// refuseTakenNames tries to give each resource the name of another one.
func refuseTakenNames(w *world, document *contract.Document) {
	w.Helper()
	populate(w)
	w.create("ssh_key", "/ssh_keys", object{"name": "two", "public_key": otherKey})
	for _, op := range document.Operations() {
		key, _, _ := strings.Cut(strings.TrimPrefix(op.Path, "/"), "/")
		// images have a description, but no name; that of a zone never changes
		if op.Method != http.MethodPut || key == "images" || key == "zones" {
			continue
		}
		entries := w.list("/"+key, key)
		taken, self := entries[0].(object), entries[1].(object)
		path := "/" + key + "/" + idOf(self)
		w.refuse(409, "uniqueness_error", "PUT", path, object{"name": taken["name"]})
		w.do(200, "PUT", path, object{"name": self["name"]}) // its own name is allowed
	}
}

// limitScenario exceeds the limit of each kind of resource.
func limitScenario(t *testing.T, recorder *contract.Recorder, document *contract.Document) {
	exceed := func(kind store.Kind, prepare func(w *world) (path string), body func(*world, string) object) {
		w := newWorld(t, recorder, func(o *fakecloud.Options) { o.Limits = map[string]int{string(kind): 1} })
		path := prepare(w)
		w.do(201, "POST", path, body(w, "a"))
		w.finish()
		w.refuse(403, "resource_limit_exceeded", "POST", path, body(w, "b"))
	}
	for _, op := range document.Operations() {
		if op.Method != http.MethodPost || strings.Contains(op.Path, "{") {
			continue
		}
		body := topics[op.Path].simple
		if body == nil {
			t.Errorf("%s: its topic needs a simple body to exceed the limit", op)
			continue
		}
		exceed(store.Kind(strings.TrimSuffix(op.Path[1:], "s")), func(*world) string { return op.Path }, body)
	}
	exceed(cloud.KindImage, func(w *world) string {
		return "/servers/" + w.server(smallServer(w, "a")) + "/actions/create_image"
	}, func(*world, string) object { return object{} })
}

// eachCreation calls visit with each operation that creates a resource, and a body for it.
func eachCreation(w *world, visit func(route api.Route, body object)) {
	w.Helper()
	for _, route := range api.Routes() {
		if route.Method != http.MethodPost || strings.Contains(route.Pattern, "{") || route.Handle == nil {
			continue
		}
		if simple := topics[route.Pattern].simple; simple != nil {
			visit(route, simple(w, "a"))
			continue
		}
		w.Errorf("%s: its topic needs a simple body", route.OperationID)
	}
}

func TestTheJournalHasTheIDOfTheCreatedResource(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	eachCreation(w, func(route api.Route, body object) {
		id, err := strconv.ParseInt(w.create(strings.TrimPrefix(route.OperationID, "create_"), route.Pattern, body), 10, 64)
		if err != nil || id == 0 {
			t.Fatalf("%s: id %d, %v", route.OperationID, id, err)
		}
		entries, _ := w.cloud.Journal().Entries(t.Context(), journal.Filter{ResourceID: id})
		if len(entries) != 1 || entries[0].Operation != route.OperationID || entries[0].ResourceID != id {
			t.Errorf("%s created %d: %+v", route.OperationID, id, entries)
		}
	})
}

func TestControlCharactersInTheNamesOfNewResourcesAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	eachCreation(w, func(route api.Route, body object) {
		path := route.Pattern + "/" + w.create(strings.TrimPrefix(route.OperationID, "create_"), route.Pattern, body)
		w.finish()
		for _, control := range []string{"\x00", "\x1b[31m", "\n", "\x7f", "\u0085", "\u202e", "\u2066", "\u2028", "\u200f"} {
			body["name"] = "a" + control
			w.refuse(422, "invalid_input", "POST", route.Pattern, body)
			if route.Pattern != "/zones" { // their name never changes
				w.refuse(422, "invalid_input", "PUT", path, object{"name": body["name"]})
			}
		}
	})
}
