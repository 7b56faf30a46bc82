// Package fakecloud is a simulated Hetzner Cloud with a local API.
//
//	cloud := fakecloud.New(fakecloud.Options{})
//	defer cloud.Close()
//	client := cloud.Client() // an *hcloud.Client, ready to use, without a listener
//
// The zero Options work: actions end at once, one project exists whose token is [DefaultToken],
// there is no listener until [Cloud.Start] is called.
package fakecloud

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/utils/clock"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/api"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/journal"
)

// DefaultToken is the token of the project that every cloud begins with. It has the 64 characters that
// clients check for.
const DefaultToken = "fakecloudfakecloudfakecloudfakecloudfakecloudfakecloudfakecloud0"

// Options configure a Cloud. The zero value works.
type Options struct {
	// Clock is where all time comes from; nil is the machine's clock.
	Clock clock.WithTicker
	// Actions says how long actions take: "instant", "realistic", or a duration such as "250ms".
	// "" is instant.
	Actions string
	// RateLimit is the number of requests per hour and project; 0 is no limit. The real API's is 3600.
	RateLimit int
	// APIDate is a day such as "2026-06-01", to see the API as it was then; "" is today's.
	APIDate string
}

// Cloud is a simulated Hetzner Cloud. Close it when it is no longer used.
type Cloud struct {
	cloud   *cloud.Cloud
	api     *api.API
	journal *journal.Journal

	mu      sync.Mutex
	servers []*http.Server
}

// New returns an empty cloud. It panics on options that cannot be parsed, as those of a test are
// written by hand; [Open] returns the error.
func New(o Options) *Cloud {
	c, err := Open(o)
	if err != nil {
		panic(err)
	}
	return c
}

// Open is New for options that come from outside.
func Open(o Options) (*Cloud, error) {
	if o.Actions == "" {
		o.Actions = "instant"
	}
	profile, err := cloud.ParseProfile(o.Actions)
	if err != nil {
		return nil, err
	}
	date, err := api.ParseDate(o.APIDate)
	if err != nil {
		return nil, err
	}
	c := &Cloud{journal: &journal.Journal{}}
	c.cloud = cloud.New(cloud.Options{Clock: o.Clock, Profile: profile})
	c.cloud.AddToken(DefaultToken, cloud.Token{Project: 1})
	c.api = api.New(api.Options{Cloud: c.cloud, Journal: c.journal, RateLimit: o.RateLimit, Date: date})
	return c, nil
}

// Handler returns the API as an http.Handler. Its base path is /v1.
func (c *Cloud) Handler() http.Handler { return c.api }

// Client returns a client of the default project that needs no listener: its requests are handed
// to the handler within the process.
func (c *Cloud) Client(opts ...hcloud.ClientOption) *hcloud.Client {
	opts = append([]hcloud.ClientOption{
		hcloud.WithEndpoint("http://fakecloud.invalid" + api.Prefix),
		hcloud.WithToken(DefaultToken),
		hcloud.WithHTTPClient(&http.Client{Transport: inProcess{c.api}}),
	}, opts...)
	return hcloud.NewClient(opts...)
}

// inProcess is an http.RoundTripper that calls a handler.
type inProcess struct{ handler http.Handler }

func (t inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	in := r.Clone(r.Context())
	in.RequestURI = r.URL.RequestURI()
	in.RemoteAddr = "127.0.0.1:0"
	in.Host = r.URL.Host
	if in.Body == nil {
		in.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	t.handler.ServeHTTP(w, in)
	resp := w.Result()
	resp.Request = r
	return resp, nil
}

// Start listens on an address such as "127.0.0.1:0" and serves the API there until Close. It
// returns the endpoint for clients, as "http://127.0.0.1:4242/v1".
func (c *Cloud) Start(ctx context.Context, address string) (endpoint string, err error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	s := &http.Server{Handler: c.api}
	c.mu.Lock()
	c.servers = append(c.servers, s)
	c.mu.Unlock()
	go func() { _ = s.Serve(l) }()
	return "http://" + l.Addr().String() + api.Prefix, nil
}

// Close stops all listeners and the cloud's goroutines.
func (c *Cloud) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.servers {
		_ = s.Close()
	}
	c.cloud.Close()
}
