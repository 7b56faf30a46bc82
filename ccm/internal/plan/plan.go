package plan

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	servicehelpers "k8s.io/cloud-provider/service/helpers"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/event"
)

// Defaults of the API document. They are always sent, because update_service is a patch: it returns
// to a default only if the request contains it.
const (
	DefaultLoadBalancerType = "lb11"
	defaultCookieName       = "HCLBSTICKY"
	defaultCookieLifetime   = 300 * time.Second
	defaultTimeoutIdle      = 50 * time.Second

	defaultHealthCheckInterval = 15 * time.Second
	defaultHealthCheckTimeout  = 10 * time.Second
	defaultHealthCheckRetries  = 3
	defaultHealthCheckPath     = "/"
)

var defaultStatusCodes = []string{"2??", "3??"}

// Target is a server as the target of a load balancer.
type Target struct {
	ServerID int64
	// Private makes the load balancer use the server's address in the network.
	Private bool
}

// LoadBalancer is the desired state of a Service's load balancer. It depends only on the Input.
type LoadBalancer struct {
	// UID of the Service that owns the load balancer.
	UID string
	// Marks are its other ownership labels: see Ownership.Marks.
	Marks map[string]string
	// Name of the load balancer; "" keeps the existing name. CreateName is the name of a new one.
	Name, CreateName string
	// Shared allows other Services to be guests on the load balancer. Guest is set if the Service is one itself:
	// then the plan has nothing but its ports.
	Shared, Guest bool
	// Common are the settings that are recorded for the Services that share the load balancer.
	Common commonSettings
	// Adopt is the ID or name of an existing load balancer that the Service uses instead of a new one.
	Adopt string
	// PrimaryIPv4 and PrimaryIPv6 are the addresses of a new load balancer; nil: Hetzner chooses.
	PrimaryIPv4, PrimaryIPv6 *hcloud.PrimaryIP
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
	// Labels are those of the annotation labels; nil keeps the existing ones.
	Labels map[string]string
	// DeleteProtection against deletion; nil keeps it as it is.
	DeleteProtection *bool
	// Targets are ordered by server ID, Services by port. Lingering are servers that have to leave when others are healthy
	// in their place; Targets has them, too, as far as there is room. Waiting are those of Targets that get another kind of address
	// when others are healthy with it.
	Targets, Lingering, Waiting []Target
	// Chosen are the servers of the chosen nodes, in ascending order, whether they can be targets or not.
	Chosen []int64
	// Fresh is the number of chosen nodes that have not found their servers yet.
	Fresh int
	// IPv6 holds the addresses of public targets that the load balancer reaches over IPv6, by server ID.
	IPv6 map[int64]netip.Addr
	// Former holds the addresses that such targets have now, if they are others.
	Former   map[int64]netip.Addr
	Services []hcloud.LoadBalancerService
	// Limits are those of the type that the load balancer has or gets; nil if unknown.
	Limits *hcloud.LoadBalancerType
	// Excess holds what the plan lacks because of the limits.
	Excess []Excess
	// Outside are the servers of nodes that have no address in the network, and could be targets with one.
	Outside []int64
	// unrouted is set if a node becomes a target as soon as it has its route.
	unrouted bool
}

// ports returns the listen ports of the plan in ascending order.
func (p *LoadBalancer) ports() []int {
	ports := make([]int, len(p.Services))
	for i, s := range p.Services {
		ports[i] = s.ListenPort
	}
	return ports
}

// Input is the input of Compute.
type Input struct {
	Service  *corev1.Service
	Settings *Settings
	Own      Ownership
	// Wrong holds the names of annotations with settings that cannot be applied. The load balancer keeps its own. Wrong is empty
	// for a new load balancer.
	Wrong map[string]bool
	// Current is the existing load balancer; nil for a new one.
	Current *hcloud.LoadBalancer
	// Limits are those of the type that the load balancer has or gets; nil if unknown.
	Limits *hcloud.LoadBalancerType
	// Nodes are the nodes that the service controller wants as targets. It excludes deleted nodes,
	// nodes with the label node.kubernetes.io/exclude-from-external-load-balancers, and nodes that the
	// cluster autoscaler is about to delete.
	Nodes []*corev1.Node
	// Servers of Nodes, by ID.
	Servers map[int64]*hcloud.Server
	// Unread is set if some servers could not be read. All targets stay then.
	Unread bool
	// LingerOver is set if targets have waited long enough for others to be healthy, so that one of them leaves.
	LingerOver bool
	// Doomed holds the servers of nodes that are about to end.
	Doomed map[int64]bool
	// Known and Fresh are LoadBalancer.Chosen and Fresh before targets had to leave.
	Known []int64
	Fresh int
	// Refused holds the servers that the API last refused as targets of the Service: nothing waits for them.
	Refused map[int64]bool
	// NetworkID of HCLOUD_NETWORK; 0 without a network.
	NetworkID int64
	// PrimaryIPv4 and PrimaryIPv6 are those of a new load balancer, if the Service chooses them.
	PrimaryIPv4, PrimaryIPv6 *hcloud.PrimaryIP
	// Certificates holds the IDs of the certificates of each HTTPS port.
	Certificates map[int][]int64
}

// IsWrong reports whether a setting of a port cannot be applied.
func (in Input) IsWrong(name string, port int) bool {
	own := portSetting(name, port)
	return in.Wrong[own] || !IsSet(in.Service, own) && in.Wrong[name]
}

// Note is a warning about a plan.
type Note struct {
	Reason, Text string
	// Unmet is set if the Service lacks what it asks for: the warning is an error, too.
	Unmet bool
}

// Compute computes the desired state of the Service's load balancer. The input has passed
// CheckService, except for the settings in Wrong.
func Compute(in Input) (plan *LoadBalancer, notes []Note) {
	s := in.Settings
	plan = &LoadBalancer{
		UID:           string(in.Service.UID),
		Marks:         in.Own.Marks(string(in.Service.UID)),
		Name:          s.Name,
		CreateName:    cmp.Or(s.Name, in.Own.DefaultName(in.Service)),
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
		Adopt:         s.Adopt,
		Shared:        s.Shared,
		PrimaryIPv4:   in.PrimaryIPv4,
		PrimaryIPv6:   in.PrimaryIPv6,

		DeleteProtection: s.DeleteProtection,
	}
	if plan.Labels = s.Labels; plan.Labels == nil {
		plan.Labels = map[string]string{} // removes the labels of an earlier annotation
	}
	if plan.Location != "" {
		plan.NetworkZone = ""
	}
	notes = append(planLent(plan, in), primaryIPNotes(in)...)
	for name := range in.Wrong {
		if copySetting, ok := copiedOnLoadBalancer[name]; ok && in.Current != nil {
			copySetting(plan, in.Current)
		}
	}
	if in.Unread { // for another address, all private targets would have to leave before it is known what replaces them
		plan.PrivateIPv4, plan.PrivateSubnet = netip.Addr{}, netip.Prefix{}
	}
	notes = append(notes, stayHidden(plan, in)...)
	private := usesPrivateIP(plan, in)
	notes = append(notes, stayInNetwork(plan, in)...)
	in.NetworkID = plan.NetworkID
	notes = slices.Concat(notes, planTargets(plan, in, private), foreignNotes(in), selectorNotes(plan, in), familyNotes(in, plan.Targets))
	plan.Services = planServices(in)
	plan.Common = planCommonSettings(plan, in)
	notes = slices.Concat(notes, dropRedirect(plan, in), portNotes(in), planGuest(plan, in))
	fitToLimits(plan, in)
	linger(plan, in)
	return plan, notes
}

// planServices computes the load balancer's services, ordered by port.
func planServices(in Input) []hcloud.LoadBalancerService {
	var services []hcloud.LoadBalancerService
	ports, _ := freePorts(in)
	for _, port := range ports {
		if exposesPort(in, int(port.Port)) {
			continue
		}
		service, ok := copyPortSettings(planService(in, port), in)
		if ok {
			services = append(services, service)
		}
	}
	slices.SortFunc(services, func(a, b hcloud.LoadBalancerService) int { return cmp.Compare(a.ListenPort, b.ListenPort) })
	return services
}

// exposesPort reports whether a new port would be reachable from the internet although it is not certain that
// the Service wants that: disable-public-network is wrong or cannot be applied. The port has to wait.
func exposesPort(in Input, port int) bool {
	lb := in.Current
	if lb == nil || !in.Wrong["disable-public-network"] || !lb.PublicNet.Enabled {
		return false
	}
	return !slices.ContainsFunc(lb.Services, func(s hcloud.LoadBalancerService) bool { return s.ListenPort == port })
}

// portNotes reports ports that are skipped, and settings without an effect.
func portNotes(in Input) (notes []Note) {
	usable, skipped, _ := UsablePorts(in.Service)
	_, notes = freePorts(in)
	if len(skipped) > 0 && len(usable) > 0 {
		var texts []string
		for _, p := range skipped {
			texts = append(texts, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
		}
		notes = append(notes, Note{Reason: event.SkippedPorts, Text: "Skipped ports " + strings.Join(texts, ", ") +
			": Hetzner load balancers forward TCP only"})
	}
	effect, missing := map[string]bool{}, map[string]string{} // by annotation
	var numbers []string
	for _, p := range usable {
		port := int(p.Port)
		numbers = append(numbers, strconv.Itoa(port))
		s := in.Settings.ForPort(port)
		check, unsure := planHealthCheck(in.Service, s, p).HTTP != nil, in.IsWrong("protocol", port)
		for _, need := range needs {
			for _, name := range need.names {
				at := SettingAt(in.Service, in.Settings, name, port)
				effect[at] = effect[at] || unsure || need.met(s, check || in.IsWrong("health-check-protocol", port))
				missing[at] = need.missing
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(effect)) {
		if IsSet(in.Service, name) && !effect[name] {
			notes = append(notes, Note{Reason: event.IgnoredSetting, Text: fmt.Sprintf("Ignored %s: %s", AnnotationPrefix+name,
				fmt.Sprintf(missing[name], AnnotationPrefix))})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(in.Service.Annotations)) {
		name, _ := strings.CutPrefix(key, AnnotationPrefix)
		if _, port, ok := cutPort(name); ok && !slices.Contains(numbers, strconv.Itoa(port)) {
			notes = append(notes, Note{Reason: event.IgnoredSetting, Text: fmt.Sprintf(
				"Ignored %s: the Service has no TCP port %d: must be for one of its ports %s", key, port,
				strings.Join(numbers, ", "))})
		}
	}
	return notes
}

// planService computes the load balancer's service for one port of the Kubernetes Service.
func planService(in Input, port corev1.ServicePort) hcloud.LoadBalancerService {
	s := in.Settings.ForPort(int(port.Port))
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
		for _, id := range in.Certificates[int(port.Port)] {
			service.HTTP.Certificates = append(service.HTTP.Certificates, &hcloud.Certificate{ID: id})
		}
	}
	return service
}

// planHealthCheck computes the health check of one service; s are the settings of the port. With externalTrafficPolicy Local, only
// nodes with an endpoint of the Service can serve it, and kube-proxy reports on the health check node
// port whether a node has one. So that port is checked, unless the annotations choose another check.
// A check of the Service's own node port would depend on kube-proxy's mode.
//
// Without the annotation health-check-protocol, the check has the Service's protocol if an annotation chooses anything
// else about it, as with the production CCM. A Service without such an annotation has a TCP check: not
// every HTTP server answers / with success.
func planHealthCheck(svc *corev1.Service, s *Settings, port corev1.ServicePort) hcloud.LoadBalancerServiceHealthCheck {
	check := hcloud.LoadBalancerServiceHealthCheck{
		Protocol: s.HealthCheckProtocol,
		Port:     cmp.Or(s.HealthCheckPort, int(port.NodePort)),
		Interval: cmp.Or(s.HealthCheckInterval, defaultHealthCheckInterval),
		Timeout:  cmp.Or(s.HealthCheckTimeout, defaultHealthCheckTimeout),
		Retries:  cmp.Or(s.HealthCheckRetries, defaultHealthCheckRetries),
	}
	path := cmp.Or(s.HealthCheckHTTPPath, defaultHealthCheckPath)
	tls := s.HealthCheckHTTPTLS
	if localPath, localPort := servicehelpers.GetServiceHealthCheckPathPort(svc); localPort != 0 && s.HealthCheckProtocol == "" &&
		s.HealthCheckPort == 0 {
		check.Protocol, check.Port = hcloud.LoadBalancerServiceProtocolHTTP, int(localPort)
		path, tls = cmp.Or(s.HealthCheckHTTPPath, localPath), false
	}
	if check.Protocol == "" && choosesHealthCheck(svc, int(port.Port)) && s.Protocol != hcloud.LoadBalancerServiceProtocolTCP &&
		s.Protocol != "" {
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

// needs holds the annotations that have an effect only with other settings, or without them. check says that the health check is HTTP.
var needs = []struct {
	names   []string
	met     func(s *Settings, check bool) bool
	missing string
}{
	{[]string{"health-check-http-domain", "health-check-http-path", "health-check-http-validate-certificate", "http-status-codes"},
		func(_ *Settings, check bool) bool { return check },
		"the health check is TCP; set %shealth-check-protocol to http or https"},
	{[]string{"http-cookie-name", "http-cookie-lifetime", "http-timeout-idle", "http-sticky-sessions"},
		func(s *Settings, _ bool) bool {
			return s.Protocol == hcloud.LoadBalancerServiceProtocolHTTP || s.Protocol == hcloud.LoadBalancerServiceProtocolHTTPS
		}, "the protocol is tcp; set %sprotocol to http or https"},
	{[]string{"certificate-type"}, func(s *Settings, _ bool) bool { return s.Protocol == hcloud.LoadBalancerServiceProtocolHTTPS },
		"only https has certificates; set %sprotocol to https"},
	{[]string{"http-certificates"}, func(s *Settings, _ bool) bool {
		return s.Protocol == hcloud.LoadBalancerServiceProtocolHTTPS && s.CertificateType != hcloud.CertificateTypeManaged
	}, "the port has no certificates, or a managed one; set %[1]sprotocol to https, and %[1]scertificate-type to uploaded"},
	{[]string{"http-managed-certificate-name", "http-managed-certificate-domains", "http-managed-certificate-acme-staging"},
		func(s *Settings, _ bool) bool {
			return s.Protocol == hcloud.LoadBalancerServiceProtocolHTTPS && s.CertificateType == hcloud.CertificateTypeManaged
		}, "the port has no managed certificate; set %[1]sprotocol to https, and %[1]scertificate-type to managed"},
	{[]string{"network-zone"}, func(s *Settings, _ bool) bool { return s.Location == "" },
		"%slocation takes precedence; remove one of them"},
	{[]string{"shared-namespaces"}, func(s *Settings, _ bool) bool { return s.Shared }, "the Service shares nothing; set %sshared to true"},
	{[]string{"ipv6-disabled"}, func(s *Settings, _ bool) bool { return s.Hostname == "" || !s.IPv6Disabled },
		"the status has no address but the name of %shostname"},
	{[]string{"disable-private-ingress"}, func(s *Settings, _ bool) bool { return s.Hostname == "" || !s.DisablePrivateIngress },
		"the status has no address but the name of %shostname"},
}

// choosesHealthCheck reports whether an annotation is about the health check of the port.
func choosesHealthCheck(svc *corev1.Service, port int) bool {
	return slices.ContainsFunc(Annotations, func(a annotation) bool {
		about := strings.HasPrefix(a.Name, "health-check-") || a.Name == "http-status-codes"
		return about && (IsSet(svc, a.Name) || IsSet(svc, portSetting(a.Name, port)))
	})
}
