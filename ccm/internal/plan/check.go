package plan

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CheckService returns all mistakes in the Service and its settings. It makes no API call.
func CheckService(svc *corev1.Service, s *Settings, haveNetwork bool) []error {
	_, _, mistakes := UsablePorts(svc)
	return slices.Concat(checkNetworking(s, haveNetwork), checkHTTP(svc, s), checkShared(s), mistakes)
}

// Unsupported names fields of the Service without effect, or with an unexpected one, each with an alternative. Ports that are not
// TCP are reported by portNotes.
func Unsupported(svc *corev1.Service) (texts []string) {
	_, ranges := svc.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey]
	if len(svc.Spec.LoadBalancerSourceRanges) > 0 || ranges {
		texts = append(texts, "Ignored spec.loadBalancerSourceRanges: Hetzner load balancers cannot filter by source address; filter in "+
			"the cluster, with uses-proxyprotocol, or use a private load balancer (disable-public-network)")
	}
	if ip := svc.Spec.LoadBalancerIP; ip != "" {
		texts = append(texts, fmt.Sprintf("Ignored spec.loadBalancerIP: %s: choose a public address with the annotation %sprimary-ipv4, "+
			"and a private one with %sprivate-ipv4", ip, AnnotationPrefix, AnnotationPrefix))
	}
	if svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		texts = append(texts, fmt.Sprintf("Do not use spec.sessionAffinity: ClientIP: the nodes see the load balancer as the client of "+
			"all requests, so that one pod may get them all; remove it, and for HTTP set %shttp-sticky-sessions", AnnotationPrefix))
	}
	return texts
}

// UsablePorts returns the ports that the load balancer can forward, and those that it skips because they
// are not TCP. It is a mistake if none is left.
func UsablePorts(svc *corev1.Service) (usable, skipped []corev1.ServicePort, mistakes []error) {
	for _, p := range svc.Spec.Ports {
		switch {
		case p.Protocol != corev1.ProtocolTCP && p.Protocol != "":
			skipped = append(skipped, p)
		case p.NodePort == 0:
			mistakes = append(mistakes, fmt.Errorf("port %d has no node port, which the load balancer needs to reach the nodes: remove "+
				"allocateLoadBalancerNodePorts: false from the Service", p.Port))
		default:
			usable = append(usable, p)
		}
	}
	if len(svc.Spec.Ports) == 0 {
		mistakes = append(mistakes, errors.New("the Service has no ports"))
	}
	if len(usable) == 0 {
		for _, p := range skipped {
			mistakes = append(mistakes, fmt.Errorf("port %d: protocol %s is not supported: Hetzner load balancers forward TCP only", p.Port,
				p.Protocol))
		}
	}
	return usable, skipped, mistakes
}

func checkNetworking(s *Settings, haveNetwork bool) (errs []error) {
	invalid := func(name, with, value, reason string) {
		errs = append(errs, AnnotationError{Source: AnnotationPrefix + name, With: with, Value: value, Reason: reason})
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
		invalid("use-private-ip", "disable-public-network", "false",
			"contradicts disable-public-network, which needs the private addresses of targets: must be true or absent")
	}
	if s.PrivateIPv4.IsValid() && s.PrivateSubnet.IsValid() && !s.PrivateSubnet.Contains(s.PrivateIPv4) {
		invalid("private-ipv4", "private-subnet-ip-range", s.PrivateIPv4.String(), "is outside private-subnet-ip-range "+
			s.PrivateSubnet.String()+": must be an address inside it")
	}
	return errs
}

// redirectPort is the port of the load balancer that http-redirect-http occupies: the API refuses another service on it, and a
// second redirect (source_port_already_used).
const redirectPort = 80

// checkHTTP returns the mistakes in the HTTP settings of the Service's ports, each once. A general
// http-redirect-http is for the HTTPS port of a Service that has other ports too.
func checkHTTP(svc *corev1.Service, s *Settings) (errs []error) {
	ports, _, _ := UsablePorts(svc)
	isHTTPS := func(s *Settings) bool { return s.Protocol == hcloud.LoadBalancerServiceProtocolHTTPS }
	redirects := 0
	for _, p := range ports {
		if own := s.ForPort(int(p.Port)); own.RedirectHTTP && isHTTPS(own) {
			redirects++
		}
	}
	hasPort80 := slices.ContainsFunc(ports, func(p corev1.ServicePort) bool { return p.Port == redirectPort })
	for _, p := range ports {
		own := s.ForPort(int(p.Port))
		invalid := func(name, value, reason string) {
			err := AnnotationError{Source: AnnotationPrefix + SettingAt(svc, s, name, int(p.Port)), Value: value, Reason: reason}
			if !slices.Contains(errs, error(err)) {
				errs = append(errs, err)
			}
		}
		switch {
		case !own.RedirectHTTP:
		case !isHTTPS(own):
			if redirects == 0 || IsSet(svc, portSetting("http-redirect-http", int(p.Port))) {
				invalid("http-redirect-http", "true", "is allowed only with protocol https")
			}
		case hasPort80:
			invalid("http-redirect-http", "true", "needs port 80 of the load balancer: remove port 80 from the Service, or this setting")
		case redirects > 1:
			invalid("http-redirect-http", "true",
				"is allowed for one port only: remove it, and set http-redirect-http.<port> for the port to redirect to")
		}
		switch {
		case !isHTTPS(own):
		case own.CertificateType == hcloud.CertificateTypeManaged && len(own.ManagedCertificateDomains) == 0:
			invalid("http-managed-certificate-domains", "", "is missing: certificate-type managed needs domain names, separated by commas")
		case own.CertificateType != hcloud.CertificateTypeManaged && len(own.Certificates) == 0:
			invalid("http-certificates", "", "is missing: protocol https needs IDs or names of certificates, separated by commas, or "+
				"certificate-type managed")
		}
	}
	return errs
}

// SettingAt returns the name of the annotation, without prefix, that decides a setting of a port. Without one, it is the
// annotation that the user would add.
func SettingAt(svc *corev1.Service, s *Settings, name string, port int) string {
	own := portSetting(name, port)
	if IsSet(svc, own) || !IsSet(svc, name) && s.ByPort[port] != nil {
		return own
	}
	return name
}

// IsSet reports whether the Service has an annotation, given by its name without prefix.
func IsSet(svc *corev1.Service, name string) bool {
	return metav1.HasAnnotation(svc.ObjectMeta, AnnotationPrefix+name)
}

// AtPort makes mistakes in settings name the annotations that decide them for the port.
func AtPort(err error, svc *corev1.Service, settings *Settings, port int) error {
	invalid, ok := errors.AsType[SettingsError](err)
	if !ok {
		return err
	}
	mistakes := slices.Clone(invalid.Mistakes)
	for i, m := range mistakes {
		if a, ok := errors.AsType[AnnotationError](m); ok && a.Setting() != "" {
			a.Source = AnnotationPrefix + SettingAt(svc, settings, a.Setting(), port)
			mistakes[i] = a
		}
	}
	return InvalidSettings(mistakes...)
}

// WantsLoadBalancer reports whether the Service wants a load balancer of ours: one with a class wants that of another controller.
func WantsLoadBalancer(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.Spec.LoadBalancerClass == nil && svc.DeletionTimestamp == nil
}
