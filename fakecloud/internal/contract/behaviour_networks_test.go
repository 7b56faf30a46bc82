package contract_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func (w *world) network(body object) string {
	w.Helper()
	return "/networks/" + w.create("network", "/networks", body)
}

func TestANetworkThatIsBeingChangedRefusesOtherChanges(t *testing.T) {
	t.Parallel()
	for operation, c := range map[string]struct {
		method, path string
		body         object
	}{
		"update_network":            {"PUT", "", object{"name": "renamed"}},
		"add_network_route":         {"POST", "/actions/add_route", object{"destination": "10.200.0.0/16", "gateway": "10.0.1.9"}},
		"add_network_subnet":        {"POST", "/actions/add_subnet", object{"type": "cloud", "network_zone": "eu-central"}},
		"change_network_ip_range":   {"POST", "/actions/change_ip_range", object{"ip_range": "10.0.0.0/12"}},
		"change_network_protection": {"POST", "/actions/change_protection", object{"delete": true}},
		"delete_network_route":      {"POST", "/actions/delete_route", object{"destination": "192.168.0.0/24", "gateway": "10.0.1.7"}},
		"delete_network_subnet":     {"POST", "/actions/delete_subnet", object{"ip_range": "10.0.1.0/24"}},
	} {
		t.Run(operation, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			path := w.network(fullNetwork)
			w.do(201, "POST", path+"/actions/add_subnet", object{"type": "cloud", "network_zone": "eu-central"})
			w.refuse(409, "conflict", c.method, path+c.path, c.body)
			w.finish()
			if response := w.send(c.method, path+c.path, c.body); response.Code/100 != 2 {
				t.Errorf("after the change: %d %s", response.Code, response.Body)
			}
		})
	}
}

func TestTheRangeOfANetworkOnlyGrows(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for _, larger := range []string{"10.0.0.0/15", "10.0.0.0/14", "10.0.0.0/13", "10.0.0.0/8"} {
		path := w.network(object{"name": larger, "ip_range": "10.0.0.0/16"})
		w.act(path, "change_ip_range", object{"ip_range": larger})
		if got := at(w.do(200, "GET", path, nil), "network", "ip_range"); got != larger {
			t.Errorf("range %v, want %s", got, larger)
		}
		for _, wrong := range []string{"10.0.0.0/16", "10.0.0.0/17", "10.128.0.0/9", "192.168.0.0/16"} {
			w.refuseAction("invalid_input", path, "change_ip_range", object{"ip_range": wrong})
		}
	}
}

func TestANetworkGetsSubnetsAndRoutesAtOnceOrLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	subnet := fullNetwork["subnets"].([]object)[0]
	route := fullNetwork["routes"].([]object)[0]
	later := w.network(object{"name": "later", "ip_range": "10.0.0.0/16"})
	w.act(later, "add_subnet", subnet)
	w.act(later, "add_route", route)
	for _, path := range []string{w.network(fullNetwork), later} {
		got := w.do(200, "GET", path, nil)["network"].(object)
		if routes := got["routes"].([]any); len(routes) != 1 || fmt.Sprint(routes[0]) != fmt.Sprint(route) {
			t.Errorf("routes: %v", routes)
		}
		if subnets := got["subnets"].([]any); len(subnets) != 1 || at(subnets[0].(object), "ip_range") != subnet["ip_range"] {
			t.Errorf("subnets: %v", subnets)
		}
	}
	none := w.do(201, "POST", "/networks", object{"name": "none", "ip_range": "10.0.0.0/16",
		"subnets": []object{{"type": "cloud", "network_zone": "eu-central"}}})
	if first := at(none, "network", "subnets").([]any)[0]; at(first.(object), "ip_range") != "10.0.0.0/24" {
		t.Errorf("a subnet without a range: %v", first)
	}
}

func TestRoutesAndSubnetsAreDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	path := w.network(fullNetwork)
	w.act(path, "delete_route", fullNetwork["routes"].([]object)[0])
	w.act(path, "delete_subnet", object{"ip_range": "10.0.1.0/24"})
	got := w.do(200, "GET", path, nil)["network"].(object)
	if len(got["routes"].([]any))+len(got["subnets"].([]any)) > 0 {
		t.Errorf("network: %v", got)
	}
}

func TestDeletingANetworkDetachesItsMembers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	network := w.create("network", "/networks", fullNetwork)
	server := "/servers/" + w.runningServer("a").String()
	lb := w.loadBalancer(smallLoadBalancer(w, "lb"))
	for path, key := range map[string]string{server: "server", lb: "load_balancer"} {
		w.act(path, "attach_to_network", object{"network": json.Number(network)})
		if got := at(w.do(200, "GET", path, nil), key, "private_net").([]any); len(got) != 1 {
			t.Errorf("%s: %v", path, got)
		}
	}
	w.do(204, "DELETE", "/networks/"+network, nil)
	for path, key := range map[string]string{server: "server", lb: "load_balancer"} {
		if got := at(w.do(200, "GET", path, nil), key, "private_net").([]any); len(got) != 0 {
			t.Errorf("%s is still in %v", path, got)
		}
	}
}

func TestPricesHaveTheCurrencyTheVATAndNetAndGross(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	prices := w.do(200, "GET", "/pricing", nil)["pricing"].(object)
	if prices["currency"] != "EUR" || !strings.HasPrefix(prices["vat_rate"].(string), "19.0") {
		t.Errorf("currency %v, VAT %v", prices["currency"], prices["vat_rate"])
	}
	counted := 0
	var visit func(value any)
	visit = func(value any) {
		switch value := value.(type) {
		case []any:
			for _, inner := range value {
				visit(inner)
			}
		case object:
			if net, ok := value["net"].(string); ok {
				counted++
				var n, g float64
				if _, err := fmt.Sscan(net+" "+value["gross"].(string), &n, &g); err != nil || g < n*1.19-0.0001 || g > n*1.19+0.0001 {
					t.Errorf("net %s, gross %v: %v", net, value["gross"], err)
				}
			}
			for _, inner := range value {
				visit(inner)
			}
		}
	}
	visit(prices)
	for _, kind := range []string{"server_types", "load_balancer_types", "floating_ips", "primary_ips", "image", "volume",
		"server_backup"} {
		if prices[kind] == nil {
			t.Errorf("there is no price of %s", kind)
		}
	}
	if counted < 20 {
		t.Errorf("%d prices", counted)
	}
}
