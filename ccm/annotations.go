package ccm

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/apimachinery/pkg/labels"
)

// annotationPrefix is the prefix that users' manifests already carry, so that they work unchanged.
const annotationPrefix = "load-balancer.hetzner.cloud/"

// annotation declares one Service annotation: everything the provider knows about it is here, and
// its documentation (ANNOTATIONS.md) is generated from it.
type annotation struct {
	// Name without prefix.
	Name string
	// Env is the environment variable that holds the default, empty if there is none.
	Env string
	// Default as a person would write it, empty if there is none.
	Default string
	// Allowed completes the sentence "must be …".
	Allowed string
	// Doc says what it does.
	Doc string
	// NeedsNetwork marks what makes no sense without HCLOUD_NETWORK.
	NeedsNetwork bool
	// set parses value into s. It leaves s alone if it returns an error.
	set func(s *lbSettings, value string) error
}

// key is the annotation's full name.
func (a annotation) key() string { return annotationPrefix + a.Name }

// annotations lists every annotation, in the order of the documentation.
var annotations = []annotation{
	{Name: "name", Allowed: "1 to 128 characters that neither start nor end with a space",
		Doc: "Name of the load balancer; changing it renames it. Without it a new load balancer is called `a` + the Service's UID. If a load balancer of that name exists and no other Service owns it, it is adopted.",
		set: into(func(s *lbSettings) *string { return &s.Name }, parseLBName)},
	{Name: "hostname", Allowed: "a DNS name",
		Doc: "The Service's status carries this name and no address, so that traffic from inside the cluster passes the load balancer too.",
		set: into(func(s *lbSettings) *string { return &s.Hostname }, parseDNSName)},
	{Name: "location", Env: "HCLOUD_LOAD_BALANCERS_LOCATION", Allowed: "the name of a location, for example fsn1",
		Doc: "Where the load balancer is created. One of `location` and `network-zone` is required. It cannot change later: delete the Service or remove the annotation.",
		set: into(func(s *lbSettings) *string { return &s.Location }, parseAPIName)},
	{Name: "network-zone", Env: "HCLOUD_LOAD_BALANCERS_NETWORK_ZONE", Allowed: "the name of a network zone, for example eu-central",
		Doc: "The zone in which Hetzner chooses the location. It cannot change later.",
		set: into(func(s *lbSettings) *string { return &s.NetworkZone }, parseAPIName)},
	{Name: "type", Env: "HCLOUD_LOAD_BALANCERS_TYPE", Default: defaultLoadBalancerType, Allowed: "the name of a load balancer type, for example lb11",
		Doc: "Type of the load balancer; changing it changes the type in place. The default is for creation only: without the annotation an existing load balancer keeps its type.",
		set: into(func(s *lbSettings) *string { return &s.Type }, parseAPIName)},
	{Name: "algorithm-type", Env: "HCLOUD_LOAD_BALANCERS_ALGORITHM_TYPE", Default: "round_robin", Allowed: "round_robin or least_connections",
		Doc: "How connections are spread over targets.",
		set: into(func(s *lbSettings) *hcloud.LoadBalancerAlgorithmType { return &s.Algorithm },
			oneOf(hcloud.LoadBalancerAlgorithmTypeRoundRobin, hcloud.LoadBalancerAlgorithmTypeLeastConnections))},
	{Name: "ipv4-rdns", Allowed: "a DNS name", Doc: "Reverse DNS of the public IPv4 address. Without it the entry is left alone.",
		set: into(func(s *lbSettings) *string { return &s.IPv4RDNS }, parseDNSName)},
	{Name: "ipv6-rdns", Allowed: "a DNS name", Doc: "Reverse DNS of the public IPv6 address. Without it the entry is left alone.",
		set: into(func(s *lbSettings) *string { return &s.IPv6RDNS }, parseDNSName)},
	{Name: "ipv6-disabled", Env: "HCLOUD_LOAD_BALANCERS_DISABLE_IPV6", Default: "false", Allowed: "true or false",
		Doc: "Hides the IPv6 address from the Service's status.",
		set: into(func(s *lbSettings) *bool { return &s.IPv6Disabled }, parseBool)},
	{Name: "disable-private-ingress", Env: "HCLOUD_LOAD_BALANCERS_DISABLE_PRIVATE_INGRESS", Default: "false", Allowed: "true or false",
		Doc: "Hides the private address from the Service's status.",
		set: into(func(s *lbSettings) *bool { return &s.DisablePrivateIngress }, parseBool)},
	{Name: "disable-public-network", Env: "HCLOUD_LOAD_BALANCERS_DISABLE_PUBLIC_NETWORK", Default: "false", Allowed: "true or false", NeedsNetwork: true,
		Doc: "Disables the public interface. Targets are then reached over the network (`use-private-ip`).",
		set: into(func(s *lbSettings) *bool { return &s.DisablePublicNetwork }, parseBool)},
	{Name: "use-private-ip", Env: "HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP", Default: "false", Allowed: "true or false", NeedsNetwork: true,
		Doc: "Targets are reached at their private address in HCLOUD_NETWORK.",
		set: into(func(s *lbSettings) **bool { return &s.UsePrivateIP }, ptrTo(parseBool))},
	{Name: "private-ipv4", Allowed: "an IPv4 address inside HCLOUD_NETWORK", NeedsNetwork: true,
		Doc: "The load balancer's address in the network. Changing it detaches and attaches the load balancer.",
		set: into(func(s *lbSettings) *ipAddr { return &s.PrivateIPv4 }, parseIPv4)},
	{Name: "private-subnet-ip-range", Env: "HCLOUD_LOAD_BALANCERS_PRIVATE_SUBNET_IP_RANGE", Allowed: "the IP range of a subnet, for example 10.0.1.0/24", NeedsNetwork: true,
		Doc: "The subnet from which the load balancer takes its private address. Changing it detaches and attaches the load balancer.",
		set: into(func(s *lbSettings) *ipPrefix { return &s.PrivateSubnet }, parseIPv4Prefix)},
	{Name: "node-selector", Allowed: "a label selector, for example pool=web,zone!=b",
		Doc: "Only nodes whose labels match become targets.",
		set: into(func(s *lbSettings) *labels.Selector { return &s.NodeSelector }, parseSelector)},
	{Name: "protocol", Default: "tcp", Allowed: "tcp, http or https", Doc: "What the load balancer speaks, on all ports of the Service.",
		set: into(func(s *lbSettings) *hcloud.LoadBalancerServiceProtocol { return &s.Protocol },
			oneOf(hcloud.LoadBalancerServiceProtocolTCP, hcloud.LoadBalancerServiceProtocolHTTP, hcloud.LoadBalancerServiceProtocolHTTPS))},
	{Name: "uses-proxyprotocol", Env: "HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL", Default: "false", Allowed: "true or false",
		Doc: "Sends the PROXY protocol header to targets. The status says `ipMode: Proxy`, so that traffic from inside the cluster passes the load balancer too.",
		set: into(func(s *lbSettings) *bool { return &s.ProxyProtocol }, parseBool)},
	{Name: "http-cookie-name", Default: defaultCookieName, Allowed: "a cookie name: letters, digits and -_", Doc: "Cookie of sticky sessions.",
		set: into(func(s *lbSettings) *string { return &s.CookieName }, parseCookieName)},
	{Name: "http-cookie-lifetime", Default: "5m", Allowed: "a duration in whole seconds from 30s to 24h", Doc: "Lifetime of that cookie.",
		set: into(func(s *lbSettings) *seconds { return &s.CookieLifetime }, secondsBetween(30, 86400))},
	{Name: "http-timeout-idle", Default: "50s", Allowed: "a duration in whole seconds from 30s to 5m", Doc: "After how long without data a connection is closed.",
		set: into(func(s *lbSettings) *seconds { return &s.TimeoutIdle }, secondsBetween(30, 300))},
	{Name: "http-sticky-sessions", Default: "false", Allowed: "true or false", Doc: "Sends a client to the same target, by cookie.",
		set: into(func(s *lbSettings) *bool { return &s.StickySessions }, parseBool)},
	{Name: "http-redirect-http", Default: "false", Allowed: "true or false", Doc: "Redirects HTTP requests to HTTPS; needs `protocol: https`.",
		set: into(func(s *lbSettings) *bool { return &s.RedirectHTTP }, parseBool)},
	{Name: "certificate-type", Default: "uploaded", Allowed: "uploaded or managed",
		Doc: "Whether `http-certificates` names existing certificates or one is ordered for `http-managed-certificate-domains`.",
		set: into(func(s *lbSettings) *hcloud.CertificateType { return &s.CertificateType },
			oneOf(hcloud.CertificateTypeUploaded, hcloud.CertificateTypeManaged))},
	{Name: "http-certificates", Allowed: "IDs or names of certificates, separated by commas", Doc: "Certificates of `protocol: https`.",
		set: into(func(s *lbSettings) *[]string { return &s.Certificates }, listOf(parseNonEmpty))},
	{Name: "http-managed-certificate-name", Allowed: "1 to 128 characters that neither start nor end with a space",
		Doc: "Name of the managed certificate. Default: `ccm-` + the Service's UID + a hash of the domains.",
		set: into(func(s *lbSettings) *string { return &s.ManagedCertificateName }, parseLBName)},
	{Name: "http-managed-certificate-domains", Allowed: "domain names, separated by commas",
		Doc: "Domains of the managed certificate. It is ordered for the Service, reused while the domains stay the same, replaced when they change and removed with the Service.",
		set: into(func(s *lbSettings) *[]string { return &s.ManagedCertificateDomains }, listOf(parseDomain))},
	{Name: "http-managed-certificate-acme-staging", Default: "false", Allowed: "true or false",
		Doc: "Orders the certificate from the issuer's staging environment (label `HC-Use-Staging-CA`).",
		set: into(func(s *lbSettings) *bool { return &s.ManagedCertificateStaging }, parseBool)},
	{Name: "health-check-protocol", Default: "tcp", Allowed: "tcp, http or https",
		Doc: "How targets are checked; https is HTTP over TLS. With `externalTrafficPolicy: Local`, unless this or `health-check-port` is set, the check is HTTP `/healthz` on the Service's health check node port, so that only nodes with an endpoint get traffic.",
		set: into(func(s *lbSettings) *hcloud.LoadBalancerServiceProtocol { return &s.HealthCheckProtocol },
			oneOf(hcloud.LoadBalancerServiceProtocolTCP, hcloud.LoadBalancerServiceProtocolHTTP, hcloud.LoadBalancerServiceProtocolHTTPS))},
	{Name: "health-check-port", Allowed: "a port from 1 to 65535", Doc: "Port that is checked. Default: the node port of each Service port.",
		set: into(func(s *lbSettings) *int { return &s.HealthCheckPort }, intBetween(1, 65535))},
	{Name: "health-check-interval", Env: "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL", Default: "15s", Allowed: "a duration in whole seconds from 3s to 60s", Doc: "Time between checks.",
		set: into(func(s *lbSettings) *seconds { return &s.HealthCheckInterval }, secondsBetween(3, 60))},
	{Name: "health-check-timeout", Env: "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_TIMEOUT", Default: "10s", Allowed: "a duration in whole seconds from 1s to 60s", Doc: "After how long a check has failed.",
		set: into(func(s *lbSettings) *seconds { return &s.HealthCheckTimeout }, secondsBetween(1, 60))},
	{Name: "health-check-retries", Env: "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_RETRIES", Default: "3", Allowed: "a number from 1 to 5", Doc: "After how many failed checks a target is unhealthy.",
		set: into(func(s *lbSettings) *int { return &s.HealthCheckRetries }, intBetween(1, 5))},
	{Name: "health-check-http-domain", Allowed: "a host name without spaces, percent signs and backslashes", Doc: "Host header of HTTP checks.",
		set: into(func(s *lbSettings) *string { return &s.HealthCheckHTTPDomain }, parseHostHeader)},
	{Name: "health-check-http-path", Default: "/", Allowed: "a path that starts with / and holds no spaces", Doc: "Path of HTTP checks.",
		set: into(func(s *lbSettings) *string { return &s.HealthCheckHTTPPath }, parsePath)},
	{Name: "health-check-http-validate-certificate", Default: "false", Allowed: "true or false", Doc: "Checks over HTTPS, as `health-check-protocol: https` does.",
		set: into(func(s *lbSettings) *bool { return &s.HealthCheckHTTPTLS }, parseBool)},
	{Name: "http-status-codes", Default: "2??,3??", Allowed: "status codes separated by commas, ? for one digit and * for several, for example 200,3??", Doc: "Status codes with which an HTTP check passes.",
		set: into(func(s *lbSettings) *[]string { return &s.HealthCheckHTTPStatusCodes }, listOf(parseStatusCode))},
}

// outputAnnotations are written onto Services by the production CCM. They are not ours to read and
// no reason for a warning.
var outputAnnotations = []string{"id", "ipv4", "ipv6"}

// annotationByName returns the annotation with that name (without prefix); it must exist.
func annotationByName(name string) annotation {
	i := slices.IndexFunc(annotations, func(a annotation) bool { return a.Name == name })
	if i < 0 {
		panic("ccm: no annotation is declared as " + name)
	}
	return annotations[i]
}

// annotationError says that the value of one annotation, or of the environment variable that
// stands in for it, cannot be used.
type annotationError struct {
	// Source is the annotation's full name or the variable's.
	Source string
	Value  string
	// Reason says what is wrong with the value and what is allowed; source and value go before it.
	Reason string
}

func (e annotationError) Error() string {
	return fmt.Sprintf("%s: %q %s", e.Source, e.Value, e.Reason)
}

// settingsError says what only a change of the Service, or of what it refers to, can mend. It holds
// every mistake.
type settingsError struct{ mistakes []error }

func (e settingsError) Error() string { return errors.Join(e.mistakes...).Error() }

// invalidSettings returns nil if there is no mistake.
func invalidSettings(mistakes ...error) error {
	if len(mistakes) == 0 {
		return nil
	}
	return settingsError{mistakes}
}

// parseAnnotations returns the settings of a Service with these annotations. Defaults (checked by
// ConfigFromEnv) stand in for annotations that are absent. There is one annotationError per mistake;
// unknown holds the annotations with our prefix that do not exist, for a warning.
func parseAnnotations(set map[string]string, defaults map[string]string) (s lbSettings, unknown []string, mistakes []error) {
	for _, a := range annotations {
		value, present := set[a.key()]
		if !present {
			// An annotation for the zone overrides a default location, and the reverse.
			if _, other := set[annotationPrefix+exclusive[a.Name]]; other {
				continue
			}
			if value = defaults[a.Name]; value == "" {
				continue
			}
		}
		if err := a.set(&s, value); err != nil {
			mistakes = append(mistakes, annotationError{a.key(), value, "is not valid: must be " + a.Allowed})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(set)) {
		name, ours := strings.CutPrefix(key, annotationPrefix)
		if ours && !slices.Contains(outputAnnotations, name) &&
			!slices.ContainsFunc(annotations, func(a annotation) bool { return a.Name == name }) {
			unknown = append(unknown, key)
		}
	}
	return s, unknown, mistakes
}

// exclusive holds pairs of annotations of which only one can take effect.
var exclusive = map[string]string{"location": "network-zone", "network-zone": "location"}

// AnnotationsMarkdown returns the reference of all Service annotations as a Markdown document.
func AnnotationsMarkdown() string {
	var b strings.Builder
	b.WriteString("# Service annotations\n\n" +
		"Generated from `annotations.go`; run `go test ./ccm -run TestAnnotationsReference -update` after a change.\n\n" +
		"All start with `" + annotationPrefix + "` and hold for all ports of the Service. Booleans are what Go's\n" +
		"`strconv.ParseBool` reads, durations what `time.ParseDuration` reads. A value that is not allowed is\n" +
		"reported in a Warning event on the Service, and nothing is changed until it is corrected.\n" +
		"A default can be set for all Services through the environment variable, where there is one.\n\n" +
		"| annotation | allowed | default | environment | meaning |\n|---|---|---|---|---|\n")
	for _, a := range annotations {
		doc := a.Doc
		if a.NeedsNetwork {
			doc += " Needs `HCLOUD_NETWORK`."
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", a.Name, a.Allowed, code(a.Default), code(a.Env), doc)
	}
	return b.String()
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}
