package recording

import (
	"encoding/json"
	"net/netip"
	"strconv"
)

// mapping translates the recording's pseudonyms into the simulation's ids, addresses and fingerprints. Names, labels and other texts need
// no translation: the simulation gets the pseudonyms.
type mapping struct {
	ids   map[resourceID]int64          // of the simulation, by those of the recording
	back  map[resourceID]resourceID     // the other way
	texts map[string]string             // addresses and fingerprints
	nets6 map[netip.Prefix]netip.Prefix // the first 64 bits
}

// resourceID is an id with the kind of its resource: ids of two kinds may be equal.
type resourceID struct {
	kind string
	id   int64
}

func newMapping() *mapping {
	return &mapping{map[resourceID]int64{}, map[resourceID]resourceID{}, map[string]string{}, map[netip.Prefix]netip.Prefix{}}
}

// id returns the simulation's id for one of the recording. Without a kind, it looks at all of them. The ids of the catalogue are the
// same unless others were learned.
func (m *mapping) id(kind string, id int64) (int64, bool) {
	if fake, ok := m.ids[resourceID{kind, id}]; ok {
		return fake, true
	}
	if kind == "" {
		for r, fake := range m.ids {
			if r.id == id && !publicKinds[r.kind] {
				return fake, true
			}
		}
	}
	return id, publicKinds[kind]
}

// learn relates two ids of a kind. It returns false if one of them stands for another resource already.
func (m *mapping) learn(kind string, recorded, fake int64) bool {
	r, f := resourceID{kind, recorded}, resourceID{kind, fake}
	known, ok := m.ids[r]
	other, taken := m.back[f]
	if ok || taken {
		return ok && known == fake && other == r
	}
	m.ids[r], m.back[f] = fake, r
	return true
}

// learnText relates two addresses or ranges.
func (m *mapping) learnText(recorded, fake string) {
	r, ok1 := prefix(recorded)
	f, ok2 := prefix(fake)
	if !ok1 || !ok2 || r.Bits() != f.Bits() {
		return
	}
	m.texts[recorded] = fake
	if r.Addr().Is6() && f.Addr().Is6() && r.Bits() >= 64 {
		m.nets6[net64(r.Addr())] = net64(f.Addr())
	}
}

func prefix(s string) (netip.Prefix, bool) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p, true
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(a, a.BitLen()), true
}

func net64(a netip.Addr) netip.Prefix {
	p, _ := a.WithZone("").Prefix(64)
	return p
}

// text returns what the simulation calls an address of the recording. All other texts stay.
func (m *mapping) text(s string) string {
	if fake, ok := m.texts[s]; ok {
		return fake
	}
	a, err := netip.ParseAddr(s)
	if err != nil || !a.Is6() {
		return s
	}
	network, ok := m.nets6[net64(a)]
	if !ok {
		return s
	}
	first, _ := halves(network.Addr())
	_, last := halves(a)
	return ipv6(first, last).String()
}

// number returns the value of an id in JSON, a number or its digits.
func number(v any) (int64, bool) {
	var text string
	switch v := v.(type) {
	case json.Number:
		text = v.String()
	case string:
		text = v
	}
	id, err := strconv.ParseInt(text, 10, 64)
	return id, err == nil
}
