package example

import (
	"net/netip"
	"slices"
	"time"
)

// The states of a load balancer.
const (
	Pending = "pending"
	Active  = "active"
)

// LoadBalancer accepts connections on one address.
type LoadBalancer struct {
	// ID is never used again, unlike the name.
	ID     string `json:"id"`
	Name   string `json:"name"`
	Region string `json:"region"`
	State  string `json:"state"`
	// Address is empty while the load balancer is pending.
	Address string `json:"address"`
}

// Listener is a port of a load balancer.
type Listener struct {
	ID           string `json:"id"`
	LoadBalancer string `json:"load_balancer"`
	Port         uint16 `json:"port"`
	// Backends are the private addresses of instances with a port.
	Backends []netip.AddrPort `json:"backends"`
}

// loadBalancer is a LoadBalancer and the address that it shows once it is active.
type loadBalancer struct {
	LoadBalancer
	address netip.Addr
	active  time.Time
}

// listener is one with its port on this host.
type listener struct {
	Listener
	port *port
}

// show returns a load balancer as the API shows it now.
func (c *Cloud) show(b *loadBalancer) LoadBalancer {
	shown := b.LoadBalancer
	if shown.State = Pending; !c.options.Now().Before(b.active) {
		shown.State, shown.Address = Active, b.address.String()
	}
	return shown
}

// LoadBalancers returns all load balancers, by name.
func (c *Cloud) LoadBalancers() []LoadBalancer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return sorted(c.balancers, c.show, func(b LoadBalancer) string { return b.Name })
}

// LoadBalancer returns one.
func (c *Cloud) LoadBalancer(name string) (LoadBalancer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, err := c.balancer(name)
	if err != nil {
		return LoadBalancer{}, err
	}
	return c.show(b), nil
}

// balancer returns one; the lock must be held.
func (c *Cloud) balancer(name string) (*loadBalancer, error) {
	if b, ok := c.balancers[name]; ok {
		return b, nil
	}
	return nil, loadBalancerNotFound("there is not a load balancer %q: GET /load-balancers lists them", name)
}

// CreateLoadBalancer creates a load balancer without listeners.
func (c *Cloud) CreateLoadBalancer(name, region string) (LoadBalancer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := checkName(name); err != nil {
		return LoadBalancer{}, err
	}
	if region != Region {
		return LoadBalancer{}, badRequest("region: %q: must be %s", region, Region)
	}
	if b, taken := c.balancers[name]; taken {
		return LoadBalancer{}, nameTaken("name: the load balancer %s is called %q already: choose another name", b.ID, name)
	}
	if c.limit >= 0 && len(c.balancers) >= c.limit {
		return LoadBalancer{}, limitReached("the account may have %d load balancers: delete one", c.limit)
	}
	address, err := free(c.options.LoadBalancers, c.balanced, func(a netip.Addr) bool {
		for _, b := range c.balancers {
			if b.address == a {
				return true
			}
		}
		return false
	})
	if err != nil {
		return LoadBalancer{}, err
	}
	c.balanced = address
	b := &loadBalancer{
		LoadBalancer: LoadBalancer{ID: newID("lb"), Name: name, Region: region},
		address:      address, active: c.options.Now().Add(c.options.Provisioning),
	}
	c.balancers[name] = b
	return c.show(b), nil
}

// DeleteLoadBalancer deletes a load balancer that has no listeners.
func (c *Cloud) DeleteLoadBalancer(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.balancer(name); err != nil {
		return err
	}
	for _, l := range c.listeners {
		if l.LoadBalancer == name {
			return loadBalancerInUse("the load balancer %q has the listener %s: delete it first", name, l.ID)
		}
	}
	delete(c.balancers, name)
	return nil
}

// LimitLoadBalancers refuses further load balancers beyond a number. A negative number ends the limit.
func (c *Cloud) LimitLoadBalancers(most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limit = most
}

// Listeners returns the listeners of a load balancer, or all if the name is empty, by ID.
func (c *Cloud) Listeners(balancer string) []Listener {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := sorted(c.listeners, func(l *listener) Listener { return l.Listener }, func(l Listener) string { return l.ID })
	return slices.DeleteFunc(all, func(l Listener) bool { return balancer != "" && l.LoadBalancer != balancer })
}

// listener returns one; the lock must be held.
func (c *Cloud) listener(id string) (*listener, error) {
	if l, ok := c.listeners[id]; ok {
		return l, nil
	}
	return nil, listenerNotFound("there is not a listener %q: GET /listeners lists them", id)
}

// CreateListener opens a port of a load balancer.
func (c *Cloud) CreateListener(balancer string, number uint16, backends []netip.AddrPort) (Listener, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, err := c.balancer(balancer)
	if err != nil {
		return Listener{}, err
	}
	if number == 0 {
		return Listener{}, badRequest("port: 0: must be one of 1 to 65535")
	}
	for _, l := range c.listeners {
		if l.LoadBalancer == balancer && l.Port == number {
			return Listener{}, portTaken("port: the listener %s of %q has port %d already: change it, or choose another", l.ID, balancer,
				number)
		}
	}
	if backends, err = checkBackends(backends); err != nil {
		return Listener{}, err
	}
	if c.closed {
		return Listener{}, unavailable("the cloud has ended")
	}
	port, err := c.traffic.open(netip.AddrPortFrom(b.address, number), backends)
	if err != nil {
		return Listener{}, portTaken("port: cannot listen on %d: %v; choose another port", number, err)
	}
	l := &listener{Listener: Listener{ID: newID("lis"), LoadBalancer: balancer, Port: number, Backends: backends}, port: port}
	c.listeners[l.ID] = l
	return l.Listener, nil
}

// SetBackends replaces all backends of a listener at once.
func (c *Cloud) SetBackends(id string, backends []netip.AddrPort) (Listener, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, err := c.listener(id)
	if err != nil {
		return Listener{}, err
	}
	if backends, err = checkBackends(backends); err != nil {
		return Listener{}, err
	}
	l.Backends = backends
	l.port.set(backends)
	return l.Listener, nil
}

// checkBackends returns a copy of the backends. The copy is never nil.
func checkBackends(backends []netip.AddrPort) ([]netip.AddrPort, error) {
	seen := map[netip.AddrPort]bool{}
	for _, b := range backends {
		if !b.IsValid() || !b.Addr().Is4() || b.Port() == 0 {
			return nil, badRequest("backends: %q: must be an IPv4 address with a port, such as 10.64.0.2:30080", b)
		}
		if seen[b] {
			return nil, badRequest("backends: %q is there twice: leave one out", b)
		}
		seen[b] = true
	}
	return append([]netip.AddrPort{}, backends...), nil
}

// DeleteListener closes a port with its connections.
func (c *Cloud) DeleteListener(id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, err := c.listener(id)
	if err != nil {
		return err
	}
	delete(c.listeners, id)
	return l.port.close()
}
