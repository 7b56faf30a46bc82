// Package cloudtest checks that a driver keeps the promises of package cloud's interfaces. The test of a driver is one line:
//
//	func TestDriver(t *testing.T) { cloudtest.Run(t, example.Driver{}, cloudtest.Config{}) }
//
// It assumes nothing of the cloud. It can check a CCM's part, such as creating a load balancer, if the Config says how.
package cloudtest

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
)

// UserAgent is a part of the User-Agent that the functions of a Config must send.
const UserAgent = "cloudtest-ccm"

// Config has functions for steps outside of the interface. Tests that need a function that is nil are skipped, with the reason.
type Config struct {
	// CreateLoadBalancer creates a load balancer by the cloud's API, as a CCM with the User-Agent would. It forwards a port to a port
	// of the servers.
	CreateLoadBalancer func(ctx context.Context, c cloud.Cloud, name string, port, nodePort uint16, servers ...cloud.Server) error
	// ListServers sends one request about the list of servers, as a CCM with the User-Agent would. It returns an error if the answer is
	// not that list, and does not try again.
	ListServers func(ctx context.Context, c cloud.Cloud, userAgent string) error
	// Slow is how long a change may take. 0: 10s.
	Slow time.Duration
}

// Run runs all tests of a driver. Each test has another cloud.
func Run(t *testing.T, d cloud.Driver, config Config) {
	if config.Slow == 0 {
		config.Slow = 10 * time.Second
	}
	s := &suite{driver: d, config: config}
	for _, test := range []struct {
		name string
		run  func(*testing.T, *suite)
	}{
		{"a server that is created runs and is listed", created},
		{"names of servers are unique", uniqueNames},
		{"a server that is deleted is gone, and its ID with it", deleted},
		{"a server is off from its stop to its start", stopped},
		{"what does not exist is not found", notFound},
		{"servers do not share an address", ownAddresses},
		{"clouds do not share servers", separate},
		{"all methods may be called at the same time", concurrent},
		{"a method ends with its context", canceled},
		{"the CCM learns where the cloud is", ccm},
		{"a load balancer forwards, is listed, and can be deleted", balanced},
		{"Renamer: a server keeps its ID", renamed},
		{"Router: routes are added and deleted", routed},
		{"Router: a route that leads elsewhere is not deleted", otherRoute},
		{"Recorder: requests of the CCM, and of it alone", recorded},
		{"Faulty: requests of the CCM fail, and of it alone", faulty},
		{"Faulty: what the driver does not have is unsupported", unknownEffect},
		{"Limiter: further load balancers are refused", limited},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, s)
		})
	}
}

// suite is shared by all tests of a driver.
type suite struct {
	driver cloud.Driver
	config Config
}

// clouds counts the clouds of this process. Each gets the address ranges of its number.
var clouds atomic.Uint32

// Options returns options for a cloud: with addresses that the 127 clouds before it in this process do not have, and another process most
// probably neither.
func Options(t *testing.T) cloud.Options {
	t.Helper()
	n := clouds.Add(1) % 128
	block := byte(192 + os.Getpid()%60)
	return cloud.Options{
		ProviderPrefix: "cloudtest://", UserAgent: UserAgent, Log: t.Output(),
		Servers:       netip.PrefixFrom(netip.AddrFrom4([4]byte{127, block, byte(2 * n), 0}), 24),
		LoadBalancers: netip.PrefixFrom(netip.AddrFrom4([4]byte{127, block, byte(2*n + 1), 0}), 24),
	}
}

// start starts a cloud that ends with the test.
func (s *suite) start(t *testing.T) cloud.Cloud {
	t.Helper()
	return s.startWith(t, Options(t))
}

func (s *suite) startWith(t *testing.T, o cloud.Options) cloud.Cloud {
	t.Helper()
	c, err := s.driver.Start(t.Context(), o)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skipf("the driver does not start clouds: %v", err)
	}
	g := NewWithT(t)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(c.Close()).To(Succeed(), "the cloud does not end without an error") })
	return c
}

// optional returns a cloud as one of the optional interfaces, or skips the test.
func optional[T any](t *testing.T, c cloud.Cloud) T {
	t.Helper()
	as, ok := cloud.As[T](c)
	if !ok {
		t.Skip("the driver does not implement the interface")
	}
	return as
}

// server creates a server.
func server(t *testing.T, c cloud.Cloud, name string) cloud.Server {
	t.Helper()
	created, err := c.CreateServer(t.Context(), name)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return created
}

// servers returns all servers by name.
func servers(t *testing.T, c cloud.Cloud) map[string]cloud.Server {
	t.Helper()
	g := NewWithT(t)
	all, err := c.Servers(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	byName := map[string]cloud.Server{}
	for _, one := range all {
		byName[one.Name] = one
	}
	g.Expect(byName).To(HaveLen(len(all)), "two servers have the same name")
	return byName
}

// isNotFound matches an error that has cloud.ErrNotFound.
func isNotFound() OmegaMatcher { return MatchError(cloud.ErrNotFound) }
