// Package fakecloudtest gives a test a cloud that ends with it:
//
//	cloud := fakecloudtest.New(t)
//	fakecloudtest.Env(t, cloud) // HCLOUD_ENDPOINT and HCLOUD_TOKEN, for code that reads them
package fakecloudtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// shown is how many requests a failed test logs.
const shown = 50

// An Option changes what a cloud does at the end of the test.
type Option int

// AllowUnknownFields is for a test of requests with fields or query parameters that the API does not read. Without it, the test fails: such
// a field is mostly a mistake, such as user-data. For most operations, no source tells what the real API does.
const AllowUnknownFields Option = iota

// New returns an empty cloud with the default options. Its API listens on a free port of 127.0.0.1: a client takes Cloud.Endpoint and
// Cloud.Token. The end of the test closes the cloud. The test fails if a request in the journal has unknown fields. If the test failed, the
// cloud's latest requests are in the test's log.
func New(tb testing.TB, options ...Option) *fakecloud.Cloud {
	tb.Helper()
	return NewWith(tb, fakecloud.Options{}, options...)
}

// NewWith is New with options. A wrong option ends the test.
func NewWith(tb testing.TB, o fakecloud.Options, options ...Option) *fakecloud.Cloud {
	tb.Helper()
	cloud, err := fakecloud.Open(o)
	if err != nil {
		tb.Fatalf("fakecloud: %v", err)
	}
	tb.Cleanup(func() {
		if !slices.Contains(options, AllowUnknownFields) {
			refuseUnknownFields(tb, cloud)
		}
		if tb.Failed() {
			tb.Log(latest(cloud))
		}
		cloud.Close()
	})
	if _, err := cloud.Start(tb.Context(), ""); err != nil {
		tb.Fatalf("fakecloud: %v", err)
	}
	return cloud
}

// refuseUnknownFields fails the test for each request with fields that nothing reads.
func refuseUnknownFields(tb testing.TB, cloud *fakecloud.Cloud) {
	tb.Helper()
	entries, _ := cloud.Journal().Entries(context.Background(), journal.Filter{}) // returns no error in this process
	for _, e := range entries {
		if e.UnknownFields != "" {
			tb.Errorf("fakecloud: the API does not read %s of %s %s; correct the names, or call fakecloudtest.New with AllowUnknownFields",
				e.UnknownFields, e.Method, e.Path)
		}
	}
}

// latest describes the latest requests.
func latest(cloud *fakecloud.Cloud) string {
	entries, _ := cloud.Journal().Entries(context.Background(), journal.Filter{}) // returns no error in this process
	var text strings.Builder
	fmt.Fprintf(&text, "fakecloud: %d requests", len(entries))
	if skipped := len(entries) - shown; skipped > 0 {
		fmt.Fprintf(&text, "; the latest %d", shown)
		entries = entries[skipped:]
	}
	for _, e := range entries {
		fmt.Fprintf(&text, "\n%v", e)
	}
	return text.String()
}

// Env sets HCLOUD_ENDPOINT and HCLOUD_TOKEN to those of the cloud until the test ends. The test must not be parallel.
func Env(tb testing.TB, cloud *fakecloud.Cloud) {
	tb.Helper()
	tb.Setenv("HCLOUD_ENDPOINT", cloud.Endpoint())
	tb.Setenv("HCLOUD_TOKEN", cloud.Token())
}
