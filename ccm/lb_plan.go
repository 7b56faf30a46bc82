package ccm

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	cloudprovider "k8s.io/cloud-provider"
	servicehelpers "k8s.io/cloud-provider/service/helpers"
)

// Defaults, as the API document names them; written out because update_service is a patch: to
// return to a default it must be sent.
const (
	defaultLoadBalancerType = "lb11"
	defaultCookieName       = "HCLBSTICKY"
	defaultCookieLifetime   = 300 * time.Second
	defaultTimeoutIdle      = 50 * time.Second

	defaultHealthCheckInterval = 15 * time.Second
	defaultHealthCheckTimeout  = 10 * time.Second
	defaultHealthCheckRetries  = 3
	defaultHealthCheckPath     = "/"
)

var defaultStatusCodes = []string{"2??", "3??"}

// lbTarget is a server as the target of a load balancer.
type lbTarget struct {
	ServerID int64
	// Private makes the load balancer use the server's address in the network.
	Private bool
}

// lbPlan is the load balancer that a Service should have. It is computed from the Service, the
// nodes and the settings alone.
type lbPlan struct {
	// UID of the Service: the load balancer's owner.
	UID string
	// Name, "" to keep the name of an existing load balancer. CreateName is for a new one.
	Name, CreateName string
	// Type, "" to keep the type of an existing load balancer.
	Type string
	// Location or NetworkZone, for a new load balancer; both may be empty for an existing one.
	Location, NetworkZone string
	Algorithm             hcloud.LoadBalancerAlgorithmType
	// NetworkID to attach to, 0 to leave attachments alone.
	NetworkID int64
	// PrivateIPv4 and PrivateSubnet restrict the address in the network; the zero value does not.
	PrivateIPv4   netip.Addr
	PrivateSubnet netip.Prefix
	Public        bool
	// IPv4RDNS and IPv6RDNS, "" to leave the entry alone.
	IPv4RDNS, IPv6RDNS string
	// Targets, ordered by server ID, and Services, ordered by port.
	Targets  []lbTarget
	Services []hcloud.LoadBalancerService
}

// ports returns the listen ports of the plan, ordered.
func (p *lbPlan) ports() []int {
	ports := make([]int, len(p.Services))
	for i, s := range p.Services {
		ports[i] = s.ListenPort
	}
	return ports
}

// checkService returns every reason for which the Service cannot be had with these settings. It
// needs no API call, so that a mistake costs none and changes nothing.
func checkService(svc *corev1.Service, s *lbSettings, haveNetwork bool) []error {
	errs := slices.Concat(checkNetworking(s, haveNetwork), checkHTTP(s))
	if len(svc.Spec.Ports) == 0 {
		errs = append(errs, errors.New("the Service has no ports"))
	}
	for _, p := range svc.Spec.Ports {
		if p.Protocol != corev1.ProtocolTCP && p.Protocol != "" {
			errs = append(errs, fmt.Errorf("port %d: protocol %s is not supported; Hetzner load balancers forward TCP only", p.Port, p.Protocol))
		}
		if p.NodePort == 0 {
			errs = append(errs, fmt.Errorf("port %d has no node port (allocateLoadBalancerNodePorts: false?); the load balancer needs one to reach the nodes", p.Port))
		}
	}
	return errs
}

func checkNetworking(s *lbSettings, haveNetwork bool) (errs []error) {
	invalid := func(name, value, reason string) {
		errs = append(errs, annotationError{annotationPrefix + name, value, reason})
	}
	usePrivate := s.UsePrivateIP != nil && *s.UsePrivateIP
	if !haveNetwork {
		const reason = "needs a private network, and the cloud controller manager has none (HCLOUD_NETWORK)"
		if usePrivate {
			invalid("use-private-ip", "true", reason)
		}
		if s.DisablePublicNetwork {
			invalid("disable-public-network", "true", reason)
		}
		if s.PrivateIPv4.IsValid() {
			invalid("private-ipv4", s.PrivateIPv4.String(), reason)
		}
		if s.PrivateSubnet.IsValid() {
			invalid("private-subnet-ip-range", s.PrivateSubnet.String(), reason)
		}
	}
	if s.DisablePublicNetwork && s.UsePrivateIP != nil && !usePrivate {
		invalid("use-private-ip", "false", "contradicts disable-public-network: without a public interface targets can only be reached at private addresses; allowed is true, or no annotation")
	}
	if s.PrivateIPv4.IsValid() && s.PrivateSubnet.IsValid() && !s.PrivateSubnet.Contains(s.PrivateIPv4) {
		invalid("private-ipv4", s.PrivateIPv4.String(), "is outside private-subnet-ip-range "+s.PrivateSubnet.String()+": must be an address inside it")
	}
	if s.Location != "" && s.NetworkZone != "" {
		invalid("network-zone", s.NetworkZone, "is set beside location "+s.Location+": only one of the two is allowed")
	}
	return errs
}

func checkHTTP(s *lbSettings) (errs []error) {
	invalid := func(name, value, reason string) {
		errs = append(errs, annotationError{annotationPrefix + name, value, reason})
	}
	https := s.Protocol == hcloud.LoadBalancerServiceProtocolHTTPS
	if s.RedirectHTTP && !https {
		invalid("http-redirect-http", "true", "is only allowed with protocol https")
	}
	if !https {
		return errs
	}
	if s.CertificateType == hcloud.CertificateTypeManaged {
		if len(s.ManagedCertificateDomains) == 0 {
			invalid("http-managed-certificate-domains", "", "is missing: certificate-type managed needs domain names, separated by commas")
		}
	} else if len(s.Certificates) == 0 {
		invalid("http-certificates", "", "is missing: protocol https needs IDs or names of certificates, separated by commas (or certificate-type managed)")
	}
	return errs
}

// lbPlanInput is what a plan depends on.
type lbPlanInput struct {
	Service  *corev1.Service
	Settings *lbSettings
	// Nodes that the service controller wants as targets: it has left out those labelled
	// node.kubernetes.io/exclude-from-external-load-balancers, deleted ones and those the cluster
	// autoscaler is about to delete.
	Nodes []*corev1.Node
	// Servers by ID, for the Nodes' provider IDs.
	Servers map[int64]*hcloud.Server
	// NetworkID of HCLOUD_NETWORK, 0 if there is none.
	NetworkID int64
	// CertificateIDs for protocol https.
	CertificateIDs []int64
}

// planLoadBalancer computes the load balancer that the Service should have. The input has passed
// checkService. skipped says, one sentence each, which nodes cannot be targets and why.
func planLoadBalancer(in lbPlanInput) (plan *lbPlan, skipped []string) {
	s := in.Settings
	plan = &lbPlan{
		UID:           string(in.Service.UID),
		Name:          s.Name,
		CreateName:    cmp.Or(s.Name, cloudprovider.DefaultLoadBalancerName(in.Service)),
		Type:          s.Type,
		Location:      s.Location,
		NetworkZone:   s.NetworkZone,
		Algorithm:     cmp.Or(s.Algorithm, hcloud.LoadBalancerAlgorithmTypeRoundRobin),
		NetworkID:     in.NetworkID,
		PrivateIPv4:   s.PrivateIPv4,
		PrivateSubnet: s.PrivateSubnet,
		Public:        !s.DisablePublicNetwork,
		IPv4RDNS:      s.IPv4RDNS,
		IPv6RDNS:      s.IPv6RDNS,
	}
	private := s.DisablePublicNetwork || (s.UsePrivateIP != nil && *s.UsePrivateIP)
	plan.Targets, skipped = planTargets(in, private)
	for _, p := range in.Service.Spec.Ports {
		plan.Services = append(plan.Services, planService(in, p))
	}
	slices.SortFunc(plan.Services, func(a, b hcloud.LoadBalancerService) int { return cmp.Compare(a.ListenPort, b.ListenPort) })
	return plan, skipped
}

func planTargets(in lbPlanInput, private bool) (targets []lbTarget, skipped []string) {
	var noAddress []string
	selector := in.Settings.NodeSelector
	for _, node := range in.Nodes {
		if selector != nil && !selector.Matches(labels.Set(node.Labels)) {
			continue
		}
		// A Node without provider ID is not initialized yet: there is another sync when it is. A
		// foreign Node, or one whose server is gone, has no server to send traffic to.
		id, err := parseProviderID(node.Spec.ProviderID)
		if err != nil {
			continue
		}
		server := in.Servers[id]
		if server == nil {
			continue
		}
		if (private && !privateIP(server, in.NetworkID).IsValid()) || (!private && !publicIPv4(server).IsValid()) {
			noAddress = append(noAddress, node.Name)
			continue
		}
		targets = append(targets, lbTarget{ServerID: id, Private: private})
	}
	slices.SortFunc(targets, func(a, b lbTarget) int { return cmp.Compare(a.ServerID, b.ServerID) })
	targets = slices.Compact(targets)
	if len(noAddress) > 0 {
		why := "their servers have no public IPv4 address (use-private-ip would use the private ones)"
		if private {
			why = "their servers are not attached to the network HCLOUD_NETWORK"
		}
		skipped = append(skipped, fmt.Sprintf("%d nodes are not targets because %s: %s", len(noAddress), why, abbreviate(noAddress, 5)))
	}
	return targets, skipped
}

// abbreviate joins names, at most n of them.
func abbreviate(names []string, n int) string {
	slices.Sort(names)
	if len(names) <= n {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:n], ", "), len(names)-n)
}

// planService computes the load balancer's service for one port of the Kubernetes Service.
func planService(in lbPlanInput, port corev1.ServicePort) hcloud.LoadBalancerService {
	s := in.Settings
	service := hcloud.LoadBalancerService{
		Protocol:        cmp.Or(s.Protocol, hcloud.LoadBalancerServiceProtocolTCP),
		ListenPort:      int(port.Port),
		DestinationPort: int(port.NodePort),
		Proxyprotocol:   s.ProxyProtocol,
		HealthCheck:     planHealthCheck(in.Service, s, port),
	}
	if service.Protocol == hcloud.LoadBalancerServiceProtocolTCP {
		return service // settings for HTTP mean nothing to TCP
	}
	service.HTTP = hcloud.LoadBalancerServiceHTTP{
		CookieName:     cmp.Or(s.CookieName, defaultCookieName),
		CookieLifetime: cmp.Or(s.CookieLifetime, defaultCookieLifetime),
		TimeoutIdle:    cmp.Or(s.TimeoutIdle, defaultTimeoutIdle),
		StickySessions: s.StickySessions,
		RedirectHTTP:   s.RedirectHTTP,
	}
	if service.Protocol == hcloud.LoadBalancerServiceProtocolHTTPS {
		for _, id := range in.CertificateIDs {
			service.HTTP.Certificates = append(service.HTTP.Certificates, &hcloud.Certificate{ID: id})
		}
	}
	return service
}

// planHealthCheck computes the check of one service. With externalTrafficPolicy Local only nodes
// with an endpoint of the Service can serve, and kube-proxy says on the health check node port
// whether a node has one; a check of the node port itself would fail in a way that depends on the
// proxy's mode. So that port is checked, unless the annotations choose another check.
func planHealthCheck(svc *corev1.Service, s *lbSettings, port corev1.ServicePort) hcloud.LoadBalancerServiceHealthCheck {
	check := hcloud.LoadBalancerServiceHealthCheck{
		Protocol: s.HealthCheckProtocol,
		Port:     cmp.Or(s.HealthCheckPort, int(port.NodePort)),
		Interval: cmp.Or(s.HealthCheckInterval, defaultHealthCheckInterval),
		Timeout:  cmp.Or(s.HealthCheckTimeout, defaultHealthCheckTimeout),
		Retries:  cmp.Or(s.HealthCheckRetries, defaultHealthCheckRetries),
	}
	path := cmp.Or(s.HealthCheckHTTPPath, defaultHealthCheckPath)
	tls := s.HealthCheckHTTPTLS
	if localPath, localPort := servicehelpers.GetServiceHealthCheckPathPort(svc); localPort != 0 && s.HealthCheckProtocol == "" && s.HealthCheckPort == 0 {
		check.Protocol, check.Port = hcloud.LoadBalancerServiceProtocolHTTP, int(localPort)
		path, tls = cmp.Or(s.HealthCheckHTTPPath, localPath), false
	}
	switch check.Protocol {
	case "", hcloud.LoadBalancerServiceProtocolTCP:
		check.Protocol = hcloud.LoadBalancerServiceProtocolTCP
		return check
	case hcloud.LoadBalancerServiceProtocolHTTPS: // to the API: http with tls
		check.Protocol, tls = hcloud.LoadBalancerServiceProtocolHTTP, true
	}
	codes := s.HealthCheckHTTPStatusCodes
	if len(codes) == 0 {
		codes = defaultStatusCodes
	}
	check.HTTP = &hcloud.LoadBalancerServiceHealthCheckHTTP{
		Domain: s.HealthCheckHTTPDomain, Path: path, StatusCodes: codes, TLS: tls,
	}
	return check
}
