package hetzner

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/node"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/dataplane"
)

// resolve returns the address of a target on this host for the data plane. Public addresses are loopback addresses;
// for a private one it returns the address of its server.
func (a *account) resolve(t dataplane.Target, port uint16) (string, error) {
	address := t.Address
	if !address.IsLoopback() {
		local, ok := a.localOf(address)
		if !ok {
			return "", fmt.Errorf("no server has the address %s", address)
		}
		address = local
	}
	return netip.AddrPortFrom(address, port).String(), nil
}

// localOf returns the address on this host of the server with a private address.
func (a *account) localOf(private netip.Addr) (netip.Addr, bool) {
	raw, err := a.fake.State(context.Background(), fakecloud.Selection{
		Projects: []int64{fakecloud.DefaultProject}, Kinds: []string{"server"},
	})
	var state struct {
		Projects []struct {
			Resources struct {
				Servers []schema.Server `json:"servers"`
			} `json:"resources"`
		} `json:"projects"`
	}
	if err != nil || json.Unmarshal(raw, &state) != nil {
		return netip.Addr{}, false
	}
	for _, server := range state.Projects[0].Resources.Servers {
		for _, n := range server.PrivateNet {
			if n.IP == private.String() {
				return a.local(server.ID, server.PublicNet.IPv4.IP), true
			}
		}
	}
	return netip.Addr{}, false
}

// WatchServers implements node.ServerEvents.
func (a *account) WatchServers(ctx context.Context) (<-chan node.ServerEvent, error) {
	sub := a.fake.Subscribe()
	out := make(chan node.ServerEvent)
	go func() {
		defer close(out)
		defer sub.Close()
		known := map[int64]cloud.Server{}
		for {
			event, err := sub.Next(ctx)
			if err != nil {
				return
			}
			for _, e := range a.translate(event, known) {
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

// translate returns the events of simulated nodes for an event of the cloud. known are the servers before the event.
func (a *account) translate(event fakecloud.Event, known map[int64]cloud.Server) []node.ServerEvent {
	was, there := known[event.ID]
	var is schema.Server
	switch {
	case event.Kind != "server":
		return nil
	case event.Type == fakecloud.EventDeleted && there:
		delete(known, event.ID)
		return []node.ServerEvent{{Type: node.ServerDeleted, Server: framework.NodeServer(was)}}
	case json.Unmarshal(event.Resource, &is) != nil:
		return nil
	}
	known[event.ID] = cloud.Server{ID: idOf(is.ID), Name: is.Name, Running: is.Status == string(hcloud.ServerStatusRunning),
		Local: a.local(is.ID, is.PublicNet.IPv4.IP)}
	return framework.Changes(was, known[event.ID])
}

// local returns the address of a server on this host: its public IPv4 address or, without one, an address with its
// id in the other half of the addresses of servers.
func (a *account) local(id int64, public string) netip.Addr {
	if ip, err := netip.ParseAddr(public); err == nil {
		return ip
	}
	b := a.Options.Servers.Addr().As4()
	b[2], b[3] = 128|byte(id>>8), byte(id)
	return netip.AddrFrom4(b)
}
