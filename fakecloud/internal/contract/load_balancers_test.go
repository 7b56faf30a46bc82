package contract_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/testhook"
)

// uploadedCertificate returns a request to create a certificate for the name example.com.
func uploadedCertificate(w *world, name string) object {
	w.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		w.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "example.com"}, DNSNames: []string{"example.com"},
		NotBefore: w.clock.Now().Add(-time.Hour), NotAfter: w.clock.Now().Add(90 * 24 * time.Hour),
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		w.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		w.Fatal(err)
	}
	text := func(kind string, content []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}))
	}
	return object{"name": name, "type": "uploaded", "certificate": text("CERTIFICATE", certificate),
		"private_key": text("EC PRIVATE KEY", private)}
}

func certificateScenario(w *world) {
	uploaded := "/certificates/" + w.create("certificate", "/certificates", uploadedCertificate(w, "uploaded"))
	w.do(200, "GET", uploaded, nil)
	w.do(200, "GET", "/certificates?type=uploaded&type=managed&sort=name", nil)
	w.do(200, "PUT", uploaded, object{"name": "renamed", "labels": object{"a": "b"}})
	w.refuse(409, "uniqueness_error", "POST", "/certificates", uploadedCertificate(w, "renamed"))
	mixed := uploadedCertificate(w, "mixed")
	mixed["private_key"] = uploadedCertificate(w, "other")["private_key"]
	w.refuse(422, "invalid_input", "POST", "/certificates", mixed)
	w.refuse(422, "invalid_input", "POST", "/certificates", object{"name": "none", "type": "uploaded", "certificate": "no PEM",
		"private_key": "no PEM"})
	w.do(204, "DELETE", uploaded, nil)

	created := w.do(201, "POST", "/certificates",
		object{"name": "managed", "type": "managed", "domain_names": []string{"example.com", "*.example.com"}})
	managed := "/certificates/" + idOf(created["certificate"])
	w.do(200, "GET", managed, nil)
	w.finish()
	w.do(200, "GET", managed, nil)
	action := idOf(created["action"])
	w.do(200, "GET", "/certificates/actions", nil)
	w.do(200, "GET", "/certificates/actions/"+action, nil)
	w.do(200, "GET", managed+"/actions", nil)
	w.do(200, "GET", managed+"/actions/"+action, nil)
	w.clock.Step(59*24*time.Hour + 12*time.Hour)
	w.do(200, "GET", managed, nil) // its renewal is scheduled
	w.do(204, "DELETE", managed, nil)
}

// certificateFailureScenario makes certificates fail with each documented code, and a retry succeed.
func certificateFailureScenario(w *world) {
	create := func(domain string) (string, object) {
		created := w.do(201, "POST", "/certificates", object{"name": domain, "type": "managed", "domain_names": []string{domain}})
		w.finish()
		path := "/certificates/" + idOf(created["certificate"])
		return path, w.do(200, "GET", path, nil)
	}
	for _, code := range issuanceErrors {
		w.failIssuance(code)
	}
	path, _ := create("www.once-ca-dns-validation-failed.invalid")
	w.act(path, "retry", nil)
	if got := at(w.do(200, "GET", path, nil), "certificate", "status", "issuance"); got != "completed" {
		w.Errorf("issuance after a retry: %v", got)
	}
	w.refuse(422, "unsupported_error", "POST", path+"/actions/retry", nil)
	path, issued := create("www.renewal-ca-dns-validation-failed.invalid")
	expires, err := time.Parse(time.RFC3339, at(issued, "certificate", "not_valid_after").(string))
	if err != nil {
		w.Fatal(err)
	}
	w.clock.Step(expires.Add(-30 * 24 * time.Hour).Sub(w.clock.Now())) // the time of its renewal
	for _, status := range []string{"pending", "failed"} {
		if got := at(w.do(200, "GET", path, nil), "certificate", "status", "renewal"); got != status {
			w.Errorf("renewal: %v, want %s", got, status)
		}
		w.finish()
	}
}

// tcpService returns a service with all fields that the document requires.
func tcpService(port int) object {
	return object{
		"protocol": "tcp", "listen_port": port, "destination_port": 30000 + port, "proxyprotocol": false,
		"health_check": object{"protocol": "tcp", "port": 30000 + port, "interval": 15, "timeout": 10, "retries": 3},
	}
}

func httpService(protocol string, port int, certificates ...json.Number) object {
	service := tcpService(port)
	service["protocol"] = protocol
	service["health_check"] = object{
		"protocol": "http", "port": 8080, "interval": 5, "timeout": 3, "retries": 2,
		"http": object{"domain": "example.com", "path": "/healthz", "response": "ok", "status_codes": []string{"2??"}, "tls": false},
	}
	settings := object{"cookie_name": "STICKY", "cookie_lifetime": 60, "timeout_idle": 60, "sticky_sessions": true}
	if protocol == "https" {
		settings["certificates"], settings["redirect_http"] = certificates, true
	}
	service["http"] = settings
	return service
}

func smallLoadBalancer(_ *world, name string) object {
	return object{"name": name, "load_balancer_type": "lb11", "location": "fsn1"}
}

// loadBalancer makes a load balancer, waits for it and returns its path.
func (w *world) loadBalancer(body object) string {
	w.Helper()
	id := w.create("load_balancer", "/load_balancers", body)
	w.finish()
	return "/load_balancers/" + id
}

func loadBalancerLifeScenario(w *world) {
	body := object{
		"name": "full", "load_balancer_type": "lb11", "network_zone": "eu-central", "public_interface": true,
		"algorithm": object{"type": "least_connections"}, "labels": object{"a": "b"},
		"services": []object{tcpService(80), httpService("http", 8080)},
		"targets":  []object{{"type": "label_selector", "label_selector": object{"selector": "env=test"}}},
	}
	created := w.do(201, "POST", "/load_balancers", body)
	path := "/load_balancers/" + idOf(created["load_balancer"])
	w.do(200, "GET", path, nil)
	w.finish()
	w.do(200, "GET", path, nil)
	w.do(200, "GET", "/load_balancers?name=full&label_selector=a%3Db&sort=created", nil)
	w.do(200, "GET", "/load_balancers/actions", nil)
	action := idOf(w.first(path+"/actions", "actions"))
	w.do(200, "GET", path+"/actions/"+action, nil)
	w.do(200, "GET", "/load_balancers/actions/"+action, nil)
	w.do(200, "PUT", path, object{"name": "renamed", "labels": object{}})
	w.refuse(409, "uniqueness_error", "POST", "/load_balancers", smallLoadBalancer(w, "renamed"))
	w.act(path, "change_algorithm", object{"type": "round_robin"})
	w.act(path, "change_type", object{"load_balancer_type": "lb21"})
	w.act(path, "change_dns_ptr", object{"ip": at(w.do(200, "GET", path, nil), "load_balancer", "public_net", "ipv4", "ip"),
		"dns_ptr": "lb.example.com"})
	w.act(path, "change_dns_ptr", object{"ip": at(w.do(200, "GET", path, nil), "load_balancer", "public_net", "ipv6", "ip"),
		"dns_ptr": "lb6.example.com"})
	w.act(path, "change_protection", object{"delete": true})
	w.refuse(423, "protected", "DELETE", path, nil)
	w.act(path, "change_protection", object{"delete": false})
	for _, kinds := range []string{"open_connections", "connections_per_second", "requests_per_second", "bandwidth",
		"open_connections,bandwidth"} {
		w.do(200, "GET", path+"/metrics?type="+kinds+"&start="+w.hoursAgo(2)+"&end="+w.hoursAgo(0), nil)
	}
	w.refuse(422, "invalid_input", "GET", path+"/metrics?type=nothing&start="+w.hoursAgo(2)+"&end="+w.hoursAgo(0), nil)
	w.do(201, "DELETE", path, nil)
	w.finish()
	w.refuse(404, "not_found", "GET", path, nil)
	w.refuse(422, "invalid_input", "POST", "/load_balancers", object{"name": "nowhere", "load_balancer_type": "lb11"})
}

func loadBalancerServiceScenario(w *world) {
	certificate := w.create("certificate", "/certificates", uploadedCertificate(w, "web"))
	path := w.loadBalancer(smallLoadBalancer(w, "services"))
	w.act(path, "add_service", tcpService(22))
	w.act(path, "add_service", httpService("http", 8080))
	w.act(path, "add_service", httpService("https", 443, json.Number(certificate)))
	w.act(path, "update_service", object{"listen_port": 22, "destination_port": 2222, "proxyprotocol": true})
	w.act(path, "update_service", object{"listen_port": 443, "http": object{"sticky_sessions": false, "redirect_http": false}})
	w.act(path, "add_service", tcpService(80))
	w.refuse(422, "service_error", "DELETE", "/certificates/"+certificate, nil)
	w.do(200, "GET", "/certificates/"+certificate, nil)
	w.act(path, "delete_service", object{"listen_port": 443})
	w.do(204, "DELETE", "/certificates/"+certificate, nil)
}

func loadBalancerTargetScenario(w *world) {
	path := w.loadBalancer(smallLoadBalancer(w, "targets"))
	w.act(path, "add_service", tcpService(80))
	server := json.Number(w.server(smallServer(w, "backend")))
	address := at(w.do(200, "GET", "/servers/"+server.String(), nil), "server", "public_net", "ipv4", "ip").(string)
	w.act(path, "add_target", object{"type": "server", "server": object{"id": server}, "use_private_ip": false})
	w.act(path, "add_target", object{"type": "label_selector", "label_selector": object{"selector": "env=test"}})
	w.act(path, "add_target", object{"type": "ip", "ip": object{"ip": "203.0.113.1"}})
	w.do(200, "GET", "/servers/"+server.String(), nil)
	w.reportHealth(path, server, address)
	w.act(path, "remove_target", object{"type": "label_selector", "label_selector": object{"selector": "env=test"}})
	w.act(path, "remove_target", object{"type": "server", "server": object{"id": server}})
	w.act(path, "remove_target", object{"type": "ip", "ip": object{"ip": "203.0.113.1"}})
	w.refuse(404, "not_found", "POST", path+"/actions/remove_target", object{"type": "server", "server": object{"id": server}})
}

// reportHealth reports a load balancer's targets in every documented state, like a data plane.
func (w *world) reportHealth(path string, server json.Number, address string) {
	w.Helper()
	id, err := strconv.ParseInt(strings.TrimPrefix(path, "/load_balancers/"), 10, 64)
	if err != nil {
		w.Fatal(err)
	}
	target, err := server.Int64()
	project, ok := testhook.Core(w.cloud).Project(fakecloud.DefaultProject)
	if err != nil || !ok {
		w.Fatal(err, ok)
	}
	testhook.Core(w.cloud).SetHealthRule(cloud.HealthReported)
	for _, detail := range []string{
		"", "unspecified", "layer4_no_connection", "layer4_timeout", "layer7_timeout", "unexpected_http_status", "unexpected_http_content",
	} {
		report := cloud.HealthReport{
			Server: target, Addr: netip.MustParseAddr(address), ListenPort: 80, Status: cloud.HealthUnhealthy, Detail: detail,
		}
		switch detail {
		case "":
			report.Status = cloud.HealthHealthy
		case "unexpected_http_status":
			report.HTTPStatusCode = 503
		}
		elsewhere := report
		elsewhere.Server, elsewhere.Addr = 0, netip.MustParseAddr("203.0.113.1")
		project.ReportTargetHealth(id, []cloud.HealthReport{report, elsewhere})
		w.do(200, "GET", path, nil)
	}
}

func withTargets(body object, targets ...object) object {
	body["targets"] = targets
	return body
}

func loadBalancerPrivateScenario(w *world) {
	network := json.Number(w.create("network", "/networks", fullNetwork))
	path := w.loadBalancer(smallLoadBalancer(w, "private"))
	w.act(path, "attach_to_network", object{"network": network, "ip": "10.0.1.20"})
	w.do(200, "GET", "/networks/"+network.String()+"/members?type=load_balancer", nil)
	server := json.Number(w.server(smallServer(w, "outside")))
	w.act("/servers/"+server.String(), "attach_to_network", object{"network": network})
	w.act(path, "add_target", object{"type": "server", "server": object{"id": server}, "use_private_ip": true})
	w.act(path, "disable_public_interface", nil)
	w.act(path, "enable_public_interface", nil)
	w.act(path, "remove_target", object{"type": "server", "server": object{"id": server}})
	w.act(path, "add_target", object{"type": "server", "server": object{"id": server}})
	w.act(path, "detach_from_network", object{"network": network})
	second := smallLoadBalancer(w, "second")
	second["network"] = network
	w.do(200, "GET", w.loadBalancer(second), nil)
	w.do(200, "GET", "/networks/"+network.String(), nil)
	second["name"], second["network"] = "third", idIn(w.network(smallNetwork(w, "empty")))
	w.refuse(422, "no_subnet_available", "POST", "/load_balancers", second)
}

// loadBalancerConsequenceScenario changes the resources that load balancers refer to.
func loadBalancerConsequenceScenario(w *world) {
	network := json.Number(w.create("network", "/networks", fullNetwork))
	body := smallLoadBalancer(w, "lb")
	body["network"], body["services"] = network, []object{tcpService(80)}
	path := w.loadBalancer(body)
	look := func() {
		w.Helper()
		w.do(200, "GET", path, nil)
		w.finish()
		w.do(200, "GET", path, nil)
		w.do(200, "GET", "/servers", nil)
		w.do(200, "GET", "/networks", nil)
		w.do(200, "GET", "/networks/"+network.String()+"/members", nil)
	}
	var servers []string
	for _, name := range []string{"detached", "relabelled", "deleted", "powered-off", "left"} {
		server := smallServer(w, name)
		server["networks"] = []json.Number{network}
		servers = append(servers, "/servers/"+w.server(server))
	}
	w.act(path, "add_target", object{"type": "label_selector", "label_selector": object{"selector": "env=test"}, "use_private_ip": true})
	w.act(path, "add_target", object{"type": "label_selector", "label_selector": object{"selector": "env"}})
	for _, server := range servers {
		w.act(path, "add_target", object{"type": "server", "server": object{"id": json.Number(strings.TrimPrefix(server, "/servers/"))},
			"use_private_ip": true})
	}
	w.do(201, "POST", servers[0]+"/actions/detach_from_network", object{"network": network})
	look()
	w.do(200, "PUT", servers[1], object{"labels": object{"env": "other"}})
	look()
	w.do(200, "DELETE", servers[2], nil)
	look()
	w.do(201, "POST", servers[3]+"/actions/poweroff", nil)
	look()
	w.do(204, "DELETE", "/networks/"+network.String(), nil)
	w.do(200, "GET", path, nil)
	w.finish()
	w.do(200, "GET", path, nil)
	w.do(201, "DELETE", path, nil)
	w.finish()
	w.do(200, "GET", servers[4], nil)
}

func loadBalancerPrimaryIPScenario(w *world) {
	kept := w.create("primary_ip", "/primary_ips", object{"name": "kept", "type": "ipv4", "location": "fsn1"})
	follows := w.create("primary_ip", "/primary_ips", object{"name": "follows", "type": "ipv6", "location": "fsn1", "auto_delete": true})
	body := object{"name": "addressed", "load_balancer_type": "lb11", "network_zone": "eu-central",
		"public_net": object{"ipv4": json.Number(kept), "ipv6": json.Number(follows)}}
	path := w.loadBalancer(body)
	lb := w.do(200, "GET", path, nil)
	if location := at(lb, "load_balancer", "location", "name"); location != "fsn1" {
		w.Errorf("the load balancer is in %v, its Primary IPs in fsn1", location)
	}
	w.act(path, "change_dns_ptr", object{"ip": at(lb, "load_balancer", "public_net", "ipv4", "ip"), "dns_ptr": "lb.example.com"})
	if ip := w.do(200, "GET", "/primary_ips/"+kept, nil); !strings.Contains(fmt.Sprint(ip), "lb.example.com") {
		w.Errorf("reverse DNS of the Primary IP: %v", ip)
	}
	for version, id := range map[string]string{"ipv4": kept, "ipv6": follows} {
		ip := w.do(200, "GET", "/primary_ips/"+id, nil)
		if at(ip, "primary_ip", "assignee_type") != "load_balancer" || idOf(at(lb, "load_balancer", "public_net", version)) != id {
			w.Errorf("%s of the load balancer: %v, its Primary IP: %v", version, at(lb, "load_balancer", "public_net", version), ip)
		}
	}
	w.refuse(422, "must_be_unassigned", "DELETE", "/primary_ips/"+kept, nil)
	body["name"], body["location"] = "late", "fsn1"
	delete(body, "network_zone")
	w.refuse(422, "primary_ip_assigned", "POST", "/load_balancers", body)
	elsewhere := w.create("primary_ip", "/primary_ips", object{"name": "elsewhere", "type": "ipv6", "location": "hel1"})
	body["public_net"] = object{"ipv4": json.Number(elsewhere)}
	w.refuse(412, "primary_ip_version_mismatch", "POST", "/load_balancers", body)
	body["public_net"] = object{"ipv6": json.Number(elsewhere)}
	w.refuse(422, "primary_ip_datacenter_mismatch", "POST", "/load_balancers", body)
	w.do(201, "DELETE", path, nil)
	w.finish()
	w.do(200, "GET", "/primary_ips/"+kept, nil)
	w.refuse(404, "not_found", "GET", "/primary_ips/"+follows, nil)
}
