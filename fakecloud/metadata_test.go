package fakecloud_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/metadata"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

const metadataURL = "http://169.254.169.254/hetzner/v1"

// metadataOf sends a request to the metadata service as if it came from an address.
func metadataOf(c *fakecloud.Cloud, from, method, path string) *http.Response {
	r := httptest.NewRequest(method, metadataURL+path, nil)
	r.RemoteAddr = from
	r.Header.Set("X-Forwarded-For", "198.18.0.1") // the service must not believe it
	w := httptest.NewRecorder()
	c.MetadataHandler().ServeHTTP(w, r)
	return w.Result()
}

func bodyOf(t *testing.T, r *http.Response) string {
	t.Helper()
	b := must(io.ReadAll(r.Body))(t)
	return string(b)
}

// metadataCloud returns a cloud with two networks, the server "my-server" in both and "2" with neither network nor
// public IPv4.
func metadataCloud(t *testing.T) (c *fakecloud.Cloud, server, other *hcloud.Server) {
	t.Helper()
	c = fakecloud.New(fakecloud.Options{})
	t.Cleanup(c.Close)
	client, ctx := c.Client(), t.Context()
	for i, name := range []string{"nw-test1", "true"} {
		_, ipRange, _ := net.ParseCIDR([]string{"10.0.0.0/8", "192.168.0.0/16"}[i])
		_, subnet, _ := net.ParseCIDR([]string{"10.0.0.0/24", "192.168.0.0/24"}[i])
		if _, _, err := client.Network.Create(ctx, hcloud.NetworkCreateOpts{
			Name: name, IPRange: ipRange,
			Subnets: []hcloud.NetworkSubnet{{Type: hcloud.NetworkSubnetTypeCloud, IPRange: subnet, NetworkZone: "eu-central"}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	create := func(o hcloud.ServerCreateOpts) *hcloud.Server {
		o.ServerType, o.Image, o.Location = &hcloud.ServerType{Name: "cx23"}, &hcloud.Image{Name: "ubuntu-24.04"},
			&hcloud.Location{Name: "hel1"}
		result, _, err := client.Server.Create(ctx, o)
		check(t, err)
		return result.Server
	}
	server = create(hcloud.ServerCreateOpts{Name: "my-server", UserData: "#cloud-config\n{}\n"})
	for _, join := range []hcloud.ServerAttachToNetworkOpts{
		{Network: network(t, client, "nw-test1"), IP: net.IPv4(10, 0, 0, 2),
			AliasIPs: []net.IP{net.IPv4(10, 0, 0, 3), net.IPv4(10, 0, 0, 4)}},
		{Network: network(t, client, "true"), IP: net.IPv4(192, 168, 0, 2)},
	} {
		check(t, did(client.Server.AttachToNetwork(ctx, server, join)))
	}
	var err error
	if server, _, err = client.Server.GetByID(ctx, server.ID); err != nil {
		t.Fatal(err)
	}
	return c, server, create(hcloud.ServerCreateOpts{Name: "2", PublicNet: &hcloud.ServerCreatePublicNet{EnableIPv6: true}})
}

func network(t *testing.T, client *hcloud.Client, name string) *hcloud.Network {
	t.Helper()
	n, _, err := client.Network.GetByName(t.Context(), name)
	if err != nil || n == nil {
		t.Fatalf("network %s: %v", name, err)
	}
	return n
}

func TestAServerReadsItsMetadata(t *testing.T) {
	t.Parallel()
	c, server, other := metadataCloud(t)
	ipv4, id := server.PublicNet.IPv4.IP.String(), fmt.Sprint(server.ID)
	summary := "availability-zone: hel1-dc2\nhostname: my-server\ninstance-id: " + id + "\npublic-ipv4: " + ipv4 + "\nregion: eu-central\n"
	nets := server.PrivateNet
	private := fmt.Sprintf(`- ip: 10.0.0.2
  alias_ips: [10.0.0.3, 10.0.0.4]
  interface_num: 1
  mac_address: %s
  network_id: %d
  network_name: nw-test1
  network: 10.0.0.0/8
  subnet: 10.0.0.0/24
  gateway: 10.0.0.1
- ip: 192.168.0.2
  alias_ips: []
  interface_num: 2
  mac_address: %s
  network_id: %d
  network_name: "true"
  network: 192.168.0.0/16
  subnet: 192.168.0.0/24
  gateway: 192.168.0.1
`, nets[0].MACAddress, nets[0].Network.ID, nets[1].MACAddress, nets[1].Network.ID)
	v6 := other.PublicNet.IPv6.Network
	bare := netip.MustParseAddr(v6.IP.String()).Next().String()
	own := map[string]string{
		"/metadata": summary, "/metadata/hostname": "my-server", "/metadata/instance-id": id, "/metadata/public-ipv4": ipv4,
		"/metadata/availability-zone": "hel1-dc2", "/metadata/region": "eu-central", "/userdata": "#cloud-config\n{}\n",
		"/metadata/private-networks": private,
	}
	others := map[string]string{
		"/metadata": "availability-zone: hel1-dc2\nhostname: \"2\"\ninstance-id: " + fmt.Sprint(other.ID) +
			"\npublic-ipv4: \"\"\nregion: eu-central\n",
		"/metadata/hostname": "2", "/metadata/public-ipv4": "", "/userdata": "", "/metadata/private-networks": "[]\n",
	}
	for from, want := range map[string]map[string]string{
		ipv4 + ":1": own, "10.0.0.2:40000": own, "10.0.0.4:1": own, "192.168.0.2:1": own, "[::ffff:10.0.0.2]:1": own, "[" + bare +
			"]:1": others,
	} {
		for path, body := range want {
			r := metadataOf(c, from, http.MethodGet, path)
			if got := bodyOf(t, r); r.StatusCode != http.StatusOK || got != body {
				t.Errorf("%s from %s: %d\n%s\nwant\n%s", path, from, r.StatusCode, got, body)
			}
			if kind := r.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/plain") {
				t.Errorf("%s: %s", path, kind)
			}
		}
	}
}

func TestMetadataIsOnlyForServersAndKnownPaths(t *testing.T) {
	t.Parallel()
	c, _, _ := metadataCloud(t)
	const known = "10.0.0.2:1"
	for _, tc := range []struct {
		from, method, path string
		status             int
	}{
		{"203.0.113.1:1", "GET", "/metadata", 404}, {"203.0.113.1:1", "GET", "/userdata", 404},
		{"10.0.0.9:1", "GET", "/metadata/hostname", 404},
		{"@", "GET", "/metadata", 404},
		{known, "GET", "/metadata/", 404}, {known, "GET", "/metadata/nothing", 404}, {known, "GET", "/metadata/hostname/x", 404},
		{known, "GET", "", 404}, {known, "GET", "/vendordata", 404},
		{known, "PUT", "/metadata", 405}, {known, "POST", "/userdata", 405}, {known, "HEAD", "/metadata/hostname", 200},
	} {
		if r := metadataOf(c, tc.from, tc.method, tc.path); r.StatusCode != tc.status {
			t.Errorf("%s %q from %s: %d, want %d", tc.method, tc.path, tc.from, r.StatusCode, tc.status)
		}
	}
}

func TestTheRoutedNetworkDecidesWhichOfSeveralServersHasAnAddress(t *testing.T) {
	t.Parallel()
	c := newCloud(t, fakecloud.Options{})
	_, staging, err := c.AddProject(t.Context(), "staging", "")
	check(t, err)
	seed := func(token, name string) {
		client := c.Client(hcloud.WithToken(token))
		_, ipRange, _ := net.ParseCIDR("10.0.0.0/16")
		n, _, err := client.Network.Create(t.Context(), hcloud.NetworkCreateOpts{
			Name: name, IPRange: ipRange,
			Subnets: []hcloud.NetworkSubnet{{Type: hcloud.NetworkSubnetTypeCloud, IPRange: ipRange, NetworkZone: "eu-central"}},
		})
		check(t, err)
		if _, _, err = client.Server.Create(t.Context(), hcloud.ServerCreateOpts{
			Name: "in-" + name, ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "ubuntu-24.04"},
			Location: &hcloud.Location{Name: "fsn1"}, Networks: []*hcloud.Network{n},
		}); err != nil {
			t.Fatal(err)
		}
	}
	seed(c.Token(), "first")
	seed(staging, "second")
	// Without the option it is the oldest network, like for a router.
	if got := bodyOf(t, metadataOf(c, "10.0.0.2:1", "GET", "/metadata/hostname")); got != "in-first" {
		t.Errorf("%q", got)
	}
}

func TestHcloudGosMetadataClientReadsIt(t *testing.T) {
	t.Parallel()
	c := newCloud(t, fakecloud.Options{PublicIPv4: netip.MustParsePrefix("127.77.0.0/16")})
	url := must(c.StartMetadata(t.Context(), "127.0.0.1:0"))(t)
	result, _, err := c.Client().Server.Create(t.Context(), hcloud.ServerCreateOpts{
		Name: "web", ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "ubuntu-24.04"},
		Location: &hcloud.Location{Name: "nbg1"},
	})
	check(t, err)
	// On loopback, a client can dial from a server's address.
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: result.Server.PublicNet.IPv4.IP}}
	m := metadata.NewClient(metadata.WithEndpoint(url+"/metadata"), metadata.WithHTTPClient(&http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, DialContext: from.DialContext,
	}}))
	if probe, err := from.DialContext(t.Context(), "tcp", strings.TrimSuffix(strings.TrimPrefix(url, "http://"),
		"/hetzner/v1")); err != nil {
		t.Skipf("this system's loopback has one address only: %v", err)
	} else {
		_ = probe.Close()
	}
	id, err := m.InstanceIDWithContext(t.Context())
	if err != nil || id != result.Server.ID {
		t.Errorf("%d, %v", id, err)
	}
	if ip, err := m.PublicIPv4WithContext(t.Context()); err != nil || !ip.Equal(result.Server.PublicNet.IPv4.IP) {
		t.Errorf("%v, %v", ip, err)
	}
	if zone, err := m.AvailabilityZoneWithContext(t.Context()); err != nil || zone != "nbg1-dc3" {
		t.Errorf("%q, %v", zone, err)
	}
	if region, err := m.RegionWithContext(t.Context()); err != nil || region != "eu-central" || !m.IsHcloudServerWithContext(t.Context()) {
		t.Errorf("%q, %v", region, err)
	}
	if text, err := m.PrivateNetworksWithContext(t.Context()); err != nil || text != "[]" {
		t.Errorf("%q, %v", text, err)
	}
	c.Close()
	if _, err := m.HostnameWithContext(t.Context()); err == nil {
		t.Error("a closed cloud answers")
	}
}

func TestErrorsOfStartMetadata(t *testing.T) {
	t.Parallel()
	c := newCloud(t, fakecloud.Options{})
	if _, err := c.StartMetadata(t.Context(), "no-port"); err == nil || !strings.Contains(err.Error(), "must be host:port") {
		t.Errorf("%v", err)
	}
	c.Close()
	if _, err := c.StartMetadata(t.Context(), "127.0.0.1:0"); err == nil {
		t.Error("a closed cloud serves metadata")
	}
}
