package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

func TestErrorsOfALoadBalancerNameTheFields(t *testing.T) {
	t.Parallel()
	w := newWire(t, fakecloud.Options{})
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
		if got := fieldsOf(w.do(http.MethodPost, "/load_balancers", tc.body, http.StatusUnprocessableEntity)); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	made := w.do(http.MethodPost, "/load_balancers", `{"name": "lb", "load_balancer_type": "lb11", `+place+
		`, "services": [{"protocol": "http"}]}`, http.StatusCreated)["load_balancer"].(map[string]any)
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
		answer := w.do(http.MethodPost, fmt.Sprintf("/load_balancers/%.0f/actions/%s", made["id"], path), tc.body, tc.status)
		got := fieldsOf(answer)
		if got == "" {
			got, _ = answer["error"].(map[string]any)["code"].(string)
		}
		if got != tc.want {
			t.Errorf("%s: %s, want %s", path, got, tc.want)
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
