package recording

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode"
)

// pseudonyms are the replacements of one recording: the same value always gets the same one.
type pseudonyms struct {
	texts map[string]string // by what they replace
	ids   map[int64]int64
	order []int64 // the replaced ids, ascending
	used  map[int64]bool
	last  int64 // the greatest pseudonym of an id
	// networks are the first 64 bits of IPv6 addresses, hosts their last ones.
	networks, hosts map[uint64]uint64
	counts          map[string]int
	// block is the next free address for an IPv4 range.
	block uint32
	key   [32]byte // of hexadecimal texts; no one can try all values without it
}

func newPseudonyms() *pseudonyms {
	p := &pseudonyms{
		texts: map[string]string{}, ids: map[int64]int64{}, networks: map[uint64]uint64{}, hosts: map[uint64]uint64{},
		counts: map[string]int{}, used: map[int64]bool{},
	}
	_, _ = rand.Read(p.key[:]) // it never fails
	return p
}

// next returns a number for a new pseudonym of a sort.
func (p *pseudonyms) next(sort string) int {
	p.counts[sort]++
	return p.counts[sort]
}

// The pseudonyms of ids: the first is in the middle, so that smaller ones have room below.
const (
	firstID = 6400
	stepID  = 64
)

// learn gives ids their pseudonyms, in the same order. All ids of an exchange come at once. If the pseudonyms of two neighbours leave no
// room, the new one comes last.
func (p *pseudonyms) learn(ids []int64) {
	slices.Sort(ids)
	ids = slices.DeleteFunc(slices.Compact(ids), func(id int64) bool { return id <= 0 || p.ids[id] != 0 })
	for len(ids) > 0 {
		at, _ := slices.BinarySearch(p.order, ids[0])
		n := len(ids) // of those between the same two neighbours
		if at < len(p.order) {
			n, _ = slices.BinarySearch(ids, p.order[at])
		}
		p.between(at, ids[:n])
		p.order = slices.Insert(p.order, at, ids[:n]...)
		ids = ids[n:]
	}
}

// between gives pseudonyms to ids that come before the at-th of those that are known.
func (p *pseudonyms) between(at int, ids []int64) {
	low := int64(0)
	switch {
	case len(p.order) == 0:
		low = firstID - stepID
	case at > 0:
		low = p.ids[p.order[at-1]]
	}
	step := int64(stepID)
	if at < len(p.order) {
		high := p.ids[p.order[at]]
		if low == 0 {
			low = max(0, high-stepID*int64(len(ids)+1))
		}
		step = min(step, (high-low)/int64(len(ids)+1))
	}
	free := step >= 1
	for i := range ids {
		free = free && !p.used[low+step*int64(i+1)]
	}
	if !free { // there is no room, or the neighbours are not in order
		low, step = p.last, stepID
	}
	for i, id := range ids {
		made := low + step*int64(i+1)
		p.ids[id], p.used[made], p.last = made, true, max(p.last, made)
	}
}

// text returns the pseudonym of a text. Its form follows that of the text, so that the API accepts it in the same places: an
// address, an e-mail address, a domain, or else a name.
func (p *pseudonyms) text(s string) string {
	if len(s) <= 4 && !strings.ContainsFunc(s, isLetter) { // punctuation only
		return s
	}
	if known, ok := p.texts[s]; ok {
		return known
	}
	if other, ok := p.address(s); ok {
		return other // addresses that tell nothing stay: they are not among the texts
	}
	var made string
	switch {
	case strings.Contains(s, "@") && !strings.ContainsAny(s, " \n"):
		made = fmt.Sprintf("user-%d@name.example", p.next("user"))
	case domain.MatchString(s):
		made = p.domain(s)
	default:
		made = likeName(s, p.next("name"))
	}
	p.texts[s] = made
	return made
}

func isLetter(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// likeName returns a name that has those characters which make a name invalid in some places: spaces and punctuation, once each.
func likeName(s string, n int) string {
	var strange []rune
	for _, r := range s {
		if unicode.IsLetter(r) && r > unicode.MaxASCII {
			r = 'ü'
		}
		plain := r == 'ü' || unicode.IsPrint(r) && r <= unicode.MaxASCII
		if plain && (r == 'ü' || !isLetter(r)) && !strings.ContainsRune(`-_."\`, r) && !slices.Contains(strange, r) {
			strange = append(strange, r)
		}
	}
	made := fmt.Sprintf("name%s-%d", string(strange), n)
	if strings.HasPrefix(s, "-") {
		made = "-" + made
	}
	if strings.HasSuffix(s, "-") {
		made += "-"
	}
	return made
}

var domain = regexp.MustCompile(`^([\pL\pN_*-]+\.)+[\pL\pN-]*\.?$`)

// domain replaces a domain label by label, so that the names of a zone stay within it. The last label becomes "example".
func (p *pseudonyms) domain(s string) string {
	plain, absolute := strings.CutSuffix(s, ".")
	labels := strings.Split(plain, ".")
	for i, label := range labels {
		switch {
		case i == len(labels)-1 && i > 0:
			labels[i] = "example"
		case label != "*":
			labels[i] = p.label(strings.ToLower(label))
		}
	}
	made := strings.Join(labels, ".")
	if absolute {
		made += "."
	}
	return made
}

func (p *pseudonyms) label(s string) string {
	if p.texts[s] == "" {
		p.texts[s] = fmt.Sprintf("name-%d", p.next("name"))
	}
	return p.texts[s]
}

// address returns the pseudonym of an IP address or a range, and reports whether s is one. Private ones and those with a meaning
// tell nothing about anyone: they stay.
func (p *pseudonyms) address(s string) (string, bool) {
	if a, err := netip.ParseAddr(s); err == nil {
		return p.ip(a), true
	}
	r, err := netip.ParsePrefix(s)
	if err != nil {
		return "", false
	}
	if r.Bits() == 0 || r.Addr().Is4() && r.Bits() < 8 || keeps(r.Addr()) {
		return s, true
	}
	if r.IsSingleIP() {
		return p.ip(r.Addr()) + "/" + strconv.Itoa(r.Bits()), true
	}
	if r.Addr().Is4() {
		return p.range4(r), true
	}
	return p.range6(r), true
}

func keeps(a netip.Addr) bool {
	return a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified()
}

// The ranges of the pseudonyms exist nowhere on the internet: 198.18.0.0/16 for addresses, 198.19.0.0/16 for ranges.
const (
	addresses4 = 198<<24 | 18<<16
	ranges4    = 198<<24 | 19<<16
	addresses6 = 0x20010db8 << 32
)

func ipv4(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

func ipv6(network, host uint64) netip.Addr {
	b := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, network), host)
	return netip.AddrFrom16([16]byte(b))
}

// halves returns the two halves of an IPv6 address.
func halves(a netip.Addr) (network, host uint64) {
	b := a.As16()
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
}

func (p *pseudonyms) ip(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	if keeps(a) {
		return a.String()
	}
	if a.Is4() {
		s := a.String()
		if p.texts[s] == "" {
			p.texts[s] = ipv4(addresses4 + uint32(p.next("ipv4"))&0xffff).String()
		}
		return p.texts[s]
	}
	network, host := halves(a)
	made := ipv6(p.network(network), p.host(host)).String()
	p.texts[a.String()] = made
	return made
}

// network returns the pseudonym of the first half of IPv6 addresses.
func (p *pseudonyms) network(n uint64) uint64 {
	if p.networks[n] == 0 {
		p.networks[n] = addresses6 | uint64(p.next("ipv6"))
	}
	return p.networks[n]
}

// host returns the pseudonym of the second half. A small number tells nothing.
func (p *pseudonyms) host(n uint64) uint64 {
	if n < 1<<16 {
		return n
	}
	if p.hosts[n] == 0 {
		p.hosts[n] = 1<<16 + uint64(p.next("host"))
	}
	return p.hosts[n]
}

func (p *pseudonyms) range4(r netip.Prefix) string {
	s := r.String()
	if p.texts[s] == "" {
		bits := max(r.Bits(), 17)
		size := uint32(1) << (32 - bits)
		start := (p.block + size - 1) / size * size
		if start+size > 1<<16 {
			start = 0 // all of the range is used: two ranges share a pseudonym
		}
		p.block = start + size
		p.texts[s] = netip.PrefixFrom(ipv4(ranges4+start), bits).String()
	}
	return p.texts[s]
}

func (p *pseudonyms) range6(r netip.Prefix) string {
	s := r.String()
	if p.texts[s] == "" {
		network, host := halves(r.Addr())
		switch {
		case r.Bits() >= 64:
			p.texts[s] = netip.PrefixFrom(ipv6(p.network(network), p.host(host)), r.Bits()).String()
		case r.Bits() > 32:
			n := uint64(p.next("range6")) << (64 - r.Bits()) & 0x7fffffff // above those of network
			p.texts[s] = netip.PrefixFrom(ipv6(addresses6|1<<31|n, 0), r.Bits()).Masked().String()
		default:
			p.texts[s] = netip.PrefixFrom(ipv6(addresses6, 0), r.Bits()).Masked().String()
		}
	}
	return p.texts[s]
}

var hexDigits = regexp.MustCompile(`[0-9A-Fa-f]`)

var hexText = regexp.MustCompile(`^[0-9A-Fa-f:]+$`)

// hex replaces the digits of a fingerprint or a MAC address by those of a keyed hash.
func (p *pseudonyms) hex(s string) string {
	if !hexText.MatchString(s) {
		return p.text(s)
	}
	if made, ok := p.texts[s]; ok {
		return made
	}
	mac := hmac.New(sha256.New, p.key[:])
	mac.Write([]byte(s))
	sum := fmt.Sprintf("%x", mac.Sum(nil))
	i := 0
	made := hexDigits.ReplaceAllStringFunc(s, func(string) string { i++; return sum[i%len(sum) : i%len(sum)+1] })
	p.texts[s] = made
	return made
}

// longest returns what was replaced, the longest first. Short values would be found within words.
func (p *pseudonyms) longest() []string {
	var all []string
	for s := range p.texts {
		if len(s) >= 4 {
			all = append(all, s)
		}
	}
	sort.Slice(all, func(i, j int) bool { return len(all[i]) > len(all[j]) || len(all[i]) == len(all[j]) && all[i] < all[j] })
	return all
}
