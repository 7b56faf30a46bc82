//go:build unix

package contract_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/contract"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cputime"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// way is a cloud's company beside its client: each case of the tests of cost is measured in each way.
type way struct {
	name string
	// disk is whether the cloud saves its changes.
	disk bool
	// attend, if not nil, lets others use the cloud until the context ends.
	attend func(ctx context.Context, w *world)
}

var ways = []way{
	{name: "in memory"},
	{name: "with a disk", disk: true},
	{name: "with a subscriber", attend: readEvents},
	{name: "with 16 waiters", attend: awaitRequests},
}

// eachWay runs a test in each way. Each has its goroutines for itself, so that costOf can wait for them.
func eachWay(t *testing.T, run func(*testing.T, *way)) {
	t.Helper()
	for i := range ways {
		t.Run(ways[i].name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { run(t, &ways[i]) })
		})
	}
}

// newWorld is [bareWorld] for a world that is used in this way once others attend it.
func (y *way) newWorld(t *testing.T, recorder *contract.Recorder) *world {
	t.Helper()
	return bareWorld(t, recorder, instant, func(o *fakecloud.Options) {
		if y != nil && y.disk {
			o.Disk = &oneLog{}
		}
	})
}

// oneLog is a disk that keeps the bytes of the changes, as a log does. A log of package disk also moves to a database, in steps of 1 MB:
// some requests would pay for such a step and others not.
type oneLog struct{ text []byte }

func (*oneLog) Read(func(key, value []byte) error) error { return nil }
func (*oneLog) Room() error                              { return nil }
func (*oneLog) Close() error                             { return nil }

func (l *oneLog) Write(_ bool, change func(put func(key, value []byte) error, deleteAll func(prefix []byte) error) error) error {
	l.text = l.text[:0]
	put := func(key, value []byte) error {
		l.text = append(append(l.text, key...), value...)
		return nil
	}
	return change(put, func(prefix []byte) error { return put(prefix, nil) })
}

// attended lets others use a world, and returns it.
func (y *way) attended(w *world) *world {
	if y.attend != nil {
		y.attend(w.Context(), w)
	}
	return w
}

// copyOf returns a copy of an inventory that is used in this way.
func (y *way) copyOf(t *testing.T, in *inventory) *inventory {
	t.Helper()
	var saved bytes.Buffer
	w := y.newWorld(t, nil)
	if err := in.cloud.Save(t.Context(), &saved); err != nil {
		t.Fatal(err)
	}
	if err := w.cloud.Restore(t.Context(), &saved); err != nil {
		t.Fatal(err)
	}
	w.serial, w.related = in.serial, in.related
	for range 6 * in.others { // no snapshot has the journal
		w.send("GET", "/locations/1", nil)
	}
	return &inventory{y.attended(w), in.document, in.others, in.hub}
}

// readEvents reads all events as a page does.
func readEvents(ctx context.Context, w *world) {
	go w.control.ServeHTTP(nowhere{http.Header{}}, httptest.NewRequestWithContext(ctx, "GET", "/events", nil))
}

// nowhere is a client that reads and forgets.
type nowhere struct{ header http.Header }

func (n nowhere) Header() http.Header         { return n.header }
func (n nowhere) WriteHeader(int)             {}
func (n nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (n nowhere) Flush()                      {}

// awaitRequests waits for requests that do not come, and for more than come.
func awaitRequests(ctx context.Context, w *world) {
	for i := range 16 {
		filter := journal.Filter{Operation: "no_such"}
		if i%2 > 0 {
			filter = journal.Filter{Writes: true}
		}
		go func() { _, _ = w.cloud.Journal().Await(ctx, filter, 1<<40) }() // ends with the context's error
	}
}

// settle waits until all effects of a request are done. A stream of events writes at most every 20 ms, on the clock of the test.
func settle() {
	time.Sleep(50 * time.Millisecond)
	synctest.Wait()
}

// waitOf runs f, a request. It returns the CPU time of the process during the longest of another project's writes meanwhile: how
// long that one waits, in work.
func (w *world) waitOf(f func()) (c cost) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f()
	}()
	for other := w.as(otherToken); ; other.serial++ {
		started := cputime.Used()
		other.send("POST", "/placement_groups", other.distinct("placement_group", object{"name": "one-more", "type": "spread"}))
		c.cpu = max(c.cpu, cputime.Used()-started)
		select {
		case <-ended:
			settle()
			return c
		default:
		}
	}
}
