package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/longtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/remote"
)

var kills = flag.Int("kills", 50, "how often TestKilledPrograms kills the program")

// TestKilledPrograms kills the program at random moments while clients read and write, starts it again with the same state, and compares
// what the clients were told with what the cloud has. It does so with both kinds of state.
func TestKilledPrograms(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{{"--state"}, {"--state-sync", "--state"}} {
		t.Run(flags[0], func(t *testing.T) {
			t.Parallel()
			testKilledPrograms(t, append(flags, t.TempDir(), "--rate-limit", "0", "--actions", "20ms", "--speed", "60"))
		})
	}
}

func testKilledPrograms(t *testing.T, args []string) {
	const clients = 16
	all := make([]*writer, clients)
	for i := range all {
		all[i] = &writer{
			name: fmt.Sprintf("c%d", i), rnd: rand.New(rand.NewPCG(uint64(i), 1)), knows: map[string]string{}, ids: map[int64]bool{},
			deletes: map[string]bool{},
		}
	}
	reader := &reader{names: map[int64]string{}}
	acknowledged, parts := int64(0), longtest.Share(t, *kills, 5)
	for _, part := range parts {
		p := startProcess(t, args...)
		// A server whose deletion was acknowledged is shown until the action ends.
		check(t, remote.New(p.control).AwaitIdle(t.Context()))
		for _, w := range all {
			w.reach(p)
			w.compare(t)
		}
		reader.compare(t, p, all)
		if t.Failed() {
			p.kill()
			break
		}
		// After so many writes that were acknowledged, while others are under way.
		n := 1 + rand.New(rand.NewPCG(part, 2)).Int64N(40)
		var done atomic.Int64
		var wg sync.WaitGroup
		wg.Go(func() {
			for reader.read(t, p) == nil {
			}
		})
		for _, w := range all {
			wg.Go(func() {
				for w.write(t.Context(), t) {
					if done.Add(1) == n {
						p.kill()
					}
				}
			})
		}
		wg.Wait()
		acknowledged += done.Load()
	}
	p := startProcess(t, args...)
	defer p.kill()
	for _, w := range all {
		w.reach(p)
		w.compare(t)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := remote.New(p.control).AwaitIdle(ctx); err != nil {
		t.Errorf("actions do not go on after a restart: %v", err)
	}
	t.Logf("%d kills, %d writes were acknowledged", len(parts), acknowledged)
}

// reader is a client that keeps its latest answers.
type reader struct {
	names  map[int64]string // of all servers that it ever saw
	latest []*hcloud.Server
	time   time.Time
}

// read reads the servers and the time. A server's id is never another one's, and the time does not go back.
func (r *reader) read(t *testing.T, p process) error {
	client := hcloud.NewClient(hcloud.WithEndpoint(p.endpoint), hcloud.WithToken(p.token), hcloud.WithRetryOpts(hcloud.RetryOpts{}))
	latest, err := client.Server.All(context.WithoutCancel(t.Context()))
	if err != nil {
		return err
	}
	r.latest = latest
	for _, s := range latest {
		if name := r.names[s.ID]; name != "" && name != s.Name {
			t.Errorf("id %d is that of server %s, and was that of %s", s.ID, s.Name, name)
		}
		r.names[s.ID] = s.Name
	}
	now, err := remote.New(p.control).Now(context.WithoutCancel(t.Context()))
	if err != nil {
		return err
	}
	if now.Before(r.time) {
		t.Errorf("the time went back from %v to %v", r.time, now)
	}
	r.time = now
	return nil
}

// compare fails if a server is gone that the reader saw last, and that no writer wanted to delete.
func (r *reader) compare(t *testing.T, p process, writers []*writer) {
	t.Helper()
	before := r.latest
	check(t, r.read(t, p))
	has, deletes := map[int64]bool{}, map[string]bool{}
	for _, s := range r.latest {
		has[s.ID] = true
	}
	for _, w := range writers {
		maps.Copy(deletes, w.deletes)
	}
	for _, s := range before {
		if !has[s.ID] && !deletes[s.Name] {
			t.Errorf("server %s was seen, and is gone after the restart", s.Name)
		}
	}
}

// writer is a client that keeps what it was told.
type writer struct {
	name   string
	rnd    *rand.Rand
	client *hcloud.Client
	n      int
	ids    map[int64]bool
	// deletes are all names that the writer wanted to delete.
	deletes map[string]bool
	knows   map[string]string // label by name
	// What the last write wanted that was not answered: it may have happened or not. "" is a deletion.
	doubt, wanted string
}

func (w *writer) reach(p process) {
	w.client = hcloud.NewClient(hcloud.WithEndpoint(p.endpoint), hcloud.WithToken(p.token), hcloud.WithRetryOpts(hcloud.RetryOpts{}))
}

// write changes something. It returns false if the program is gone.
func (w *writer) write(ctx context.Context, t *testing.T) bool {
	w.n++
	name, label := w.some(), fmt.Sprint("v", w.n)
	var err error
	switch {
	case name == "" || w.rnd.IntN(3) == 0:
		name = fmt.Sprintf("%s-%d", w.name, w.n)
		if w.rnd.IntN(2) == 0 {
			name += ".com"
		}
		w.doubt, w.wanted = name, label
		err = w.create(ctx, t, name, label)
	case w.rnd.IntN(3) == 0:
		w.doubt, w.wanted = name, ""
		w.deletes[name] = true
		err = w.remove(ctx, name)
	default:
		w.doubt, w.wanted = name, label
		err = w.update(ctx, name, label)
	}
	var refused hcloud.Error
	switch {
	case err == nil:
		w.set(name, w.wanted)
		w.doubt = ""
	case errors.As(err, &refused): // nothing has changed, such as that of a locked server
		w.doubt = ""
	default:
		return false
	}
	return true
}

func (w *writer) set(name, label string) {
	if w.knows[name] = label; label == "" {
		delete(w.knows, name)
	}
}

// some returns one of the names; "" if there are none.
func (w *writer) some() string {
	for name := range w.knows {
		return name
	}
	return ""
}

// create creates a server, or a zone with a record set.
func (w *writer) create(ctx context.Context, t *testing.T, name, label string) error {
	var id int64
	labels := map[string]string{"v": label}
	if strings.HasSuffix(name, ".com") {
		z, _, err := w.client.Zone.Create(ctx, hcloud.ZoneCreateOpts{Name: name, Mode: hcloud.ZoneModePrimary, Labels: labels,
			RRSets: []hcloud.ZoneCreateOptsRRSet{{Name: "www", Type: hcloud.ZoneRRSetTypeTXT, Records: record(label)}}})
		if err != nil {
			return err
		}
		id = z.Zone.ID
	} else {
		s, _, err := w.client.Server.Create(ctx, hcloud.ServerCreateOpts{Name: name, Labels: labels,
			ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-12"}})
		if err != nil {
			return err
		}
		id = s.Server.ID
	}
	if w.ids[id] {
		t.Errorf("id %d was given out twice", id)
	}
	w.ids[id] = true
	return nil
}

func record(label string) []hcloud.ZoneRRSetRecord {
	return []hcloud.ZoneRRSetRecord{{Value: `"` + label + `"`}}
}

// update changes the label of a server, or the label and the record of a zone's record set.
func (w *writer) update(ctx context.Context, name, label string) error {
	labels := map[string]string{"v": label}
	if zone, ok := strings.CutSuffix(name, ".com"); ok {
		set := &hcloud.ZoneRRSet{Zone: &hcloud.Zone{Name: zone + ".com"}, Name: "www", Type: hcloud.ZoneRRSetTypeTXT}
		_, _, err := w.client.Zone.SetRRSetRecords(ctx, set, hcloud.ZoneRRSetSetRecordsOpts{Records: record(label)})
		return err
	}
	s, _, err := w.client.Server.GetByName(ctx, name)
	if err == nil {
		_, _, err = w.client.Server.Update(ctx, s, hcloud.ServerUpdateOpts{Labels: labels})
	}
	return err
}

func (w *writer) remove(ctx context.Context, name string) error {
	if strings.HasSuffix(name, ".com") {
		_, _, err := w.client.Zone.Delete(ctx, &hcloud.Zone{Name: name})
		return err
	}
	s, _, err := w.client.Server.GetByName(ctx, name)
	if err == nil {
		_, _, err = w.client.Server.DeleteWithResult(ctx, s)
	}
	return err
}

// compare fails if the cloud has something else than the client was told. What was in doubt is then known.
func (w *writer) compare(t *testing.T) {
	t.Helper()
	has := map[string]string{}
	servers := must(w.client.Server.All(t.Context()))(t)
	for _, s := range servers {
		has[s.Name] = s.Labels["v"]
	}
	zones := must(w.client.Zone.All(t.Context()))(t)
	for _, z := range zones {
		if !strings.HasPrefix(z.Name, w.name+"-") {
			continue
		}
		set, _, err := w.client.Zone.GetRRSetByNameAndType(t.Context(), z, "www", hcloud.ZoneRRSetTypeTXT)
		if err != nil || set == nil {
			t.Fatalf("zone %s: record set www: %v", z.Name, err)
		}
		has[z.Name] = strings.Trim(set.Records[0].Value, `"`)
	}
	if w.doubt != "" && has[w.doubt] == w.wanted {
		w.set(w.doubt, w.wanted)
	}
	w.doubt = ""
	for name, label := range w.knows {
		if has[name] != label {
			t.Errorf("%s: label %q after the restart, but %q was acknowledged", name, has[name], label)
		}
	}
	for name := range has {
		if _, ok := w.knows[name]; !ok && strings.HasPrefix(name, w.name+"-") {
			t.Errorf("%s exists after the restart, but its creation was not asked for, or its deletion was acknowledged", name)
		}
	}
}
