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
	renewal := expires.Add(-30 * 24 * time.Hour)
	w.clock.Step(renewal.Add(-12 * time.Hour).Sub(w.clock.Now()))
	w.do(200, "GET", path, nil) // it is scheduled
	w.clock.Step(renewal.Sub(w.clock.Now()))
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
	w.refuse(422, "invalid_input", "POST", path+"/actions/remove_target", object{"type": "server", "server": object{"id": server}})
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
