package cloud

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// KindFloatingIP is the kind of Floating IPs.
const KindFloatingIP store.Kind = "floating_ip"

// MaxDNSPtrsPerFloatingIP is the maximum number of reverse DNS entries of an IPv6 network (API document,
// change_dns_ptr).
const MaxDNSPtrsPerFloatingIP = 100

// FloatingIP is a public address, or an IPv6 network of 64 bits, that can be moved between running servers.
//
// Reproduced: the home location (the server's may be another one); moves from one server to another; protection; reverse DNS with the
// default of an IPv4; one action at a time (locked). Left out: blocking by an abuse department. Packets follow where this machine is the
// servers' router: see fakecloud.RouterOptions.
type FloatingIP struct {
	store.Meta
	Type        IPType       `json:"type,omitzero"`
	IP          netip.Prefix `json:"ip,omitzero"` // of 32 or 64 bits
	Description *string      `json:"description,omitzero"`
	// Server is the id of the server that has the address, 0 for none.
	Server           int64      `json:"server,omitzero"`
	HomeLocation     *Location  `json:"home_location,omitzero"`
	Blocked          bool       `json:"blocked,omitzero"`
	DNSPtr           ReverseDNS `json:"dns_ptr,omitzero"`
	DeleteProtection bool       `json:"delete_protection,omitzero"`
}

// Clone implements Object.
func (f *FloatingIP) Clone() *FloatingIP { return new(*f) }

// Ref returns the reference to the Floating IP.
func (f *FloatingIP) Ref() Ref { return Ref{KindFloatingIP, f.ID} }

// CreateFloatingIP is the input of POST /floating_ips. It needs either Server or HomeLocation.
type CreateFloatingIP struct {
	Name         string // "" for a generated name
	Type         IPType
	HomeLocation string // id or name
	Server       int64  // id of the server to assign it to, 0 for none
	Description  *string
	Labels       map[string]string
}

// CreateFloatingIP creates a Floating IP. If the input has a server, it also starts an action that
// assigns the address; otherwise action is 0.
// Errors: invalid_input, uniqueness_error, resource_limit_exceeded, resource_unavailable.
func (p Project) CreateFloatingIP(in CreateFloatingIP) (f *FloatingIP, action int64, st *State, err error) {
	st, err = p.update(func(tx *Tx) error {
		if err := checkNew(tx, &tx.FloatingIPs, in.Name, in.Labels); err != nil {
			return err
		}
		home, err := tx.homeOfFloatingIP(in)
		if err != nil {
			return err
		}
		f = &FloatingIP{Meta: tx.NewMeta(in.Name, in.Labels), Type: in.Type, Description: in.Description, HomeLocation: home}
		if f.IP, err = tx.takeAddress(in.Type); err != nil {
			return err
		}
		if f.Name == "" {
			f.Name = fmt.Sprintf("floating-ip-%d", f.ID)
			// Another Floating IP may have the name.
			for RequireUniqueName(&tx.FloatingIPs, f.Name, f.ID) != nil {
				f.Name += "-1"
			}
		}
		tx.FloatingIPs.Put(f)
		if in.Server != 0 {
			spec := assignFloatingIPSpec(f.ID, in.Server)
			spec.Resources = append(spec.Resources, f.Ref())
			action = tx.Start(spec).ID
		}
		return nil
	})
	return f, action, st, err
}

// homeOfFloatingIP returns the home location of a new Floating IP: the given one, or the server's. Of the fields of an error,
// server is first: a maintained client asserts the order.
func (tx *Tx) homeOfFloatingIP(in CreateFloatingIP) (*Location, error) {
	switch {
	case in.Server == 0 && in.HomeLocation == "":
		return nil, ErrFields("either home_location or server is required", "server", "home_location")
	case in.Server != 0 && in.HomeLocation != "":
		return nil, ErrFields("home_location and server are mutually exclusive", "server", "home_location")
	case in.HomeLocation != "":
		l, ok := tx.Catalogue.Location(in.HomeLocation)
		if !ok {
			return nil, ErrField("home_location", fmt.Sprintf("location '%s' not found", in.HomeLocation))
		}
		return l, nil
	}
	s, err := tx.floatingIPServer(in.Server)
	if err != nil {
		return nil, err
	}
	return s.Location, nil
}

// floatingIPServer returns the new server of a Floating IP. Errors: invalid_input, locked.
func (tx *Tx) floatingIPServer(id int64) (*Server, error) {
	s, ok := tx.Servers.Get(id)
	if !ok {
		return nil, ErrField("server", fmt.Sprintf("server with ID %d not found", id))
	}
	return s, tx.RequireUnlocked(s.Ref())
}

// UpdateFloatingIP is the input of PUT /floating_ips/{id}.
type UpdateFloatingIP struct {
	UpdateResource
	Description *string
}

// UpdateFloatingIP changes name, labels and description. Errors: not_found, invalid_input, uniqueness_error.
func (p Project) UpdateFloatingIP(id int64, in UpdateFloatingIP) (*State, error) {
	return p.update(func(tx *Tx) error {
		if err := setMeta(&tx.FloatingIPs, id, in.UpdateResource); err != nil {
			return err
		}
		if in.Description != nil {
			tx.FloatingIPs.Update(id, func(f *FloatingIP) { f.Description = in.Description })
		}
		return nil
	})
}

// DeleteFloatingIP deletes a Floating IP and returns its address to the pool. With unassign, it also
// deletes an assigned one, as the API did until 2026-05-01.
// Errors: not_found, locked, protected, must_be_unassigned.
func (p Project) DeleteFloatingIP(id int64, unassign bool) error {
	_, err := onFree(p, inFloatingIPs, id, func(tx *Tx, f *FloatingIP) error {
		if f.DeleteProtection {
			return ErrProtected("Floating IP deletion is protected")
		}
		if f.Server != 0 && !unassign {
			return ErrOperation("must_be_unassigned", "Floating IP must be unassigned before it can be deleted")
		}
		tx.setFloatingIPServer(id, 0)
		tx.GiveBack(f.IP.Addr())
		tx.FloatingIPs.Delete(id)
		return nil
	})
	return err
}

// setFloatingIPServer moves a Floating IP to a server, or unassigns it if server is 0.
func (tx *Tx) setFloatingIPServer(id, server int64) {
	if f, ok := tx.FloatingIPs.Get(id); ok && f.Server != server {
		tx.showElsewhere(id, f.Server, server, func(s *Server) *[]int64 { return &s.FloatingIPs })
		tx.FloatingIPs.Update(id, func(f *FloatingIP) { f.Server = server })
	}
}

// showElsewhere moves an id from a list of one server to that of another. There is no server 0.
func (tx *Tx) showElsewhere(id, from, to int64, in func(*Server) *[]int64) {
	tx.Servers.Update(from, func(s *Server) {
		ids := in(s)
		*ids = slices.DeleteFunc(*ids, func(has int64) bool { return has == id })
	})
	tx.Servers.Update(to, func(s *Server) {
		ids := in(s)
		i, _ := slices.BinarySearch(*ids, id)
		*ids = slices.Insert(*ids, i, id)
	})
}
