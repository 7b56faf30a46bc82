package cloud

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// addressPool hands out public addresses: single IPv4 addresses and IPv6 networks of 64 bits. It
// cycles through its range, so that a returned address is not reused soon. Cloud.mu guards it.
type addressPool struct {
	v4, v6 *prefixPool
}

func newAddressPool(v4, v6 netip.Prefix) *addressPool {
	if !v4.IsValid() {
		v4 = netip.MustParsePrefix("198.18.0.0/15")
	}
	if !v6.IsValid() {
		v6 = netip.MustParsePrefix("2001:db8::/32")
	}
	return &addressPool{v4: newPrefixPool(v4, 32), v6: newPrefixPool(v6, 64)}
}

func (p *addressPool) reset() {
	p.v4.used, p.v6.used = newNumbers(), newNumbers()
}

func newNumbers() store.Ascending[uint64] {
	return store.NewAscending(func(a, b uint64) bool { return a < b })
}

// fork returns a copy of the pool.
func (p *prefixPool) fork() *prefixPool {
	p.used.Share()
	c := *p
	return &c
}

// prefixPool hands out the networks of `bits` bits inside a prefix, except the first, the last and the
// reserved ones.
type prefixPool struct {
	base     netip.Prefix
	bits     int
	size     uint64
	next     uint64
	fresh    uint64                  // larger than the numbers of all networks that were ever taken
	used     store.Ascending[uint64] // the numbers of networks: see at
	reserved reservations
}

// reservations are address ranges that the cloud does not pick addresses from.
type reservations []netip.Prefix

func (r reservations) overlap(n netip.Prefix) bool { return slices.ContainsFunc(r, n.Overlaps) }

func (r reservations) contain(a netip.Addr) bool { return r.overlap(netip.PrefixFrom(a, a.BitLen())) }

// newPools returns the pools for servers and for load balancers, and the reservations in networks. The two pools are the same one unless
// configured.
func newPools(o Options) (servers, balancers *addressPool, private reservations) {
	servers = newAddressPool(o.PublicIPv4, o.PublicIPv6)
	servers.v4.reserved, servers.v6.reserved = o.Reserved, o.Reserved
	balancers, private = servers, slices.Clone(o.Reserved)
	for _, p := range []netip.Prefix{o.PublicIPv4, o.LoadBalancerIPv4} {
		if p.IsValid() {
			private = append(private, p)
		}
	}
	lb := o.LoadBalancerIPv4.Masked()
	if !lb.IsValid() || lb == servers.v4.base {
		return servers, balancers, private
	}
	balancers = newAddressPool(lb, o.PublicIPv6)
	balancers.v4.reserved, balancers.v6 = o.Reserved, servers.v6
	// If one range contains the other, its pool leaves the other range out, so that no address is given
	// out twice.
	switch base := servers.v4.base; {
	case contains(base, lb):
		servers.v4.reserved = append(slices.Clone(o.Reserved), lb)
	case contains(lb, base):
		balancers.v4.reserved = append(slices.Clone(o.Reserved), base)
	}
	return servers, balancers, private
}

func newPrefixPool(base netip.Prefix, bits int) *prefixPool {
	return &prefixPool{
		base: base.Masked(), bits: bits,
		size: uint64(1) << min(62, max(0, bits-base.Bits())),
		next: 1, used: newNumbers(),
	}
}

// seek makes take go on with a number, or at the beginning if the pool does not have it.
func (p *prefixPool) seek(next uint64) {
	if p.next = next; next == 0 || next >= p.size-1 {
		p.next = 1
	}
}

// take returns the number of a network that was not in use.
func (p *prefixPool) take() (i uint64, ok bool) {
	for range p.size {
		i = p.next
		p.seek(i + 1)
		if i == 0 || i >= p.size-1 {
			continue
		}
		if i < p.fresh {
			if _, taken := p.used.Get(i); taken {
				continue
			}
		}
		if !p.reserved.overlap(p.at(i)) {
			p.used.Set(i)
			p.fresh = max(p.fresh, i+1)
			return i, true
		}
	}
	return 0, false
}

// at returns the network with a number.
func (p *prefixPool) at(i uint64) netip.Prefix {
	if p.base.Addr().Is4() {
		b := p.base.Addr().As4()
		binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(i)<<(32-p.bits))
		return netip.PrefixFrom(netip.AddrFrom4(b), p.bits)
	}
	b := p.base.Addr().As16()
	// The networks have 64 bits, so only the upper half of the address matters.
	binary.BigEndian.PutUint64(b[:8], binary.BigEndian.Uint64(b[:8])+i<<(64-p.bits))
	return netip.PrefixFrom(netip.AddrFrom16(b), p.bits)
}

// inUse reports whether an address is the first one of a network in use, and returns the network's number.
func (p *prefixPool) inUse(a netip.Addr) (i uint64, ok bool) {
	i, ok = p.number(a)
	_, used := p.used.Get(i)
	return i, ok && used && p.at(i).Addr() == a
}

// number returns the number of the network that has an address; false if the pool has none.
func (p *prefixPool) number(a netip.Addr) (i uint64, ok bool) {
	if !p.base.Contains(a) {
		return 0, false
	}
	if b := p.base.Addr(); b.Is4() {
		from, to := b.As4(), a.As4()
		i = uint64(binary.BigEndian.Uint32(to[:])-binary.BigEndian.Uint32(from[:])) >> (32 - p.bits)
	} else {
		from, to := b.As16(), a.As16()
		i = (binary.BigEndian.Uint64(to[:8]) - binary.BigEndian.Uint64(from[:8])) >> (64 - p.bits)
	}
	return i, true
}

// TakeIPv4 takes a public IPv4 address out of the pool. If the transaction fails, the address returns.
func (tx *Tx) TakeIPv4() (netip.Addr, error) {
	n, err := tx.take(tx.cloud.ips.v4, "IPv4")
	return n.Addr(), err
}

// TakeIPv6 takes a public IPv6 network of 64 bits out of the pool.
func (tx *Tx) TakeIPv6() (netip.Prefix, error) { return tx.take(tx.cloud.ips.v6, "IPv6") }

// TakeLoadBalancerIPv4 takes an IPv4 address out of the pool for load balancers.
func (tx *Tx) TakeLoadBalancerIPv4() (netip.Addr, error) {
	n, err := tx.take(tx.cloud.lbIPs.v4, "IPv4")
	return n.Addr(), err
}

func (tx *Tx) take(p *prefixPool, family string) (netip.Prefix, error) {
	i, ok := p.take()
	if !ok {
		return netip.Prefix{}, ErrResourceUnavailable("no public " + family + " address is available")
	}
	tx.onFailure(func() { p.used.Delete(i) })
	return p.at(i), nil
}

// GiveBack returns a public address, or the first address of an IPv6 network, to its pool.
func (tx *Tx) GiveBack(a netip.Addr) {
	if p, i := tx.cloud.giveBack(a); p != nil {
		tx.onFailure(func() { p.used.Set(i) })
	}
}

// giveBack is GiveBack outside of a transaction. It returns the pool and the number of the address, or nil if no pool had it.
func (c *Cloud) giveBack(a netip.Addr) (*prefixPool, uint64) {
	for _, p := range []*prefixPool{c.ips.v4, c.ips.v6, c.lbIPs.v4} {
		if i, ok := p.inUse(a); ok {
			p.used.Delete(i)
			return p, i
		}
	}
	return nil, 0
}

// freeIn returns the first unused address of a network, starting at the offset. It leaves out the last address: that is for broadcasts.
func freeIn(n netip.Prefix, offset uint32, used func(netip.Addr) bool) (netip.Addr, bool) {
	size := uint64(1) << (32 - n.Bits())
	base := binary.BigEndian.Uint32(n.Masked().Addr().AsSlice())
	for i := uint64(offset); i+1 < size; i++ {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], base+uint32(i))
		if a := netip.AddrFrom4(b); !used(a) {
			return a, true
		}
	}
	return netip.Addr{}, false
}
