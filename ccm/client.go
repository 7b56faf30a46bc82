package ccm

import (
	"context"
	"net/http"
	"os"
	"runtime/debug"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

// clientSettings are the settings of the API client.
type clientSettings struct {
	endpoint             string
	application, version string
	requestTimeout       time.Duration // of one attempt of one call
	debug                bool
}

// newClient returns the API client that all parts of the provider share. The same rules for metrics,
// timeouts and retries apply to every call.
func newClient(s clientSettings, token *tokenSource, clk clock.Clock, reg prometheus.Registerer, base http.RoundTripper, jitter func() float64, mayWrite func(context.Context) error) *hcloud.Client {
	t := &transport{
		next:           base,
		token:          token,
		clock:          clk,
		metrics:        newAPIMetrics(reg),
		limit:          &rateLimit{clock: clk},
		attemptTimeout: s.requestTimeout,
		jitter:         jitter,
		mayWrite:       mayWrite,
	}
	opts := []hcloud.ClientOption{
		hcloud.WithEndpoint(s.endpoint),
		hcloud.WithApplication(s.application, s.version),
		hcloud.WithHTTPClient(&http.Client{Transport: t}),
		hcloud.WithRetryOpts(hcloud.RetryOpts{MaxRetries: 0}), // transport retries
	}
	if s.debug {
		opts = append(opts, hcloud.WithDebugWriter(os.Stderr))
	}
	return hcloud.NewClient(opts...)
}

// Version returns the version of this build: the module's version, or the commit.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return s.Value[:12]
		}
	}
	return "devel"
}
