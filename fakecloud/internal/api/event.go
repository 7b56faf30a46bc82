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
func (a *API) Event(e *cloud.Event) []byte { return e.Encoded(a.encodeEvent) }

func (a *API) encodeEvent(e *cloud.Event) []byte {
	line := EventJSON{Type: string(e.Type), Seq: e.Seq, Time: e.Time, Project: e.Project, Kind: e.Kind, ID: e.ID}
	return line.with(func(b []byte) []byte {
		if shown, ok := a.shown[e.Kind]; ok {
			b = shown.Append(b, e.State, e.ID, e.Time) // nothing for a deletion
		}
		return b
	})
}

// EventResource returns the JSON of an event's resource after the event, or nil if it was deleted. Event includes the same JSON.
func (a *API) EventResource(e *cloud.Event) json.RawMessage {
	_, resource, ok := bytes.Cut(a.Event(e), resourceMember)
	if !ok {
		return nil
	}
	return json.RawMessage(resource[: len(resource)-1 : len(resource)-1])
}
