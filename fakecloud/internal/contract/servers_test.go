package contract_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"time"
)

// publicKey is an SSH key for these tests only.
const publicKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl test"

func catalogueScenario(w *world) {
	for path, key := range map[string]string{
		"/locations": "locations", "/server_types": "server_types", "/images": "images", "/isos": "isos",
		"/load_balancer_types": "load_balancer_types",
	} {
		entry := w.first(path, key)
		w.do(200, "GET", path+"/"+idOf(entry), nil)
		found := w.list(path+"?name="+url.QueryEscape(entry["name"].(string)), key)
		if len(found) == 0 {
			w.Errorf("%s: not found by the name %v", path, entry["name"])
		}
		w.do(200, "GET", path+"?per_page=3&page=2", nil)
		w.as(otherToken).do(200, "GET", path, nil)
	}
	w.do(200, "GET", "/pricing", nil)
	// A retired type is not in the list, but can be read.
	if retired := w.do(200, "GET", "/server_types/1", nil); at(retired, "server_type", "deprecation") == nil ||
		at(retired, "server_type", "deprecated") != true {
		w.Errorf("a retired server type: %v", retired)
	}
	if found := w.list("/server_types?name=cx11", "server_types"); len(found) > 0 {
		w.Errorf("a retired server type is listed: %v", found)
	}
	w.do(200, "GET", "/images?type=system&status=available&include_deprecated=true&architecture=arm&sort=name:desc", nil)
	w.do(200, "GET", "/isos?architecture=arm&include_architecture_wildcard=true", nil)
}

func smallServer(_ *world, name string) object {
	return object{"name": name, "server_type": "cx23", "image": "ubuntu-24.04", "location": "fsn1", "labels": object{"env": "test"}}
}

// server makes a server and waits until it runs.
func (w *world) server(body object) string {
	w.Helper()
	id := w.create("server", "/servers", body)
	w.finish()
	return id
}

// hoursAgo returns a time for a query.
func (w *world) hoursAgo(n int) string {
	return url.QueryEscape(w.clock.Now().Add(-time.Duration(n) * time.Hour).Format(time.RFC3339))
}

func serverNetworkScenario(w *world) {
	body := smallServer(w, "attached")
	body["public_net"] = object{"enable_ipv4": false, "enable_ipv6": true}
	path := "/servers/" + w.server(body)
	network := w.create("network", "/networks", fullNetwork)
	id := json.Number(network)
	w.do(201, "POST", path+"/actions/attach_to_network", object{"network": id, "ip": "10.0.1.5", "alias_ips": []string{"10.0.1.6"}})
	w.do(200, "GET", "/networks/"+network+"/members", nil)
	w.finish()
	w.do(201, "POST", path+"/actions/change_alias_ips", object{"network": id, "alias_ips": []string{"10.0.1.7", "10.0.1.8"}})
	w.do(200, "GET", "/networks/"+network+"/members?status=updating", nil)
	w.finish()
	w.do(201, "POST", path+"/actions/detach_from_network", object{"network": id})
	w.do(200, "GET", "/networks/"+network+"/members?type=server", nil)
	w.finish()
	w.do(200, "GET", path, nil)
	w.do(200, "DELETE", path, nil)
	w.send("GET", path, nil) // the document does not say whether it is still visible
}

// deletedImageScenario deletes the image of a server.
func deletedImageScenario(w *world) {
	image := w.imageOf("/servers/"+w.server(smallServer(w, "imaged")), "snapshot")
	copied := smallServer(w, "copy")
	copied["image"] = strings.TrimPrefix(image, "/images/")
	copyPath := "/servers/" + w.server(copied)
	w.do(204, "DELETE", image, nil)
	if left := at(w.do(200, "GET", copyPath, nil), "server", "image"); left != nil {
		w.Errorf("image of a server whose image was deleted: %v", left)
	}
	if of := at(w.do(201, "POST", copyPath+"/actions/create_image", object{}), "image", "os_flavor"); of != "unknown" {
		w.Errorf("flavor of an image of it: %v", of)
	}
}

// refuseUnavailable requests a server type in a location where it is not available.
func (w *world) refuseUnavailable() {
	w.Helper()
	for _, entry := range w.list("/server_types?per_page=50", "server_types") {
		for _, location := range entry.(object)["locations"].([]any) {
			if location := location.(object); location["available"] == false && location["deprecation"] == nil {
				body := smallServer(w, "unavailable")
				body["server_type"], body["location"] = entry.(object)["name"], location["name"]
				w.refuse(412, "resource_unavailable", "POST", "/servers", body)
				return
			}
		}
	}
	w.Error("the catalogue has no server type that is not available in some location")
}

// serverWithoutPublicIPs makes a server that is off and returns its id.
func (w *world) serverWithoutPublicIPs(name string) json.Number {
	w.Helper()
	body := smallServer(w, name)
	body["start_after_create"], body["public_net"] = false, object{"enable_ipv4": false, "enable_ipv6": false}
	return json.Number(w.server(body))
}

// privateServerScenario reads the fields that providers and autoscalers read of a server without public addresses.
func privateServerScenario(w *world) {
	network := w.create("network", "/networks", fullNetwork)
	body := smallServer(w, "private")
	body["public_net"] = object{"enable_ipv4": false, "enable_ipv6": false}
	body["networks"] = []json.Number{json.Number(network)}
	path := "/servers/" + w.server(body)
	server := w.do(200, "GET", path, nil)
	for _, version := range []string{"ipv4", "ipv6"} {
		if value, present := at(server, "server", "public_net").(object)[version]; !present || value != nil {
			w.Errorf("public_net.%s of a server without one: %v, present: %t", version, value, present)
		}
	}
	if at(server, "server", "status") != "running" {
		w.Errorf("the server is %v", at(server, "server", "status"))
	}
	w.refuse(422, "invalid_input", "POST", "/servers", object{
		"name": "cut-off", "server_type": "cx23", "image": "ubuntu-24.04", "public_net": object{"enable_ipv4": false, "enable_ipv6": false},
	})
}
