package contract_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// These tests hold what unmodified clients showed about requests in general. The list of all such facts is
// testdata/clients.tsv.

// Assertion of a maintained client.
func TestAFloatingIPWithoutAPlaceNamesTheServerFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.refuse(422, "invalid_input: invalid input in fields 'server', 'home_location'", "POST", "/floating_ips", object{"type": "ipv4"})
}

// hcloud-python 1.18, of Debian stable, sends ids as the texts that its caller has.
func TestAnIDMayBeAText(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, instant)
	group := w.create("placement_group", "/placement_groups", smallPlacementGroup(w, "g"))
	network := w.create("network", "/networks", fullNetwork)
	firewall := w.create("firewall", "/firewalls", object{"name": "f"})
	volume := w.create("volume", "/volumes", object{"name": "v", "size": 10, "location": "fsn1"})
	body := smallServer(w, "node")
	body["location"], body["placement_group"], body["networks"] = "fsn1", group, []string{network}
	body["volumes"], body["firewalls"] = []string{volume}, []object{{"firewall": firewall}}
	server := w.create("server", "/servers", body)
	made := w.do(200, "GET", "/servers/"+server, nil)["server"].(object)
	if at(made, "placement_group") == nil || len(made["private_net"].([]any)) != 1 || len(made["volumes"].([]any)) != 1 {
		t.Errorf("the server lacks what was named by texts: %v", made)
	}
	w.do(201, "POST", "/volumes/"+volume+"/actions/detach", nil)
	w.do(201, "POST", "/volumes/"+volume+"/actions/attach", object{"server": server})
	for _, wrong := range []any{"", "g", "0", "-1", "1.0", " 1", "0x1", true} {
		body["name"], body["placement_group"] = "other", wrong
		w.refuse(422, "invalid_input", "POST", "/servers", body)
	}
}

// A public probe of September 2026 saw the message. The details are ours.
func TestAnUnknownPathNamesTheNearestOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for _, token := range []string{w.token, ""} {
		w := w.as(token)
		w.refuse(404, "not_found: api route not found map[nearest:[GET /v1/servers POST /v1/servers]]", "GET", "/server", nil)
		w.refuse(404, "not_found: api route not found <nil>", "GET", "/storage_boxes", nil)
		failure := w.do(405, "PATCH", "/servers/5", nil)["error"].(object)
		if got := fmt.Sprint(at(failure, "details", "nearest")); !strings.Contains(got, "PUT /v1/servers/{id}") {
			t.Errorf("nearest %v", got)
		}
	}
	w.refuse(404, "not_found: server with ID '5' not found <nil>", "GET", "/servers/5", nil)
}

// The CLI's default.
func TestAnISOHasTheNameThatTheCLIUses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	name := "SW_DVD9_Win_Server_STD_CORE_2022__64Bit_German_DC_STD_MLF_X22-74292.iso"
	if iso := w.first("/isos?name="+name, "isos"); idOf(iso) != "8638" {
		t.Errorf("%v", iso)
	}
}

// See also TestControlCharactersInTheNamesOfNewResourcesAreRefused.
func TestANameMayHaveTheCharactersOfEachScript(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for _, name := range []string{"Straße", "名前", "שם", "👩\u200d🔧"} {
		w.create("network", "/networks", object{"name": name, "ip_range": "10.0.0.0/16"})
		w.first("/networks?name="+url.QueryEscape(name), "networks")
	}
	// encoding/json would make U+FFFD of it.
	w.refuse(400, "json_error", "POST", "/networks", []byte(`{"name": "a\ud800", "ip_range": "10.0.0.0/16"}`))
}

// The threads are named beside the messages.
func TestRefusalsWithTheWordsOfTheRealAPI(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, instant)
	w.do(201, "POST", "/ssh_keys", smallSSHKey(w, "a"))
	w.refuse(409, "uniqueness_error: SSH key not unique", "POST", "/ssh_keys", smallSSHKey(w, "b")) // wgmesh pull request 283
	server := smallServer(w, "far")
	server["location"], server["server_type"] = "ash", "cpx11"
	far := w.create("server", "/servers", server)
	lb := w.loadBalancer(smallLoadBalancer(w, "lb"))
	w.refuse(422, // syself/hetzner-cloud-controller-manager issue 64
		"unsupported_error: servers and load balancers needs to be in the same network zone, cross network zone is not supported", "POST",
		lb+"/actions/add_target", object{"type": "server", "server": object{"id": json.Number(far)}})
	const noCertificate = "at least one certificate is required for protocol https" // hcloud-cloud-controller-manager issue 223
	w.refuse(422, "invalid_input: "+noCertificate, "POST", lb+"/actions/add_service", object{"protocol": "https"})
	body := smallLoadBalancer(w, "other")
	body["services"] = []any{object{"protocol": "https"}}
	w.refuse(422, "invalid_input: "+noCertificate, "POST", "/load_balancers", body)
	w.act(lb, "add_service", object{"protocol": "http"})
	w.refuse(422, "invalid_input: "+noCertificate, "POST", lb+"/actions/update_service", object{"listen_port": 80, "protocol": "https"})
	body["network_zone"] = "eu-central" // hetznercloud/cli issue 294
	w.refuse(422, "invalid_input: invalid input in fields 'network_zone', 'location'", "POST", "/load_balancers", body)
	volume := object{"name": "v", "size": 10, "server": far, "automount": true} // terraform-provider-hcloud issue 337
	w.refuse(422, "invalid_input: invalid input in fields 'format', 'automount'", "POST", "/volumes", volume)
	volume["format"] = "ext4"
	w.do(201, "POST", "/volumes", volume)
	// terraform-provider-hcloud issue 1162
	w.refuse(422, "invalid_input: invalid input in field 'health_check'", "POST", lb+"/actions/add_service",
		object{"protocol": "http", "health_check": object{"protocol": "https", "port": 1, "interval": 1, "timeout": 1, "retries": 0}})
	// terraform-provider-hcloud issue 279 and pull request 1335 are about a Floating IP.
	const unassigned = " is not assigned to any resource"
	floating := w.create("floating_ip", "/floating_ips", smallFloatingIP(w, "a"))
	w.refuse(422, "service_error: Floating IP with ID "+floating+unassigned, "POST", "/floating_ips/"+floating+"/actions/unassign", nil)
	primary := w.create("primary_ip", "/primary_ips", smallPrimaryIP(w, "a"))
	w.refuse(422, "service_error: Primary IP with ID "+primary+unassigned, "POST", "/primary_ips/"+primary+"/actions/unassign", nil)
	// terraform-provider-hcloud issue 577
	home := json.Number(w.create("server", "/servers", smallServer(w, "home")))
	w.act("/floating_ips/"+floating, "assign", object{"server": home})
	primary = idOf(at(w.do(200, "GET", serverPath(home), nil), "server", "public_net", "ipv4"))
	w.refuse(422, "service_error: All Floating IPs of type IPv4 have to be unassigned from Server", "POST",
		"/primary_ips/"+primary+"/actions/unassign", nil)
	// terraform-hcloud-kubernetes issue 198, hetzner.hcloud issue 585, terraform-hcloud-kube-hetzner issues 104 and 310
	wrong := func(path, field, inner, says string, body object) {
		w.refuse(422, "invalid_input: invalid input in field '"+field+"' map[fields:[map[messages:["+says+"] name:"+field+inner+"]]]",
			"POST", path, body)
	}
	wrong("/firewalls", "rules", ".source_ips", "source_ips needs to have at least one entry",
		object{"name": "f", "rules": []any{object{"direction": "in", "protocol": "icmp"}}})
	wrong("/servers", "name", "", "Name must be a valid hostname.", object{"name": "a_b", "server_type": "cx23", "image": "debian-13"})
	server["name"], server["ssh_keys"] = "b", []any{"none"}
	wrong("/servers", "ssh_keys", "", "SSH key 'none' not found", server)
	server["volumes"] = []any{"x"}
	wrong("/servers", "volumes", ".0", "must be an integer", server)
	wrong(serverPath(home)+"/actions/enable_rescue", "type", "", "Not a valid choice.", object{"type": "freebsd64"})
	for _, text := range []string{"no-pty " + publicKey, "# mine\n" + publicKey, "ssh-ed448 AAAA"} {
		wrong("/ssh_keys", "public_key", "", "SSH key type is invalid (supported types: ssh-ed25519, ssh-rsa, ecdsa-sha2-nistp256, "+
			"ecdsa-sha2-nistp384, ecdsa-sha2-nistp521, ssh-dss, sk-ssh-ed25519, sk-ecdsa-sha2-nistp256, sk-ecdsa-sha2-nistp384, "+
			"sk-ecdsa-sha2-nistp521)", object{"name": "c", "public_key": text})
	}
}

// Neither a sentence of the document nor a thread refuses these.
func TestWithoutASourceNothingIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, instant)
	volume := json.Number(w.create("volume", "/volumes", smallVolume(w, "a")))
	firewall := object{"firewall": json.Number(w.create("firewall", "/firewalls", smallFirewall(w, "a")))}
	ip := json.Number(w.create("primary_ip", "/primary_ips", smallPrimaryIP(w, "a")))
	server := smallServer(w, "a")
	server["location"], server["volumes"] = "fsn1", []any{volume, volume}
	server["firewalls"] = []any{firewall, firewall}
	server["public_net"] = object{"enable_ipv4": false, "enable_ipv6": true, "ipv4": ip}
	made := w.do(200, "GET", "/servers/"+w.create("server", "/servers", server), nil)["server"].(object)
	firewalls := at(made, "public_net", "firewalls").([]any)
	if at(made, "public_net", "ipv4") != nil || len(made["volumes"].([]any)) != 1 || len(firewalls) != 1 {
		t.Errorf("%v", made)
	}
	certificate := w.do(201, "POST", "/certificates",
		object{"name": "a", "type": "managed", "domain_names": []any{"example.com", "EXAMPLE.com"}})
	if domains := at(certificate, "certificate", "domain_names").([]any); len(domains) != 1 {
		t.Errorf("%v", domains)
	}
	for field, value := range map[string]string{"tsig_key": "c2VjcmV0", "tsig_algorithm": "hmac-sha256"} {
		w.do(201, "POST", "/zones", object{"name": strings.ReplaceAll(field, "_", "-") + ".example", "mode": "secondary",
			"primary_nameservers": []any{object{"address": "198.51.100.1", field: value}}})
	}
}

// Actions that only change the cloud's database have ended when their answer arrives: a published log shows it for the rules of a
// firewall, and the document's examples for the others. Nobody has published one that takes time.
func TestActionsOnTheDatabaseHaveEndedInTheAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, func(o *fakecloud.Options) { o.Actions = "realistic" })
	firewall := "/firewalls/" + w.create("firewall", "/firewalls", object{"name": "f", "rules": []any{pingRule}})
	network := w.network(fullNetwork)
	server := w.create("server", "/servers", smallServer(w, "node"))
	w.clock.Step(time.Minute)
	for _, action := range []struct {
		path string
		with object
	}{
		{firewall + "/actions/set_rules", object{"rules": []any{}}}, {firewall + "/actions/set_rules", object{"rules": []any{pingRule}}},
		{network + "/actions/change_ip_range", object{"ip_range": "10.0.0.0/8"}},
		{"/servers/" + server + "/actions/enable_backup", object{}}, {"/servers/" + server + "/actions/disable_backup", object{}},
		{"/servers/" + server + "/actions/enable_rescue", object{}},
		{"/servers/" + server + "/actions/remove_from_placement_group", object{}},
	} {
		answer := w.do(201, "POST", action.path, action.with)
		did, one := answer["action"].(object)
		if !one {
			did = answer["actions"].([]any)[0].(object)
		}
		if did["status"] != "success" || did["started"] != did["finished"] {
			t.Errorf("%s: %v", action.path, did)
		}
	}
	w.do(204, "DELETE", firewall, nil)
	// A client that was written for the real API reads the network at once.
	w.do(201, "POST", network+"/actions/add_subnet", object{"type": "cloud", "network_zone": "eu-central", "ip_range": "10.99.0.0/24"})
	subnets := at(w.do(200, "GET", network, nil), "network", "subnets").([]any)
	if last := subnets[len(subnets)-1].(object); last["ip_range"] != "10.99.0.0/24" {
		t.Errorf("subnets %v", subnets)
	}
}

// Calls that people wrote for the real API name types and images that have retired since. An earlier date brings them back.
func TestADateBringsBackWhatHasRetired(t *testing.T) {
	t.Parallel()
	for date, ok := range map[string]bool{"2024-09-05": true, "2026-01-31": false, "": false} {
		w := newWorld(t, nil, instant, func(o *fakecloud.Options) { o.APIDate = date })
		for _, server := range []object{
			{"name": "a", "server_type": "cx11", "image": "debian-12"}, {"name": "b", "server_type": "cx22", "image": "debian-12"},
		} {
			if got := w.send("POST", "/servers", server).Code == 201; got != ok {
				t.Errorf("on %q, %s can be ordered: %t", date, server["server_type"], got)
			}
		}
		image := w.send("POST", "/servers", object{"name": "c", "server_type": "ccx13", "image": "fedora-41"})
		listed := w.send("GET", "/images?include_deprecated=true&name=fedora-41&architecture=x86", nil).Body.String()
		if want := date != ""; (image.Code == 201) != want || strings.Contains(listed, `"name": "fedora-41"`) != want {
			t.Errorf("on %q, fedora-41: %d %s", date, image.Code, listed)
		}
	}
}
