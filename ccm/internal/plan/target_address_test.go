package plan

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/ccmtest"
)

func TestTargetsAreReachedByTheServicesIPFamilies(t *testing.T) {
	t.Parallel()
	with6 := func(s *hcloud.Server) *hcloud.Server {
		s.PublicNet.IPv6.IP = net.ParseIP("2001:db8:7::")
		return s
	}
	v4, v6 := corev1.IPv4Protocol, corev1.IPv6Protocol
	for name, tc := range map[string]struct {
		families    []corev1.IPFamily
		server      *hcloud.Server
		annotations map[string]string
		want        string // "public", "private", an address, or "" for no target
		note        string
	}{
		"IPv4": {[]corev1.IPFamily{v4}, with6(server(1, "203.0.113.1", "10.0.0.1")), nil, "public", ""},
		"dual stack": {[]corev1.IPFamily{v6, v4}, with6(server(1, "203.0.113.1", "10.0.0.1")), nil, "public",
			""},
		"IPv6": {[]corev1.IPFamily{v6}, with6(server(1, "203.0.113.1", "10.0.0.1")), nil, "2001:db8:7::1",
			""},
		"IPv6, private by annotation": {[]corev1.IPFamily{v6}, with6(server(1, "203.0.113.1", "10.0.0.1")),
			map[string]string{"use-private-ip": "true"}, "private", "ipFamilyPolicy"},
		"IPv4 on a private server": {[]corev1.IPFamily{v4}, server(1, "", "10.0.0.1"), nil, "private", ""},
		"IPv4 on a private server, refused": {[]corev1.IPFamily{v4}, server(1, "", "10.0.0.1"),
			map[string]string{"use-private-ip": "false"}, "", "IP family"},
		"IPv4 on an IPv6 server":              {[]corev1.IPFamily{v4}, with6(server(1, "", "")), nil, "", "IP family"},
		"dual stack on an IPv6 server":        {[]corev1.IPFamily{v4, v6}, with6(server(1, "", "")), nil, "2001:db8:7::1", ""},
		"dual stack on a private IPv6 server": {[]corev1.IPFamily{v4, v6}, with6(server(1, "", "10.0.0.1")), nil, "private", ""},
		"dual stack, private addresses refused": {[]corev1.IPFamily{v4, v6}, with6(server(1, "", "10.0.0.1")),
			map[string]string{"use-private-ip": "false"}, "2001:db8:7::1", ""},
		"IPv6 on a server without IPv6": {[]corev1.IPFamily{v6}, server(1, "203.0.113.1", ""), nil, "", "IP family"},
		"no public interface, server on network": {[]corev1.IPFamily{v4}, server(1, "", "10.0.0.1"),
			map[string]string{"disable-public-network": "true"}, "private", ""},
	} {
		svc := testService(tc.annotations, [2]int32{80, 30080})
		svc.Spec.IPFamilies = tc.families
		plan, notes := planFor(t, Input{Service: svc, Nodes: []*corev1.Node{ccmtest.Node("n", ccmtest.ProviderID(1))},
			Servers: map[int64]*hcloud.Server{1: tc.server}, NetworkID: 5})
		got := ""
		for _, target := range plan.Targets {
			switch {
			case target.Private:
				got = "private"
			case plan.IPv6[1].IsValid():
				got = plan.IPv6[1].String()
			default:
				got = "public"
			}
		}
		if got != tc.want || (tc.note == "") != (len(notes) == 0) || !strings.Contains(strings.Join(notes, "\n"), tc.note) {
			t.Errorf("%s: got %q, %v; want %q, %q", name, got, notes, tc.want, tc.note)
		}
	}
}

func TestAnIPv6TargetIsNoPartOfTheCreateRequest(t *testing.T) {
	t.Parallel()
	plan := &LoadBalancer{Targets: []Target{{1, false}, {2, false}}, IPv6: map[int64]netip.Addr{2: netip.MustParseAddr("2001:db8::1")}}
	if opts := CreateRequest(plan); len(opts.Targets) != 1 || opts.Targets[0].Server.Server.ID != 1 {
		t.Errorf("got %+v", opts.Targets)
	}
}
