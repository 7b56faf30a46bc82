// Package requestlog is the journal of a cloud: it keeps the latest requests in memory.
package requestlog

import (
	"context"
	"fmt"
	"math"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// entryBytes is the size of an entry without its texts.
const entryBytes = 256

// size returns how many bytes of memory an entry takes. Call it only after clip.
func size(e *journal.Entry) int64 {
	n := len(e.CorrelationID) + len(e.Method) + len(e.Path) + len(e.Query) + len(e.ErrorCode) + len(e.Fault) + len(e.Client) +
		len(e.Remote) + len(e.UnknownFields)
	return int64(n) + entryBytes
}

// MaxField is the length of the longest text of an entry, in bytes. A longer one is cut and ends with "…".
const MaxField = 2 << 10

// clip cuts texts that are too long. It copies the rest: a substring would keep the whole text in memory.
func clip(e *journal.Entry) {
	const end = "…"
	for _, text := range []*string{&e.Method, &e.Path, &e.Query, &e.Client, &e.Fault, &e.Remote, &e.ErrorCode,
		&e.UnknownFields} {
		if len(*text) <= MaxField {
			continue
		}
		cut := MaxField - len(end)
		for cut > 0 && !utf8.RuneStart((*text)[cut]) {
			cut--
		}
		*text = (*text)[:cut] + end
	}
}

// Log keeps the latest entries, bounded in number and in bytes. It implements journal.Journal. Its zero value has the
// default bounds. Add takes no lock, because every request of the cloud calls it. Entries are numbered in the order of the
// answers.
type Log struct {
	// Capacity is how many entries are kept at most. 0 means DefaultCapacity. Set it before the first use.
	Capacity int
	// MaxBytes is how much memory the entries take at most. 0 means DefaultMaxBytes. Set it before the first use.
	MaxBytes int64
	// Redact, if set, returns a text without the secrets that it has. What the log shows went through it. Set it before the first use.
	Redact func(string) string

	once sync.Once
	ring []atomic.Pointer[journal.Entry]
	seq  atomic.Uint64
	// bytes is the size of the entries in the ring. oldest is the least Seq that may be in the ring: those before were
	// removed to free memory.
	bytes  atomic.Int64
	oldest atomic.Uint64

	details atomic.Pointer[details] // nil until Observe

	mu      sync.Mutex                // held while waiters is replaced
	waiters atomic.Pointer[[]*waiter] // of the calls of Await
}

// waiter is a call of Await. Each Add judges its entry for it, so that the call looks into the journal only when enough may be there.
type waiter struct {
	filter         journal.Filter
	added, missing atomic.Int64  // the entries that match since the last look began, and how many make it worth another one
	look           chan struct{} // has room for one
}

// judge counts an entry that was added.
func (w *waiter) judge(e *journal.Entry) {
	if !matches(&w.filter, e) || w.added.Add(1) < w.missing.Load() {
		return
	}
	select {
	case w.look <- struct{}{}:
	default:
	}
}

// The default bounds of a journal.
const (
	DefaultCapacity = 10_000
	DefaultMaxBytes = 64 << 20
)

func (j *Log) init() {
	j.once.Do(func() {
		if j.Capacity <= 0 {
			j.Capacity = DefaultCapacity
		}
		if j.MaxBytes <= 0 {
			j.MaxBytes = DefaultMaxBytes
		}
		j.ring = make([]atomic.Pointer[journal.Entry], j.Capacity)
		j.waiters.Store(&[]*waiter{})
	})
}

// AddDetailed appends an entry and sets its Seq. It cuts texts that are longer than MaxField. Do not change the entry afterwards. The
// details are for a log that is observed.
func (j *Log) AddDetailed(e *journal.Entry, of *Details) {
	j.init()
	clip(e)
	e.Seq = j.seq.Add(1)
	if d := j.details.Load(); d != nil && of != nil {
		d.add(e, of)
	}
	slot := j.slot(e.Seq)
	for {
		old := slot.Load()
		if old != nil && old.Seq > e.Seq { // newer entries have filled the whole ring
			break
		}
		if slot.CompareAndSwap(old, e) {
			added := size(e)
			if old != nil {
				added -= size(old)
			}
			j.bytes.Add(added)
			break
		}
	}
	j.shrink()
	if e.Seq < j.oldest.Load() { // shrink has passed it already
		j.remove(e.Seq)
	}
	for _, w := range *j.waiters.Load() {
		w.judge(e)
	}
}

// shrink removes the oldest entries until the rest is within MaxBytes.
func (j *Log) shrink() {
	for j.bytes.Load() > j.MaxBytes {
		oldest, last := j.oldest.Load(), j.seq.Load()
		first := max(oldest, j.first(last))
		if first > last {
			return
		}
		if j.oldest.CompareAndSwap(oldest, first+1) {
			j.remove(first)
		}
	}
}

// remove removes the entry with a Seq, if it is in the ring.
func (j *Log) remove(seq uint64) {
	slot := j.slot(seq)
	if e := slot.Load(); e != nil && e.Seq == seq && slot.CompareAndSwap(e, nil) {
		j.bytes.Add(-size(e))
	}
}

// first returns the least Seq that fits in the ring if last is the greatest.
func (j *Log) first(last uint64) uint64 {
	if kept := uint64(len(j.ring)); last > kept {
		return last - kept + 1
	}
	return 1
}

// Bytes returns how much memory the entries take.
func (j *Log) Bytes() int64 { return j.bytes.Load() }

func (j *Log) slot(seq uint64) *atomic.Pointer[journal.Entry] {
	return &j.ring[(seq-1)%uint64(len(j.ring))]
}

var _ journal.Journal = (*Log)(nil)

// Last implements journal.Journal.
func (j *Log) Last(context.Context) (uint64, error) { return j.seq.Load(), nil }

// Entries implements journal.Journal.
func (j *Log) Entries(_ context.Context, f journal.Filter) ([]journal.Entry, error) {
	var out []journal.Entry
	j.scan(f, func(e *journal.Entry) { out = append(out, j.shown(e)) })
	return out, nil
}

// shown returns an entry without secrets in the client's texts. It looks for them now, not in each request: a reader is rare.
func (j *Log) shown(e *journal.Entry) journal.Entry {
	shown := *e
	if j.Redact == nil {
		return shown
	}
	for _, text := range []*string{&shown.Method, &shown.Path, &shown.Query, &shown.Client, &shown.UnknownFields} {
		*text = j.Redact(*text)
	}
	if plain, err := url.QueryUnescape(shown.Query); err == nil && j.Redact(plain) != plain {
		shown.Query = "REDACTED" // a secret with percent signs
	}
	return shown
}

// Count implements journal.Journal.
func (j *Log) Count(_ context.Context, f journal.Filter) (int, error) {
	n := 0
	j.scan(f, func(*journal.Entry) { n++ })
	return n, nil
}

func (j *Log) scan(f journal.Filter, found func(*journal.Entry)) {
	j.init()
	last := j.seq.Load()
	for seq := max(j.first(last), j.oldest.Load(), f.Since+1); seq <= last; seq++ {
		if e := j.slot(seq).Load(); e != nil && e.Seq == seq && matches(&f, e) {
			found(e)
		}
	}
}

// Await implements journal.Journal.
func (j *Log) Await(ctx context.Context, f journal.Filter, n int) ([]journal.Entry, error) {
	j.init()
	w := &waiter{filter: f, look: make(chan struct{}, 1)}
	j.setWaiters(func(all []*waiter) []*waiter { return append(all, w) })
	defer j.setWaiters(func(all []*waiter) []*waiter { return slices.DeleteFunc(all, func(o *waiter) bool { return o == w }) })
	for {
		w.missing.Store(math.MaxInt64)
		w.added.Store(0)
		entries, _ := j.Entries(ctx, f)
		missing := int64(n - len(entries))
		if missing <= 0 {
			return entries, nil
		}
		if w.missing.Store(missing); w.added.Load() >= missing { // meanwhile
			continue
		}
		select {
		case <-w.look:
		case <-ctx.Done():
			entries, _ := j.Entries(ctx, f)
			return entries, fmt.Errorf("%d of %d requests are in the journal: %w", len(entries), n, context.Cause(ctx))
		}
	}
}

func (j *Log) setWaiters(change func([]*waiter) []*waiter) {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := change(slices.Clone(*j.waiters.Load()))
	j.waiters.Store(&all)
}

// Forget removes the entries of one project.
func (j *Log) Forget(project int64) {
	j.scan(journal.Filter{Project: project}, func(e *journal.Entry) { j.remove(e.Seq) })
}

// Reset implements journal.Journal.
func (j *Log) Reset(context.Context) error {
	j.init()
	for i := range j.ring {
		if e := j.ring[i].Swap(nil); e != nil {
			j.bytes.Add(-size(e))
		}
	}
	if d := j.details.Load(); d != nil {
		for i := range d.ring {
			d.ring[i].Store(nil)
		}
	}
	return nil
}
