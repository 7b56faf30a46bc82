package plan

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// annotationValues holds valid and invalid values of every annotation.
var annotationValues = map[string]struct{ good, bad []string }{
	"name": {[]string{"web", "my web", strings.Repeat("x", 128)},
		[]string{"", "  ", strings.Repeat("x", 129)}},
	"hostname": {[]string{"", "lb.example.org", "LB.example.org"},
		[]string{"a b", "under_score.example.org", "203.0.113.9", "2001:db8::1"}},
	"location":                {[]string{"", "fsn1"}, []string{"fsn 1"}},
	"network-zone":            {[]string{"", "eu-central"}, []string{"eu/central"}},
	"type":                    {[]string{"lb11", "lb31", "1"}, []string{"", "lb 11", "-1"}},
	"algorithm-type":          {[]string{"round_robin", "ROUND_ROBIN", "least_connections"}, []string{"", "random"}},
	"ipv4-rdns":               {[]string{"lb.example.org"}, []string{"", "-"}},
	"ipv6-rdns":               {[]string{"lb.example.org"}, []string{"", "-"}},
	"ipv6-disabled":           {[]string{"true", "false", "1", "T"}, []string{"", "yes"}},
	"disable-private-ingress": {[]string{"true"}, []string{"", "on"}},
	"disable-public-network":  {[]string{"true"}, []string{"", "on"}},
	"use-private-ip":          {[]string{"false"}, []string{"", "2"}},
	"private-ipv4":            {[]string{"10.0.0.7"}, []string{"", "10.0.0", "::1", "10.0.0.0/8"}},
	"private-subnet-ip-range": {[]string{"10.0.1.0/24", "10.0.1.1/24"}, []string{"", "10.0.1.0", "fd00::/64"}},
	"shared":                  {[]string{"true"}, []string{"", "yes"}},
	"shared-namespaces":       {[]string{"*", "team-b", "team-b, team-c"}, []string{"", "team b", "Team"}},
	"adopt":                   {[]string{"7", "edge"}, []string{"", " "}},
	"primary-ipv4":            {[]string{"7", "edge-4"}, []string{"", " "}},
	"primary-ipv6":            {[]string{"7", "edge-6"}, []string{"", " "}},
	"labels": {[]string{"team=web", "a=, example.org/b=c_d"},
		[]string{"", "team", "=web", "a=b,", "a=b,a=c", "a b=c", "a=b c", "ccm-from-scratch/ports=80", "hcloud-ccm/x=y",
			"hetzner.cloud/a=b"}},
	"delete-protection":             {[]string{"true", "false"}, []string{"", "yes"}},
	"keep-on-delete":                {[]string{"true", "false"}, []string{"", "yes"}},
	"node-selector":                 {[]string{"", "a=b", "a=b,c!=d", "x in (1,2)"}, []string{"a==b==c", "a in b"}},
	"protocol":                      {[]string{"tcp", "TCP", "http", "https"}, []string{"", "udp"}},
	"uses-proxyprotocol":            {[]string{"true"}, []string{"", "v2"}},
	"http-cookie-name":              {[]string{"SESSION", "a_b-c"}, []string{"", "a b", "a;b"}},
	"http-cookie-lifetime":          {[]string{"30s", "24h", "1h30m"}, []string{"", "29s", "24h1s", "300", "30.5s"}},
	"http-timeout-idle":             {[]string{"30s", "5m"}, []string{"", "29s", "301s"}},
	"http-sticky-sessions":          {[]string{"true"}, []string{""}},
	"http-redirect-http":            {[]string{"true"}, []string{""}},
	"certificate-type":              {[]string{"uploaded", "Managed"}, []string{"", "acme"}},
	"http-certificates":             {[]string{"1", "my cert, 2"}, []string{"", "1,,2"}},
	"http-managed-certificate-name": {[]string{"web"}, []string{""}},
	"http-managed-certificate-domains": {[]string{"example.org", "*.example.org,example.org"},
		[]string{"", "exa mple.org", "a.example.org,"}},
	"http-managed-certificate-acme-staging":  {[]string{"true"}, []string{""}},
	"health-check-protocol":                  {[]string{"tcp", "http", "https"}, []string{"", "icmp"}},
	"health-check-port":                      {[]string{"1", "65535"}, []string{"", "0", "65536", "http"}},
	"health-check-interval":                  {[]string{"3s", "1m"}, []string{"", "2s", "61s", "15"}},
	"health-check-timeout":                   {[]string{"1s", "60s"}, []string{"", "0s", "61s"}},
	"health-check-retries":                   {[]string{"1", "5"}, []string{"", "0", "6"}},
	"health-check-http-domain":               {[]string{"example.org"}, []string{"", "a b", "a%20b", `a\b`}},
	"health-check-http-path":                 {[]string{"/", "/healthz?full=1"}, []string{"", "healthz", "/a b"}},
	"health-check-http-validate-certificate": {[]string{"true"}, []string{""}},
	"http-status-codes":                      {[]string{"200", "2??,3*"}, []string{"", "2000", "ok"}},
}

func TestEveryAnnotationAcceptsOnlyValidValues(t *testing.T) {
	t.Parallel()
	if len(annotationValues) != len(Annotations) {
		t.Errorf("%d annotations are declared, %d are tested", len(Annotations), len(annotationValues))
	}
	for _, a := range Annotations {
		values, ok := annotationValues[a.Name]
		if !ok {
			t.Errorf("%s has no test values", a.Name)
		}
		for _, v := range values.good {
			if _, _, mistakes := ParseAnnotations(map[string]string{a.Key(): v}, nil); len(mistakes) > 0 {
				t.Errorf("%s: %q was refused: %v", a.Name, v, mistakes)
			}
		}
		for _, v := range values.bad {
			s, _, mistakes := ParseAnnotations(map[string]string{a.Key(): v}, nil)
			err := InvalidSettings(mistakes...)
			if err == nil {
				t.Errorf("%s: %q was accepted", a.Name, v)
				continue
			}
			for _, want := range []string{a.Key(), a.Allowed} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: the error does not say %q: %v", a.Name, want, err)
				}
			}
			if !reflect.DeepEqual(s, Settings{}) {
				t.Errorf("%s: %q was refused but changed the settings: %+v", a.Name, v, s)
			}
		}
	}
}

func TestValuesAreReadAsOthersTakeThem(t *testing.T) {
	t.Parallel()
	s, _, mistakes := ParseAnnotations(map[string]string{AnnotationPrefix + "hostname": "LB.example.org",
		AnnotationPrefix + "private-subnet-ip-range": "10.0.1.7/24"}, nil)
	if s.Hostname != "lb.example.org" || s.PrivateSubnet.String() != "10.0.1.0/24" || len(mistakes) > 0 {
		t.Errorf("%s, %v, %v", s.Hostname, s.PrivateSubnet, mistakes)
	}
}

func TestEveryAnnotationSetsItsOwnField(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, a := range Annotations {
		s, _, mistakes := ParseAnnotations(map[string]string{a.Key(): annotationValues[a.Name].good[len(annotationValues[a.Name].good)-1]},
			nil)
		if len(mistakes) > 0 {
			t.Fatal(mistakes)
		}
		v := reflect.ValueOf(s)
		var set []string
		for i := range v.NumField() {
			if !v.Field(i).IsZero() {
				set = append(set, v.Type().Field(i).Name)
			}
		}
		if a.Name == "use-private-ip" { // a pointer: false differs from absent
			set = []string{"UsePrivateIP"}
		}
		if len(set) != 1 {
			t.Errorf("%s sets %v", a.Name, set)
			continue
		}
		if other, dup := seen[set[0]]; dup {
			t.Errorf("%s and %s both set %s", a.Name, other, set[0])
		}
		seen[set[0]] = a.Name
	}
	if fields := reflect.TypeFor[Settings]().NumField() - 1; fields != len(seen) { // ByPort holds the same fields
		t.Errorf("%d settings, %d are reachable by annotation", fields, len(seen))
	}
}

func TestAnnotationsOverrideDefaults(t *testing.T) {
	t.Parallel()
	defaults := map[string]string{"type": "lb21", "location": "fsn1", "health-check-retries": "2"}
	s, _, mistakes := ParseAnnotations(map[string]string{AnnotationPrefix + "type": "lb31", AnnotationPrefix + "network-zone": "us-east"},
		defaults)
	if len(mistakes) > 0 {
		t.Fatal(mistakes)
	}
	if s.Type != "lb31" || s.HealthCheckRetries != 2 || s.NetworkZone != "us-east" || s.Location != "" {
		t.Errorf("got %+v", s)
	}
	if s, _, _ = ParseAnnotations(map[string]string{AnnotationPrefix + "location": ""}, defaults); s.Location != "" {
		t.Errorf("an empty location keeps the default: %+v", s)
	}
	if s, _, _ = ParseAnnotations(map[string]string{AnnotationPrefix + "location": ""},
		map[string]string{"network-zone": "us-east"}); s.NetworkZone != "us-east" {
		t.Errorf("an empty location hides the default network zone: %+v", s)
	}
	if s, _, _ = ParseAnnotations(nil, defaults); s.Type != "lb21" || s.Location != "fsn1" {
		t.Errorf("defaults alone: %+v", s)
	}
}

func TestUnknownAnnotationsAreReported(t *testing.T) {
	t.Parallel()
	_, unknown, mistakes := ParseAnnotations(map[string]string{
		AnnotationPrefix + "locaton": "fsn1", AnnotationPrefix + "id": "4711", "example.org/foo": "x", AnnotationPrefix + "type": "lb11",
	}, nil)
	if len(mistakes) > 0 || !slices.Equal(unknown, []string{AnnotationPrefix + "locaton"}) {
		t.Errorf("got %v, %v", unknown, mistakes)
	}
}

// People write these (of 226 public manifests).
func TestAnUnknownAnnotationHasASuggestion(t *testing.T) {
	t.Parallel()
	for unknown, want := range map[string]string{
		"http-redirect-https": " (is it http-redirect-http?)", "algorithm": " (is it algorithm-type?)", "network": " (is it network-zone?)",
		"ipv6-enabled": " (is it ipv6-disabled?)", "protocols.443": " (is it protocol?)", "weight": "", "": "",
	} {
		if got := Suggestion(AnnotationPrefix + unknown); got != want {
			t.Errorf("%s: %q, want %q", unknown, got, want)
		}
	}
}

func TestSeveralMistakesAreReportedTogether(t *testing.T) {
	t.Parallel()
	_, _, mistakes := ParseAnnotations(map[string]string{AnnotationPrefix + "type": "?", AnnotationPrefix + "protocol": "udp"}, nil)
	if len(mistakes) != 2 {
		t.Errorf("got %v", mistakes)
	}
}

func TestTheReferenceAndThePlanHaveTheSameDefaults(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]time.Duration{
		"health-check-interval": defaultHealthCheckInterval, "health-check-timeout": defaultHealthCheckTimeout,
		"http-cookie-lifetime": defaultCookieLifetime, "http-timeout-idle": defaultTimeoutIdle,
	} {
		if got, err := time.ParseDuration(AnnotationByName(name).Default); err != nil || got != want {
			t.Errorf("%s: the reference has %v, the plan %v", name, got, want)
		}
	}
}

// notCopied holds the annotations that are in none of the two maps of wrong_settings.go, and what keeps their settings.
var notCopied = map[string]string{
	"location":                "cannot change",
	"network-zone":            "cannot change",
	"adopt":                   "cannot change",
	"shared":                  "the load balancer's labels: guests stay",
	"shared-namespaces":       "the load balancer's labels",
	"primary-ipv4":            "cannot change",
	"primary-ipv6":            "cannot change",
	"use-private-ip":          "usesPrivateIP",
	"node-selector":           "selectedNodes",
	"keep-on-delete":          "deletionSettings",
	"hostname":                "the Service's status",
	"ipv6-disabled":           "the Service's status",
	"disable-private-ingress": "the Service's status",
}

// A wrong setting must not take away what serves traffic: each annotation says how it keeps what is there.
func TestEveryAnnotationKeepsItsSettingInOnePlace(t *testing.T) {
	t.Parallel()
	for _, a := range Annotations {
		places := 0
		if copiedOnLoadBalancer[a.Name] != nil {
			places++
		}
		if copiedOnPort[a.Name] != nil {
			places++
		}
		if notCopied[a.Name] != "" {
			places++
		}
		if places != 1 {
			t.Errorf("%s is kept in %d places, want 1", a.Name, places)
		}
	}
	if n := len(copiedOnLoadBalancer) + len(copiedOnPort) + len(notCopied); n != len(Annotations) {
		t.Errorf("%d settings are kept, there are %d annotations", n, len(Annotations))
	}
}

// An annotation with two names is one setting.
func TestASettingHasOneName(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		AnnotationPrefix + "primary-ipv4":    "primary-ipv4",
		AnnotationPrefix + "public-net-ipv4": "primary-ipv4",
		AnnotationPrefix + "unheard-of":      "unheard-of",
		"HCLOUD_LOAD_BALANCERS_LOCATION":     "location",
		"primary-ipv4":                       "",
	} {
		if got := (AnnotationError{Source: source}).Setting(); got != want {
			t.Errorf("%s: %q, want %q", source, got, want)
		}
	}
}
