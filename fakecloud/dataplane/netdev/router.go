package netdev

import (
	"errors"
	"fmt"
	"slices"
	"sync"
)

// DefaultTable is the number of the kernel's routing table that a Router keeps.
const DefaultTable = 142

// maxTable is the largest table that is free for use: the kernel's own follow, and the netlink package
// does not tell the kernel all about rules for tables of more than 8 bits.
const maxTable = 252

// RulePriority returns the priority of the first of the three rules that lead to a table; the others
// follow it. All are before those of the kernel (32766) and after that for what is addressed to the
// machine itself (0).
func RulePriority(table int) int { return 4000 + 10*table }

// RouterOptions configure a Router.
type RouterOptions struct {
	// Interface is the name of the interface whose neighbours the router serves, as "eth0".
	Interface string
	// Table is the number of a routing table that nobody else uses, at most 252; 0 is DefaultTable. Two
	// routers in one network namespace need two.
	Table int
}

// Router forwards what arrives on an interface by a table of routes of its own: a destination that no
// route has is unreachable (ICMP "network unreachable"), whatever other routes this machine has, because a cloud's network does not
// know them. What is addressed to this machine is not concerned. What this machine sends itself goes by
// the table where that has a route (other than a default route), and else as it went before.
//
// A Router's methods may be called from several goroutines.
type Router struct {
	mu     sync.Mutex
	kernel table
	closed bool
}

// table is what a Router needs of the kernel.
type table interface {
	// list returns the routes of the table that are ours.
	list() ([]Route, error)
	set(Route) error
	remove(Route) error
	// open makes the interface's traffic go by the table, close undoes that.
	open() error
	close() error
}

// NewRouter makes the interface forward. Its table is what it was: empty, or what a process that was
// killed left behind, so that a restart does not interrupt anything. Close must be called at the end.
// The error says what is missing: a capability, a sysctl, the interface.
func NewRouter(o RouterOptions) (*Router, error) {
	if o.Table == 0 {
		o.Table = DefaultTable
	}
	if o.Table < 1 || o.Table > maxTable {
		return nil, fmt.Errorf("netdev: router: table %d: want 1 to %d", o.Table, maxTable)
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

// ErrClosed is the error of using something after its Close.
var ErrClosed = errors.New("netdev: closed")

// Set makes the table what is wanted, changing nothing that is right already. Packets of destinations
// whose route is the same or replaced are not lost. A route that the kernel refuses does not keep the
// others from being set; the error names it. Set compares with the kernel's table, not with the last
// call, so that calling it again mends what somebody else changed.
func (r *Router) Set(want []Route) error {
	var errs []error
	want = slices.DeleteFunc(slices.Clone(want), func(w Route) bool {
		err := w.check()
		errs = append(errs, err)
		return err != nil
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrClosed
	}
	have, err := r.kernel.list()
	if err != nil {
		return fmt.Errorf("netdev: read the routes: %w", err)
	}
	set, remove := Diff(have, want)
	for _, w := range set {
		if err := r.kernel.set(w); err != nil {
			errs = append(errs, fmt.Errorf("netdev: set route %s: %w", w, err))
		}
	}
	for _, w := range remove {
		if err := r.kernel.remove(w); err != nil {
			errs = append(errs, fmt.Errorf("netdev: remove route %s: %w", w, err))
		}
	}
	return errors.Join(errs...)
}

// Routes returns what the kernel's table has, by destination.
func (r *Router) Routes() ([]Route, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, ErrClosed
	}
	have, err := r.kernel.list()
	slices.SortFunc(have, func(a, b Route) int { return comparePrefix(a.Destination, b.Destination) })
	return have, err
}

// Close removes all routes and makes the interface what it was before. It may be called more than once.
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
