// Package apicall makes the calls of the API, for all controllers by the same rules: the token, timeouts, retries, the rate limit, metrics,
// and the wait for actions. A process that does not lead any more writes nothing.
package apicall

import (
	"context"
	"net/http"
	"os"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

// ClientSettings are the settings of the API client.
type ClientSettings struct {
	Endpoint             string
	Application, Version string
	RequestTimeout       time.Duration // of one attempt of one call
	Debug                bool
}

// NewClient returns the API client that all parts of the provider share. The same rules for metrics,
// timeouts and retries apply to every call.
func NewClient(s ClientSettings, token *TokenSource, clk clock.Clock, reg prometheus.Registerer, base http.RoundTripper,
	jitter func() float64, mayWrite func(context.Context) error) *hcloud.Client {
	t := &transport{
		next:           base,
		token:          token,
		clock:          clk,
		metrics:        newAPIMetrics(reg),
		limit:          &rateLimit{clock: clk},
		attemptTimeout: s.RequestTimeout,
		jitter:         jitter,
		mayWrite:       mayWrite,
	}
	opts := []hcloud.ClientOption{
		hcloud.WithEndpoint(s.Endpoint),
		hcloud.WithApplication(s.Application, s.Version),
		hcloud.WithHTTPClient(&http.Client{Transport: t}),
		hcloud.WithRetryOpts(hcloud.RetryOpts{MaxRetries: 0}), // transport retries
	}
	if s.Debug {
		opts = append(opts, hcloud.WithDebugWriter(os.Stderr))
	}
	return hcloud.NewClient(opts...)
}
