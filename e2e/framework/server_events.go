package framework

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/node"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/dataplane"
)

// resolve tells the data plane where a target is on this machine: public addresses are loopback
// addresses, private ones belong to a node.
func (s *ownSetup) resolve(t dataplane.Target, port uint16) (string, error) {
	address := t.Address
	if !address.IsLoopback() {
		local, ok := s.localOf(address)
		if !ok {
			return "", fmt.Errorf("no server has the address %s", address)
		}
		address = local
	}
	return netip.AddrPortFrom(address, port).String(), nil
}

// localOf finds the server that has a private address, and where it is on this machine.
func (s *ownSetup) localOf(private netip.Addr) (netip.Addr, bool) {
	p, _ := s.cloud.Core().Project(fakecloud.DefaultProject)
	for server := range p.View().Servers.All() {
		for _, n := range server.PrivateNets {
			if n.IP == private {
				return s.local(server), true
			}
		}
	}
	return netip.Addr{}, false
}

// serverEvents tells the fleet about the servers of the cloud's default project.
type serverEvents struct{ setup *ownSetup }

// WatchServers implements node.ServerEvents.
func (s serverEvents) WatchServers(ctx context.Context) (<-chan node.ServerEvent, error) {
	sub := s.setup.cloud.Subscribe()
	out := make(chan node.ServerEvent)
	go func() {
		defer close(out)
		defer sub.Close()
		for {
			event, err := sub.Next(ctx)
			if err != nil {
				return
			}
			for _, e := range s.translate(event) {
				select {
				case out <- e:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return out, nil
}

// translate turns an event of the cloud into what happened to a machine.
func (s serverEvents) translate(event fakecloud.Event) []node.ServerEvent {
	if event.Kind != fakecloud.KindServer {
		return nil
	}
	before, _ := event.Old.(*fakecloud.Server)
	after, _ := event.New.(*fakecloud.Server)
	if after == nil {
		return []node.ServerEvent{{Type: node.ServerDeleted, Server: s.setup.machine(before)}}
	}
	machine := s.setup.machine(after)
	var events []node.ServerEvent
	if before == nil {
		events = append(events, node.ServerEvent{Type: node.ServerCreated, Server: machine})
	}
	wasUp, isUp := before != nil && before.Status == "running", after.Status == "running"
	switch {
	case isUp && !wasUp:
		events = append(events, node.ServerEvent{Type: node.ServerStarted, Server: machine})
	case wasUp && !isUp:
		events = append(events, node.ServerEvent{Type: node.ServerStopped, Server: machine})
	case before != nil:
		events = append(events, node.ServerEvent{Type: node.ServerChanged, Server: machine})
	}
	return events
}

func (s *ownSetup) machine(server *fakecloud.Server) node.Server {
	return node.Server{ID: strconv.FormatInt(server.ID, 10), Name: server.Name, Addresses: []netip.Addr{s.local(server)}}
}

// local says where a server is on this machine: at its public IPv4 address, or, if it has none, at
// an address that is made of its id.
func (s *ownSetup) local(server *fakecloud.Server) netip.Addr {
	p, _ := s.cloud.Core().Project(fakecloud.DefaultProject)
	if ip, ok := p.View().PrimaryIPs.Get(server.PublicIPv4); ok {
		return ip.IP.Addr()
	}
	b := s.env.suite.loopback(purposePrivateOnly).Addr().As4()
	b[2], b[3] = byte(server.ID>>8), byte(server.ID)
	return netip.AddrFrom4(b)
}
