package ccm

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/apicall"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/gone"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// NodeRefresh is the program's default of --node-status-update-frequency. Each refresh of all Nodes lists all servers;
// their addresses and types hardly ever change.
const NodeRefresh = 15 * time.Minute

// Config holds all settings of the provider. ConfigFromEnv reads them from the environment.
type Config struct {
	// Token authenticates against the API. Empty if TokenFile is set.
	Token string
	// TokenFile holds the token. It is read again when it changes: a rotated Secret needs no restart.
	TokenFile string
	// Endpoint is the base URL of the API, without a trailing slash.
	Endpoint string
	// Network is the ID or name of the private network. Its addresses become InternalIP addresses of
	// Nodes, load balancers are attached to it, and routes are created in it. Empty means no network.
	Network string
	// NetworkCheckDisabled switches off the check that the server of this node (NodeName) is attached to
	// Network.
	NetworkCheckDisabled bool
	// NodeName is the name of the Node that the provider runs on; "" if it is not known. The program reads it from NODE_NAME.
	NodeName string
	// ProjectCheckDisabled makes the provider believe that servers and load balancers are gone even if
	// none or few of the cluster's are visible. See evidence.
	ProjectCheckDisabled bool
	// DisappearanceWait is how long servers or load balancers must be missing, if many disappear at once, before they count as
	// gone. 0 means 5 minutes.
	DisappearanceWait time.Duration
	// RoutesEnabled makes the provider offer routes. It needs Network.
	RoutesEnabled bool
	// AddressFamily of ExternalIP addresses.
	AddressFamily AddressFamily
	// ProviderIDPrefix is the convention for the provider IDs of new Nodes. Those of all conventions are
	// understood.
	ProviderIDPrefix Convention
	// TopologyLabels is the convention for the regions and zones of new Nodes.
	TopologyLabels Convention
	// ZoneLabelDisabled leaves the zone labels of new Nodes away.
	ZoneLabelDisabled bool
	// NodeLabels and NodeTaints select labels of servers that their Nodes get as labels and taints.
	NodeLabels []LabelPattern
	NodeTaints []TaintPattern
	// MetricsEnabled serves metrics of API calls on MetricsAddress.
	MetricsEnabled bool
	MetricsAddress string
	// Debug prints each request and response, the token redacted, to standard error.
	Debug bool
	// LoadBalancersEnabled makes the provider offer load balancers.
	LoadBalancersEnabled bool
	// ClusterID is written to load balancers and managed certificates. Then they belong to this cluster only. A
	// cluster that was made from a backup of another one has the same Service UIDs and needs another ID.
	ClusterID string
	// OwnLabelsOnly leaves the production CCM's ownership label away from load balancers and certificates.
	OwnLabelsOnly bool
	// LoadBalancerDefaults holds the defaults of annotations, by the annotation's name without
	// prefix. The values are valid.
	LoadBalancerDefaults map[string]string

	// ServerCacheTTL is the maximum age of data about servers that cause a change. A shorter one costs
	// more API calls; a longer one delays the detection of a powered-off server. 0 switches the cache off.
	ServerCacheTTL time.Duration
	// ResyncInterval is the interval of the periodic comparison. It repairs load balancers and
	// routes without an event from Kubernetes. 0 switches it off.
	ResyncInterval time.Duration
	// ResyncMaxInterval is what the interval grows to while nothing changes. If it is less than ResyncInterval, the
	// interval does not grow.
	ResyncMaxInterval time.Duration
	// RequestTimeout limits one attempt of one API call.
	RequestTimeout time.Duration
	// ActionTimeout limits the wait for one action of the cloud. A slower action continues, and a
	// later sync checks its result. 0 means 10 s.
	ActionTimeout time.Duration

	// ClusterCIDRs are the pod ranges of the cluster (--cluster-cidr). Routes outside them are
	// foreign. They come from the command line, not from the environment.
	ClusterCIDRs []netip.Prefix
}

// ConfigFromEnv reads the settings through lookup, in production os.LookupEnv. The error
// joins all mistakes. Each names the variable, its value (never a token) and the allowed values.
func ConfigFromEnv(lookup func(string) (string, bool)) (Config, error) {
	r := envReader{lookup: lookup}
	cfg := Config{
		Endpoint:             r.endpoint("HCLOUD_ENDPOINT", hcloud.Endpoint),
		Network:              r.str("HCLOUD_NETWORK", ""),
		NetworkCheckDisabled: r.boolean("HCLOUD_NETWORK_DISABLE_ATTACHED_CHECK", false),
		ProjectCheckDisabled: r.boolean("HCLOUD_DISABLE_PROJECT_CHECK", false),
		DisappearanceWait:    r.duration("HCLOUD_DISAPPEARANCE_WAIT", gone.Hold, 10*time.Second),
		AddressFamily:        AddressFamily(r.oneOf("HCLOUD_INSTANCES_ADDRESS_FAMILY", "ipv4", "ipv6", "dualstack")),
		ProviderIDPrefix:     Convention(r.oneOf("HCLOUD_INSTANCES_PROVIDER_ID_PREFIX", "ccm-from-scratch", "hcloud")),
		TopologyLabels:       Convention(r.oneOf("HCLOUD_INSTANCES_TOPOLOGY_LABELS", "ccm-from-scratch", "hcloud")),
		ZoneLabelDisabled:    !r.boolean("HCLOUD_INSTANCES_ZONE_LABEL_ENABLED", true),
		NodeLabels:           r.nodeLabels("HCLOUD_INSTANCES_NODE_LABELS"),
		NodeTaints:           r.nodeTaints("HCLOUD_INSTANCES_NODE_TAINTS"),
		MetricsEnabled:       r.boolean("HCLOUD_METRICS_ENABLED", true),
		MetricsAddress:       r.address("HCLOUD_METRICS_ADDRESS", ":8233"),
		Debug:                r.boolean("HCLOUD_DEBUG", false),
		LoadBalancersEnabled: r.boolean("HCLOUD_LOAD_BALANCERS_ENABLED", true),
		ClusterID:            r.clusterID("HCLOUD_CLUSTER_ID"),
		OwnLabelsOnly:        r.oneOf("HCLOUD_OWNERSHIP_LABELS", "both", ProviderName) == ProviderName,
		ServerCacheTTL:       r.duration("HCLOUD_INSTANCES_CACHE_TTL", 10*time.Second, 0),
		ResyncInterval:       r.duration("HCLOUD_RESYNC_INTERVAL", 2*time.Minute, 0),
		RequestTimeout:       r.duration("HCLOUD_REQUEST_TIMEOUT", 10*time.Second, 100*time.Millisecond),
		ActionTimeout:        r.duration("HCLOUD_ACTION_TIMEOUT", apicall.DefaultActionTimeout, time.Second),
	}
	// An interval that an operator sets is what it is.
	growsTo := time.Duration(0)
	if r.str("HCLOUD_RESYNC_INTERVAL", "") == "" {
		growsTo = 20 * time.Minute
	}
	cfg.ResyncMaxInterval = r.duration("HCLOUD_RESYNC_MAX_INTERVAL", growsTo, 0)
	cfg.Token, cfg.TokenFile = r.token()
	cfg.RoutesEnabled = r.boolean("HCLOUD_NETWORK_ROUTES_ENABLED", cfg.Network != "")
	if cfg.RoutesEnabled && cfg.Network == "" {
		r.fail("HCLOUD_NETWORK_ROUTES_ENABLED", "true", "routes need a network: set HCLOUD_NETWORK to its ID or name, or set this to false")
	}
	cfg.LoadBalancerDefaults = r.loadBalancerDefaults(cfg.Network != "")
	return cfg, errors.Join(r.errs...)
}

// envReader reads variables and collects all mistakes.
type envReader struct {
	lookup func(string) (string, bool)
	errs   []error
}

func (r *envReader) fail(name, value, allowed string) {
	r.errs = append(r.errs, fmt.Errorf("%s=%q: %s", name, value, allowed))
}

// str returns the trimmed value of name, or fallback. An empty variable counts as not set, because
// an optional value in a manifest template renders to an empty string.
func (r *envReader) str(name, fallback string) string {
	if v, ok := r.lookup(name); ok && strings.TrimSpace(v) != "" {
		return strings.TrimSpace(v)
	}
	return fallback
}

func (r *envReader) boolean(name string, fallback bool) bool {
	v := r.str(name, "")
	if v == "" {
		return fallback
	}
	b, err := strconv.ParseBool(v)
	if err != nil {
		r.fail(name, v, "must be true or false")
		return fallback
	}
	return b
}

func (r *envReader) duration(name string, fallback, atLeast time.Duration) time.Duration {
	v := r.str(name, "")
	if v == "" {
		return fallback
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < atLeast {
		r.fail(name, v, fmt.Sprintf("must be a duration of at least %v, for example 30s or 5m", atLeast))
		return fallback
	}
	return d
}

func (r *envReader) endpoint(name, fallback string) string {
	v := r.str(name, fallback)
	u, err := url.Parse(v)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		r.fail(name, v, "must be an http or https URL, for example "+fallback)
		return fallback
	}
	return strings.TrimRight(v, "/")
}

func (r *envReader) address(name, fallback string) string {
	v := r.str(name, fallback)
	i := strings.LastIndex(v, ":")
	if i < 0 {
		r.fail(name, v, "must be host:port or :port")
		return fallback
	}
	if _, err := strconv.ParseUint(v[i+1:], 10, 16); err != nil {
		r.fail(name, v, "must be host:port or :port, with a port from 0 to 65535")
		return fallback
	}
	return v
}

// oneOf returns one of the values, the first of them as the default.
func (r *envReader) oneOf(name string, values ...string) string {
	v, last := r.str(name, values[0]), len(values)-1
	if !slices.Contains(values, v) {
		r.fail(name, v, fmt.Sprintf("must be %s or %s", strings.Join(values[:last], ", "), values[last]))
		return values[0]
	}
	return v
}

// token returns the token or the file that holds it. If both are set HCLOUD_TOKEN wins, as in every
// hcloud tool.
func (r *envReader) token() (token, file string) {
	if token = r.str("HCLOUD_TOKEN", ""); token != "" {
		if strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }) {
			r.errs = append(r.errs, errors.New("HCLOUD_TOKEN (value not shown): must be printable ASCII without spaces: remove a line "+
				"break or quote that was pasted with it"))
		}
		return token, ""
	}
	file = r.str("HCLOUD_TOKEN_FILE", "")
	if file == "" {
		r.errs = append(r.errs, errors.New("HCLOUD_TOKEN is not set: set it to an API token with read and write permission, or set "+
			"HCLOUD_TOKEN_FILE to a file that holds one"))
		return "", ""
	}
	content, err := os.ReadFile(file)
	switch {
	case err != nil:
		r.fail("HCLOUD_TOKEN_FILE", file, fmt.Sprintf("must be a readable file that holds a token: %v", err))
	case strings.TrimSpace(string(content)) == "":
		r.fail("HCLOUD_TOKEN_FILE", file, "must be a file that holds a token: the file is empty")
	}
	return "", file
}

// loadBalancerDefaults reads the defaults of annotations and checks each with the parser of its
// annotation.
func (r *envReader) loadBalancerDefaults(haveNetwork bool) map[string]string {
	defaults := map[string]string{}
	for _, a := range plan.Annotations {
		if a.Env == "" {
			continue
		}
		v := r.str(a.Env, "")
		if v == "" {
			continue
		}
		if err := a.Set(&plan.Settings{}, v); err != nil {
			r.fail(a.Env, v, "must be "+a.Allowed)
			continue
		}
		defaults[a.Name] = v
		if on, err := strconv.ParseBool(v); a.NeedsNetwork && !haveNetwork && (err != nil || on) {
			r.fail(a.Env, v, "needs a private network: set HCLOUD_NETWORK to its ID or name")
		}
	}
	if defaults["location"] != "" && defaults["network-zone"] != "" {
		r.fail("HCLOUD_LOAD_BALANCERS_NETWORK_ZONE", defaults["network-zone"], fmt.Sprintf(
			"cannot be combined with HCLOUD_LOAD_BALANCERS_LOCATION=%q: set only one of the two", defaults["location"]))
	}
	return defaults
}
