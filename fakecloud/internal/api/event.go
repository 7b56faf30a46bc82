package api

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// EventJSON is an event without its resource.
type EventJSON struct {
	// Type is created, updated or deleted. A stream of the control API has others: see there.
	Type    string     `json:"type"`
	Seq     uint64     `json:"seq,omitempty"`
	Time    time.Time  `json:"time"`
	Project int64      `json:"project,omitempty"`
	Kind    store.Kind `json:"kind,omitempty"`
	ID      int64      `json:"id,omitempty"`
}

func (e EventJSON) appendJSON(b []byte) []byte {
	b = appendText(b, `{"type":`, e.Type)
	if e.Seq != 0 {
		b = strconv.AppendUint(append(b, `,"seq":`...), e.Seq, 10)
	}
	b = append(e.Time.AppendFormat(append(b, `,"time":"`...), time.RFC3339Nano), '"')
	if e.Project != 0 {
		b = appendInt(b, `,"project":`, e.Project)
	}
	if e.Kind != "" {
		b = appendText(b, `,"kind":`, e.Kind)
	}
	if e.ID != 0 {
		b = appendInt(b, `,"id":`, e.ID)
	}
	return append(b, '}')
}

// WithResource returns the event as JSON, with the member resource unless that is empty.
func (e EventJSON) WithResource(resource json.RawMessage) []byte {
	return e.with(func(b []byte) []byte { return append(b, resource...) })
}

// with returns the event as JSON, with the member resource that a function appends, unless it appends nothing.
func (e EventJSON) with(appendResource func(b []byte) []byte) []byte {
	return collect(func(b []byte) []byte {
		b = e.appendJSON(b)
		end := len(b) - 1 // before the closing brace
		b = append(b[:end], resourceMember...)
		start := len(b)
		if b = appendResource(b); len(b) == start {
			b = b[:end]
		}
		return append(b, '}')
	})
}

var resourceMember = []byte(`,"resource":`)

// Subscribe returns a subscription to events for [API.Event], and the current states: see [cloud.Cloud.SubscribeEncoded].
func (a *API) Subscribe() (*cloud.Subscription, map[int64]*cloud.State) {
	return a.cloud.SubscribeEncoded(a.encodeEvent)
}

// Event returns an event of [API.Subscribe] as JSON, in the form of the API's date. All subscribers share it: it is encoded once. It must
// not be changed.
//
// In an update, a load balancer lacks the servers that its label selectors select, and a firewall lacks all servers. The member servers has
// those that changed as targets, with all targets that they are now: {"id": 42, "targets": [{"selector": "a=b", "target": {…}}]}. A
// server that is a target without a selector has none there. So an event costs the same for any number of targets.
func (a *API) Event(e *cloud.Event) []byte { return e.Encoded(a.encodeEvent) }

func (a *API) encodeEvent(e *cloud.Event) []byte {
	line := EventJSON{Type: string(e.Type), Seq: e.Seq, Time: e.Time, Project: e.Project, Kind: e.Kind, ID: e.ID}
	return line.with(func(b []byte) []byte {
		if hasServers(e) {
			return a.appendServers(a.appendOwner(b, e, false), e)
		}
		if shown, ok := a.shown[e.Kind]; ok {
			b = shown.Append(b, e.State, e.ID, e.Time) // nothing for a deletion
		}
		return b
	})
}

// hasServers reports whether an event has the member servers.
func hasServers(e *cloud.Event) bool {
	return e.Type == cloud.EventUpdated && (e.Kind == cloud.KindLoadBalancer || e.Kind == cloud.KindFirewall)
}

// appendOwner appends the load balancer or firewall of an event, whole or without servers.
func (a *API) appendOwner(b []byte, e *cloud.Event, whole bool) []byte {
	switch now := e.New.(type) {
	case *cloud.LoadBalancer:
		if !whole {
			now = now.WithoutServers()
		}
		return version[*cloud.LoadBalancer]{loadBalancers, a, a.date, e.State, now, e.Time}.appendJSON(b)
	case *cloud.Firewall:
		if !whole {
			now = now.WithoutServers()
		}
		return version[*cloud.Firewall]{firewalls, a, a.date, e.State, now, e.Time}.appendJSON(b)
	}
	return b
}

// eventServerJSON is a server that changed as a target.
type eventServerJSON struct {
	ID      int64             `json:"id"`
	Targets []eventTargetJSON `json:"targets"`
}

type eventTargetJSON struct {
	Selector string `json:"selector,omitzero"`
	Target   any    `json:"target"`
}

// appendServers appends the member servers, which follows the resource.
func (a *API) appendServers(b []byte, e *cloud.Event) []byte {
	all := each(e.Servers, func(id int64) eventServerJSON {
		s := eventServerJSON{id, []eventTargetJSON{}}
		switch now := e.New.(type) {
		case *cloud.LoadBalancer:
			for selector, t := range now.SelectedAs(id) {
				s.Targets = append(s.Targets, eventTargetJSON{selector, encodeServerTarget(a.date, *t)})
			}
		case *cloud.Firewall:
			for _, t := range now.TargetsOf(id) {
				s.Targets = append(s.Targets, eventTargetJSON{t.Selector, firewallServer(id)})
			}
		}
		return s
	})
	return append(append(b, `,"servers":`...), marshal(all)...)
}

// EventResource returns the JSON of an event's whole resource after the event, or nil if it was deleted.
func (a *API) EventResource(e *cloud.Event) json.RawMessage {
	if hasServers(e) {
		return collect(func(b []byte) []byte { return a.appendOwner(b, e, true) })
	}
	_, resource, ok := bytes.Cut(a.Event(e), resourceMember)
	if !ok {
		return nil
	}
	return json.RawMessage(resource[: len(resource)-1 : len(resource)-1])
}
