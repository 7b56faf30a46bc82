package contract_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// These tests hold what unmodified clients showed about requests in general. The list of all such facts is
// testdata/clients.tsv.

// Assertion of a maintained client.
func TestAFloatingIPWithoutAPlaceNamesTheServerFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var names []any
	for _, field := range at(w.do(422, "POST", "/floating_ips", object{"type": "ipv4"}), "error", "details", "fields").([]any) {
		names = append(names, field.(object)["name"])
	}
	if fmt.Sprint(names) != "[server home_location]" {
		t.Errorf("fields %v", names)
	}
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
	w.refuse(422, "invalid_input", "POST", "/volumes", object{"name": "w", "size": "10", "location": "fsn1"})
}

// A public probe of September 2026 saw the message. The details are ours.
func TestAnUnknownPathNamesTheNearestOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for _, token := range []string{w.token, ""} {
		w := w.as(token)
		w.refuseWith(404, "not_found", "api route not found", "GET", "/server", nil)
		failure := w.do(404, "GET", "/server", nil)["error"].(object)
		if got := at(failure, "details", "nearest"); fmt.Sprint(got) != "[GET /v1/servers POST /v1/servers]" {
			t.Errorf("nearest %v", got)
		}
		if details := w.do(404, "GET", "/storage_boxes", nil)["error"].(object)["details"]; details != nil {
			t.Errorf("nothing is near, but the details are %v", details)
		}
		failure = w.do(405, "PATCH", "/servers/5", nil)["error"].(object)
		if got := fmt.Sprint(at(failure, "details", "nearest")); !strings.Contains(got, "PUT /v1/servers/{id}") {
			t.Errorf("nearest %v", got)
		}
	}
	if details, ok := w.do(404, "GET", "/servers/5", nil)["error"].(object)["details"]; !ok || details != nil {
		t.Errorf("the path is known, but the details are %v", details)
	}
}

// terraform-provider-hcloud issue 337.
func TestAutomountOfANewVolumeNeedsAFormat(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, instant)
	body := object{"name": "v", "size": 10, "server": w.create("server", "/servers", smallServer(w, "node")), "automount": true}
	w.refuseWith(422, "invalid_input", "invalid input in fields 'format', 'automount'", "POST", "/volumes", body)
	body["format"] = "ext4"
	w.do(201, "POST", "/volumes", body)
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
