package netdev

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/dataplane"
)

// DefaultTable is the default number of a Router's routing table in the kernel.
const DefaultTable = 142

// maxTable is the largest table number that a Router can use. The kernel's own tables follow, and the
// netlink package does not fully support rules for table numbers of more than 8 bits.
const maxTable = 252

// RulePriority returns the priority of the first of the three rules of a table; the other two follow it.
// They come after the kernel's rule for packets to the machine itself (0) and before its other rules
// (32766).
func RulePriority(table int) int { return 4000 + 10*table }

// RouterOptions configure a Router.
type RouterOptions struct {
	// Interface is the name of the router's interface, for example "eth0". The router serves the
	// neighbours there.
	Interface string
	// Table is the number of an unused routing table, at most 252. 0 means DefaultTable. Each router in
	// a network namespace needs its own table.
	Table int
}

// Router forwards packets that arrive on an interface by its own routing table. A destination without a
// route in it is unreachable (ICMP "network unreachable"): the other routes of this machine do not
// apply, because a cloud's network does not know them. Packets to this machine itself are not affected.
// Packets from this machine use the table if it has a route other than a default route for them, and the
// machine's own routes otherwise.
//
// A Router's methods may be called from several goroutines.
type Router struct {
	mu     sync.Mutex
	kernel table
	closed bool
}

// table is a routing table of the kernel, with the operations that a Router needs.
type table interface {
	// list returns our routes in the table.
	list() ([]dataplane.Route, error)
	set(dataplane.Route) error
	remove(dataplane.Route) error
	// open directs the interface's packets to the table; close undoes that.
	open() error
	close() error
}

// NewRouter starts to forward packets of the interface. It keeps routes of a killed process in the
// table, so that a restart interrupts nothing. The caller must call Close. NewRouter returns an error if
// the interface, a capability or a sysctl is missing.
func NewRouter(o RouterOptions) (*Router, error) {
	if o.Table == 0 {
		o.Table = DefaultTable
	}
	if o.Table < 1 || o.Table > maxTable {
		return nil, fmt.Errorf("netdev: router: table %d: must be from 1 to %d", o.Table, maxTable)
	}
	k, err := openTable(o.Interface, o.Table)
	if err != nil {
		return nil, fmt.Errorf("netdev: router: %w", err)
	}
	return newRouter(k)
}

func newRouter(k table) (*Router, error) {
	if err := k.open(); err != nil {
		return nil, fmt.Errorf("netdev: router: %w", errors.Join(err, k.close()))
	}
	return &Router{kernel: k}, nil
}

// errClosed is the error of a Router's methods after Close.
var errClosed = errors.New("netdev: closed")

// Set changes the table to the routes want and keeps routes that are already correct. Packets to
// destinations with an unchanged or replaced route are not lost. If the kernel refuses a route, the
// error names it and the others are set. Set compares with the kernel's table, not with the last call:
// another call repairs foreign changes.
func (r *Router) Set(want []dataplane.Route) error {
	var errs []error
	want = slices.DeleteFunc(slices.Clone(want), func(w dataplane.Route) bool {
		err := w.Check()
		errs = append(errs, err)
		return err != nil
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errClosed
	}
	have, err := r.kernel.list()
	if err != nil {
		return fmt.Errorf("netdev: reading the routes: %w", err)
	}
	set, remove := diff(have, want)
	for _, w := range set {
		if err := r.kernel.set(w); err != nil {
			errs = append(errs, fmt.Errorf("netdev: setting the route %s: %w", w, err))
		}
	}
	for _, w := range remove {
		if err := r.kernel.remove(w); err != nil {
			errs = append(errs, fmt.Errorf("netdev: removing the route %s: %w", w, err))
		}
	}
	return errors.Join(errs...)
}

// Routes returns the routes of the kernel's table, sorted by destination.
func (r *Router) Routes() ([]dataplane.Route, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errClosed
	}
	have, err := r.kernel.list()
	slices.SortFunc(have, func(a, b dataplane.Route) int { return comparePrefix(a.Destination, b.Destination) })
	return have, err
}

// Close removes all routes and restores the settings of the interface. It may be called more than once.
func (r *Router) Close() error {
	if r == nil {
		return nil
	}
	err := r.Set(nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	return errors.Join(err, r.kernel.close())
}
