package doorstest_test

import (
	"context"
	"net"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/doors/doorstest"
)

// TestARecordIsMadeAndResolved has a client without an endpoint, and Go's resolver.
func TestARecordIsMadeAndResolved(t *testing.T) {
	t.Parallel()
	cloud := fakecloud.New(fakecloud.Options{})
	defer cloud.Close()
	client := hcloud.NewClient(hcloud.WithToken(cloud.Token()), hcloud.WithHTTPClient(doorstest.HTTPClient(t, cloud)))
	_, _, err := client.Zone.Create(t.Context(), hcloud.ZoneCreateOpts{Name: "example.com", Mode: hcloud.ZoneModePrimary,
		RRSets: []hcloud.ZoneCreateOptsRRSet{{Name: "www", Type: "A", Records: []hcloud.ZoneRRSetRecord{{Value: "198.51.100.1"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	address := doorstest.DNS(t, cloud)
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	if got, err := resolver.LookupHost(t.Context(), "www.example.com"); err != nil || !slices.Equal(got, []string{"198.51.100.1"}) {
		t.Errorf("%v, %v", got, err)
	}
}

// TestWhatADoorCosts compares the table of DOORS.md with what an importer compiles on Linux in addition to package fakecloud.
func TestWhatADoorCosts(t *testing.T) {
	t.Parallel()
	const module = "github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	compiled := func(pattern string) (lines []string) {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}} {{$.ImportPath}}{{end}}", pattern)
		cmd.Env = append(cmd.Environ(), "GOOS=linux", "GOARCH=amd64")
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(out))
	}
	root := compiled(module)
	rows := regexp.MustCompile(`(?m)^\| \x60(doors/\w+)\x60 \| (.+?) \| (.+?) \|`).FindAllStringSubmatch(read(t, "../../DOORS.md"), -1)
	for _, row := range rows {
		var modules, packages []string
		for i, p := range compiled(module + "/" + row[1]) {
			switch {
			case slices.Contains(root, p):
			case i%2 == 0:
				modules = append(modules, "`"+p+"`")
			default:
				packages = append(packages, p)
			}
		}
		slices.Sort(modules)
		if modules = slices.Compact(modules); len(modules) == 0 {
			modules = []string{"none"}
		}
		if want := strings.Join(modules, ", "); row[2] != want || row[3] != strconv.Itoa(len(packages)) {
			t.Errorf("%s: the page has %s and %s packages, want %s and %d: %v", row[1], row[2], row[3], want, len(packages), packages)
		}
	}
	if len(rows) != 3 {
		t.Errorf("DOORS.md has %d rows", len(rows))
	}
}
