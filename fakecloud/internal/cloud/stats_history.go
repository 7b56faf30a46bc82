package cloud

import (
	"maps"
	"slices"
	"sort"
	"sync"
	"time"
)

// minStatsAge is how long a reported figure counts at least. It counts longer if the step is longer.
const minStatsAge = time.Minute

// maxStats limits the memory per resource to one hour of a report per second. When it is reached, the older half is dropped.
const maxStats = 3600

// statsHistory keeps reports about resources. They are not in the state because they change all the time and do not
// change the resource.
type statsHistory[S any] struct {
	mu      sync.Mutex
	samples map[int64][]statsSample[S] // by resource, by time
	first   map[int64]time.Time        // of the first report, which may be dropped
}

type statsSample[S any] struct {
	at    time.Time
	stats S
}

func (h *statsHistory[S]) add(id int64, at time.Time, s S) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.samples == nil {
		h.samples, h.first = map[int64][]statsSample[S]{}, map[int64]time.Time{}
	}
	all, known := h.samples[id]
	if !known {
		h.first[id] = at
	}
	if n := len(all); n > 0 && !all[n-1].at.Before(at) {
		all = all[:n-1] // of several reports at one time, the last one counts
	}
	if len(all) >= maxStats {
		all = slices.Delete(all, 0, len(all)/2)
	}
	h.samples[id] = append(all, statsSample[S]{at, s})
}

// at returns the latest report before each time, or zeros if it is older than both a step and a minute.
func (h *statsHistory[S]) at(id int64, times []time.Time, step time.Duration) []S {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.samples[id]
	out := make([]S, len(times))
	for i, t := range times {
		after := sort.Search(len(all), func(i int) bool { return all[i].at.After(t) })
		if after > 0 && t.Sub(all[after-1].at) <= max(minStatsAge, step) {
			out[i] = all[after-1].stats
		}
	}
	return out
}

// since returns the time of the first report. It returns false without a report.
func (h *statsHistory[S]) since(id int64) (time.Time, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t, ok := h.first[id]
	return t, ok
}

func (h *statsHistory[S]) forget(id int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.samples, id)
	delete(h.first, id)
}

// copyTo replaces what another history has by a copy of this one. Of the two, one is of a cloud that does not run
// yet, so that no other copy takes their locks the other way around.
func (h *statsHistory[S]) copyTo(to *statsHistory[S]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	to.mu.Lock() // a data plane may be reporting
	defer to.mu.Unlock()
	to.first, to.samples = maps.Clone(h.first), nil
	if h.samples != nil {
		to.samples = make(map[int64][]statsSample[S], len(h.samples))
	}
	for id, all := range h.samples {
		to.samples[id] = slices.Clone(all)
	}
}

func (h *statsHistory[S]) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.samples)
	clear(h.first)
}
