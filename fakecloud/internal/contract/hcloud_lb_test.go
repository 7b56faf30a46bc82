package contract_test

import (
	"net"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

func (w walk) loadBalancers() {
	kept := of(w.PrimaryIP.Create(w.ctx, hcloud.PrimaryIPCreateOpts{Name: "kept", Type: hcloud.PrimaryIPTypeIPv4,
		Location: "fsn1"})).must(w).PrimaryIP
	network := w.network("net")
	created := of(w.LoadBalancer.Create(w.ctx, hcloud.LoadBalancerCreateOpts{
		Name: "lb", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: &hcloud.Location{Name: "fsn1"},
		Algorithm: &hcloud.LoadBalancerAlgorithm{Type: hcloud.LoadBalancerAlgorithmTypeLeastConnections},
		Labels:    map[string]string{"a": "b"}, Network: network, PublicInterface: new(true),
		PublicNet: &hcloud.LoadBalancerCreateOptsPublicNet{IPv4: kept},
		Services: []hcloud.LoadBalancerCreateOptsService{{
			Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: new(22), DestinationPort: new(30022), Proxyprotocol: new(false),
		}},
		Targets: []hcloud.LoadBalancerCreateOptsTarget{{
			Type: hcloud.LoadBalancerTargetTypeLabelSelector, UsePrivateIP: new(true),
			LabelSelector: hcloud.LoadBalancerCreateOptsTargetLabelSelector{Selector: "env=test"},
		}},
	})).must(w)
	w.wait(created.Action)
	lb := of(w.LoadBalancer.GetByID(w.ctx, created.LoadBalancer.ID)).must(w) // with its addresses
	read[hcloud.LoadBalancer](w, &w.LoadBalancer, lb.ID, "lb")
	if !lb.PublicNet.IPv4.IP.Equal(kept.IP) || lb.PublicNet.IPv4.ID != kept.ID {
		w.Errorf("public net: %+v, want the Primary IP %s", lb.PublicNet, kept.IP)
	}
	of(w.LoadBalancer.Update(w.ctx, lb, hcloud.LoadBalancerUpdateOpts{Name: "renamed", Labels: map[string]string{}})).must(w)
	w.services(lb)
	w.targets(lb, network)
	w.done(w.LoadBalancer.ChangeAlgorithm(w.ctx, lb,
		hcloud.LoadBalancerChangeAlgorithmOpts{Type: hcloud.LoadBalancerAlgorithmTypeRoundRobin}))
	w.done(w.LoadBalancer.ChangeType(w.ctx, lb,
		hcloud.LoadBalancerChangeTypeOpts{LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb21"}}))
	w.done(w.LoadBalancer.ChangeDNSPtr(w.ctx, lb, lb.PublicNet.IPv4.IP.String(), new("lb.example.com")))
	w.done(w.LoadBalancer.ChangeProtection(w.ctx, lb, hcloud.LoadBalancerChangeProtectionOpts{Delete: new(true)}))
	w.done(w.LoadBalancer.ChangeProtection(w.ctx, lb, hcloud.LoadBalancerChangeProtectionOpts{Delete: new(false)}))
	metrics := of(w.LoadBalancer.GetMetrics(w.ctx, lb, hcloud.LoadBalancerGetMetricsOpts{
		Types: []hcloud.LoadBalancerMetricType{hcloud.LoadBalancerMetricOpenConnections, hcloud.LoadBalancerMetricBandwidth},
		Start: w.clock.Now().Add(-time.Minute), End: w.clock.Now(),
	})).must(w)
	if len(metrics.TimeSeries) != 3 { // bandwidth comes in two directions
		w.Errorf("metrics: %+v", metrics)
	}
	actionsOf(w, w.LoadBalancer.Action.All, w.LoadBalancer.Action.AllFor, w.LoadBalancer.Action.GetByID, lb)
	w.wait(of(w.LoadBalancer.DeleteWithResult(w.ctx, lb)).must(w).Action)
	if ip := of(w.PrimaryIP.GetByID(w.ctx, kept.ID)).must(w); ip == nil || ip.AssigneeID != 0 {
		w.Errorf("the Primary IP after its load balancer: %+v", ip)
	}
}

func (w walk) services(lb *hcloud.LoadBalancer) {
	w.Helper()
	body := uploadedCertificate(w.world, "web")
	certificate := of(w.Certificate.Create(w.ctx, hcloud.CertificateCreateOpts{
		Name: "web", Certificate: body["certificate"].(string), PrivateKey: body["private_key"].(string),
	})).must(w)
	w.done(w.LoadBalancer.AddService(w.ctx, lb, hcloud.LoadBalancerAddServiceOpts{
		Protocol: hcloud.LoadBalancerServiceProtocolHTTPS, ListenPort: new(443), DestinationPort: new(8080), Proxyprotocol: new(false),
		HTTP: &hcloud.LoadBalancerAddServiceOptsHTTP{
			CookieName: new("STICKY"), CookieLifetime: new(time.Minute), Certificates: []*hcloud.Certificate{certificate},
			RedirectHTTP: new(true), StickySessions: new(true), TimeoutIdle: new(time.Minute),
		},
		HealthCheck: &hcloud.LoadBalancerAddServiceOptsHealthCheck{
			Protocol: hcloud.LoadBalancerServiceProtocolHTTP, Port: new(8080), Interval: new(15 * time.Second),
			Timeout: new(10 * time.Second), Retries: new(3),
			HTTP: &hcloud.LoadBalancerAddServiceOptsHealthCheckHTTP{
				Domain: new("example.com"), Path: new("/healthz"), Response: new(""), StatusCodes: []string{"2??"}, TLS: new(false),
			},
		},
	}))
	w.done(w.LoadBalancer.UpdateService(w.ctx, lb, 443, hcloud.LoadBalancerUpdateServiceOpts{
		DestinationPort: new(8081), HTTP: &hcloud.LoadBalancerUpdateServiceOptsHTTP{StickySessions: new(false)},
	}))
	services := of(w.LoadBalancer.GetByID(w.ctx, lb.ID)).must(w).Services
	if s := services[1]; len(services) != 2 || s.DestinationPort != 8081 || s.HTTP.StickySessions || s.HTTP.CookieLifetime != time.Minute ||
		len(s.HTTP.Certificates) != 1 {
		w.Errorf("services: %+v", services)
	}
	w.done(w.LoadBalancer.DeleteService(w.ctx, lb, 443))
}

func (w walk) targets(lb *hcloud.LoadBalancer, network *hcloud.Network) {
	w.Helper()
	server := w.createServer("backend", func(o *hcloud.ServerCreateOpts) { o.Networks = []*hcloud.Network{network} })
	target := of(w.LoadBalancer.GetByID(w.ctx, lb.ID)).must(w).Targets[0]
	if len(target.Targets) != 1 || target.Targets[0].Server.Server.ID != server.ID || target.LabelSelector.Selector != "env=test" {
		w.Errorf("target: %+v", target)
	}
	w.done(w.LoadBalancer.RemoveLabelSelectorTarget(w.ctx, lb, "env=test"))
	w.done(w.LoadBalancer.AddServerTarget(w.ctx, lb, hcloud.LoadBalancerAddServerTargetOpts{Server: server, UsePrivateIP: new(true)}))
	w.done(w.LoadBalancer.DisablePublicInterface(w.ctx, lb))
	w.done(w.LoadBalancer.EnablePublicInterface(w.ctx, lb))
	w.done(w.LoadBalancer.RemoveServerTarget(w.ctx, lb, server))
	w.done(w.LoadBalancer.AddLabelSelectorTarget(w.ctx, lb, hcloud.LoadBalancerAddLabelSelectorTargetOpts{Selector: "a"}))
	w.done(w.LoadBalancer.AddIPTarget(w.ctx, lb, hcloud.LoadBalancerAddIPTargetOpts{IP: net.ParseIP("203.0.113.1")}))
	w.done(w.LoadBalancer.RemoveIPTarget(w.ctx, lb, net.ParseIP("203.0.113.1")))
	w.done(w.LoadBalancer.DetachFromNetwork(w.ctx, lb, hcloud.LoadBalancerDetachFromNetworkOpts{Network: network}))
	w.done(w.LoadBalancer.AttachToNetwork(w.ctx, lb, hcloud.LoadBalancerAttachToNetworkOpts{Network: network,
		IP: net.ParseIP("10.0.1.99")}))
}
