package dns

import (
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// The zones of reverse names (RFC 1035, section 3.5; RFC 3596, section 2.5).
const (
	reverse4 = "in-addr.arpa"
	reverse6 = "ip6.arpa"
)

// reverse answers a question about a name that is in no zone: the name of an address, or one to refuse.
func (s *Server) reverse(q dnsmessage.Question, name string) (a answer) {
	apex := reverse4
	if strings.HasSuffix("."+name, "."+reverse6) {
		apex = reverse6
	}
	labels, ok := strings.CutSuffix("."+name, "."+apex)
	if !ok {
		return answer{rcode: dnsmessage.RCodeRefused}
	}
	a.authoritative = true
	owner, kind, to := apex+".", "SOA", &a.authorities
	value := cloud.AuthoritativeNameservers[0] + " dns.hetzner.com. 1 86400 10800 3600000 3600"
	if address, whole := addressOf(strings.TrimPrefix(labels, "."), apex); whole {
		ptr := s.ptr(address)
		if ptr == "" {
			a.rcode = dnsmessage.RCodeNameError
		} else if q.Type == dnsmessage.TypePTR || q.Type == dnsmessage.TypeALL {
			owner, kind, to, value = q.Name.String(), "PTR", &a.answers, strings.TrimSuffix(ptr, ".")+"."
		}
	}
	data, err := encode(kind, value, apex)
	if err != nil {
		return answer{rcode: dnsmessage.RCodeServerFailure}
	}
	*to = append(*to, record{owner, kinds[kind], cloud.DefaultTTL, data})
	return a
}

// addressOf returns the address of a reverse name without its zone. whole is false if the name is that of no or of many addresses.
func addressOf(labels, apex string) (address netip.Addr, whole bool) {
	parts := strings.Split(labels, ".")
	slices.Reverse(parts)
	if apex == reverse4 {
		address, err := netip.ParseAddr(strings.Join(parts, "."))
		return address, err == nil && address.Is4()
	}
	bytes, err := hex.DecodeString(strings.Join(parts, ""))
	address, ok := netip.AddrFromSlice(bytes)
	return address, err == nil && ok && len(parts) == 32
}

// ptr returns the reverse name of an address, or "". The cost depends on how many projects, Floating IPs and load balancers there are.
func (s *Server) ptr(address netip.Addr) string {
	for _, p := range s.cloud.Projects() {
		st := p.View()
		if ip, ok := st.PrimaryIPs.ByAddress(address); ok {
			return ip.DNSPtr.Of(address)
		}
		for f := range st.FloatingIPs.All() {
			if f.IP.Contains(address) {
				return f.DNSPtr.Of(address)
			}
		}
		for lb := range st.LoadBalancers.All() {
			for _, ip := range []cloud.LoadBalancerIP{lb.IPv4, lb.IPv6} {
				if ip.Addr == address {
					return st.PublicDNSPtr(ip)
				}
			}
		}
	}
	return ""
}
