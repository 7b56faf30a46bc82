package plan

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/apimachinery/pkg/labels"
)

// AnnotationPrefix is the prefix that existing manifests of users have, so that they work unchanged.
const AnnotationPrefix = "load-balancer.hetzner.cloud/"

// annotation declares one Service annotation. ANNOTATIONS.md is generated from these declarations.
type annotation struct {
	// Name without prefix.
	Name string
	// Also is the production CCM's name for it.
	Also string
	// Env is the optional environment variable with the default.
	Env string
	// Default is written as in a manifest. It may be empty.
	Default string
	// Allowed completes the sentence "must be …".
	Allowed string
	// Doc describes the effect.
	Doc string
	// NeedsNetwork is set if the annotation requires HCLOUD_NETWORK.
	NeedsNetwork bool
	// Set parses value into s. If it returns an error it does not change s.
	Set func(s *Settings, value string) error
}

// Key returns the annotation's full name.
func (a annotation) Key() string { return AnnotationPrefix + a.Name }

// KeyIn returns the full name of the annotation in set: Also only if Name is absent.
func (a annotation) KeyIn(set map[string]string) string {
	_, has := set[a.Key()]
	if _, also := set[AnnotationPrefix+a.Also]; a.Also != "" && also && !has {
		return AnnotationPrefix + a.Also
	}
	return a.Key()
}

// perPort reports whether the annotation concerns a service of the load balancer. Such an annotation can be
// set for one port: see portSetting.
func (a annotation) perPort() bool { return copiedOnPort[a.Name] != nil }

// Annotations lists every annotation, in the order of the documentation.
var Annotations = []annotation{
	{Name: "name", Allowed: "1 to 128 characters that neither start nor end with a space",
		Doc: "Name of the load balancer; changing it renames it. Without it the name of a new load balancer is `a` + the Service's UID. " +
			"An existing load balancer with that name is adopted, unless another Service owns it, and given back when the Service is " +
			"deleted, unless `keep-on-delete` is `false`.",
		Set: into(func(s *Settings) *string { return &s.Name }, parseLBName)},
	{Name: "shared", Default: "false", Allowed: "true or false",
		Doc: "Services with this annotation and the same `name` share one load balancer. The first one owns it and decides about all " +
			"settings and targets; each of the others has its ports and the settings of these, and no annotation that contradicts the " +
			"owner's. A port belongs to the Service that had it first: an event says which one. When the owner is deleted, the load " +
			"balancer passes to another Service and keeps its settings, except those that this one has annotations for; with the last " +
			"Service it is deleted. `disable-public-network` must be the same for all. All are in one namespace, unless the owner has " +
			"`shared-namespaces`. A Service that shares a load balancer stays on it until the Service is deleted.",
		Set: into(func(s *Settings) *bool { return &s.Shared }, strconv.ParseBool)},
	{Name: "shared-namespaces", Allowed: "names of namespaces, separated by commas, or *",
		Doc: "Services of these namespaces, too, may share the load balancer that this Service owns. `*` means all of the cluster.",
		Set: into(func(s *Settings) *[]string { return &s.SharedNamespaces }, listOf(parseNamespace))},
	{Name: "adopt", Allowed: "the ID or name of an existing load balancer",
		Doc: "Uses this load balancer instead of a new one, unless another Service owns it. Its ports, its targets and, without an " +
			"annotation that says otherwise, all its settings stay; the Service's ports and nodes are added. When the Service is " +
			"deleted, the load balancer loses these and is kept, unless `keep-on-delete` is `false`.",
		Set: into(func(s *Settings) *string { return &s.Adopt }, parseNonEmpty)},
	{Name: "primary-ipv4", Also: "public-net-ipv4", Allowed: "the ID or name of a Primary IP of type ipv4 that is not assigned",
		Doc: "Public IPv4 address of a new load balancer, for its whole life. It must be in the load balancer's location. It outlives " +
			"the load balancer, unless its `auto_delete` is set. `public-net-ipv4`, the production CCM's name since 1.39, means the same.",
		Set: into(func(s *Settings) *string { return &s.PrimaryIPv4 }, parseNonEmpty)},
	{Name: "primary-ipv6", Also: "public-net-ipv6", Allowed: "the ID or name of a Primary IP of type ipv6 that is not assigned",
		Doc: "Public IPv6 address of a new load balancer, as `primary-ipv4`. `public-net-ipv6` means the same.",
		Set: into(func(s *Settings) *string { return &s.PrimaryIPv6 }, parseNonEmpty)},
	{Name: "hostname", Allowed: "a DNS name, or empty",
		Doc: "The Service's status contains this name and no address, so that traffic from inside the cluster passes through the load " +
			"balancer too.",
		Set: into(func(s *Settings) *string { return &s.Hostname }, orEmpty(parseHostname))},
	{Name: "location", Env: "HCLOUD_LOAD_BALANCERS_LOCATION", Allowed: "the name of a location, for example fsn1, or empty",
		Doc: "Location of a new load balancer. Either `location` or `network-zone` is required; `location` takes precedence. An empty " +
			"value removes the default. It cannot change later: to move the load balancer, delete and create the Service.",
		Set: into(func(s *Settings) *string { return &s.Location }, orEmpty(parseAPIName))},
	{Name: "network-zone", Env: "HCLOUD_LOAD_BALANCERS_NETWORK_ZONE",
		Allowed: "the name of a network zone, for example eu-central, or empty",
		Doc:     "Network zone in which Hetzner chooses the location of a new load balancer. It cannot change later.",
		Set:     into(func(s *Settings) *string { return &s.NetworkZone }, orEmpty(parseAPIName))},
	{Name: "type", Env: "HCLOUD_LOAD_BALANCERS_TYPE", Default: DefaultLoadBalancerType,
		Allowed: "the name or ID of a load balancer type, for example lb11",
		Doc: "Type of the load balancer. A change applies to the existing load balancer. The default and the variable apply only to " +
			"new load balancers: without the annotation an existing load balancer keeps its type.",
		Set: into(func(s *Settings) *string { return &s.Type }, parseType)},
	{Name: "algorithm-type", Env: "HCLOUD_LOAD_BALANCERS_ALGORITHM_TYPE", Default: "round_robin",
		Allowed: "round_robin or least_connections",
		Doc: "How the load balancer distributes connections to targets. The default applies only to new load balancers: if neither " +
			"the annotation nor the variable is set, an existing load balancer keeps its algorithm.",
		Set: into(func(s *Settings) *hcloud.LoadBalancerAlgorithmType { return &s.Algorithm },
			oneOf(hcloud.LoadBalancerAlgorithmTypeRoundRobin, hcloud.LoadBalancerAlgorithmTypeLeastConnections))},
	{Name: "ipv4-rdns", Allowed: "a DNS name",
		Doc: "Reverse DNS of the public IPv4 address. Without the annotation the entry does not change.",
		Set: into(func(s *Settings) *string { return &s.IPv4RDNS }, parseDNSName)},
	{Name: "ipv6-rdns", Allowed: "a DNS name",
		Doc: "Reverse DNS of the public IPv6 address. Without the annotation the entry does not change.",
		Set: into(func(s *Settings) *string { return &s.IPv6RDNS }, parseDNSName)},
	{Name: "ipv6-disabled", Env: "HCLOUD_LOAD_BALANCERS_DISABLE_IPV6", Default: "false", Allowed: "true or false",
		Doc: "Hides the IPv6 address from the Service's status.",
		Set: into(func(s *Settings) *bool { return &s.IPv6Disabled }, strconv.ParseBool)},
	{Name: "disable-private-ingress", Env: "HCLOUD_LOAD_BALANCERS_DISABLE_PRIVATE_INGRESS", Default: "false", Allowed: "true or false",
		Doc: "Hides the private address from the Service's status.",
		Set: into(func(s *Settings) *bool { return &s.DisablePrivateIngress }, strconv.ParseBool)},
	{Name: "disable-public-network", Env: "HCLOUD_LOAD_BALANCERS_DISABLE_PUBLIC_NETWORK", Default: "false", Allowed: "true or false",
		NeedsNetwork: true,
		Doc:          "Disables the public interface. The load balancer then uses the private addresses of targets (`use-private-ip`).",
		Set:          into(func(s *Settings) *bool { return &s.DisablePublicNetwork }, strconv.ParseBool)},
	{Name: "use-private-ip", Env: "HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP", Allowed: "true or false", NeedsNetwork: true,
		Doc: "The load balancer uses the private addresses of targets in `HCLOUD_NETWORK`. If neither the annotation nor the variable is " +
			"set, it does so only for servers without a public IPv4 address.",
		Set: into(func(s *Settings) **bool { return &s.UsePrivateIP }, ptrTo(strconv.ParseBool))},
	{Name: "private-ipv4", Allowed: "an IPv4 address inside HCLOUD_NETWORK", NeedsNetwork: true,
		Doc: "Address of the load balancer in the network. A change detaches and attaches the load balancer; private targets do not " +
			"serve meanwhile.",
		Set: into(func(s *Settings) *ipAddr { return &s.PrivateIPv4 }, parseIPv4)},
	{Name: "private-subnet-ip-range", Env: "HCLOUD_LOAD_BALANCERS_PRIVATE_SUBNET_IP_RANGE",
		Allowed: "the IP range of a subnet, for example 10.0.1.0/24", NeedsNetwork: true,
		Doc: "Subnet of the load balancer's private address. A change detaches and attaches the load balancer; private targets do not " +
			"serve meanwhile. The default is for load balancers that join the network.",
		Set: into(func(s *Settings) *ipPrefix { return &s.PrivateSubnet }, parseIPv4Prefix)},
	{Name: "labels", Allowed: "labels separated by commas, for example team=web,env=prod, without the prefixes of others",
		Doc: "Labels of the load balancer. A label that is removed from the annotation is removed from the load balancer; those of " +
			"others stay.",
		Set: into(func(s *Settings) *map[string]string { return &s.Labels }, parseLabels)},
	{Name: "delete-protection", Allowed: "true or false",
		Doc: "Protects the load balancer against deletion, also by the deletion of the Service, which waits until this is `false`. " +
			"Without the annotation the protection does not change.",
		Set: into(func(s *Settings) **bool { return &s.DeleteProtection }, ptrTo(strconv.ParseBool))},
	{Name: "keep-on-delete", Default: "false", Allowed: "true or false",
		Doc: "Keeps the load balancer, with its addresses, when the Service is deleted. It loses the Service's ports and belongs to no " +
			"Service then. The annotation `name` gives it to another Service. Without the annotation, a load balancer that was there " +
			"before the Service is kept.",
		Set: into(func(s *Settings) **bool { return &s.KeepOnDelete }, ptrTo(strconv.ParseBool))},
	{Name: "node-selector", Allowed: "a label selector, for example pool=web,zone!=b",
		Doc: "Only nodes with matching labels become targets.",
		Set: into(func(s *Settings) *labels.Selector { return &s.NodeSelector }, parseSelector)},
	{Name: "protocol", Default: "tcp", Allowed: "tcp, http or https", Doc: "Protocol of the load balancer.",
		Set: into(func(s *Settings) *hcloud.LoadBalancerServiceProtocol { return &s.Protocol },
			oneOf(hcloud.LoadBalancerServiceProtocolTCP, hcloud.LoadBalancerServiceProtocolHTTP, hcloud.LoadBalancerServiceProtocolHTTPS))},
	{Name: "uses-proxyprotocol", Env: "HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL", Default: "false", Allowed: "true or false",
		Doc: "Sends the PROXY protocol header to targets. If it is set for any port, the status has `ipMode: Proxy`, so that traffic " +
			"from inside the cluster passes through the load balancer too.",
		Set: into(func(s *Settings) *bool { return &s.ProxyProtocol }, strconv.ParseBool)},
	{Name: "http-cookie-name", Default: defaultCookieName, Allowed: "a cookie name: letters, digits and -_",
		Doc: "Name of the cookie of sticky sessions.",
		Set: into(func(s *Settings) *string { return &s.CookieName }, parseCookieName)},
	{Name: "http-cookie-lifetime", Default: "5m", Allowed: "a duration in whole seconds from 30s to 24h", Doc: "Lifetime of that cookie.",
		Set: into(func(s *Settings) *seconds { return &s.CookieLifetime }, secondsBetween(30, 86400))},
	{Name: "http-timeout-idle", Default: "50s", Allowed: "a duration in whole seconds from 30s to 5m",
		Doc: "Time without data after which a connection is closed.",
		Set: into(func(s *Settings) *seconds { return &s.TimeoutIdle }, secondsBetween(30, 300))},
	{Name: "http-sticky-sessions", Default: "false", Allowed: "true or false",
		Doc: "Sends all requests of a client to the same target, by means of a cookie.",
		Set: into(func(s *Settings) *bool { return &s.StickySessions }, strconv.ParseBool)},
	{Name: "http-redirect-http", Default: "false", Allowed: "true or false",
		Doc: "Redirects HTTP requests on port 80 to HTTPS. Needs `protocol: https`; the Service may not have port 80.",
		Set: into(func(s *Settings) *bool { return &s.RedirectHTTP }, strconv.ParseBool)},
	{Name: "certificate-type", Default: "uploaded", Allowed: "uploaded or managed",
		Doc: "`uploaded` uses the existing certificates of `http-certificates`; `managed` orders a certificate for " +
			"`http-managed-certificate-domains`.",
		Set: into(func(s *Settings) *hcloud.CertificateType { return &s.CertificateType },
			oneOf(hcloud.CertificateTypeUploaded, hcloud.CertificateTypeManaged))},
	{Name: "http-certificates", Allowed: "IDs or names of certificates, separated by commas", Doc: "Certificates of `protocol: https`.",
		Set: into(func(s *Settings) *[]string { return &s.Certificates }, listOf(parseNonEmpty))},
	{Name: "http-managed-certificate-name", Allowed: "1 to 128 characters that neither start nor end with a space",
		Doc: "Name of the managed certificate; changing it renames it. Default: `ccm-` + the Service's UID + a hash of the domains.",
		Set: into(func(s *Settings) *string { return &s.ManagedCertificateName }, parseLBName)},
	{Name: "http-managed-certificate-domains", Allowed: "domain names, separated by commas",
		Doc: "Domains of the managed certificate. The certificate belongs to the Service: it is replaced when the domains change and " +
			"deleted with the Service.",
		Set: into(func(s *Settings) *[]string { return &s.ManagedCertificateDomains }, listOf(parseDomain))},
	{Name: "http-managed-certificate-acme-staging", Default: "false", Allowed: "true or false",
		Doc: "Orders the certificate from the issuer's staging environment (label `HC-Use-Staging-CA`).",
		Set: into(func(s *Settings) *bool { return &s.ManagedCertificateStaging }, strconv.ParseBool)},
	{Name: "health-check-protocol", Allowed: "tcp, http or https",
		Doc: "Protocol of the health check; https is HTTP over TLS. Default: tcp; http if the Service has `protocol: http` or `https` " +
			"and another `health-check-` annotation or `http-status-codes`. If neither this nor `health-check-port` is set and the " +
			"Service has `externalTrafficPolicy: Local`, the check is HTTP `/healthz` on the Service's health check node port, so that " +
			"only nodes with an endpoint get traffic.",
		Set: into(func(s *Settings) *hcloud.LoadBalancerServiceProtocol { return &s.HealthCheckProtocol },
			oneOf(hcloud.LoadBalancerServiceProtocolTCP, hcloud.LoadBalancerServiceProtocolHTTP, hcloud.LoadBalancerServiceProtocolHTTPS))},
	{Name: "health-check-port", Allowed: "a port from 1 to 65535",
		Doc: "Port of the health check. Default: the node port of each Service port.",
		Set: into(func(s *Settings) *int { return &s.HealthCheckPort }, intBetween(1, 65535))},
	{Name: "health-check-interval", Env: "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL", Default: "15s",
		Allowed: "a duration in whole seconds from 3s to 60s", Doc: "Time between checks.",
		Set: into(func(s *Settings) *seconds { return &s.HealthCheckInterval }, secondsBetween(3, 60))},
	{Name: "health-check-timeout", Env: "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_TIMEOUT", Default: "10s",
		Allowed: "a duration in whole seconds from 1s to 60s", Doc: "Time without an answer after which a check fails.",
		Set: into(func(s *Settings) *seconds { return &s.HealthCheckTimeout }, secondsBetween(1, 60))},
	{Name: "health-check-retries", Env: "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_RETRIES", Default: "3", Allowed: "a number from 1 to 5",
		Doc: "Number of failed checks after which a target is unhealthy.",
		Set: into(func(s *Settings) *int { return &s.HealthCheckRetries }, intBetween(1, 5))},
	{Name: "health-check-http-domain", Allowed: "a host name without spaces, percent signs and backslashes",
		Doc: "Host header of HTTP checks.",
		Set: into(func(s *Settings) *string { return &s.HealthCheckHTTPDomain }, parseHostHeader)},
	{Name: "health-check-http-path", Default: "/", Allowed: "a path that starts with / and contains no spaces", Doc: "Path of HTTP checks.",
		Set: into(func(s *Settings) *string { return &s.HealthCheckHTTPPath }, parsePath)},
	{Name: "health-check-http-validate-certificate", Default: "false", Allowed: "true or false",
		Doc: "Uses TLS for HTTP checks, as `health-check-protocol: https` does.",
		Set: into(func(s *Settings) *bool { return &s.HealthCheckHTTPTLS }, strconv.ParseBool)},
	{Name: "http-status-codes", Default: "2??,3??",
		Allowed: "status codes separated by commas, ? for one digit and * for several, for example 200,3??",
		Doc:     "Status codes that an HTTP check accepts.",
		Set:     into(func(s *Settings) *[]string { return &s.HealthCheckHTTPStatusCodes }, listOf(parseStatusCode))},
}

// outputAnnotations are annotations that the production CCM writes to Services. They are ignored
// without a warning.
var outputAnnotations = []string{"id", "ipv4", "ipv6"}

// AnnotationByName returns the annotation with the given name (without prefix). It panics if the
// annotation does not exist.
func AnnotationByName(name string) annotation {
	i := slices.IndexFunc(Annotations, func(a annotation) bool { return a.Name == name })
	if i < 0 {
		panic("ccm: no annotation has the name " + name)
	}
	return Annotations[i]
}

// AnnotationError reports an invalid value of an annotation, or of the environment variable with its
// default.
type AnnotationError struct {
	// Source is the full name of the annotation, or the name of the variable.
	Source string
	// With is the name (without prefix) of another annotation that contradicts this one.
	With  string
	Value string
	// Reason names the mistake and the allowed values. Error prints it after source and value.
	Reason string
}

func (e AnnotationError) Error() string {
	return fmt.Sprintf("%s: %q %s", e.Source, e.Value, e.Reason)
}

// Setting returns the name of the annotation, without prefix.
func (e AnnotationError) Setting() string {
	name, ours := strings.CutPrefix(e.Source, AnnotationPrefix)
	for _, a := range Annotations {
		if ours && (name == a.Name || name == a.Also) || !ours && a.Env != "" && e.Source == a.Env {
			return a.Name
		}
	}
	if ours {
		return name
	}
	return ""
}

// SettingsError holds all mistakes in the settings of a Service. They last until someone changes the Service, or a resource that
// it names.
type SettingsError struct{ Mistakes []error }

func (e SettingsError) Error() string { return errors.Join(e.Mistakes...).Error() }

// Mistake returns a SettingsError about one annotation, given by its name without prefix.
func Mistake(name, value, format string, args ...any) error {
	return InvalidSettings(AnnotationError{Source: AnnotationPrefix + name, Value: value, Reason: fmt.Sprintf(format, args...)})
}

// InvalidSettings returns a SettingsError, or nil without mistakes.
func InvalidSettings(mistakes ...error) error {
	if len(mistakes) == 0 {
		return nil
	}
	return SettingsError{mistakes}
}

// ParseAnnotations returns the settings of a Service with these annotations. Valid defaults replace absent annotations. An
// annotation for one port replaces the general one there. mistakes holds an AnnotationError per invalid annotation; unknown holds
// the annotations with our prefix that do not exist.
func ParseAnnotations(set map[string]string, defaults map[string]string) (s Settings, unknown []string, mistakes []error) {
	for _, a := range Annotations {
		key := a.KeyIn(set)
		value, present := set[key]
		if !present {
			// A network-zone annotation overrides a default location, and a location annotation a
			// default network zone.
			if other := exclusive[a.Name]; other != "" && strings.TrimSpace(set[AnnotationPrefix+other]) != "" {
				continue
			}
			if value = defaults[a.Name]; value == "" {
				continue
			}
		}
		if err := a.Set(&s, value); err != nil {
			mistakes = append(mistakes, AnnotationError{Source: key, Value: value, Reason: "is not valid: must be " + a.Allowed})
		}
		if other, both := set[AnnotationPrefix+a.Also]; a.Also != "" && both && other != value {
			mistakes = append(mistakes, AnnotationError{Source: AnnotationPrefix + a.Also, Value: other, Reason: "contradicts " + key +
				", which means the same: set one of them"})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(set)) {
		name, ours := strings.CutPrefix(key, AnnotationPrefix)
		if !ours || slices.Contains(outputAnnotations, name) ||
			slices.ContainsFunc(Annotations, func(a annotation) bool { return a.Name == name || a.Also == name }) {
			continue
		}
		a, port, ok := cutPort(name)
		if !ok {
			unknown = append(unknown, key)
			continue
		}
		if err := a.Set(s.ownPort(port), set[key]); err != nil {
			mistakes = append(mistakes, AnnotationError{Source: key, Value: set[key], Reason: "is not valid: must be " + a.Allowed})
		}
	}
	return s, unknown, mistakes
}

// Suggestion returns a question for the annotation that an unknown one may be meant to be, or "".
func Suggestion(key string) string {
	unknown, _, _ := strings.Cut(strings.TrimPrefix(key, AnnotationPrefix), ".")
	best, most := "", len(unknown)/2
	for _, a := range Annotations {
		n, shorter := 0, min(len(unknown), len(a.Name)) // the length of their common beginning and end
		for n < shorter && unknown[n] == a.Name[n] {
			n++
		}
		for end := 1; n < shorter && unknown[len(unknown)-end] == a.Name[len(a.Name)-end]; end++ {
			n++
		}
		if n > most {
			best, most = fmt.Sprintf(" (is it %s?)", a.Name), n
		}
	}
	return best
}

// portSetting returns the name of the annotation that sets an annotation for one port: protocol.443. The
// port is its number, not its name: the number is what the load balancer listens on, and is unique.
func portSetting(name string, port int) string { return name + "." + strconv.Itoa(port) }

// cutPort splits the name of an annotation for one port. ok reports whether such an annotation exists.
func cutPort(name string) (a annotation, port int, ok bool) {
	for _, a := range Annotations {
		text, found := strings.CutPrefix(name, a.Name+".")
		port, err := strconv.Atoi(text)
		if found && a.perPort() && err == nil && port >= 1 && port <= 65535 && portSetting(a.Name, port) == name {
			return a, port, true
		}
	}
	return a, 0, false
}

// exclusive maps an annotation to the one that excludes it.
var exclusive = map[string]string{"location": "network-zone", "network-zone": "location"}
