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
	servicehelpers "k8s.io/cloud-provider/service/helpers"
)

// Defaults of the API document. They are always sent, because update_service is a patch: it returns
// to a default only if the request contains it.
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

// lbPlan is the desired state of a Service's load balancer. It depends only on the lbPlanInput.
type lbPlan struct {
	// UID of the Service that owns the load balancer.
	UID string
	// Marks are its other ownership labels: see ownership.marks.
	Marks map[string]string
	// Name of the load balancer; "" keeps the existing name. CreateName is the name of a new one.
	Name, CreateName string
	// Type of the load balancer; "" keeps the existing type.
	Type string
	// Location or NetworkZone of a new load balancer. Both may be empty for an existing one.
	Location, NetworkZone string
	// Algorithm; "" keeps the existing one.
	Algorithm hcloud.LoadBalancerAlgorithmType
	// NetworkID of the network to attach to; 0 keeps the existing attachment.
	NetworkID int64
	// PrivateIPv4 and PrivateSubnet restrict the address in the network; zero values do not.
	PrivateIPv4   netip.Addr
	PrivateSubnet netip.Prefix
	Public        bool
	// IPv4RDNS and IPv6RDNS are reverse DNS entries; "" keeps the existing entry.
	IPv4RDNS, IPv6RDNS string
	// Targets are ordered by server ID, Services by port.
	Targets []lbTarget
	// IPv6 holds the addresses of public targets that the load balancer reaches over IPv6, by server ID.
	IPv6     map[int64]netip.Addr
	Services []hcloud.LoadBalancerService
	// Limits are those of the type that the load balancer has or gets; nil if unknown.
	Limits *hcloud.LoadBalancerType
	// Excess holds what the plan lacks because of the limits.
	Excess []lbExcess
}

// ports returns the listen ports of the plan in ascending order.
func (p *lbPlan) ports() []int {
	ports := make([]int, len(p.Services))
	for i, s := range p.Services {
		ports[i] = s.ListenPort
	}
	return ports
}

// checkService returns all mistakes in the Service and its settings. It makes no API call.
func checkService(svc *corev1.Service, s *lbSettings, haveNetwork bool) []error {
	_, _, mistakes := usablePorts(svc)
	return slices.Concat(checkNetworking(s, haveNetwork), checkHTTP(s), mistakes)
}

// usablePorts returns the ports that the load balancer can forward, and those that it skips because they
// are not TCP. It is a mistake if none is left.
func usablePorts(svc *corev1.Service) (usable, skipped []corev1.ServicePort, mistakes []error) {
	for _, p := range svc.Spec.Ports {
		switch {
		case p.Protocol != corev1.ProtocolTCP && p.Protocol != "":
			skipped = append(skipped, p)
		case p.NodePort == 0:
			mistakes = append(mistakes, fmt.Errorf("port %d has no node port, which the load balancer needs to reach the nodes: remove allocateLoadBalancerNodePorts: false from the Service", p.Port))
		default:
			usable = append(usable, p)
		}
	}
	if len(svc.Spec.Ports) == 0 {
		mistakes = append(mistakes, errors.New("the Service has no ports"))
	}
	if len(usable) == 0 {
		for _, p := range skipped {
			mistakes = append(mistakes, fmt.Errorf("port %d: protocol %s is not supported: Hetzner load balancers forward TCP only", p.Port, p.Protocol))
		}
	}
	return usable, skipped, mistakes
}

func checkNetworking(s *lbSettings, haveNetwork bool) (errs []error) {
	invalid := func(name, with, value, reason string) {
		errs = append(errs, annotationError{Source: annotationPrefix + name, With: with, Value: value, Reason: reason})
	}
	usePrivate := s.UsePrivateIP != nil && *s.UsePrivateIP
	if !haveNetwork {
		const reason = "needs a private network: set HCLOUD_NETWORK of the cloud-controller-manager"
		if usePrivate {
			invalid("use-private-ip", "", "true", reason)
		}
		if s.DisablePublicNetwork {
			invalid("disable-public-network", "", "true", reason)
		}
		if s.PrivateIPv4.IsValid() {
			invalid("private-ipv4", "", s.PrivateIPv4.String(), reason)
		}
		if s.PrivateSubnet.IsValid() {
			invalid("private-subnet-ip-range", "", s.PrivateSubnet.String(), reason)
		}
	}
	if s.DisablePublicNetwork && s.UsePrivateIP != nil && !usePrivate {
		invalid("use-private-ip", "disable-public-network", "false", "contradicts disable-public-network, which needs the private addresses of targets: must be true or absent")
	}
	if s.PrivateIPv4.IsValid() && s.PrivateSubnet.IsValid() && !s.PrivateSubnet.Contains(s.PrivateIPv4) {
		invalid("private-ipv4", "private-subnet-ip-range", s.PrivateIPv4.String(), "is outside private-subnet-ip-range "+s.PrivateSubnet.String()+": must be an address inside it")
	}
	return errs
}

func checkHTTP(s *lbSettings) (errs []error) {
	invalid := func(name, value, reason string) {
		errs = append(errs, annotationError{Source: annotationPrefix + name, Value: value, Reason: reason})
	}
	https := s.Protocol == hcloud.LoadBalancerServiceProtocolHTTPS
	if s.RedirectHTTP && !https {
		invalid("http-redirect-http", "true", "is allowed only with protocol https")
	}
	if !https {
		return errs
	}
	if s.CertificateType == hcloud.CertificateTypeManaged {
		if len(s.ManagedCertificateDomains) == 0 {
			invalid("http-managed-certificate-domains", "", "is missing: certificate-type managed needs domain names, separated by commas")
		}
	} else if len(s.Certificates) == 0 {
		invalid("http-certificates", "", "is missing: protocol https needs IDs or names of certificates, separated by commas, or certificate-type managed")
	}
	return errs
}

// lbPlanInput is the input of planLoadBalancer.
type lbPlanInput struct {
	Service  *corev1.Service
	Settings *lbSettings
	Own      ownership
	// Wrong holds the names of annotations whose setting cannot be applied. The load balancer keeps what
	// it has. It is empty for a new load balancer.
	Wrong map[string]bool
	// Current is the existing load balancer; nil for a new one.
	Current *hcloud.LoadBalancer
	// Limits are those of the type that the load balancer has or gets; nil if unknown.
	Limits *hcloud.LoadBalancerType
	// Nodes are the nodes that the service controller wants as targets. It excludes deleted nodes,
	// nodes with the label node.kubernetes.io/exclude-from-external-load-balancers, and nodes that the
	// cluster autoscaler is about to delete.
	Nodes []*corev1.Node
	// Servers of the Nodes, by ID.
	Servers map[int64]*hcloud.Server
	// Unread is set if some servers could not be read. All targets stay then.
	Unread bool
	// NetworkID of HCLOUD_NETWORK; 0 if there is none.
	NetworkID int64
	// CertificateIDs are the certificates for protocol https.
	CertificateIDs []int64
}

// lbNote is a warning about a plan.
type lbNote struct{ Reason, Text string }

// planLoadBalancer computes the desired state of the Service's load balancer. The input has passed
// checkService, except for the settings in Wrong.
func planLoadBalancer(in lbPlanInput) (plan *lbPlan, notes []lbNote) {
	s := in.Settings
	plan = &lbPlan{
		UID:           string(in.Service.UID),
		Marks:         in.Own.marks(string(in.Service.UID)),
		Name:          s.Name,
		CreateName:    cmp.Or(s.Name, in.Own.defaultName(in.Service)),
		Type:          s.Type,
		Location:      s.Location,
		NetworkZone:   s.NetworkZone,
		Algorithm:     s.Algorithm,
		NetworkID:     in.NetworkID,
		PrivateIPv4:   s.PrivateIPv4,
		PrivateSubnet: s.PrivateSubnet,
		Public:        !s.DisablePublicNetwork,
		IPv4RDNS:      s.IPv4RDNS,
		IPv6RDNS:      s.IPv6RDNS,
		Limits:        in.Limits,
	}
	if plan.Location != "" {
		plan.NetworkZone = ""
	}
	keepLoadBalancerSettings(plan, in)
	if in.Unread { // for another address, all private targets would have to leave before it is known what replaces them
		plan.PrivateIPv4, plan.PrivateSubnet = netip.Addr{}, netip.Prefix{}
	}
	plan.Targets, plan.IPv6, notes = planTargets(in, usesPrivateIP(plan, in))
	plan.Services = planServices(in)
	notes = slices.Concat(notes, familyNotes(in, plan.Targets), portNotes(in))
	fitToLimits(plan, in)
	return plan, notes
}

// usesPrivateIP reports whether the load balancer uses the private addresses of targets.
func usesPrivateIP(plan *lbPlan, in lbPlanInput) bool {
	switch {
	case !plan.Public:
		return true
	case in.Wrong["use-private-ip"] && in.Current != nil:
		return slices.ContainsFunc(serverTargets(in.Current), func(t lbTarget) bool { return t.Private })
	}
	return in.Settings.UsePrivateIP != nil && *in.Settings.UsePrivateIP
}

func planTargets(in lbPlanInput, private bool) (targets []lbTarget, ipv6 map[int64]netip.Addr, notes []lbNote) {
	var noAddress, noRoute []string
	network := in.NetworkID
	current := map[int64]lbTarget{}
	if in.Current != nil {
		for _, t := range serverTargets(in.Current) {
			current[t.ServerID] = t
		}
		if network == 0 && len(in.Current.PrivateNet) > 0 {
			network = in.Current.PrivateNet[0].Network.ID // HCLOUD_NETWORK is not known
		}
	}
	for _, node := range selectedNodes(in, current) {
		// A Node without a provider ID is not initialized yet; its initialization causes another sync.
		// A Node of another provider, or one whose server is gone, cannot be a target.
		id, err := parseProviderID(node.Spec.ProviderID)
		if err != nil {
			continue
		}
		server := in.Servers[id]
		if server == nil {
			continue
		}
		target, address := chooseAddress(in, node, server, network, private)
		if target.ServerID == 0 {
			noAddress = append(noAddress, node.Name)
			continue
		}
		if _, is := current[id]; !is && lacksRoute(node) {
			noRoute = append(noRoute, node.Name)
			continue
		}
		targets = append(targets, target)
		if address.IsValid() {
			if ipv6 == nil {
				ipv6 = map[int64]netip.Addr{}
			}
			ipv6[id] = address
		}
	}
	foreign := len(in.Nodes) > 0 && !slices.ContainsFunc(in.Nodes, func(n *corev1.Node) bool { return !isForeign(n) })
	if foreign {
		notes = append(notes, lbNote{EventSkippedNodes, fmt.Sprintf("All %d nodes have provider IDs of another provider, such as %q: targets are neither added nor removed until a node begins with %s or %s",
			len(in.Nodes), in.Nodes[0].Spec.ProviderID, ConventionOwn.prefix(), ConventionHcloud.prefix())})
	}
	if in.Unread || foreign {
		// It is not certain that anything replaces the targets whose nodes are gone.
		for id, t := range current {
			if !slices.ContainsFunc(targets, func(t lbTarget) bool { return t.ServerID == id }) {
				targets = append(targets, t)
			}
		}
	}
	slices.SortFunc(targets, func(a, b lbTarget) int { return cmp.Compare(a.ServerID, b.ServerID) })
	targets = slices.Compact(targets)
	return targets, ipv6, append(notes, skippedNotes(noAddress, noRoute, private)...)
}

// skippedNotes warns about nodes that are not targets.
func skippedNotes(noAddress, noRoute []string, private bool) (notes []lbNote) {
	if len(noAddress) > 0 {
		why := "their servers have no public address of the Service's IP family (set use-private-ip to use private addresses)"
		if private {
			why = "their servers are not attached to the network of HCLOUD_NETWORK"
		}
		notes = append(notes, lbNote{EventSkippedNodes, fmt.Sprintf("%d nodes are not targets because %s: %s", len(noAddress), why, abbreviate(noAddress, 5))})
	}
	if len(noRoute) > 0 {
		notes = append(notes, lbNote{EventSkippedNodes, fmt.Sprintf("%d nodes are not targets yet because they have no route: %s", len(noRoute), abbreviate(noRoute, 5))})
	}
	return notes
}

// selectedNodes returns the nodes that match the node selector. If it is invalid, they are the nodes that
// are targets already; if there is none, all nodes, because an endless wait for targets helps no client.
func selectedNodes(in lbPlanInput, current map[int64]lbTarget) []*corev1.Node {
	selector := in.Settings.NodeSelector
	matches := func(n *corev1.Node) bool { return selector == nil || selector.Matches(labels.Set(n.Labels)) }
	if in.Wrong["node-selector"] {
		matches = func(n *corev1.Node) bool {
			id, err := parseProviderID(n.Spec.ProviderID)
			_, is := current[id]
			return err == nil && is
		}
		if !slices.ContainsFunc(in.Nodes, matches) {
			return in.Nodes
		}
	}
	var nodes []*corev1.Node
	for _, n := range in.Nodes {
		if matches(n) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// abbreviate joins at most n of the names.
func abbreviate(names []string, n int) string {
	slices.Sort(names)
	if len(names) <= n {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:n], ", "), len(names)-n)
}

// planServices computes the load balancer's services, ordered by port.
func planServices(in lbPlanInput) []hcloud.LoadBalancerService {
	var services []hcloud.LoadBalancerService
	ports, _, _ := usablePorts(in.Service)
	for _, port := range ports {
		if exposesPort(in, int(port.Port)) {
			continue
		}
		service, ok := keepPortSettings(planService(in, port), in)
		if ok {
			services = append(services, service)
		}
	}
	slices.SortFunc(services, func(a, b hcloud.LoadBalancerService) int { return cmp.Compare(a.ListenPort, b.ListenPort) })
	return services
}

// exposesPort reports whether a new port would be reachable from the internet although it is not certain that
// the Service wants that: disable-public-network is wrong or cannot be applied. The port has to wait.
func exposesPort(in lbPlanInput, port int) bool {
	lb := in.Current
	if lb == nil || !in.Wrong["disable-public-network"] || !lb.PublicNet.Enabled {
		return false
	}
	return !slices.ContainsFunc(lb.Services, func(s hcloud.LoadBalancerService) bool { return s.ListenPort == port })
}

// portNotes reports ports that are skipped, and settings without an effect.
func portNotes(in lbPlanInput) (notes []lbNote) {
	usable, skipped, _ := usablePorts(in.Service)
	if len(skipped) > 0 && len(usable) > 0 {
		var texts []string
		for _, p := range skipped {
			texts = append(texts, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
		}
		notes = append(notes, lbNote{EventSkippedPorts, "Skipped ports " + strings.Join(texts, ", ") + ": Hetzner load balancers forward TCP only"})
	}
	if len(usable) == 0 {
		return notes
	}
	if check := planHealthCheck(in.Service, in.Settings, usable[0]); check.HTTP == nil {
		for _, name := range httpCheckAnnotations {
			if _, set := in.Service.Annotations[annotationPrefix+name]; set && !in.Wrong["protocol"] && !in.Wrong["health-check-protocol"] {
				notes = append(notes, lbNote{EventIgnoredSetting, fmt.Sprintf("Ignored %s: the health check is TCP; set %shealth-check-protocol to http or https", annotationPrefix+name, annotationPrefix)})
			}
		}
	}
	return notes
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
		return service // HTTP settings do not apply to TCP
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

// planHealthCheck computes the health check of one service. With externalTrafficPolicy Local, only
// nodes with an endpoint of the Service can serve it, and kube-proxy reports on the health check node
// port whether a node has one. So that port is checked, unless the annotations choose another check.
// A check of the Service's own node port would depend on kube-proxy's mode.
//
// Without a protocol of its own, the check has the Service's protocol if an annotation chooses anything
// else about it, as with the production CCM. A Service without such an annotation has a TCP check: not
// every HTTP server answers / with success.
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
	if check.Protocol == "" && choosesHealthCheck(svc) && s.Protocol != hcloud.LoadBalancerServiceProtocolTCP && s.Protocol != "" {
		check.Protocol = hcloud.LoadBalancerServiceProtocolHTTP // also for https: the load balancer ends TLS
	}
	switch check.Protocol {
	case "", hcloud.LoadBalancerServiceProtocolTCP:
		check.Protocol = hcloud.LoadBalancerServiceProtocolTCP
		return check
	case hcloud.LoadBalancerServiceProtocolHTTPS: // for the API: http with tls
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

// httpCheckAnnotations have an effect only on HTTP checks.
var httpCheckAnnotations = []string{"health-check-http-domain", "health-check-http-path", "health-check-http-validate-certificate", "http-status-codes"}

// choosesHealthCheck reports whether an annotation of the Service is about the health check.
func choosesHealthCheck(svc *corev1.Service) bool {
	for key := range svc.Annotations {
		if strings.HasPrefix(key, annotationPrefix+"health-check-") || key == annotationPrefix+"http-status-codes" {
			return true
		}
	}
	return false
}
