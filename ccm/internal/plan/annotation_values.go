package plan

import (
	"errors"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Settings holds the settings from a Service's annotations and their defaults. The zero value of a
// field means that the setting is absent.
type Settings struct {
	Name                  string
	Hostname              string
	Location, NetworkZone string
	Type                  string
	Algorithm             hcloud.LoadBalancerAlgorithmType
	IPv4RDNS, IPv6RDNS    string
	IPv6Disabled          bool
	DisablePrivateIngress bool
	DisablePublicNetwork  bool
	UsePrivateIP          *bool
	PrivateIPv4           ipAddr
	PrivateSubnet         ipPrefix
	NodeSelector          labels.Selector
	Shared                bool
	SharedNamespaces      []string
	Adopt                 string
	PrimaryIPv4           string
	PrimaryIPv6           string
	Labels                map[string]string
	DeleteProtection      *bool
	KeepOnDelete          *bool

	Protocol       hcloud.LoadBalancerServiceProtocol
	ProxyProtocol  bool
	CookieName     string
	CookieLifetime seconds
	TimeoutIdle    seconds
	StickySessions bool
	RedirectHTTP   bool

	CertificateType           hcloud.CertificateType
	Certificates              []string
	ManagedCertificateName    string
	ManagedCertificateDomains []string
	ManagedCertificateStaging bool

	HealthCheckProtocol        hcloud.LoadBalancerServiceProtocol
	HealthCheckPort            int
	HealthCheckInterval        seconds
	HealthCheckTimeout         seconds
	HealthCheckRetries         int
	HealthCheckHTTPDomain      string
	HealthCheckHTTPPath        string
	HealthCheckHTTPTLS         bool
	HealthCheckHTTPStatusCodes []string

	// ByPort holds all settings of each port with an annotation such as protocol.443.
	ByPort map[int]*Settings
}

// ForPort returns the settings of a port.
func (s *Settings) ForPort(port int) *Settings {
	if own := s.ByPort[port]; own != nil {
		return own
	}
	return s
}

// ownPort returns the settings of a port that has its own. At first they are the general ones.
func (s *Settings) ownPort(port int) *Settings {
	if s.ByPort[port] == nil {
		own := *s
		own.ByPort = nil
		if s.ByPort == nil {
			s.ByPort = map[int]*Settings{}
		}
		s.ByPort[port] = &own
	}
	return s.ByPort[port]
}

// usesProxyProtocol reports whether any port sends the PROXY protocol header.
func (s *Settings) usesProxyProtocol() bool {
	for _, own := range s.ByPort {
		if own.ProxyProtocol {
			return true
		}
	}
	return s.ProxyProtocol
}

type (
	ipAddr   = netip.Addr
	ipPrefix = netip.Prefix
	seconds  = time.Duration
)

// errNotAllowed is the error of all parsers. The annotation's declaration says what is allowed.
var errNotAllowed = errors.New("not allowed")

// into returns the set function of an annotation, for a field and a parser.
func into[T any](field func(*Settings) *T, parse func(string) (T, error)) func(*Settings, string) error {
	return func(s *Settings, value string) error {
		v, err := parse(strings.TrimSpace(value))
		if err == nil {
			*field(s) = v
		}
		return err
	}
}

// matching returns a parser for strings that ok accepts.
func matching(ok func(string) bool) func(string) (string, error) {
	return func(v string) (string, error) {
		if !ok(v) {
			return "", errNotAllowed
		}
		return v, nil
	}
}

var (
	apiNamePattern    = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]*$`)    // a number would be an ID
	typePattern       = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]*$`) // or an ID
	cookiePattern     = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	statusCodePattern = regexp.MustCompile(`^[0-9?*]{1,3}$`)
	pathPattern       = regexp.MustCompile(`^/[!-~]*$`)
	hostHeaderPattern = regexp.MustCompile(`^[^\s%\\]+$`)

	parseAPIName    = matching(apiNamePattern.MatchString)
	parseType       = matching(typePattern.MatchString)
	parseCookieName = matching(cookiePattern.MatchString)
	parseStatusCode = matching(statusCodePattern.MatchString)
	parsePath       = matching(pathPattern.MatchString)
	parseHostHeader = matching(hostHeaderPattern.MatchString)
	parseNonEmpty   = matching(func(v string) bool { return v != "" })
	// parseLBName checks only the length, because into has trimmed the value. The API document allows
	// 1 to 128 characters.
	parseLBName  = matching(func(v string) bool { n := len([]rune(v)); return n >= 1 && n <= 128 })
	parseDNSName = matching(isDNSName)
	// parseNamespace also allows *, which means all.
	parseNamespace = matching(func(v string) bool { return v == "*" || len(validation.IsDNS1123Label(v)) == 0 })

	parseDomain = matching(func(v string) bool { return isDNSName(strings.TrimPrefix(v, "*.")) })
)

func isDNSName(v string) bool {
	return len(validation.IsDNS1123Subdomain(strings.ToLower(v))) == 0
}

// parseHostname returns the name as the API server takes it in a Service's status: lower case, and no address (ValidateLoadBalancerStatus
// of Kubernetes' API validation).
func parseHostname(v string) (string, error) {
	if _, err := netip.ParseAddr(v); err == nil {
		return "", errNotAllowed
	}
	return parseDNSName(strings.ToLower(v))
}

func parseSelector(v string) (labels.Selector, error) { return labels.Parse(v) }

func parseIPv4(v string) (netip.Addr, error) {
	a, err := netip.ParseAddr(v)
	if err != nil || !a.Is4() {
		return netip.Addr{}, errNotAllowed
	}
	return a, nil
}

func parseIPv4Prefix(v string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(v)
	if err != nil || !p.Addr().Is4() {
		return netip.Prefix{}, errNotAllowed
	}
	return p.Masked(), nil // as the production CCM reads it
}

func ptrTo[T any](parse func(string) (T, error)) func(string) (*T, error) {
	return func(v string) (*T, error) {
		x, err := parse(v)
		if err != nil {
			return nil, err
		}
		return &x, nil
	}
}

// oneOf returns a parser for some words, in upper or lower case.
func oneOf[T ~string](allowed ...T) func(string) (T, error) {
	return func(v string) (T, error) {
		v = strings.ToLower(v)
		if !slices.Contains(allowed, T(v)) {
			return "", errNotAllowed
		}
		return T(v), nil
	}
}

func orEmpty(parse func(string) (string, error)) func(string) (string, error) {
	return func(v string) (string, error) {
		if v == "" {
			return "", nil
		}
		return parse(v)
	}
}

func intBetween(low, high int) func(string) (int, error) {
	return func(v string) (int, error) {
		n, err := strconv.Atoi(v)
		if err != nil || n < low || n > high {
			return 0, errNotAllowed
		}
		return n, nil
	}
}

// secondsBetween returns a parser for durations in whole seconds, the unit of the API.
func secondsBetween(low, high int) func(string) (time.Duration, error) {
	return func(v string) (time.Duration, error) {
		d, err := time.ParseDuration(v)
		if err != nil || d%time.Second != 0 || d < time.Duration(low)*time.Second || d > time.Duration(high)*time.Second {
			return 0, errNotAllowed
		}
		return d, nil
	}
}

// listOf returns a parser for values that are separated by commas. The list must not be empty.
func listOf(parse func(string) (string, error)) func(string) ([]string, error) {
	return func(v string) ([]string, error) {
		parts := strings.Split(v, ",")
		for i, p := range parts {
			x, err := parse(strings.TrimSpace(p))
			if err != nil {
				return nil, err
			}
			parts[i] = x
		}
		return parts, nil
	}
}
