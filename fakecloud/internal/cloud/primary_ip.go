package cloud

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// IPType is the version of an address.
type IPType string

// The two types of a Primary IP.
const (
	IPv4 IPType = "ipv4"
	IPv6 IPType = "ipv6"
)

// KindPrimaryIP is the kind of Primary IPs.
const KindPrimaryIP store.Kind = "primary_ip"

// PrimaryIP is a public address, or an IPv6 network of 64 bits. It can be assigned to a server or a load balancer, and can exist without
// one.
//
// Reproduced: one of each type per server, changed only while the server is off; the same location; auto_delete; protection; reverse DNS
// with the default of an IPv4; conflict for concurrent changes. Left out: blocking by an abuse department.
type PrimaryIP struct {
	store.Meta
	Type     IPType       `json:"type,omitzero"`
	IP       netip.Prefix `json:"ip,omitzero"` // of 32 or 64 bits
	Location *Location    `json:"location,omitzero"`
	// Assignee is the server or load balancer that has the address. The zero value means none.
	Assignee         Ref        `json:"assignee,omitzero"`
	AutoDelete       bool       `json:"auto_delete,omitzero"`
	Blocked          bool       `json:"blocked,omitzero"`
	DNSPtr           ReverseDNS `json:"dns_ptr,omitzero"`
	DeleteProtection bool       `json:"delete_protection,omitzero"`
}

// PrimaryIPTable holds a project's Primary IPs.
type PrimaryIPTable struct {
	store.Table[*PrimaryIP]
	// The two types are apart, so that a new address is mostly the largest of its index.
	ipv4, ipv6 store.Ascending[networkID]
}

// networkID is the network of a Primary IP, and its id. Both never change.
type networkID struct {
	network netip.Prefix
	id      int64
}

// Init is [store.Table.Init], for the indexes, too.
func (t *PrimaryIPTable) Init(kind store.Kind) {
	less := func(a, b networkID) bool {
		return cmp.Or(a.network.Addr().Compare(b.network.Addr()), cmp.Compare(a.network.Bits(), b.network.Bits())) < 0
	}
	*t = PrimaryIPTable{Table: store.NewTable[*PrimaryIP](kind), ipv4: store.NewAscending(less), ipv6: store.NewAscending(less)}
}

// byNetwork returns the index of the networks of the same type.
func (t *PrimaryIPTable) byNetwork(n netip.Prefix) *store.Ascending[networkID] {
	if n.Addr().Is4() {
		return &t.ipv4
	}
	return &t.ipv6
}

// Publish is [store.Table.Publish], for the indexes, too.
func (t *PrimaryIPTable) Publish() { t.Begin(nil) }

// Begin is [store.Table.Begin], for the indexes, too.
func (t *PrimaryIPTable) Begin(l *store.ChangeLog) {
	t.Table.Begin(l)
	t.ipv4.Share()
	t.ipv6.Share()
}

// Put stores a new Primary IP.
func (t *PrimaryIPTable) Put(p *PrimaryIP) {
	t.Table.Put(p)
	t.byNetwork(p.IP).Set(networkID{p.IP, p.ID})
}

// Delete removes a Primary IP, if it is there.
func (t *PrimaryIPTable) Delete(id int64) {
	if p, ok := t.Get(id); ok {
		t.byNetwork(p.IP).Delete(networkID{network: p.IP})
		t.Table.Delete(id)
	}
}

// ByNetwork returns the Primary IP with exactly this address or IPv6 network.
func (t *PrimaryIPTable) ByNetwork(n netip.Prefix) (*PrimaryIP, bool) {
	found, ok := t.byNetwork(n).Get(networkID{network: n})
	if !ok {
		return nil, false
	}
	return t.Get(found.id)
}

// ByAddress returns the Primary IP that has an address or the IPv6 network around it.
func (t *PrimaryIPTable) ByAddress(a netip.Addr) (*PrimaryIP, bool) {
	bits := 64
	if a.Is4() {
		bits = 32
	}
	n, err := a.Prefix(bits)
	if err != nil || a.Zone() != "" {
		return nil, false
	}
	return t.ByNetwork(n)
}

// Clone implements Object.
func (p *PrimaryIP) Clone() *PrimaryIP { return new(*p) }

// Ref returns the reference to the Primary IP.
func (p *PrimaryIP) Ref() Ref { return Ref{KindPrimaryIP, p.ID} }

// Assigned reports whether a resource has the address.
func (p *PrimaryIP) Assigned() bool { return p.Assignee != Ref{} }

// ReverseDNS holds a client's reverse DNS entries of a public address. It is replaced as a whole, never changed in place.
type ReverseDNS map[netip.Addr]string

// Of returns the entry of an address, or "" for none.
func (r ReverseDNS) Of(a netip.Addr) string {
	if ptr, ok := r[a]; ok {
		return ptr
	}
	return DefaultDNSPtr(a)
}

// DefaultDNSPtr returns the default reverse DNS entry of an IPv4 address. IPv6 addresses have none: it
// returns "".
func DefaultDNSPtr(a netip.Addr) string {
	if !a.Is4() {
		return ""
	}
	b := a.As4()
	part := func(i int) string { return strconv.Itoa(int(b[i])) }
	return "static." + part(3) + "." + part(2) + "." + part(1) + "." + part(0) + ".clients.your-server.de"
}

// ChangeDNSPtr is the input of the actions change_dns_ptr. If Ptr is nil, an IPv4 address gets its
// default entry, and the entry of an IPv6 address is removed.
type ChangeDNSPtr struct {
	IP  netip.Addr
	Ptr *string
}

var domainName = regexp.MustCompile(`^([a-zA-Z0-9_]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9_])?\.)*[a-zA-Z0-9_]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9_])?\.?$`)

func (c ChangeDNSPtr) check() error {
	if c.Ptr != nil && (len(*c.Ptr) > 253 || !domainName.MatchString(*c.Ptr)) {
		return ErrField("dns_ptr", "is not a domain name")
	}
	return nil
}

// apply returns the entries after the change.
func (c ChangeDNSPtr) apply(entries ReverseDNS) ReverseDNS {
	entries = maps.Clone(entries)
	if c.Ptr == nil {
		delete(entries, c.IP)
		return entries
	}
	if entries == nil {
		entries = ReverseDNS{}
	}
	entries[c.IP] = strings.TrimSuffix(*c.Ptr, ".")
	return entries
}

// setDNSPtr changes a reverse DNS entry and touches the assignee, since that shows it.
func (tx *Tx) setDNSPtr(id int64, c ChangeDNSPtr) {
	ip, ok := tx.PrimaryIPs.Update(id, func(p *PrimaryIP) { p.DNSPtr = c.apply(p.DNSPtr) })
	if ok && ip.Assigned() {
		tx.touch(ip.Assignee)
	}
}

// dnsPtrChange is the effect of change_dns_ptr.
type dnsPtrChange struct {
	Of     Ref
	Change ChangeDNSPtr
}

func (e dnsPtrChange) end(tx *Tx) {
	switch id := e.Of.ID; e.Of.Kind {
	case KindPrimaryIP:
		tx.setDNSPtr(id, e.Change)
	case KindFloatingIP:
		tx.FloatingIPs.Update(id, func(f *FloatingIP) { f.DNSPtr = e.Change.apply(f.DNSPtr) })
	case KindLoadBalancer:
		tx.setLoadBalancerDNSPtr(id, e.Change)
	}
}

// CreatePrimaryIP is the input of POST /primary_ips.
type CreatePrimaryIP struct {
	Name       string // "" for a generated name
	Type       IPType
	Location   string // id or name; "" for the assignee's
	Assignee   int64  // id of a server, 0 for none
	AutoDelete bool
	Labels     map[string]string
}

// CreatePrimaryIP creates a Primary IP. If the input has an assignee, it also starts an action that
// assigns the address; otherwise action is 0.
// Errors: invalid_input, uniqueness_error, resource_limit_exceeded, resource_unavailable and those
// of assigning.
func (p Project) CreatePrimaryIP(in CreatePrimaryIP) (ip *PrimaryIP, action int64, st *State, err error) {
	st, err = p.update(func(tx *Tx) error {
		if err := cmp.Or(ValidateLabels(in.Labels), RequireUniqueName(&tx.PrimaryIPs.Table, in.Name, 0)); err != nil {
			return err
		}
		l, server, err := tx.placeOfPrimaryIP(in)
		if err != nil {
			return err
		}
		if ip, err = tx.newPrimaryIP(in, l, Ref{}); err != nil || server == nil {
			return err
		}
		if err := checkAssignable(ip, server); err != nil {
			return err
		}
		action = tx.Start(assignPrimaryIPSpec(ip, server)).ID
		return nil
	})
	return ip, action, st, err
}

// placeOfPrimaryIP returns the location of a new Primary IP and its server. The server may be nil.
func (tx *Tx) placeOfPrimaryIP(in CreatePrimaryIP) (*Location, *Server, error) {
	var l *Location
	if in.Location != "" {
		var ok bool
		if l, ok = tx.Catalogue.Location(in.Location); !ok {
			return nil, nil, ErrField("location", fmt.Sprintf("location '%s' not found", in.Location))
		}
	}
	if in.Assignee == 0 {
		if l == nil {
			return nil, nil, ErrFields("either assignee_id or location is required", "assignee_id", "location")
		}
		return l, nil, nil
	}
	s, err := tx.assigneeServer(in.Assignee)
	if err != nil {
		return nil, nil, err
	}
	if l != nil && l.ID != s.Location.ID {
		return nil, nil, ErrField("location", fmt.Sprintf("the server is in location %s", s.Location.Name))
	}
	return s.Location, s, nil
}

// assigneeServer returns the new server of an address.
// Errors: invalid_input, locked.
func (tx *Tx) assigneeServer(id int64) (*Server, error) {
	s, ok := tx.Servers.Get(id)
	if !ok {
		return nil, ErrField("assignee_id", fmt.Sprintf("server with ID %d not found", id))
	}
	return s, tx.RequireUnlocked(s.Ref())
}

// newPrimaryIP takes an address from the pool and stores it as a Primary IP of a resource, or of none.
// Errors: resource_limit_exceeded, resource_unavailable.
func (tx *Tx) newPrimaryIP(in CreatePrimaryIP, l *Location, assignee Ref) (*PrimaryIP, error) {
	if err := tx.checkLimit(&tx.PrimaryIPs.Table); err != nil {
		return nil, err
	}
	ip := &PrimaryIP{
		Meta: tx.NewMeta(in.Name, in.Labels), Type: in.Type, Location: l, Assignee: assignee, AutoDelete: in.AutoDelete,
	}
	var err error
	if ip.IP, err = tx.takeAddress(in.Type); err != nil {
		return nil, err
	}
	if ip.Name == "" {
		ip.Name = "primary_ip-" + strconv.FormatInt(ip.ID, 10)
		// Another Primary IP may have the name.
		for RequireUniqueName(&tx.PrimaryIPs.Table, ip.Name, ip.ID) != nil {
			ip.Name += "-1"
		}
	}
	tx.PrimaryIPs.Put(ip)
	return ip, nil
}

// takeAddress takes an address from the pool: an IPv4 network of 32 bits or an IPv6 network of 64 bits.
func (tx *Tx) takeAddress(t IPType) (netip.Prefix, error) {
	if t == IPv6 {
		return tx.TakeIPv6()
	}
	a, err := tx.TakeIPv4()
	return netip.PrefixFrom(a, 32), err
}

// UpdatePrimaryIP is the input of PUT /primary_ips/{id}.
type UpdatePrimaryIP struct {
	UpdateResource
	AutoDelete *bool
}

// UpdatePrimaryIP changes name, labels and auto_delete.
// Errors: not_found, conflict, invalid_input, uniqueness_error.
func (p Project) UpdatePrimaryIP(id int64, in UpdatePrimaryIP) (*State, error) {
	return onFree(p, inPrimaryIPs, id, func(tx *Tx, ip *PrimaryIP) error {
		if in.AutoDelete != nil && *in.AutoDelete && ip.DeleteProtection {
			return ErrField("auto_delete", "cannot be enabled while the Primary IP is protected against deletion")
		}
		if err := setMeta(&tx.PrimaryIPs.Table, id, in.UpdateResource); err != nil {
			return err
		}
		if in.AutoDelete != nil {
			tx.PrimaryIPs.Update(id, func(p *PrimaryIP) { p.AutoDelete = *in.AutoDelete })
		}
		return nil
	})
}

// DeletePrimaryIP deletes a Primary IP and returns its address to the pool. With unassign, it also deletes
// one that is assigned to a server, as the API did until 2026-05-01.
// Errors: not_found, conflict, protected, must_be_unassigned, and those of unassigning.
func (p Project) DeletePrimaryIP(id int64, unassign bool) error {
	_, err := onFree(p, inPrimaryIPs, id, func(tx *Tx, ip *PrimaryIP) error {
		if ip.DeleteProtection {
			return ErrProtected("Primary IP deletion is protected")
		}
		if ip.Assigned() {
			if !unassign || ip.Assignee.Kind != KindServer {
				return ErrOperation("must_be_unassigned", "Primary IP must be unassigned")
			}
			if err := tx.checkUnassignable(ip); err != nil {
				return err
			}
			tx.unassignPrimaryIP(id)
		}
		tx.deletePrimaryIP(id)
		return nil
	})
	return err
}

func (tx *Tx) deletePrimaryIP(id int64) {
	if ip, ok := tx.PrimaryIPs.Get(id); ok {
		tx.GiveBack(ip.IP.Addr())
		tx.PrimaryIPs.Delete(id)
	}
}
