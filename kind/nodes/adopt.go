package nodes

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// Adoption says how containers that exist become servers.
type Adoption struct {
	// Client of the project that gets the servers.
	Client *hcloud.Client
	// Network is the name of the cloud's network that the Docker network plays. Adopt creates it if necessary.
	Network string
	// IPRange is the range of that network, Subnet the range of its subnet that servers are in.
	IPRange, Subnet netip.Prefix
	// ServerType, Image and Location of the servers. Defaults: cpx22, debian-12, fsn1.
	ServerType, Image, Location string
	// Labels of the servers, in addition to ContainerLabel.
	Labels map[string]string
	// PublicIPv4 and PublicIPv6 give the servers public addresses. These lead nowhere unless the host routes them.
	PublicIPv4, PublicIPv6 bool
}

// Adopted are the objects that Adopt made or found.
type Adopted struct {
	Network *hcloud.Network
	// Servers, by the name of their containers.
	Servers map[string]*hcloud.Server
}

// Adopt makes a server of each container that has none yet, through the API as any client does: with the container's name, its address as
// the private one, and the label ContainerLabel. The control plane's is protected against deletion and rebuild. Calling it again creates
// nothing. It works before and while a hypervisor is attached. Without a hypervisor, the server of a stopped container shows as running
// until one attaches.
func Adopt(ctx context.Context, a Adoption, containers []Container) (Adopted, error) {
	a.ServerType, a.Image, a.Location = cmp.Or(a.ServerType, "cpx22"), cmp.Or(a.Image, "debian-12"), cmp.Or(a.Location, "fsn1")
	network, err := a.network(ctx)
	if err != nil {
		return Adopted{}, err
	}
	out := Adopted{Network: network, Servers: map[string]*hcloud.Server{}}
	existing, err := a.Client.Server.All(ctx)
	if err != nil {
		return out, err
	}
	// Step by step for all at once: each step's actions are waited for together.
	var created []Container
	var actions []*hcloud.Action
	for _, c := range containers {
		if s := serverOf(c, existing); s != nil {
			// One that was made for the server has the right address, or gets it yet.
			if in := privateIP(s, network); in != c.Address && c.Server != s.ID {
				return out, fmt.Errorf("the server %s has %s in the network %s, its container %s", s.Name, in, network.Name, c.Address)
			}
			out.Servers[c.Name] = s
			continue
		}
		s, started, err := a.create(ctx, c)
		if err != nil {
			return out, err
		}
		out.Servers[c.Name] = s
		created, actions = append(created, c), append(actions, started...)
	}
	if err := a.Client.Action.WaitFor(ctx, actions...); err != nil {
		return out, err
	}
	for _, step := range []func(context.Context, *hcloud.Network, *hcloud.Server, Container) (*hcloud.Action, error){
		a.attach, a.powerOn, a.protect,
	} {
		actions = actions[:0]
		for _, c := range created {
			action, err := step(ctx, network, out.Servers[c.Name], c)
			if err != nil {
				return out, fmt.Errorf("the server %s: %w", c.Name, err)
			}
			if action != nil {
				actions = append(actions, action)
			}
		}
		if err := a.Client.Action.WaitFor(ctx, actions...); err != nil {
			return out, err
		}
	}
	for _, c := range created {
		if out.Servers[c.Name], _, err = a.Client.Server.GetByID(ctx, out.Servers[c.Name].ID); err != nil {
			return out, err
		}
	}
	return out, nil
}

// network finds or creates the network.
func (a *Adoption) network(ctx context.Context) (*hcloud.Network, error) {
	n, _, err := a.Client.Network.GetByName(ctx, a.Network)
	if err != nil {
		return nil, err
	}
	if n != nil {
		if n.IPRange.String() != a.IPRange.String() {
			return nil, fmt.Errorf("the network %s has the range %s, Docker's has %s", n.Name, n.IPRange, a.IPRange)
		}
		return n, nil
	}
	location, _, err := a.Client.Location.Get(ctx, a.Location)
	if err != nil {
		return nil, err
	}
	if location == nil {
		return nil, fmt.Errorf("there is no location %s", a.Location)
	}
	n, _, err = a.Client.Network.Create(ctx, hcloud.NetworkCreateOpts{
		Name: a.Network, IPRange: ipNet(a.IPRange), Labels: a.Labels,
		Subnets: []hcloud.NetworkSubnet{{Type: hcloud.NetworkSubnetTypeCloud, IPRange: ipNet(a.Subnet), NetworkZone: location.NetworkZone}},
	})
	return n, err
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// serverOf returns the server that a container belongs to, nil for none.
func serverOf(c Container, servers []*hcloud.Server) *hcloud.Server {
	i := slices.IndexFunc(servers, func(s *hcloud.Server) bool {
		return cmp.Or(s.Labels[ContainerLabel], s.Name) == c.Name
	})
	if i < 0 {
		return nil
	}
	return servers[i]
}

func privateIP(s *hcloud.Server, n *hcloud.Network) netip.Addr {
	for _, in := range s.PrivateNet {
		if in.Network.ID == n.ID {
			a, _ := netip.AddrFromSlice(in.IP)
			return a.Unmap()
		}
	}
	return netip.Addr{}
}

// create creates a server that is off: an address can be chosen only when it is attached to the
// network afterwards.
func (a *Adoption) create(ctx context.Context, c Container) (*hcloud.Server, []*hcloud.Action, error) {
	labels := maps.Clone(a.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[ContainerLabel] = c.Name
	res, _, err := a.Client.Server.Create(ctx, hcloud.ServerCreateOpts{
		Name: c.Name, ServerType: &hcloud.ServerType{Name: a.ServerType}, Image: &hcloud.Image{Name: a.Image},
		Location: &hcloud.Location{Name: a.Location}, Labels: labels, StartAfterCreate: new(bool),
		PublicNet: &hcloud.ServerCreatePublicNet{EnableIPv4: a.PublicIPv4, EnableIPv6: a.PublicIPv6},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("the server %s: %w", c.Name, err)
	}
	return res.Server, append([]*hcloud.Action{res.Action}, res.NextActions...), nil
}

func (a *Adoption) attach(ctx context.Context, n *hcloud.Network, s *hcloud.Server, c Container) (*hcloud.Action, error) {
	action, _, err := a.Client.Server.AttachToNetwork(ctx, s, hcloud.ServerAttachToNetworkOpts{Network: n, IP: c.Address.AsSlice()})
	return action, err
}

func (a *Adoption) powerOn(ctx context.Context, _ *hcloud.Network, s *hcloud.Server, c Container) (*hcloud.Action, error) {
	if !c.Running {
		return nil, nil
	}
	action, _, err := a.Client.Server.Poweron(ctx, s)
	return action, err
}

func (a *Adoption) protect(ctx context.Context, _ *hcloud.Network, s *hcloud.Server, c Container) (*hcloud.Action, error) {
	if !c.ControlPlane {
		return nil, nil
	}
	yes := true
	action, _, err := a.Client.Server.ChangeProtection(ctx, s, hcloud.ServerChangeProtectionOpts{Delete: &yes, Rebuild: &yes})
	return action, err
}
