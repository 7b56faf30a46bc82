package example

import (
	"net/netip"
)

// The states of an instance.
const (
	Running = "running"
	Stopped = "stopped"
)

// Region is where everything is.
const Region = "north"

// zones are those of the region. Instances are in them by turns.
var zones = []string{"north-a", "north-b"}

// Size is the type of all instances.
const Size = "small"

// Instance is a virtual machine.
type Instance struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Size   string `json:"size"`
	Region string `json:"region"`
	Zone   string `json:"zone"`
	State  string `json:"state"`
	// PrivateIP is its address in the network of the account. Backends and routes lead there.
	PrivateIP netip.Addr `json:"private_ip"`
	// PublicIP is an address of this host. Traffic of load balancers to the private address arrives here.
	PublicIP netip.Addr `json:"public_ip"`
}

// Instances returns all instances, by name.
func (c *Cloud) Instances() []Instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	return sorted(c.instances, func(i *Instance) Instance { return *i }, func(i Instance) string { return i.Name })
}

// Instance returns one.
func (c *Cloud) Instance(id string) (Instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, err := c.instance(id)
	if err != nil {
		return Instance{}, err
	}
	return *i, nil
}

// instance returns one; the lock must be held.
func (c *Cloud) instance(id string) (*Instance, error) {
	if i, ok := c.instances[id]; ok {
		return i, nil
	}
	return nil, instanceNotFound("there is not an instance %q: GET /instances lists them", id)
}

// CreateInstance creates an instance and starts it.
func (c *Cloud) CreateInstance(name string) (Instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.checkInstanceName(name); err != nil {
		return Instance{}, err
	}
	public, err := free(c.options.Instances, c.public, func(a netip.Addr) bool {
		for _, i := range c.instances {
			if i.PublicIP == a {
				return true
			}
		}
		return false
	})
	if err != nil {
		return Instance{}, err
	}
	c.public = public
	c.private = c.private.Next() // never used again, so that an old backend or route does not lead to a new instance
	i := &Instance{
		ID: newID("vm"), Name: name, Size: Size, Region: Region, Zone: zones[len(c.instances)%len(zones)], State: Running,
		PrivateIP: c.private, PublicIP: public,
	}
	c.instances[i.ID] = i
	return *i, nil
}

// checkInstanceName returns an error for a name that an instance cannot have; the lock must be held.
func (c *Cloud) checkInstanceName(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	for _, i := range c.instances {
		if i.Name == name {
			return nameTaken("name: the instance %s is called %q already: choose another name", i.ID, name)
		}
	}
	return nil
}

// ChangeInstance gives an instance another name or another state. An empty one stays as it is.
func (c *Cloud) ChangeInstance(id, name, state string) (Instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, err := c.instance(id)
	if err != nil {
		return Instance{}, err
	}
	if name != "" && name != i.Name {
		if err := c.checkInstanceName(name); err != nil {
			return Instance{}, err
		}
	}
	switch state {
	case "", Running, Stopped:
	default:
		return Instance{}, badRequest("state: %q: must be one of %s, %s", state, Running, Stopped)
	}
	if name != "" {
		i.Name = name
	}
	if state != "" {
		i.State = state
	}
	return *i, nil
}

// DeleteInstance deletes an instance. Its routes, and backends with its address, stay.
func (c *Cloud) DeleteInstance(id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.instance(id); err != nil {
		return err
	}
	delete(c.instances, id)
	return nil
}

// resolve returns the address on this host for a private address; ok is false if no running instance has that.
func (c *Cloud) resolve(backend netip.AddrPort) (local netip.AddrPort, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range c.instances {
		if i.PrivateIP == backend.Addr() && i.State == Running {
			return netip.AddrPortFrom(i.PublicIP, backend.Port()), true
		}
	}
	return netip.AddrPort{}, false
}
