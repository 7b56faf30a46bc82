package apicall

import (
	"context"
	"net/http"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/ccmtest"
)

// testClient is an API client on an AutoClock and without randomness.
type testClient struct {
	client   *hcloud.Client
	registry *prometheus.Registry
}

// clientOf returns a client for the API. mayWrite may be nil.
func clientOf(a *ccmtest.API, token *TokenSource, mayWrite func(context.Context) error) (testClient, *ccmtest.AutoClock) {
	clk, reg := ccmtest.NewAutoClock(), prometheus.NewRegistry()
	if mayWrite == nil {
		mayWrite = func(context.Context) error { return nil }
	}
	settings := ClientSettings{Endpoint: a.URL, RequestTimeout: 10 * time.Second, Application: "a-test", Version: "1"}
	return testClient{NewClient(settings, token, clk, reg, http.DefaultTransport, func() float64 { return 1 }, mayWrite), reg}, clk
}
