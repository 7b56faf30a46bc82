package example

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"sync"
	"time"
)

// Options are the settings of a cloud. The zero value works on Linux.
type Options struct {
	// Token is the token of the API's clients. Empty: "example-token".
	Token string
	// Instances are addresses of this host that instances get as their public ones. Empty: 127.40.0.0/16.
	Instances netip.Prefix
	// LoadBalancers are addresses of this host that load balancers get. Empty: 127.41.0.0/16.
	LoadBalancers netip.Prefix
	// Provisioning is how long a load balancer is pending. 0: 50ms.
	Provisioning time.Duration
	// Now is the clock. Nil: time.Now.
	Now func() time.Time
}

// Cloud is an example cloud. [Cloud.Handler] is its API. Its methods offer the same to a program in the same process. All of them may be
// called at the same time.
type Cloud struct {
	options Options
	done    chan struct{} // closed by Close

	mu        sync.Mutex
	closed    bool
	instances map[string]*Instance     // by ID
	balancers map[string]*loadBalancer // by name
	listeners map[string]*listener     // by ID
	routes    map[netip.Prefix]string  // the ID of the instance
	private   netip.Addr               // the last private address that an instance got
	public    netip.Addr               // the last public one
	balanced  netip.Addr               // the last address that a load balancer got
	limit     int                      // the most load balancers; negative: no limit

	traffic traffic
	journal journal
	faults  faults
}

// New makes a cloud. Close ends it.
func New(o Options) (*Cloud, error) {
	o.Token = cmp.Or(o.Token, "example-token")
	o.Instances = cmp.Or(o.Instances, netip.MustParsePrefix("127.40.0.0/16"))
	o.LoadBalancers = cmp.Or(o.LoadBalancers, netip.MustParsePrefix("127.41.0.0/16"))
	o.Provisioning = cmp.Or(o.Provisioning, 50*time.Millisecond)
	if o.Now == nil {
		o.Now = time.Now
	}
	for what, p := range map[string]netip.Prefix{"instances": o.Instances, "load balancers": o.LoadBalancers} {
		if !p.IsValid() || !p.Addr().IsLoopback() || !p.Addr().Is4() {
			return nil, fmt.Errorf("the addresses of %s, %s, are not of this host: use a part of 127.0.0.0/8", what, p)
		}
	}
	if o.Instances.Overlaps(o.LoadBalancers) {
		return nil, fmt.Errorf("the addresses of instances, %s, and load balancers, %s, overlap: use two ranges", o.Instances,
			o.LoadBalancers)
	}
	c := &Cloud{
		options: o, done: make(chan struct{}), limit: -1,
		instances: map[string]*Instance{}, balancers: map[string]*loadBalancer{}, listeners: map[string]*listener{},
		routes: map[netip.Prefix]string{}, private: netip.MustParseAddr("10.64.0.1"),
		public: o.Instances.Masked().Addr(), balanced: o.LoadBalancers.Masked().Addr(),
	}
	c.traffic.resolve = c.resolve
	return c, nil
}

// Close ends the cloud: its listeners, their connections, and requests that hang.
func (c *Cloud) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	close(c.done)
	var errs []error
	for _, l := range c.listeners {
		errs = append(errs, l.port.close())
	}
	c.mu.Unlock()
	c.traffic.wait.Wait() // its connections ask for addresses, which needs the lock
	return errors.Join(errs...)
}

// validName matches names of instances and load balancers: DNS labels.
var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func checkName(name string) error {
	if !validName.MatchString(name) {
		return badRequest("name: %q: must be 1 to 63 lower case letters, digits and dashes, such as node-1", name)
	}
	return nil
}

// newID returns an ID that nothing had before.
func newID(kind string) string {
	random := make([]byte, 8)
	_, _ = rand.Read(random) // which never fails
	return kind + "-" + hex.EncodeToString(random)
}

// free returns the next address of a prefix after the last one that is not taken, so that an address rests before it is used again. The
// first one of the prefix stands for the network and is left out.
func free(p netip.Prefix, last netip.Addr, taken func(netip.Addr) bool) (netip.Addr, error) {
	first := p.Masked().Addr().Next()
	a := last
	for range 1 << (32 - p.Bits()) {
		if a = a.Next(); !p.Contains(a) {
			a = first
		}
		if p.Contains(a) && !taken(a) {
			return a, nil
		}
	}
	return netip.Addr{}, noAddressLeft("all addresses of %s are in use: delete something", p)
}

// sorted returns the shown values of a map, by name.
func sorted[K comparable, V, Out any](all map[K]V, show func(V) Out, name func(Out) string) []Out {
	out := []Out{} // an empty list is [] in JSON, never null
	for v := range maps.Values(all) {
		out = append(out, show(v))
	}
	slices.SortFunc(out, func(a, b Out) int { return cmp.Compare(name(a), name(b)) })
	return out
}
