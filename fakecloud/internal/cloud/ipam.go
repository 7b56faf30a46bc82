package cloud

import (
	"encoding/binary"
	"net/netip"
)

// addressPool hands out public addresses: single IPv4 addresses and IPv6 networks of 64 bits. It
// goes round, so that an address that was given back is not handed out again soon. It is guarded
// by Cloud.mu.
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
	clear(p.v4.used)
	clear(p.v6.used)
}

// prefixPool hands out the networks of `bits` bits inside a prefix, leaving out the first and the
// last one.
type prefixPool struct {
	base netip.Prefix
	bits int
	size uint64
	next uint64
	used map[netip.Addr]struct{}
}

func newPrefixPool(base netip.Prefix, bits int) *prefixPool {
	return &prefixPool{
		base: base.Masked(), bits: bits,
		size: uint64(1) << min(62, max(0, bits-base.Bits())),
		next: 1, used: map[netip.Addr]struct{}{},
	}
}

// take returns a network that nobody has.
func (p *prefixPool) take() (netip.Prefix, bool) {
	for range p.size {
		i := p.next
		p.next++
		if p.next >= p.size-1 {
			p.next = 1
		}
		if i == 0 || i >= p.size-1 {
			continue
		}
		n := p.at(i)
		if _, taken := p.used[n.Addr()]; !taken {
			p.used[n.Addr()] = struct{}{}
			return n, true
		}
	}
	return netip.Prefix{}, false
}

func (p *prefixPool) give(a netip.Addr) { delete(p.used, a) }

func (p *prefixPool) at(i uint64) netip.Prefix {
	if p.base.Addr().Is4() {
		b := p.base.Addr().As4()
		binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(i)<<(32-p.bits))
		return netip.PrefixFrom(netip.AddrFrom4(b), p.bits)
	}
	b := p.base.Addr().As16()
	// The networks are of 64 bits, so that only the upper half counts.
	binary.BigEndian.PutUint64(b[:8], binary.BigEndian.Uint64(b[:8])+i<<(64-p.bits))
	return netip.PrefixFrom(netip.AddrFrom16(b), p.bits)
}

// TakeIPv4 takes a public IPv4 address out of the pool; it goes back if the transaction fails.
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
	n, ok := p.take()
	if !ok {
		return n, ErrResourceUnavailable("no public " + family + " address is available")
	}
	tx.onFailure(func() { p.give(n.Addr()) })
	return n, nil
}

// GiveBack returns a public address, or the first address of an IPv6 network, to its pool.
func (tx *Tx) GiveBack(a netip.Addr) {
	for _, p := range []*prefixPool{tx.cloud.ips.v4, tx.cloud.ips.v6, tx.cloud.lbIPs.v4} {
		if _, taken := p.used[a]; taken && p.base.Contains(a) {
			p.give(a)
			tx.onFailure(func() { p.used[a] = struct{}{} })
			return
		}
	}
}

// freeIn returns the first address of a network, from the offset on, that is not in use, and
// leaves out the last one (the broadcast address).
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
