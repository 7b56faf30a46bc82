package framework

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/node"
)

// pollInterval is the time between two reads of the servers of a cloud without events.
const pollInterval = 100 * time.Millisecond

// polling makes events of the servers of a cloud without events, by reading them again and again. It misses a server that is off for a
// moment.
type polling struct{ cloud.Cloud }

// WatchServers implements node.ServerEvents.
func (p polling) WatchServers(ctx context.Context) (<-chan node.ServerEvent, error) {
	out := make(chan node.ServerEvent)
	go func() {
		defer close(out)
		known := map[string]cloud.Server{}
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			servers, err := p.Servers(ctx)
			if err != nil {
				return // the cloud of the specs, not of the CCM, fails: specs say so when they use it
			}
			for _, e := range changes(known, servers) {
				select {
				case out <- e:
				case <-ctx.Done():
					return
				}
			}
		}, pollInterval)
	}()
	return out, nil
}

// changes returns the events between two views of the servers: known and servers. It updates known.
func changes(known map[string]cloud.Server, servers []cloud.Server) (events []node.ServerEvent) {
	there := map[string]bool{}
	for _, s := range servers {
		there[s.ID] = true
		events = append(events, Changes(known[s.ID], s)...)
		known[s.ID] = s
	}
	for id, s := range known {
		if !there[id] {
			delete(known, id)
			events = append(events, node.ServerEvent{Type: node.ServerDeleted, Server: NodeServer(s)})
		}
	}
	return events
}

// Changes returns the events between two views of a server. The first one is empty if the server is new.
func Changes(was, is cloud.Server) (events []node.ServerEvent) {
	server := NodeServer(is)
	if was.ID == "" {
		events = append(events, node.ServerEvent{Type: node.ServerCreated, Server: server})
	}
	switch {
	case is.Running && !was.Running:
		events = append(events, node.ServerEvent{Type: node.ServerStarted, Server: server})
	case was.Running && !is.Running:
		events = append(events, node.ServerEvent{Type: node.ServerStopped, Server: server})
	case was.ID != "" && was.Local != is.Local:
		events = append(events, node.ServerEvent{Type: node.ServerChanged, Server: server})
	}
	return events
}

// NodeServer returns a server as simulated nodes know it.
func NodeServer(s cloud.Server) node.Server {
	server := node.Server{ID: s.ID, Name: s.Name}
	if s.Local.IsValid() {
		server.Addresses = append(server.Addresses, s.Local)
	}
	return server
}
