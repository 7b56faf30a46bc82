package api_test

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// balancerWire is a client over a socket, with helpers for tests of load balancers.
type balancerWire struct {
	*hcloud.Client
	*wire
}

func newBalancerWire(t *testing.T, o fakecloud.Options) balancerWire {
	t.Helper()
	client, w := newWireClient(t, o)
	return balancerWire{client, w}
}

// call sends a raw request and returns the status and the decoded body.
func (w balancerWire) call(t *testing.T, method, path, body string) (int, map[string]any) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "/v1"+path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+fakecloud.DefaultToken)
	rec := httptest.NewRecorder()
	w.handler.ServeHTTP(rec, r)
	var out map[string]any
	if rec.Body.Len() > 0 {
		if err := json.Unmarshal(rec.Body.Bytes(), &out); err != nil {
			t.Fatalf("%s %s: %v in %s", method, path, err, rec.Body)
		}
	}
	return rec.Code, out
}

func (w balancerWire) server(t *testing.T, name string, labels map[string]string, networks ...*hcloud.Network) *hcloud.Server {
	t.Helper()
	r, _, err := w.Server.Create(t.Context(), hcloud.ServerCreateOpts{
		Name: name, ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-12"},
		Location: &hcloud.Location{Name: "fsn1"}, Labels: labels, Networks: networks,
	})
	if err != nil {
		t.Fatal(err)
	}
	s, _, err := w.Server.GetByID(t.Context(), r.Server.ID)
	if err != nil || s == nil {
		t.Fatalf("%v, %v", s, err)
	}
	return s
}

func (w balancerWire) network(t *testing.T, name, ipRange string) *hcloud.Network {
	t.Helper()
	_, n, err := net.ParseCIDR(ipRange)
	if err != nil {
		t.Fatal(err)
	}
	network, _, err := w.Network.Create(t.Context(), hcloud.NetworkCreateOpts{Name: name, IPRange: n, Subnets: []hcloud.NetworkSubnet{
		{Type: hcloud.NetworkSubnetTypeCloud, IPRange: n, NetworkZone: hcloud.NetworkZoneEUCentral},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return network
}

// loadBalancer reads a load balancer again.
func (w balancerWire) loadBalancer(t *testing.T, lb *hcloud.LoadBalancer) *hcloud.LoadBalancer {
	t.Helper()
	got, _, err := w.LoadBalancer.GetByID(t.Context(), lb.ID)
	if err != nil || got == nil {
		t.Fatalf("%v, %v", got, err)
	}
	return got
}

func TestAClientManagesALoadBalancer(t *testing.T) {
	t.Parallel()
	w := newBalancerWire(t, fakecloud.Options{})
	ctx := t.Context()
	lbs := &w.LoadBalancer
	network := w.network(t, "net", "10.0.0.0/16")
	a := w.server(t, "a", map[string]string{"role": "web"}, network)
	b := w.server(t, "b", nil, network)

	created, _, err := lbs.Create(ctx, hcloud.LoadBalancerCreateOpts{
		Name: "web", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, NetworkZone: hcloud.NetworkZoneEUCentral,
		Algorithm: &hcloud.LoadBalancerAlgorithm{Type: hcloud.LoadBalancerAlgorithmTypeLeastConnections},
		Labels:    map[string]string{"env": "test"}, Network: network,
		Services: []hcloud.LoadBalancerCreateOptsService{{Protocol: hcloud.LoadBalancerServiceProtocolHTTP}},
		Targets: []hcloud.LoadBalancerCreateOptsTarget{
			{Type: hcloud.LoadBalancerTargetTypeServer, Server: hcloud.LoadBalancerCreateOptsTargetServer{Server: b},
				UsePrivateIP: new(true)},
			{Type: hcloud.LoadBalancerTargetTypeLabelSelector,
				LabelSelector: hcloud.LoadBalancerCreateOptsTargetLabelSelector{Selector: "role=web"}},
			{Type: hcloud.LoadBalancerTargetTypeIP, IP: hcloud.LoadBalancerCreateOptsTargetIP{IP: "203.0.113.1"}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if created.Action.Command != "create_load_balancer" || created.Action.Status != hcloud.ActionStatusSuccess {
		t.Errorf("action %+v", created.Action)
	}
	lb := created.LoadBalancer
	if len(lb.PrivateNet) != 1 || lb.PrivateNet[0].Network.ID != network.ID || !lb.PublicNet.Enabled ||
		lb.PublicNet.IPv4.IP == nil || lb.PublicNet.IPv6.IP == nil || lb.Location.NetworkZone != hcloud.NetworkZoneEUCentral ||
		lb.IncludedTraffic == 0 || lb.Algorithm.Type != hcloud.LoadBalancerAlgorithmTypeLeastConnections {
		t.Errorf("%+v", lb)
	}
	if len(lb.Targets) != 3 || !lb.Targets[0].UsePrivateIP || len(lb.Targets[1].Targets) != 1 ||
		lb.Targets[1].Targets[0].Server.Server.ID != a.ID {
		t.Errorf("targets %+v", lb.Targets)
	}
	for _, s := range []*hcloud.Server{a, b} {
		now, _, err := w.Server.GetByID(ctx, s.ID)
		if err != nil || len(now.LoadBalancers) != 1 || now.LoadBalancers[0].ID != lb.ID {
			t.Errorf("load balancers of %s: %+v, %v", s.Name, now.LoadBalancers, err)
		}
	}
	if n, _, err := w.Network.GetByID(ctx, network.ID); err != nil || len(n.LoadBalancers) != 1 {
		t.Errorf("load balancers of the network: %+v, %v", n, err)
	}

	w.clock.Step(15 * time.Second)
	for _, target := range w.loadBalancer(t, lb).Targets {
		for _, t2 := range append(target.Targets, target) {
			if t2.Type != hcloud.LoadBalancerTargetTypeLabelSelector &&
				t2.HealthStatus[0].Status != hcloud.LoadBalancerTargetHealthStatusStatusHealthy {
				t.Errorf("health after an interval: %+v", t2.HealthStatus)
			}
		}
	}
	if _, _, err := w.Server.Poweroff(ctx, b); err != nil {
		t.Fatal(err)
	}
	w.clock.Step(45 * time.Second)
	if h := w.loadBalancer(t, lb).Targets[0].HealthStatus[0]; h.Status != hcloud.LoadBalancerTargetHealthStatusStatusUnhealthy ||
		h.Detail == nil || *h.Detail != hcloud.LoadBalancerTargetHealthStatusDetailLayer4NoConnection || h.HTTPStatusCode != nil {
		t.Errorf("health of a server that is off: %+v", h)
	}

	renamed, _, err := lbs.Update(ctx, lb, hcloud.LoadBalancerUpdateOpts{Name: "www", Labels: map[string]string{"a": "b"}})
	if err != nil || renamed.Name != "www" || len(renamed.Labels) != 1 {
		t.Errorf("update: %+v, %v", renamed, err)
	}
	if got, _, err := lbs.GetByName(ctx, "www"); err != nil || got == nil || got.ID != lb.ID {
		t.Errorf("get by name: %+v, %v", got, err)
	}
	if got, err := lbs.AllWithOpts(ctx, hcloud.LoadBalancerListOpts{ListOpts: hcloud.ListOpts{LabelSelector: "a=c"}}); err != nil ||
		len(got) != 0 {
		t.Errorf("list by selector: %+v, %v", got, err)
	}
	deleted, resp, err := lbs.DeleteWithResult(ctx, lb)
	if err != nil || resp.StatusCode != http.StatusCreated || deleted.Action.Command != "delete_load_balancer" {
		t.Errorf("delete: %+v, %v", deleted, err)
	}
	if got, _, err := lbs.GetByID(ctx, lb.ID); err != nil || got != nil {
		t.Errorf("get after delete: %+v, %v", got, err)
	}
	if s, _, err := w.Server.GetByID(ctx, a.ID); err != nil || len(s.LoadBalancers) != 0 {
		t.Errorf("load balancers of the server after delete: %+v, %v", s.LoadBalancers, err)
	}
}

func TestACertificateThatALoadBalancerUsesCannotBeDeleted(t *testing.T) {
	t.Parallel()
	w := newBalancerWire(t, fakecloud.Options{})
	ctx := t.Context()
	issued, _, err := w.Certificate.CreateCertificate(ctx, hcloud.CertificateCreateOpts{
		Name: "cert", Type: hcloud.CertificateTypeManaged, DomainNames: []string{"example.com"},
	})
	if err != nil {
		t.Fatal(err)
	}
	cert := issued.Certificate
	created, _, err := w.LoadBalancer.Create(ctx, hcloud.LoadBalancerCreateOpts{
		Name: "lb", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: &hcloud.Location{Name: "fsn1"},
		Services: []hcloud.LoadBalancerCreateOptsService{{
			Protocol: hcloud.LoadBalancerServiceProtocolHTTPS,
			HTTP:     &hcloud.LoadBalancerCreateOptsServiceHTTP{Certificates: []*hcloud.Certificate{cert}, RedirectHTTP: new(true)},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	lb := created.LoadBalancer
	s := lb.Services[0]
	if s.ListenPort != 443 || s.DestinationPort != 80 || len(s.HTTP.Certificates) != 1 || s.HTTP.Certificates[0].ID != cert.ID ||
		!s.HTTP.RedirectHTTP {
		t.Errorf("%+v", s)
	}
	used, _, err := w.Certificate.GetByID(ctx, cert.ID)
	if err != nil || len(used.UsedBy) != 1 || used.UsedBy[0].ID != lb.ID ||
		used.UsedBy[0].Type != hcloud.CertificateUsedByRefTypeLoadBalancer {
		t.Errorf("used by %+v, %v", used.UsedBy, err)
	}
	if _, err := w.Certificate.Delete(ctx, cert); !hcloud.IsError(err, hcloud.ErrorCodeServiceError) {
		t.Errorf("delete a certificate in use: %v", err)
	}
	if _, _, err := w.LoadBalancer.DeleteService(ctx, lb, 443); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Certificate.Delete(ctx, cert); err != nil {
		t.Errorf("delete an unused certificate: %v", err)
	}
}

func TestALoadBalancerTakesExistingPrimaryIPs(t *testing.T) {
	t.Parallel()
	w := newBalancerWire(t, fakecloud.Options{})
	ctx := t.Context()
	primaryIP := func(name string, kind hcloud.PrimaryIPType) *hcloud.PrimaryIP {
		r, _, err := w.PrimaryIP.Create(ctx, hcloud.PrimaryIPCreateOpts{
			Name: name, Type: kind, Location: "fsn1", AutoDelete: new(false),
		})
		if err != nil {
			t.Fatal(err)
		}
		return r.PrimaryIP
	}
	v4, v6 := primaryIP("v4", hcloud.PrimaryIPTypeIPv4), primaryIP("v6", hcloud.PrimaryIPTypeIPv6)
	create := func(v4, v6 *hcloud.PrimaryIP) (*hcloud.LoadBalancer, error) {
		r, _, err := w.LoadBalancer.Create(ctx, hcloud.LoadBalancerCreateOpts{
			Name: "lb", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, NetworkZone: hcloud.NetworkZoneEUCentral,
			PublicNet: &hcloud.LoadBalancerCreateOptsPublicNet{IPv4: v4, IPv6: v6},
		})
		return r.LoadBalancer, err
	}
	if _, err := create(v6, nil); !hcloud.IsError(err, hcloud.ErrorCodePrimaryIPVersionMismatch) {
		t.Errorf("an IPv6 as IPv4: %v", err)
	}
	lb, err := create(v4, v6)
	if err != nil {
		t.Fatal(err)
	}
	if !lb.PublicNet.IPv4.IP.Equal(v4.IP) || lb.PublicNet.IPv4.ID != v4.ID || lb.PublicNet.IPv6.ID != v6.ID ||
		!v6.Network.Contains(lb.PublicNet.IPv6.IP) {
		t.Errorf("%+v", lb.PublicNet)
	}
	if _, err := create(v4, nil); !hcloud.IsError(err, hcloud.ErrorCodeUniquenessError) {
		t.Errorf("create with a used Primary IP: %v", err)
	}
	if got, _, err := w.PrimaryIP.GetByID(ctx, v4.ID); err != nil || got.AssigneeID != lb.ID {
		t.Errorf("assignee %d, %v", got.AssigneeID, err)
	}
	if _, _, err := w.PrimaryIP.Unassign(ctx, v4.ID); err == nil {
		t.Error("a load balancer's Primary IP was unassigned")
	}
	// The load balancer shows a change of the Primary IP.
	if _, _, err := w.PrimaryIP.ChangeDNSPtr(ctx, hcloud.PrimaryIPChangeDNSPtrOpts{ID: v4.ID, IP: v4.IP.String(),
		DNSPtr: "lb.example.com"}); err != nil {
		t.Fatal(err)
	}
	if got := w.loadBalancer(t, lb).PublicNet.IPv4.DNSPtr; got != "lb.example.com" {
		t.Errorf("reverse DNS %q", got)
	}
	if _, _, err := w.LoadBalancer.DeleteWithResult(ctx, lb); err != nil {
		t.Fatal(err)
	}
	if got, _, err := w.PrimaryIP.GetByID(ctx, v4.ID); err != nil || got == nil || got.AssigneeID != 0 {
		t.Errorf("after the load balancer was deleted: %+v, %v", got, err)
	}
}

func TestDeletingANetworkDetachesLoadBalancersAndRemovesTheirPrivateTargets(t *testing.T) {
	t.Parallel()
	w := newBalancerWire(t, fakecloud.Options{})
	ctx := t.Context()
	network := w.network(t, "net", "10.0.0.0/16")
	s := w.server(t, "s", nil, network)
	created, _, err := w.LoadBalancer.Create(ctx, hcloud.LoadBalancerCreateOpts{
		Name: "lb", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: &hcloud.Location{Name: "fsn1"}, Network: network,
		Targets: []hcloud.LoadBalancerCreateOptsTarget{{
			Type: hcloud.LoadBalancerTargetTypeServer, Server: hcloud.LoadBalancerCreateOptsTargetServer{Server: s},
			UsePrivateIP: new(true),
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Network.Delete(ctx, network); err != nil {
		t.Fatal(err)
	}
	if got := w.loadBalancer(t, created.LoadBalancer); len(got.PrivateNet) != 0 || len(got.Targets) != 0 {
		t.Errorf("networks %+v, targets %+v", got.PrivateNet, got.Targets)
	}
	if _, _, err := w.LoadBalancer.AddServerTarget(ctx, created.LoadBalancer, hcloud.LoadBalancerAddServerTargetOpts{
		Server: s, UsePrivateIP: new(true),
	}); !hcloud.IsError(err, hcloud.ErrorCodeLoadBalancerNotAttachedToNetwork) {
		t.Errorf("a private target without a network: %v", err)
	}
	if _, _, err := w.Server.DeleteWithResult(ctx, s); err != nil {
		t.Fatal(err)
	}
}

func TestErrorsOfALoadBalancerNameTheFields(t *testing.T) {
	t.Parallel()
	w := newBalancerWire(t, fakecloud.Options{})
	const place = `"location": "fsn1"`
	for name, tc := range map[string]struct{ body, want string }{
		"nothing":  {`{}`, "name load_balancer_type"},
		"no place": {`{"name": "a", "load_balancer_type": "lb11"}`, "location network_zone"},
		"nested services": {`{"name": "a", "load_balancer_type": "lb11", ` + place +
			`, "services": [{"protocol": "tcp", "listen_port": 1, "destination_port": 1}, {"protocol": "http", "health_check": {"interval": 2, "timeout": 61, "retries": 0, "http": {"path": ""}}}]}`, "services.1.health_check.interval services.1.health_check.timeout services.1.health_check.retries services.1.health_check.http.path"},
		"a service's rules": {`{"name": "a", "load_balancer_type": "lb11", ` + place +
			`, "services": [{"protocol": "https", "http": {"certificates": [1]}}]}`, "services.0.http.certificates"},
		"targets": {`{"name": "a", "load_balancer_type": "lb11", ` + place +
			`, "targets": [{"type": "dns"}, {"type": "server", "server": {}}, {"type": "label_selector", "label_selector": {"selector": ""}}, {"type": "ip", "ip": {"ip": "1.2.3"}}]}`, "targets.0.type targets.1.server.id targets.2.label_selector.selector targets.3.ip.ip"},
		"a missing object": {`{"name": "a", "load_balancer_type": "lb11", ` + place + `, "targets": [{"type": "server"}]}`,
			"targets.0.server"},
		"algorithm": {`{"name": "a", "load_balancer_type": "lb11", ` + place + `, "algorithm": {"type": "random"}}`, "algorithm.type"},
		"public_net": {`{"name": "a", "load_balancer_type": "lb11", ` + place + `, "public_net": {"ipv4": "a", "ipv6": 0}}`,
			"public_net.ipv4 public_net.ipv6"},
	} {
		status, body := w.call(t, http.MethodPost, "/load_balancers", tc.body)
		if got := fieldsOf(body); status != http.StatusUnprocessableEntity || got != tc.want {
			t.Errorf("%s: %d %s, want %s", name, status, got, tc.want)
		}
	}
	status, body := w.call(t, http.MethodPost, "/load_balancers", `{"name": "lb", "load_balancer_type": "lb11", `+place+
		`, "services": [{"protocol": "http"}]}`)
	if status != http.StatusCreated {
		t.Fatalf("%d %v", status, body)
	}
	for path, tc := range map[string]struct {
		body   string
		status int
		want   string
	}{
		"add_service":         {`{"protocol": "http"}`, 412, "source_port_already_used"},
		"update_service":      {`{"protocol": "tcp"}`, 422, "listen_port"},
		"delete_service":      {`{"listen_port": 81}`, 404, "not_found"},
		"add_target":          {`{"type": "server", "server": {"id": 1}}`, 422, "server.id"},
		"remove_target":       {`{"type": "ip", "ip": {"ip": "1.1.1.1"}}`, 404, "not_found"},
		"attach_to_network":   {`{"network": 1}`, 422, "network"},
		"detach_from_network": {`{"network": 1}`, 422, "network"},
		"change_algorithm":    {`{}`, 422, "type"},
		"change_type":         {`{"load_balancer_type": "lb99"}`, 422, "load_balancer_type"},
		"change_protection":   {`{"delete": 1}`, 422, "delete"},
		"change_dns_ptr":      {`{"dns_ptr": "a.b"}`, 422, "ip"},

		"disable_public_interface": {``, 422, "load_balancer_not_attached_to_network"},
	} {
		lb := body["load_balancer"].(map[string]any)
		id, _ := json.Marshal(lb["id"])
		status, answer := w.call(t, http.MethodPost, "/load_balancers/"+string(id)+"/actions/"+path, tc.body)
		got := fieldsOf(answer)
		if got == "" {
			got, _ = answer["error"].(map[string]any)["code"].(string)
		}
		if status != tc.status || got != tc.want {
			t.Errorf("%s: %d %s, want %d %s", path, status, got, tc.status, tc.want)
		}
	}
}

// fieldsOf returns the names in an error's details.fields.
func fieldsOf(body map[string]any) string {
	e, _ := body["error"].(map[string]any)
	details, _ := e["details"].(map[string]any)
	fields, _ := details["fields"].([]any)
	var names []string
	for _, f := range fields {
		name, _ := f.(map[string]any)["name"].(string)
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

func TestUntilOctober2026DeletingALoadBalancerHadNoBody(t *testing.T) {
	t.Parallel()
	for date, want := range map[string]int{"2026-10-04": http.StatusNoContent, "2026-10-05": http.StatusCreated} {
		w := newBalancerWire(t, fakecloud.Options{APIDate: date})
		// Primary IPs for load balancers came on the same day. Before, the API ignored the field.
		const create = `{"name": "lb", "load_balancer_type": "lb11", "location": "fsn1"`
		if status, _ := w.call(t, http.MethodPost, "/load_balancers", create+
			`, "public_net": {"ipv4": 7}}`); (status == http.StatusCreated) != (want == http.StatusNoContent) {
			t.Errorf("%s: create with a Primary IP that does not exist: %d", date, status)
		}
		_, body := w.call(t, http.MethodPost, "/load_balancers", create+`, "labels": {"a": "b"}}`)
		if want == http.StatusNoContent { // the first request created it
			_, body = w.call(t, http.MethodGet, "/load_balancers", "")
			body = map[string]any{"load_balancer": body["load_balancers"].([]any)[0]}
		}
		id, _ := json.Marshal(body["load_balancer"].(map[string]any)["id"])
		status, answer := w.call(t, http.MethodDelete, "/load_balancers/"+string(id), "")
		if _, action := answer["action"]; status != want || action != (want == http.StatusCreated) {
			t.Errorf("%s: delete answers %d %v, want %d", date, status, answer, want)
		}
		if status, _ := w.call(t, http.MethodGet, "/load_balancers/"+string(id), ""); status != http.StatusNotFound {
			t.Errorf("%s: get after delete: %d", date, status)
		}
	}
}
