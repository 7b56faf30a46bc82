// Package doorstest gives a test the doors of a simulated cloud: a way in for programs that know only api.hetzner.cloud, a name
// server, and guests that answer SSH. Each door ends with the test:
//
//	cloud := fakecloudtest.New(t)
//	cmd.Env = doorstest.Environ(t, cloud)               // a child process that knows only api.hetzner.cloud
//	client := mylib.New(doorstest.HTTPClient(t, cloud)) // code that takes an http.Client, and no endpoint
//	resolver := doorstest.DNS(t, cloud)                 // the address of a name server that answers from the zones
//	door := doorstest.Guests(t, cloud)                  // servers that answer SSH
package doorstest

import (
	"net/http"
	"os"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/doors/dns"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/doors/guests"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/doors/proxy"
)

// Proxy returns a proxy to the cloud, with hosts that it lets pass, such as registry.terraform.io.
func Proxy(tb testing.TB, cloud *fakecloud.Cloud, allow ...string) *proxy.Proxy {
	tb.Helper()
	p, err := proxy.Start(tb.Context(), proxy.Options{API: cloud.Handler(), Token: cloud.Token(), Allow: allow})
	if err != nil {
		tb.Fatalf("fakecloud: %v", err)
	}
	tb.Cleanup(func() { _ = p.Close() })
	return p
}

// Environ returns the environment of this process for a child process: HTTPS requests to api.hetzner.cloud reach the cloud, those to other
// hosts are refused, and the token of the cloud is in each variable that a known program reads. DOORS.md lists the runtimes.
func Environ(tb testing.TB, cloud *fakecloud.Cloud, allow ...string) []string {
	tb.Helper()
	return Proxy(tb, cloud, allow...).Access().Environ(os.Environ())
}

// HTTPClient returns a client that reaches the cloud as https://api.hetzner.cloud, and no other host.
func HTTPClient(tb testing.TB, cloud *fakecloud.Cloud, allow ...string) *http.Client {
	tb.Helper()
	return Proxy(tb, cloud, allow...).Client()
}

// DNS starts a name server for the zones of the cloud and returns its address, such as 127.0.0.1:40123.
func DNS(tb testing.TB, cloud *fakecloud.Cloud) string {
	tb.Helper()
	s, err := dns.Start(tb.Context(), cloud, "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("fakecloud: %v", err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s.Address()
}

// Guests lets the servers of the cloud answer SSH, with rules for commands.
func Guests(tb testing.TB, cloud *fakecloud.Cloud, rules ...guests.Rule) *guests.Door {
	tb.Helper()
	door, err := guests.Start(tb.Context(), cloud, guests.Options{Rules: rules})
	if err != nil {
		tb.Fatalf("fakecloud: %v", err)
	}
	tb.Cleanup(func() { _ = door.Close() })
	return door
}
