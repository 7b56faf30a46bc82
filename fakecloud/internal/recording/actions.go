package recording

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// running is the status of an action that has not ended.
const running = "running"

// sighting is an action in a recorded answer.
type sighting struct {
	id                     int64
	command, status, error string
	started, finished      time.Time
	resources              []resourceID
}

// sightings returns the actions that an answer shows.
func sightings(body json.RawMessage) []sighting {
	var all []sighting
	add := func(v any) {
		o, _ := v.(map[string]any)
		id, ok := number(o["id"])
		s := sighting{id: id}
		if s.status, _ = o["status"].(string); !ok || s.status == "" {
			return
		}
		s.error, _ = at(o, "error", "code").(string)
		s.command, _ = o["command"].(string)
		s.started, s.finished = timeOf(o["started"]), timeOf(o["finished"])
		for _, r := range list(o["resources"]) {
			kind, _ := at(r, "type").(string)
			s.resources = append(s.resources, resourceID{kind, idOf(r)})
		}
		all = append(all, s)
	}
	members := membersOf(body)
	add(members["action"])
	for _, name := range []string{"actions", "next_actions"} {
		for _, entry := range list(members[name]) {
			add(entry)
		}
	}
	return all
}

func timeOf(v any) time.Time {
	text, _ := v.(string)
	t, _ := time.Parse(time.RFC3339, text) // a zero time if there is none
	return t
}

// life is what a recording shows of an action over time.
type life struct {
	begun, running, end *Exchange // that show it first, running for the last time, and ended for the first time
	sighting                      // the last one
	told                bool      // its end was compared
}

// actionLives are the actions of a recording.
type actionLives map[int64]*life

func newActionLives(rec *Recording) actionLives {
	lives := actionLives{}
	for i := range rec.Exchanges {
		e := &rec.Exchanges[i]
		for _, s := range sightings(e.Response) {
			if lives[s.id] == nil {
				lives[s.id] = &life{begun: e}
			}
			l := lives[s.id]
			if s.status == running {
				l.running = e
			} else if l.end == nil {
				l.end = e
			}
			l.sighting = s
		}
	}
	return lives
}

// proves reports whether the recording proves that the action ran when a request succeeded: an answer shows it running later, or that it
// finished later. Times of actions are cut to seconds.
func (l *life) proves(e *Exchange) bool {
	later := l.running != nil && l.running.Seq > e.Seq && l.running.At >= e.End
	if l.finished.IsZero() {
		return later
	}
	for _, s := range sightings(e.Response) {
		later = later || !s.started.IsZero() && l.finished.After(s.started)
	}
	return later || l.begun.At+(l.finished.Sub(l.started)-time.Second).Milliseconds() > e.End
}

// duration returns how long a request's actions take: 0 if they end with its answer, and less if the recording does not show their end.
// began reports whether the request starts actions. An action takes as long as its times say, if that agrees with the answers that show it.
func (l actionLives) duration(e *Exchange) (d time.Duration, began bool) {
	d = -1
	for _, s := range sightings(e.Response) {
		l := l[s.id]
		switch {
		case l.end == e && !began:
			d = 0
		case l.end != nil && l.end != e:
			const half = time.Millisecond / 2
			took := l.finished.Sub(l.started)
			if l.running != nil {
				took = max(took, time.Duration(l.running.End-e.At)*time.Millisecond+half)
			}
			took = max(min(took, time.Duration(l.end.At-e.At)*time.Millisecond-half), half)
			if d <= 0 || took < d {
				d = took
			}
		}
		began = true
	}
	return d, began
}

// fate returns the error of a certificate's failed issuance in the recording, or "". The DNS of the world decides whether one fails, and
// the recording does not have that. The first exchange that shows the end also has the error.
func (l actionLives) fate(e *Exchange) string {
	for _, s := range sightings(e.Response) {
		end := l[s.id].end
		if end == nil || s.command != "create_certificate" && s.command != "issue_certificate" {
			continue
		}
		for _, last := range sightings(end.Response) {
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
		if !known || s.status == running || p.actions[s.id].told {
			continue
		}
		p.actions[s.id].told = true
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

// settle sends a request again after the end of actions that stand in its way here, and did not when it was recorded: a write that is
// refused, and a read whose answer differs while actions run of which the recording shows no end.
func (p *player) settle(ctx context.Context, e *Exchange, a *answer, named []resourceID, send func() (*answer, error)) (*answer, error) {
	switch {
	case e.Method == http.MethodGet && (!p.hanging || p.same(e, a)), e.Method != http.MethodGet && (!busy(a.body) || busy(e.Response)):
		return a, nil
	case e.Method != http.MethodGet:
		if err := p.judge(ctx, e, a, named); err != nil {
			return nil, err
		}
	}
	if _, err := p.cloud.ResumeActions(ctx); err != nil {
		return nil, err
	}
	p.hanging = e.Method != http.MethodGet // the actions of a write that is sent again hang, too
	a, err := send()
	for waited := time.Duration(0); err == nil && busy(a.body) && e.Status < 300 && waited < maxWait; waited += time.Second {
		if err = p.cloud.Step(ctx, time.Second); err == nil {
			a, err = send()
		}
	}
	return a, err
}

// judge reports a refusal here of a request that was not refused so in the recording. It is a difference if the recording proves that an
// action on a resource of the request ran, and else undecided.
func (p *player) judge(ctx context.Context, e *Exchange, a *answer, named []resourceID) error {
	for _, id := range slices.Sorted(maps.Keys(p.actions)) {
		l := p.actions[id]
		fake, known := p.ids[resourceID{"action", id}]
		if !known || !l.proves(e) || !slices.ContainsFunc(l.resources, func(r resourceID) bool { return slices.Contains(named, r) }) {
			continue
		}
		if now, ok, err := p.look(ctx, fake); err != nil || ok && now.status == running {
			p.differ(DiffLocked, fmt.Sprintf("action %d, %s", id, l.command), fmt.Sprint(e.Status, " while it ran"),
				fmt.Sprint(a.status, " ", errorCode(a.body)))
			return err
		}
	}
	p.report.Undecided = append(p.report.Undecided, Skipped{e.Seq, e.Method, e.Path, fmt.Sprintf(
		"the simulation answers %d %s until an action ends; the recording does not show what came first", a.status, errorCode(a.body))})
	return nil
}

// same reports whether an answer is the recorded one.
func (p *player) same(e *Exchange, a *answer) bool {
	before := p.report.Differences
	p.report.Differences = nil
	p.compare(e, a)
	defer func() { p.report.Differences = before }()
	return len(p.report.Differences) == 0
}
