package example

import (
	"net/netip"
)

// Route leads packets for a range of addresses to an instance. The cloud only stores it: it has no pods to send packets to.
type Route struct {
	Prefix   netip.Prefix `json:"prefix"`
	Instance string       `json:"instance"`
}

// Routes returns all routes, by prefix.
func (c *Cloud) Routes() []Route {
	c.mu.Lock()
	defer c.mu.Unlock()
	byPrefix := map[netip.Prefix]Route{}
	for p, id := range c.routes {
		byPrefix[p] = Route{Prefix: p, Instance: id}
	}
	return sorted(byPrefix, func(r Route) Route { return r }, func(r Route) string { return r.Prefix.String() })
}

// SetRoute creates the route of a prefix, or replaces it.
func (c *Cloud) SetRoute(p netip.Prefix, instance string) (Route, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !p.IsValid() || p != p.Masked() {
		return Route{}, badRequest("prefix: %s: must be the first address of a range, such as 10.244.1.0/24", p)
	}
	if _, err := c.instance(instance); err != nil {
		return Route{}, err
	}
	c.routes[p] = instance
	return Route{Prefix: p, Instance: instance}, nil
}

// DeleteRoute deletes the route of a prefix if it leads to an instance. An empty instance stands for any.
func (c *Cloud) DeleteRoute(p netip.Prefix, instance string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id, ok := c.routes[p]; !ok || instance != "" && id != instance {
		return routeNotFound("there is not a route from %s to %q: GET /routes lists them", p, instance)
	}
	delete(c.routes, p)
	return nil
}
