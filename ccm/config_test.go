package ccm

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
)

func lookupIn(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := env[name]; return v, ok }
}

func TestConfigFromEnvUsesDefaultsForUnsetVariables(t *testing.T) {
	t.Parallel()
	cfg, err := ConfigFromEnv(lookupIn(map[string]string{"HCLOUD_TOKEN": "abc", "HCLOUD_NETWORK": ""}))
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Endpoint != "https://api.hetzner.cloud/v1" || cfg.AddressFamily != AddressFamilyIPv4 || cfg.RoutesEnabled ||
		cfg.ResyncInterval != 2*time.Minute || cfg.ResyncMaxInterval != 20*time.Minute || !cfg.LoadBalancersEnabled ||
		!cfg.MetricsEnabled || cfg.MetricsAddress != ":8233" || cfg.Debug || len(cfg.LoadBalancerDefaults) != 0 {
		t.Errorf("unexpected defaults: %+v", cfg)
	}
}

func TestConfigFromEnvReadsEverySetting(t *testing.T) {
	t.Parallel()
	cfg, err := ConfigFromEnv(lookupIn(map[string]string{
		"HCLOUD_TOKEN":                                  " abc\n",
		"HCLOUD_ENDPOINT":                               "http://127.0.0.1:8080/v1/",
		"HCLOUD_NETWORK":                                "internal",
		"HCLOUD_INSTANCES_ADDRESS_FAMILY":               "dualstack",
		"HCLOUD_INSTANCES_CACHE_TTL":                    "1s",
		"HCLOUD_METRICS_ENABLED":                        "false",
		"HCLOUD_METRICS_ADDRESS":                        "127.0.0.1:0",
		"HCLOUD_DEBUG":                                  "1",
		"HCLOUD_RESYNC_INTERVAL":                        "0",
		"HCLOUD_RESYNC_MAX_INTERVAL":                    "1h",
		"HCLOUD_REQUEST_TIMEOUT":                        "3s",
		"HCLOUD_ACTION_TIMEOUT":                         "20s",
		"HCLOUD_LOAD_BALANCERS_ENABLED":                 "false",
		"HCLOUD_LOAD_BALANCERS_LOCATION":                "fsn1",
		"HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP":          "true",
		"HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL":   "3s",
		"HCLOUD_LOAD_BALANCERS_PRIVATE_SUBNET_IP_RANGE": "10.0.0.0/24",
	}))
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Token != "abc" || cfg.Endpoint != "http://127.0.0.1:8080/v1" || cfg.Network != "internal" || !cfg.RoutesEnabled ||
		cfg.AddressFamily != AddressFamilyDualStack || cfg.ServerCacheTTL != time.Second || cfg.MetricsEnabled ||
		cfg.MetricsAddress != "127.0.0.1:0" || !cfg.Debug || cfg.ResyncInterval != 0 || cfg.ResyncMaxInterval != time.Hour ||
		cfg.RequestTimeout != 3*time.Second || cfg.ActionTimeout != 20*time.Second ||
		cfg.LoadBalancersEnabled || cfg.LoadBalancerDefaults["location"] != "fsn1" ||
		cfg.LoadBalancerDefaults["use-private-ip"] != "true" ||
		cfg.LoadBalancerDefaults["health-check-interval"] != "3s" {
		t.Errorf("not as set: %+v", cfg)
	}
}

func TestConfigFromEnvReportsAllMistakesTogether(t *testing.T) {
	t.Parallel()
	_, err := ConfigFromEnv(lookupIn(map[string]string{
		"HCLOUD_ENDPOINT":                            "api.example.org",
		"HCLOUD_NETWORK_ROUTES_ENABLED":              "true",
		"HCLOUD_INSTANCES_ADDRESS_FAMILY":            "ipv5",
		"HCLOUD_INSTANCES_CACHE_TTL":                 "-1s",
		"HCLOUD_METRICS_ENABLED":                     "ja",
		"HCLOUD_METRICS_ADDRESS":                     "8233",
		"HCLOUD_DEBUG":                               "viel",
		"HCLOUD_LOAD_BALANCERS_LOCATION":             "fsn1",
		"HCLOUD_LOAD_BALANCERS_NETWORK_ZONE":         "eu-central",
		"HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_RETRIES": "9",
		"HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP":       "true",
	}))
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`HCLOUD_TOKEN is not set`,
		`HCLOUD_ENDPOINT="api.example.org": must be an http or https URL`,
		`HCLOUD_NETWORK_ROUTES_ENABLED="true": routes need a network: set HCLOUD_NETWORK`,
		`HCLOUD_INSTANCES_ADDRESS_FAMILY="ipv5": must be ipv4, ipv6 or dualstack`,
		`HCLOUD_INSTANCES_CACHE_TTL="-1s": must be a duration`,
		`HCLOUD_METRICS_ENABLED="ja": must be true or false`,
		`HCLOUD_METRICS_ADDRESS="8233": must be host:port`,
		`HCLOUD_DEBUG="viel": must be true or false`,
		`HCLOUD_LOAD_BALANCERS_NETWORK_ZONE="eu-central": cannot be combined with HCLOUD_LOAD_BALANCERS_LOCATION="fsn1"`,
		`HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_RETRIES="9": must be a number from 1 to 5`,
		`HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP="true": needs a private network`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing in the error: %s", want)
		}
	}
	if t.Failed() {
		t.Logf("the error:\n%v", err)
	}
}

func TestConfigFromEnvNeverShowsTheToken(t *testing.T) {
	t.Parallel()
	_, err := ConfigFromEnv(lookupIn(map[string]string{"HCLOUD_TOKEN": "top secret"}))
	if err == nil || strings.Contains(err.Error(), "top") || !strings.Contains(err.Error(), "HCLOUD_TOKEN") {
		t.Errorf("got %v", err)
	}
}

func TestConfigFromEnvChecksTheTokenFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good, empty := filepath.Join(dir, "good"), filepath.Join(dir, "empty")
	for file, content := range map[string]string{good: "abc\n", empty: " \n"} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if cfg, err := ConfigFromEnv(lookupIn(map[string]string{"HCLOUD_TOKEN_FILE": good})); err != nil || cfg.TokenFile != good {
		t.Errorf("a good file: %v, %+v", err, cfg)
	}
	for _, file := range []string{empty, filepath.Join(dir, "absent")} {
		if _, err := ConfigFromEnv(lookupIn(map[string]string{"HCLOUD_TOKEN_FILE": file})); err == nil ||
			!strings.Contains(err.Error(), "HCLOUD_TOKEN_FILE=") {
			t.Errorf("%s: got %v", file, err)
		}
	}
}

func TestUnknownVariablesAreReportedWithTheNearestName(t *testing.T) {
	t.Parallel()
	got := UnknownVariables([]string{"PATH=/bin", "HCLOUD_TOKEN=secret", "HCLOUD_TOKEN_FILE=/x", "HCLOUD_NETWORK=internal",
		"HCLOUD_LOAD_BALANCERS_TYPE=lb11",
		"HCLOUD_NETWOK=internal", "HCLOUD_LOAD_BALANCER_LOCATION=fsn1", "HCLOUD_SOMETHING_ELSE_ENTIRELY=secret", "HCLOUD_METRICS_ENABLED"})
	want := []string{
		"HCLOUD_LOAD_BALANCER_LOCATION is set, but it is not a setting of ccm-from-scratch and has no effect: did you mean " +
			"HCLOUD_LOAD_BALANCERS_LOCATION?",
		"HCLOUD_NETWOK is set, but it is not a setting of ccm-from-scratch and has no effect: did you mean HCLOUD_NETWORK?",
		"HCLOUD_SOMETHING_ELSE_ENTIRELY is set, but it is not a setting of ccm-from-scratch and has no effect",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestEveryVariableOfTheChartIsKnown(t *testing.T) {
	t.Parallel()
	values, err := os.ReadFile("chart/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var environ []string
	for line := range strings.Lines(string(values)) {
		if name, _, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && strings.HasPrefix(name, "HCLOUD_") {
			environ = append(environ, name+"=x")
		}
	}
	if unknown := UnknownVariables(environ); len(environ) < 20 || len(unknown) > 0 {
		t.Errorf("%d variables, unknown: %v", len(environ), unknown)
	}
}

func TestEachValueOfASettingIsChecked(t *testing.T) {
	t.Parallel()
	for name, values := range map[string]struct{ good, bad []string }{
		"HCLOUD_TOKEN": {[]string{"abc", "!~"}, []string{"a b", "a\tb", "a\x7f", "ä"}},
		"HCLOUD_ENDPOINT": {[]string{"http://localhost", "https://api.example.org/v1/"},
			[]string{"api.example.org", "ftp://example.org", "https://", "https://a b"}},
		"HCLOUD_METRICS_ADDRESS":               {[]string{":0", ":65535", "[::1]:8233"}, []string{"8233", ":65536", ":http", "host:"}},
		"HCLOUD_INSTANCES_CACHE_TTL":           {[]string{"0s", "1m"}, []string{"-1ns", "10"}},
		"HCLOUD_REQUEST_TIMEOUT":               {[]string{"100ms", "1m"}, []string{"99ms", "soon"}},
		"HCLOUD_ACTION_TIMEOUT":                {[]string{"1s"}, []string{"999ms"}},
		"HCLOUD_CLUSTER_ID":                    {[]string{"berlin-1"}, []string{"Berlin", "a.b", strings.Repeat("a", 64)}},
		"HCLOUD_OWNERSHIP_LABELS":              {[]string{"both", "ccm-from-scratch"}, []string{"hcloud", "none"}},
		"HCLOUD_NETWORK_ROUTES_ENABLED":        {[]string{"false"}, []string{"true"}}, // there is no network
		"HCLOUD_INSTANCES_NODE_LABELS":         {[]string{"pool", " a/* , b,"}, []string{"*/a", "kubernetes.io/*"}},
		"HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP": {[]string{"false"}, []string{"true"}}, // nor here
		"HCLOUD_LOAD_BALANCERS_LOCATION":       {[]string{"fsn1"}, []string{"fsn 1"}},
	} {
		for _, v := range slices.Concat(values.good, values.bad) {
			env := map[string]string{"HCLOUD_TOKEN": "x"}
			env[name] = v
			if _, err := ConfigFromEnv(lookupIn(env)); (err != nil) != slices.Contains(values.bad, v) || err != nil &&
				!strings.Contains(err.Error(), name) {
				t.Errorf("%s=%q: %v", name, v, err)
			}
		}
	}
}

func TestSettingsAboutNodesAreChecked(t *testing.T) {
	t.Parallel()
	cfg, err := ConfigFromEnv(lookupIn(map[string]string{"HCLOUD_TOKEN": "x", "HCLOUD_INSTANCES_PROVIDER_ID_PREFIX": "hcloud",
		"HCLOUD_INSTANCES_TOPOLOGY_LABELS":    "hcloud",
		"HCLOUD_INSTANCES_ZONE_LABEL_ENABLED": "false", "HCLOUD_INSTANCES_NODE_LABELS": "pool, example.org/*",
		"HCLOUD_INSTANCES_NODE_TAINTS": "dedicated:NoSchedule"}))
	if err != nil || cfg.ProviderIDPrefix != nodeinfo.ConventionHcloud || cfg.TopologyLabels != nodeinfo.ConventionHcloud ||
		!cfg.ZoneLabelDisabled ||
		!slices.Equal(cfg.NodeLabels, []LabelPattern{"pool", "example.org/*"}) ||
		!slices.Equal(cfg.NodeTaints, []TaintPattern{{LabelPattern: "dedicated", Effect: "NoSchedule"}}) {
		t.Errorf("%v, %+v", err, cfg)
	}
	if cfg, _ := ConfigFromEnv(lookupIn(nil)); cfg.ProviderIDPrefix != nodeinfo.ConventionOwn ||
		cfg.TopologyLabels != nodeinfo.ConventionOwn || cfg.ZoneLabelDisabled || len(cfg.NodeLabels)+len(cfg.NodeTaints) != 0 {
		t.Errorf("defaults: %+v", cfg)
	}
	_, err = ConfigFromEnv(lookupIn(map[string]string{"HCLOUD_TOKEN": "x", "HCLOUD_INSTANCES_PROVIDER_ID_PREFIX": "aws",
		"HCLOUD_INSTANCES_TOPOLOGY_LABELS": "dc",
		"HCLOUD_INSTANCES_NODE_LABELS":     "kubernetes.io/hostname,a b,instance.hetzner.cloud/provided-by",
		"HCLOUD_INSTANCES_NODE_TAINTS":     "dedicated,x:Never,node.kubernetes.io/*:NoExecute,kubernetes.io/y:Never"}))
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`HCLOUD_INSTANCES_PROVIDER_ID_PREFIX="aws": must be ccm-from-scratch or hcloud`,
		`HCLOUD_INSTANCES_TOPOLOGY_LABELS="dc"`,
		`HCLOUD_INSTANCES_NODE_LABELS="kubernetes.io/hostname": is reserved`, `HCLOUD_INSTANCES_NODE_LABELS="a b": must be`,
		`="instance.hetzner.cloud/provided-by": is reserved`,
		`HCLOUD_INSTANCES_NODE_TAINTS="dedicated": must be`, `HCLOUD_INSTANCES_NODE_TAINTS="x:Never": must be`,
		`HCLOUD_INSTANCES_NODE_TAINTS="node.kubernetes.io/*:NoExecute": is reserved`,
		`HCLOUD_INSTANCES_NODE_TAINTS="kubernetes.io/y:Never": `} {
		if strings.Count(err.Error(), want) != 1 {
			t.Errorf("not once in the error: %s\n%v", want, err)
		}
	}
}
