package contract_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// These tests hold what unmodified clients of several ages read, assert or wait for. Their source is the table in the
// project's facts about the API, of November 2026.

// hcloud-python, load_balancers/client.py, reads both fields of every service that has http.
func TestHTTPOfAServiceAlwaysHasCertificatesAndRedirectHTTP(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	lb := w.loadBalancer(smallLoadBalancer(w, "lb"))
	w.act(lb, "add_service", httpService("http", 80))
	certificate := json.Number(w.create("certificate", "/certificates", uploadedCertificate(w, "a")))
	w.act(lb, "add_service", object{"protocol": "https", "listen_port": 443, "destination_port": 80,
		"http": object{"certificates": []any{certificate}}})
	for _, service := range at(w.do(200, "GET", lb, nil), "load_balancer", "services").([]any) {
		http := service.(object)["http"].(object)
		certificates, ok := http["certificates"].([]any)
		want := map[any]int{"http": 0, "https": 1}[service.(object)["protocol"]]
		if redirect, isBool := http["redirect_http"].(bool); !ok || len(certificates) != want || !isBool || redirect {
			t.Errorf("http of a service: %v", http)
		}
	}
}

// Ansible collection, documentation of load_balancer_service.
func TestTheDefaultHealthCheckOfAnHTTPService(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	lb := w.loadBalancer(smallLoadBalancer(w, "lb"))
	certificate := json.Number(w.create("certificate", "/certificates", uploadedCertificate(w, "a")))
	for protocol, want := range map[string]string{
		"tcp":   `{"interval":15,"port":8080,"protocol":"tcp","retries":3,"timeout":10}`,
		"http":  `{"http":{"domain":"","path":"/","response":"","status_codes":["2??","3??"],"tls":false},"interval":15,"port":8080,"protocol":"http","retries":3,"timeout":10}`,
		"https": `{"http":{"domain":"","path":"/","response":"","status_codes":["2??","3??"],"tls":false},"interval":15,"port":8080,"protocol":"http","retries":3,"timeout":10}`,
	} {
		service := object{"protocol": protocol, "listen_port": 80, "destination_port": 8080}
		if protocol == "https" {
			service["http"] = object{"certificates": []any{certificate}}
		}
		w.act(lb, "add_service", service)
		check := at(w.do(200, "GET", lb, nil), "load_balancer", "services").([]any)[0].(object)["health_check"]
		if got, _ := json.Marshal(check); string(got) != want {
			t.Errorf("%s: health check %s, want %s", protocol, got, want)
		}
		w.act(lb, "delete_service", object{"listen_port": 80})
	}
}

// terraform-provider-hcloud issues 182 and 185: clients retry conflict, and never locked.
func TestConcurrentChangesAreConflicts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	lb := w.loadBalancer(smallLoadBalancer(w, "lb"))
	w.do(201, "POST", lb+"/actions/add_service", tcpService(80))
	w.refuse(409, "conflict: load balancer has changed during request", "POST", lb+"/actions/add_service", tcpService(81))
	w.refuse(409, "conflict: load balancer has changed during request", "DELETE", lb, nil)
	network := "/networks/" + w.create("network", "/networks", fullNetwork)
	w.do(201, "POST", network+"/actions/add_subnet", object{"type": "cloud", "network_zone": "eu-central"})
	w.refuse(409, "conflict: network has changed during request", "POST", network+"/actions/delete_subnet",
		object{"ip_range": "10.0.1.0/24"})
}

// A usual Terraform configuration has one hcloud_rdns per address. They are created at the same time.
func TestReverseDNSOfBothAddressesAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	server, lb := "/servers/"+w.server(smallServer(w, "node")), w.loadBalancer(smallLoadBalancer(w, "lb"))
	floating := "/floating_ips/" + w.create("floating_ip", "/floating_ips", object{"type": "ipv6", "home_location": "fsn1"})
	primary := "/primary_ips/" + w.create("primary_ip", "/primary_ips", object{"name": "a", "type": "ipv6", "location": "fsn1"})
	for path, addresses := range map[string][]string{
		server: {at(w.do(200, "GET", server, nil), "server", "public_net", "ipv4", "ip").(string),
			at(w.do(200, "GET", server, nil), "server", "public_net", "ipv6", "ip").(string)},
		lb: {at(w.do(200, "GET", lb, nil), "load_balancer", "public_net", "ipv4", "ip").(string),
			at(w.do(200, "GET", lb, nil), "load_balancer", "public_net", "ipv6", "ip").(string)},
		floating: {at(w.do(200, "GET", floating, nil), "floating_ip", "ip").(string),
			strings.Replace(at(w.do(200, "GET", floating, nil), "floating_ip", "ip").(string), "::/64", "::2", 1)},
		primary: {at(w.do(200, "GET", primary, nil), "primary_ip", "ip").(string),
			strings.Replace(at(w.do(200, "GET", primary, nil), "primary_ip", "ip").(string), "::/64", "::2", 1)},
	} {
		for i, address := range addresses {
			address = strings.Replace(address, "::/64", "::1", 1)
			w.do(201, "POST", path+"/actions/change_dns_ptr",
				object{"ip": address, "dns_ptr": []string{"a.example.com", "b.example.com"}[i]})
		}
		w.finish()
		answer, _ := json.Marshal(w.do(200, "GET", path, nil))
		for _, ptr := range []string{"a.example.com", "b.example.com"} {
			if !strings.Contains(string(answer), ptr) {
				t.Errorf("%s has no %s: %s", path, ptr, answer)
			}
		}
	}
}

// terraform-provider-hcloud issues 343, 388 and 412.
func TestASubnetInUseCannotBeDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.keepSubnetInUse()
}

func (w *world) keepSubnetInUse() {
	w.Helper()
	network := w.create("network", "/networks", fullNetwork)
	path, subnet := "/networks/"+network+"/actions/delete_subnet", object{"ip_range": "10.0.1.0/24"}
	lb := w.loadBalancer(smallLoadBalancer(w, "attached"))
	w.act(lb, "attach_to_network", object{"network": json.Number(network)})
	w.refuse(422, "service_error: network has attached resources", "POST", path, subnet)
	server := "/servers/" + w.server(smallServer(w, "attached"))
	w.act(server, "attach_to_network", object{"network": json.Number(network)})
	w.refuse(422, "service_error: cannot remove subnet because servers are attached to it", "POST", path, subnet)
}

// CLI output. Robot's vSwitches are not modelled: see cloud.MinVSwitchID.
func TestASubnetOfAVSwitchThatDoesNotExist(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	path := "/networks/" + w.create("network", "/networks", fullNetwork) + "/actions/add_subnet"
	body := object{"type": "vswitch", "network_zone": "eu-central", "ip_range": "10.0.8.0/24", "vswitch_id": 42}
	w.refuse(422, "service_error: vswitch not found", "POST", path, body)
	body["vswitch_id"] = 4321
	w.do(201, "POST", path, body)
}

// Observed by a client.
func TestAServerRunsAfterItJoinedAPlacementGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	body := smallServer(w, "off")
	body["start_after_create"] = false
	path := "/servers/" + w.server(body)
	w.act(path, "add_to_placement_group",
		object{"placement_group": json.Number(w.create("placement_group", "/placement_groups", smallPlacementGroup(w, "g")))})
	if status := at(w.do(200, "GET", path, nil), "server", "status"); status != "running" {
		t.Errorf("status %v, want running", status)
	}
}

// CLI output.
func TestFingerprintAndRenewalOfACertificate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	uploaded := w.do(201, "POST", "/certificates", uploadedCertificate(w, "uploaded"))
	if f := at(uploaded, "certificate", "fingerprint").(string); !regexp.MustCompile(`^([0-9A-F]{2}:){31}[0-9A-F]{2}$`).MatchString(f) {
		t.Errorf("fingerprint %s", f)
	}
	managed := "/certificates/" +
		w.create("certificate", "/certificates", object{"name": "managed", "type": "managed", "domain_names": []string{"example.com"}})
	w.finish()
	if status := at(w.do(200, "GET", managed, nil), "certificate", "status").(object); status["issuance"] != "completed" ||
		status["renewal"] != "unavailable" {
		t.Errorf("a new certificate: %v", status)
	}
	w.refuse(422, "unsupported_error: certificate not retryable", "POST", managed+"/actions/retry", nil)
	w.clock.Step(59*24*time.Hour + 12*time.Hour) // half a day before its renewal
	if renewal := at(w.do(200, "GET", managed, nil), "certificate", "status", "renewal"); renewal != "scheduled" {
		t.Errorf("renewal %v, want scheduled", renewal)
	}
}

// The API document lists the data centers, like all lists without sort, in the order of ids.
func TestDataCentersAreInTheOrderOfIDs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, func(o *fakecloud.Options) { o.APIDate = "2026-06-01" })
	last := 0.0
	for _, d := range w.list("/datacenters", "datacenters") {
		id := d.(object)["id"].(float64)
		if id <= last {
			t.Errorf("data center %v after %v", id, last)
		}
		last = id
	}
	if last == 0 {
		t.Error("no data centers")
	}
}

// Scripts match these messages.
func TestMessages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	network := "/networks/" + w.create("network", "/networks", smallNetwork(w, "net"))
	w.refuse(409, "uniqueness_error: name is already used", "POST", "/networks", smallNetwork(w, "net"))
	w.act(network, "change_protection", object{"delete": true})
	w.refuse(423, "protected: network is delete protected", "DELETE", network, nil)
	server := "/servers/" + w.server(smallServer(w, "node"))
	snapshot := "/images/" + idOf(w.do(201, "POST", server+"/actions/create_image", object{"type": "snapshot"})["image"])
	w.finish()
	w.act(snapshot, "change_protection", object{"delete": true})
	w.refuse(423, "protected: snapshot deletion is protected", "DELETE", snapshot, nil)
	floating := "/floating_ips/" + w.create("floating_ip", "/floating_ips", smallFloatingIP(w, "f"))
	w.act(floating, "change_protection", object{"delete": true})
	w.refuse(423, "protected: Floating IP deletion is protected", "DELETE", floating, nil)
	private := smallLoadBalancer(w, "private")
	private["network"], private["public_interface"] = json.Number(w.create("network", "/networks",
		object{"name": "other", "ip_range": "10.0.0.0/16", "subnets": fullNetwork["subnets"]})), false
	lb := w.loadBalancer(private)
	w.refuse(422,
		"load_balancer_public_interface_disabled: load balancer public interface is disabled, cannot add target using public IP", "POST",
		lb+"/actions/add_target", object{"type": "label_selector", "label_selector": object{"selector": "env=test"}})
	w.refuse(422, "invalid_input: invalid input in field 'type' map[fields:[map[messages:[must be one of spread] name:type]]]", "POST",
		"/placement_groups", object{"name": "g", "type": "pack"})
	unsupported := smallServer(w, "far")
	unsupported["location"] = "sin"
	w.refuse(422, "invalid_input: unsupported location for server type", "POST", "/servers", unsupported)
}
