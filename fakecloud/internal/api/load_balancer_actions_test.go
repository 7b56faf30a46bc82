package api_test

import (
	"net"
	"slices"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

func TestAllActionsOfALoadBalancer(t *testing.T) {
	t.Parallel()
	w := newBalancerWire(t, fakecloud.Options{Actions: "1s"})
	ctx := t.Context()
	lbs := &w.LoadBalancer
	created, _, err := lbs.Create(ctx, hcloud.LoadBalancerCreateOpts{
		Name: "lb", LoadBalancerType: &hcloud.LoadBalancerType{ID: 1}, Location: &hcloud.Location{Name: "nbg1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	lb := created.LoadBalancer
	if _, _, err := lbs.ChangeProtection(ctx, lb, hcloud.LoadBalancerChangeProtectionOpts{}); !hcloud.IsError(err,
		hcloud.ErrorCodeConflict) {
		t.Errorf("an action while another runs: %v, want conflict", err)
	}
	if net := lb.PublicNet; net.IPv4.IP != nil || net.IPv6.IP != nil || net.IPv4.DNSPtr != "" {
		t.Errorf("it shows its addresses before the end of its creation: %+v", net)
	}
	w.clock.Step(time.Second)
	if lb = w.loadBalancer(t, lb); lb.PublicNet.IPv4.IP == nil || lb.PublicNet.IPv6.IP == nil {
		t.Errorf("after the creation it shows %+v", lb.PublicNet)
	}
	server := w.server(t, "s", nil)
	for range 10 { // create, start
		w.clock.Step(time.Second)
	}
	network := w.network(t, "net", "10.0.0.0/16")
	for _, step := range []struct {
		command string
		start   func() (*hcloud.Action, *hcloud.Response, error)
		effect  func(*hcloud.LoadBalancer) bool
	}{
		{"add_service", func() (*hcloud.Action, *hcloud.Response, error) {
			return lbs.AddService(ctx, lb, hcloud.LoadBalancerAddServiceOpts{
				Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: new(25), DestinationPort: new(2525),
			})
		}, func(lb *hcloud.LoadBalancer) bool { return len(lb.Services) == 1 && lb.Services[0].ListenPort == 25 }},
		{"update_service", func() (*hcloud.Action, *hcloud.Response, error) {
			return lbs.UpdateService(ctx, lb, 25, hcloud.LoadBalancerUpdateServiceOpts{
				Protocol: hcloud.LoadBalancerServiceProtocolHTTP,
				HTTP:     &hcloud.LoadBalancerUpdateServiceOptsHTTP{StickySessions: new(true), CookieLifetime: new(time.Hour)},
				HealthCheck: &hcloud.LoadBalancerUpdateServiceOptsHealthCheck{
					Protocol: hcloud.LoadBalancerServiceProtocolHTTP,
					HTTP: &hcloud.LoadBalancerUpdateServiceOptsHealthCheckHTTP{Domain: new("example.com"),
						StatusCodes: []string{"200"}},
				},
			})
		}, func(lb *hcloud.LoadBalancer) bool {
			s := lb.Services[0]
			return s.HTTP.StickySessions && s.HTTP.CookieLifetime == time.Hour && s.DestinationPort == 2525 &&
				s.HealthCheck.HTTP.Domain == "example.com" && s.HealthCheck.HTTP.Path == "/" &&
				slices.Equal(s.HealthCheck.HTTP.StatusCodes, []string{"200"})
		}},
		{"delete_service", func() (*hcloud.Action, *hcloud.Response, error) { return lbs.DeleteService(ctx, lb, 25) },
			func(lb *hcloud.LoadBalancer) bool { return len(lb.Services) == 0 }},
		{"add_target", func() (*hcloud.Action, *hcloud.Response, error) {
			return lbs.AddServerTarget(ctx, lb, hcloud.LoadBalancerAddServerTargetOpts{Server: server})
		}, func(lb *hcloud.LoadBalancer) bool { return len(lb.Targets) == 1 }},
		{"remove_target", func() (*hcloud.Action, *hcloud.Response, error) { return lbs.RemoveServerTarget(ctx, lb, server) },
			func(lb *hcloud.LoadBalancer) bool { return len(lb.Targets) == 0 }},
		{"add_target", func() (*hcloud.Action, *hcloud.Response, error) {
			return lbs.AddIPTarget(ctx, lb, hcloud.LoadBalancerAddIPTargetOpts{IP: net.ParseIP("203.0.113.1")})
		}, func(lb *hcloud.LoadBalancer) bool { return len(lb.Targets) == 1 }},
		{"remove_target", func() (*hcloud.Action, *hcloud.Response, error) {
			return lbs.RemoveIPTarget(ctx, lb, net.ParseIP("203.0.113.1"))
		}, func(lb *hcloud.LoadBalancer) bool { return len(lb.Targets) == 0 }},
		{"attach_to_network", func() (*hcloud.Action, *hcloud.Response, error) {
			return lbs.AttachToNetwork(ctx, lb, hcloud.LoadBalancerAttachToNetworkOpts{Network: network, IP: net.ParseIP("10.0.0.99")})
		}, func(lb *hcloud.LoadBalancer) bool {
			return len(lb.PrivateNet) == 1 && lb.PrivateNet[0].IP.String() == "10.0.0.99"
		}},
		{"add_target", func() (*hcloud.Action, *hcloud.Response, error) {
			return lbs.AddLabelSelectorTarget(ctx, lb, hcloud.LoadBalancerAddLabelSelectorTargetOpts{Selector: "a",
				UsePrivateIP: new(true)})
		}, func(lb *hcloud.LoadBalancer) bool { return len(lb.Targets) == 1 }},
		{"disable_public_interface", func() (*hcloud.Action, *hcloud.Response, error) { return lbs.DisablePublicInterface(ctx, lb) },
			func(lb *hcloud.LoadBalancer) bool { return !lb.PublicNet.Enabled }},
		{"remove_target", func() (*hcloud.Action, *hcloud.Response, error) { return lbs.RemoveLabelSelectorTarget(ctx, lb, "a") },
			func(lb *hcloud.LoadBalancer) bool { return len(lb.Targets) == 0 }},
		{"enable_public_interface", func() (*hcloud.Action, *hcloud.Response, error) { return lbs.EnablePublicInterface(ctx, lb) },
			func(lb *hcloud.LoadBalancer) bool { return lb.PublicNet.Enabled }},
		{"detach_from_network", func() (*hcloud.Action, *hcloud.Response, error) {
			return lbs.DetachFromNetwork(ctx, lb, hcloud.LoadBalancerDetachFromNetworkOpts{Network: network})
		}, func(lb *hcloud.LoadBalancer) bool { return len(lb.PrivateNet) == 0 }},
		{"change_algorithm", func() (*hcloud.Action, *hcloud.Response, error) {
			return lbs.ChangeAlgorithm(ctx, lb,
				hcloud.LoadBalancerChangeAlgorithmOpts{Type: hcloud.LoadBalancerAlgorithmTypeLeastConnections})
		}, func(lb *hcloud.LoadBalancer) bool {
			return lb.Algorithm.Type == hcloud.LoadBalancerAlgorithmTypeLeastConnections
		}},
		{"change_load_balancer_type", func() (*hcloud.Action, *hcloud.Response, error) {
			return lbs.ChangeType(ctx, lb, hcloud.LoadBalancerChangeTypeOpts{LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb21"}})
		}, func(lb *hcloud.LoadBalancer) bool { return lb.LoadBalancerType.Name == "lb21" }},
		{"change_dns_ptr", func() (*hcloud.Action, *hcloud.Response, error) {
			return lbs.ChangeDNSPtr(ctx, lb, lb.PublicNet.IPv6.IP.String(), new("lb.example.com"))
		}, func(lb *hcloud.LoadBalancer) bool { return lb.PublicNet.IPv6.DNSPtr == "lb.example.com" }},
		{"change_dns_ptr", func() (*hcloud.Action, *hcloud.Response, error) {
			return lbs.ChangeDNSPtr(ctx, lb, lb.PublicNet.IPv6.IP.String(), nil)
		}, func(lb *hcloud.LoadBalancer) bool { return lb.PublicNet.IPv6.DNSPtr == "" }},
		{"change_protection", func() (*hcloud.Action, *hcloud.Response, error) {
			return lbs.ChangeProtection(ctx, lb, hcloud.LoadBalancerChangeProtectionOpts{Delete: new(true)})
		}, func(lb *hcloud.LoadBalancer) bool { return lb.Protection.Delete }},
	} {
		action, _, err := step.start()
		if err != nil {
			t.Fatalf("%s: %v", step.command, err)
		}
		if action.Command != step.command || action.Status != hcloud.ActionStatusRunning ||
			!slices.ContainsFunc(action.Resources, func(r *hcloud.ActionResource) bool {
				return r.ID == lb.ID && r.Type == hcloud.ActionResourceTypeLoadBalancer
			}) {
			t.Errorf("%s: action %+v", step.command, action)
		}
		if step.effect(w.loadBalancer(t, lb)) {
			t.Errorf("%s: it takes effect before it ends", step.command)
		}
		w.clock.Step(time.Second)
		if err := w.Action.WaitFor(ctx, action); err != nil {
			t.Fatalf("%s: %v", step.command, err)
		}
		if !step.effect(w.loadBalancer(t, lb)) {
			t.Errorf("%s: it ended without its effect", step.command)
		}
	}
	actions, err := lbs.Action.AllFor(ctx, lb, hcloud.ActionListOpts{})
	if err != nil || len(actions) != 19 {
		t.Errorf("%d actions, %v", len(actions), err)
	}
	if _, _, err := lbs.DeleteWithResult(ctx, lb); !hcloud.IsError(err, hcloud.ErrorCodeProtected) {
		t.Errorf("delete a protected load balancer: %v", err)
	}
}
