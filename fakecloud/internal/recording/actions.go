package recording

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// running is the status of an action that has not ended.
const running = "running"

// sighting is an action in a recorded answer.
type sighting struct {
	id                     int64
	command, status, error string
}

// sightings returns the actions that an answer shows.
func sightings(body json.RawMessage) []sighting {
	var all []sighting
	add := func(v any) {
		o, _ := v.(map[string]any)
		id, ok := number(o["id"])
		status, _ := o["status"].(string)
		if !ok || status == "" {
			return
		}
		code, _ := at(o, "error", "code").(string)
		command, _ := o["command"].(string)
		all = append(all, sighting{id, command, status, code})
	}
	members := membersOf(body)
	add(members["action"])
	for _, name := range []string{"actions", "next_actions"} {
		list, _ := members[name].([]any)
		for _, entry := range list {
			add(entry)
		}
	}
	return all
}

// actionLives is what a recording shows of actions over time.
type actionLives struct {
	ends map[int64]*Exchange // the first exchange that shows the end of an action
	told map[int64]bool      // whose end was compared
}

func newActionLives(rec *Recording) *actionLives {
	lives := &actionLives{map[int64]*Exchange{}, map[int64]bool{}}
	for i := range rec.Exchanges {
		for _, s := range sightings(rec.Exchanges[i].Response) {
			if s.status != running && lives.ends[s.id] == nil {
				lives.ends[s.id] = &rec.Exchanges[i]
			}
		}
	}
	return lives
}

// duration returns how long a request's actions take: 0 if they end with its answer, and less if the recording does not show their end.
// began reports whether the request starts actions. The duration is the longest that agrees with the recording, because a client that waits
// only continues when an action ends.
func (l *actionLives) duration(e *Exchange) (d time.Duration, began bool) {
	d = -1
	for _, s := range sightings(e.Response) {
		end := l.ends[s.id]
		switch {
		case end == e && !began:
			d = 0
		case end != nil && end != e:
			if later := time.Duration(end.At-e.At)*time.Millisecond - time.Millisecond/2; d <= 0 || later < d {
				d = max(later, time.Millisecond/2)
			}
		}
		began = true
	}
	return d, began
}

// fate returns the error of a certificate's failed issuance in the recording, or "". The DNS of the world decides whether one fails, and
// the recording does not have that. The first exchange that shows the end also has the error.
func (l *actionLives) fate(e *Exchange) string {
	for _, s := range sightings(e.Response) {
		if l.ends[s.id] == nil || s.command != "create_certificate" && s.command != "issue_certificate" {
			continue
		}
		for _, last := range sightings(l.ends[s.id].Response) {
			if last.id == s.id && last.status == "error" {
				return last.error
			}
		}
	}
	return ""
}

// look returns the state of an action of the simulation. ok is false if the action does not exist.
func (p *player) look(ctx context.Context, fake int64) (now sighting, ok bool, err error) {
	a, err := p.send(ctx, http.MethodGet, fmt.Sprintf("/actions/%d", fake), "Bearer "+writeToken, "", nil)
	if err != nil || a.status != http.StatusOK {
		return now, false, err
	}
	return sightings(a.body)[0], true, nil
}

// awaitEnds steps the clock until all actions end that a recorded answer shows as finished.
func (p *player) awaitEnds(ctx context.Context, e *Exchange) error {
	for _, s := range sightings(e.Response) {
		fake, known := p.ids[resourceID{"action", s.id}]
		if !known || s.status == running {
			continue
		}
		for step, waited := time.Millisecond, time.Duration(0); waited < maxWait; step = min(2*step, time.Second) {
			now, ok, err := p.look(ctx, fake)
			if err != nil {
				return err
			}
			if !ok || now.status != running {
				break
			}
			if err := p.cloud.Step(ctx, step); err != nil {
				return err
			}
			waited += step
		}
	}
	return nil
}

// follow compares the ends of the actions that an answer shows as ended.
func (p *player) follow(ctx context.Context, e *Exchange) error {
	if err := p.awaitEnds(ctx, e); err != nil {
		return err
	}
	for _, s := range sightings(e.Response) {
		fake, known := p.ids[resourceID{"action", s.id}]
		if !known || s.status == running || p.actions.told[s.id] {
			continue
		}
		p.actions.told[s.id] = true
		now, ok, err := p.look(ctx, fake)
		if err != nil {
			return err
		}
		got := "gone"
		if ok {
			got = strings.TrimSpace(now.status + " " + now.error)
		}
		if want := strings.TrimSpace(s.status + " " + s.error); want != got {
			p.differ(DiffAction, fmt.Sprintf("action %d", s.id), want, got)
		}
	}
	return nil
}
