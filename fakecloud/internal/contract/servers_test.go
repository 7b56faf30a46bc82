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

func serverLifeScenario(w *world) {
	key := w.create("ssh_key", "/ssh_keys", object{"name": "key", "public_key": publicKey})
	network := w.create("network", "/networks", fullNetwork)
	group := w.create("placement_group", "/placement_groups", object{"name": "spread", "type": "spread"})
	body := smallServer(w, "full")
	body["ssh_keys"] = []string{"key"}
	body["networks"] = []json.Number{json.Number(network)}
	body["placement_group"] = json.Number(group)
	body["user_data"] = "#cloud-config\n"
	body["public_net"] = object{"enable_ipv4": true, "enable_ipv6": true}
	created := w.do(201, "POST", "/servers", body)
	if created["root_password"] != nil {
		w.Errorf("a server with an SSH key got the root password %v", created["root_password"])
	}
	path := "/servers/" + idOf(created["server"])
	for range 2 { // during and after the creation
		w.do(200, "GET", path, nil)
		w.do(200, "GET", "/servers?status=running&status=initializing&label_selector=env&sort=created:desc", nil)
		w.do(200, "GET", path+"/actions", nil)
		w.do(200, "GET", "/servers/actions", nil)
		w.do(200, "GET", "/networks/"+network+"/members", nil)
		w.do(200, "GET", "/primary_ips", nil)
		w.finish()
	}
	action := idOf(w.first(path+"/actions", "actions"))
	w.do(200, "GET", path+"/actions/"+action, nil)
	w.do(200, "GET", "/servers/actions/"+action, nil)
	w.do(200, "GET", "/placement_groups/"+group, nil)
	w.do(200, "GET", "/networks/"+network, nil)
	w.do(200, "GET", "/ssh_keys/"+key, nil)
	w.do(200, "PUT", path, object{"name": "renamed", "labels": object{}})
	w.act(path, "change_protection", object{"delete": true, "rebuild": true})
	w.refuse(423, "protected", "DELETE", path, nil)
	w.refuse(423, "protected", "POST", path+"/actions/rebuild", object{"image": "debian-13"})
	w.act(path, "change_protection", object{"delete": false, "rebuild": false})
	w.act(path, "change_dns_ptr", object{"ip": at(w.do(200, "GET", path, nil), "server", "public_net", "ipv4", "ip"),
		"dns_ptr": "node.example.com"})
	w.act(path, "change_dns_ptr", object{"ip": at(w.do(200, "GET", path, nil), "server", "public_net", "ipv4", "ip"), "dns_ptr": nil})
	network6 := at(w.do(200, "GET", path, nil), "server", "public_net", "ipv6", "ip").(string)
	w.act(path, "change_dns_ptr", object{"ip": strings.TrimSuffix(network6, "/64") + "1", "dns_ptr": "node6.example.com"})
	w.act(path, "request_console", nil)
	if password, _ := w.do(201, "POST", path+"/actions/reset_password", nil)["root_password"].(string); password == "" {
		w.Error("no new root password")
	}
	w.finish()
	for _, kinds := range []string{"cpu", "disk", "network", "cpu,disk,network"} {
		w.do(200, "GET", path+"/metrics?type="+kinds+"&start="+w.hoursAgo(2)+"&end="+w.hoursAgo(0), nil)
	}
	w.do(200, "GET", path+"/metrics?type=cpu&step=60&start="+w.hoursAgo(1)+"&end="+w.hoursAgo(0), nil)
	w.refuse(422, "invalid_input", "GET", path+"/metrics?type=cpu", nil)
	w.do(200, "DELETE", path, nil)
	w.send("GET", path, nil) // the document does not say whether it is still visible
	w.finish()
	w.refuse(404, "not_found", "GET", path, nil)
}

// hoursAgo returns a time for a query.
func (w *world) hoursAgo(n int) string {
	return url.QueryEscape(w.clock.Now().Add(-time.Duration(n) * time.Hour).Format(time.RFC3339))
}

func serverPowerScenario(w *world) {
	body := smallServer(w, "off")
	body["start_after_create"] = false
	path := "/servers/" + w.server(body)
	for _, name := range []string{"poweron", "reboot", "reset", "shutdown", "poweron", "poweroff"} {
		w.act(path, name, nil)
	}
	w.act(path, "change_type", object{"server_type": "cx33", "upgrade_disk": false})
	w.act(path, "enable_rescue", object{"type": "linux64"})
	w.act(path, "disable_rescue", nil)
	w.act(path, "poweroff", nil) // a change of type has started the server
	w.act(path, "poweron", nil)
	group := w.create("placement_group", "/placement_groups", object{"name": "spread", "type": "spread"})
	w.act(path, "poweroff", nil)
	w.act(path, "add_to_placement_group", object{"placement_group": json.Number(group)})
	w.act(path, "remove_from_placement_group", nil)
	w.do(201, "POST", path+"/actions/poweron", nil)
	w.refuse(423, "locked", "POST", path+"/actions/poweroff", nil)
}

func serverNetworkScenario(w *world) {
	body := smallServer(w, "attached")
	body["public_net"] = object{"enable_ipv4": false, "enable_ipv6": true}
	path := "/servers/" + w.server(body)
	network := w.create("network", "/networks", fullNetwork)
	id := json.Number(network)
	w.act(path, "attach_to_network", object{"network": id, "ip": "10.0.1.5", "alias_ips": []string{"10.0.1.6"}})
	w.do(200, "GET", "/networks/"+network+"/members", nil)
	w.do(201, "POST", path+"/actions/change_alias_ips", object{"network": id, "alias_ips": []string{"10.0.1.7", "10.0.1.8"}})
	w.do(200, "GET", "/networks/"+network+"/members?status=updating", nil)
	w.finish()
	w.do(201, "POST", path+"/actions/detach_from_network", object{"network": id})
	w.do(200, "GET", "/networks/"+network+"/members?type=server", nil)
	w.finish()
	w.do(200, "GET", path, nil)
}

func serverImageScenario(w *world) {
	server := w.server(smallServer(w, "imaged"))
	path := "/servers/" + server
	iso := w.first("/isos", "isos")
	w.act(path, "attach_iso", object{"iso": iso["name"]})
	w.act(path, "detach_iso", nil)
	w.act(path, "enable_backup", nil)
	created := w.do(201, "POST", path+"/actions/create_image", object{"type": "snapshot", "description": "before",
		"labels": object{"a": "b"}})
	image := "/images/" + idOf(created["image"])
	w.do(200, "GET", image, nil)
	w.finish()
	w.do(200, "GET", image, nil)
	w.do(200, "PUT", image, object{"description": "after", "labels": object{}})
	w.act(image, "change_protection", object{"delete": true})
	w.refuse(423, "protected", "DELETE", image, nil)
	w.act(image, "change_protection", object{"delete": false})
	action := idOf(w.first(image+"/actions", "actions"))
	w.do(200, "GET", image+"/actions/"+action, nil)
	w.do(200, "GET", "/images/actions", nil)
	w.do(200, "GET", "/images/actions/"+action, nil)
	backup := "/images/" + idOf(w.do(201, "POST", path+"/actions/create_image", object{"type": "backup"})["image"])
	w.finish()
	w.do(200, "GET", "/images?type=backup&bound_to="+server, nil)
	w.do(200, "PUT", backup, object{"type": "snapshot"})
	w.do(204, "DELETE", backup, nil)
	w.act(path, "disable_backup", nil)
	w.do(201, "POST", path+"/actions/rebuild", object{"image": "debian-13"})
	w.do(200, "GET", path, nil)
	w.finish()
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
	system := w.first("/images?type=system", "images")
	w.send("DELETE", "/images/"+idOf(system), nil) // refused; the document does not say with which code
	w.do(200, "GET", "/images/"+idOf(system), nil)
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

func placementGroupScenario(w *world) {
	path := "/placement_groups/" +
		w.create("placement_group", "/placement_groups", object{"name": "spread", "type": "spread", "labels": object{"a": "b"}})
	w.do(200, "GET", path, nil)
	w.do(200, "GET", "/placement_groups?type=spread", nil)
	w.do(200, "PUT", path, object{"name": "renamed", "labels": object{}})
	w.refuse(409, "uniqueness_error", "POST", "/placement_groups", object{"name": "renamed", "type": "spread"})
	w.refuse(422, "invalid_input", "POST", "/placement_groups", object{"name": "other", "type": "pack"})
	w.do(204, "DELETE", path, nil)
}

func primaryIPScenario(w *world) {
	created := w.do(201, "POST", "/primary_ips", object{"name": "v4", "type": "ipv4", "location": "fsn1", "auto_delete": false,
		"labels": object{"a": "b"}})
	id := idOf(created["primary_ip"])
	path, address := "/primary_ips/"+id, at(created, "primary_ip", "ip")
	w.do(200, "GET", path, nil)
	w.do(200, "GET", "/primary_ips?ip="+address.(string), nil)
	w.do(200, "PUT", path, object{"name": "renamed", "labels": object{}, "auto_delete": true})
	w.refuse(409, "uniqueness_error", "POST", "/primary_ips", object{"name": "renamed", "type": "ipv4", "location": "fsn1"})
	w.refuse(422, "invalid_input", "POST", path+"/actions/change_protection", object{"delete": true}) // "only if auto_delete is false"
	w.do(200, "PUT", path, object{"auto_delete": false})
	w.act(path, "change_dns_ptr", object{"ip": address, "dns_ptr": "a.example.com"})
	w.act(path, "change_dns_ptr", object{"ip": address, "dns_ptr": nil})
	w.act(path, "change_protection", object{"delete": true})
	w.refuse(423, "protected", "DELETE", path, nil)
	w.act(path, "change_protection", object{"delete": false})
	w.refuse(422, "unsupported_error", "POST", path+"/actions/unassign", nil)

	w.act(path, "assign", toAssignee(w.serverWithoutPublicIPs("off")))
	w.act(path, "unassign", nil)
	action := idOf(w.first(path+"/actions", "actions"))
	w.do(200, "GET", path+"/actions/"+action, nil)
	w.do(200, "GET", "/primary_ips/actions", nil)
	w.do(200, "GET", "/primary_ips/actions/"+action, nil)
	w.do(204, "DELETE", path, nil)
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
	off := "/servers/" + w.serverWithoutPublicIPs("cut-off").String()
	w.refuseAction("unsupported_error", off, "poweron", nil)
	w.refuseAction("unsupported_error", off, "reset_password", nil)
}
