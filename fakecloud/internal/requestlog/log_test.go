package requestlog

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

func (j *Log) Add(e *journal.Entry) { j.AddDetailed(e, nil) }

func TestAJournalKeepsTheLatestEntriesInOrder(t *testing.T) {
	t.Parallel()
	j := &Log{Capacity: 3}
	for range 5 {
		j.Add(&journal.Entry{Method: "GET"})
	}
	got, _ := j.Entries(t.Context(), journal.Filter{})
	if len(got) != 3 || got[0].Seq != 3 || got[2].Seq != 5 {
		t.Fatalf("kept %+v, want 3, 4, 5", got)
	}
	if n, _ := j.Count(t.Context(), journal.Filter{Since: 4}); n != 1 {
		t.Errorf("since 4: %d, want 1", n)
	}
	if n, _ := j.Count(t.Context(), journal.Filter{Since: 99}); n != 0 {
		t.Errorf("since the future: %d, want 0", n)
	}
	_ = j.Reset(t.Context())
	if n, _ := j.Count(t.Context(), journal.Filter{}); n != 0 {
		t.Errorf("after Reset: %d", n)
	}
	j.Add(&journal.Entry{})
	last, _ := j.Last(t.Context())
	if got, _ := j.Entries(t.Context(), journal.Filter{}); len(got) != 1 || got[0].Seq != 6 || last != 6 {
		t.Errorf("numbering after Reset: %+v", got)
	}
}

func TestAwaitReturnsWhenEnoughRequestsMatch(t *testing.T) {
	t.Parallel()
	j := &Log{}
	got := make(chan []journal.Entry)
	go func() {
		entries, err := j.Await(t.Context(), journal.Filter{Writes: true}, 2)
		if err != nil {
			t.Error(err)
		}
		got <- entries
	}()
	j.Add(&journal.Entry{Method: "POST"})
	j.Add(&journal.Entry{Method: "GET"})
	j.Add(&journal.Entry{Method: "DELETE"})
	if entries := <-got; len(entries) != 2 || entries[1].Seq != 3 {
		t.Errorf("%+v", entries)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	if entries, err := j.Await(ctx, journal.Filter{}, 4); !errors.Is(err, enough) || len(entries) != 3 {
		t.Errorf("%d entries, %v", len(entries), err)
	}
}

func TestConcurrentAddsLoseNoEntry(t *testing.T) {
	t.Parallel()
	const writers, each = 8, 500
	j := &Log{Capacity: writers * each}
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				j.Add(&journal.Entry{Method: "GET"})
			}
		})
	}
	entries, err := j.Await(t.Context(), journal.Filter{}, writers*each)
	if err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	for i, e := range entries {
		if e.Seq != uint64(i+1) {
			t.Fatalf("entry %d has number %d", i, e.Seq)
		}
	}
}

// BenchmarkAdd adds entries while some wait for others, and for more than there are.
func BenchmarkAdd(b *testing.B) {
	for _, waiters := range []int{0, 16} {
		b.Run(fmt.Sprint(waiters, " waiters"), func(b *testing.B) {
			j := &Log{}
			for i := range waiters {
				filter := []journal.Filter{{Operation: "none"}, {Method: "GET"}}[i%2]
				go func() { _, _ = j.Await(b.Context(), filter, 1<<40) }() // ends with the context's error
			}
			for j.init(); len(*j.waiters.Load()) < waiters; {
				runtime.Gosched()
			}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					j.Add(&journal.Entry{Method: "GET", Route: "/servers/{id}", Status: 200})
				}
			})
		})
	}
}

// A bound in entries is not enough: a query may have 60 kB.
func TestAJournalIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	j := &Log{MaxBytes: 100_000}
	const n = 1000
	for i := range n {
		j.Add(&journal.Entry{Method: "GET", Path: "/v1/servers", Query: fmt.Sprintf("name=%d%s", i, strings.Repeat("x", 1500))})
	}
	got, _ := j.Entries(t.Context(), journal.Filter{})
	if len(got) < 30 || len(got) > 60 || got[len(got)-1].Seq != n {
		t.Fatalf("%d entries are kept", len(got))
	}
	for i, e := range got[1:] {
		if e.Seq != got[i].Seq+1 {
			t.Errorf("entry %d follows %d", e.Seq, got[i].Seq)
		}
	}
	if b := j.Bytes(); b > 100_000 || b < 50_000 {
		t.Errorf("%d bytes", b)
	}
	_ = j.Reset(t.Context())
	if b := j.Bytes(); b != 0 {
		t.Errorf("%d bytes after Reset", b)
	}
}

func TestLongFieldsAreClipped(t *testing.T) {
	t.Parallel()
	j := &Log{}
	line := strings.Repeat("é", 50_000)
	j.Add(&journal.Entry{Path: line, Query: line, Client: line, Fault: "short"})
	entries, _ := j.Entries(t.Context(), journal.Filter{})
	e := entries[0]
	for _, s := range []string{e.Path, e.Query, e.Client} {
		if len(s) > MaxField || !strings.HasSuffix(s, "é…") || !utf8.ValidString(s) {
			t.Errorf("%d bytes, %q", len(s), s[max(0, len(s)-10):])
		}
	}
	if e.Fault != "short" {
		t.Error(e.Fault)
	}
}

func TestConcurrentAddsCountBytesCorrectly(t *testing.T) {
	t.Parallel()
	j := &Log{Capacity: 64, MaxBytes: 20_000}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				j.Add(&journal.Entry{Query: strings.Repeat("x", i%(100*(w+1)))})
				if w == 0 && i%500 == 0 {
					_ = j.Reset(t.Context())
				}
			}
		})
	}
	wg.Wait()
	var kept int64
	entries, _ := j.Entries(t.Context(), journal.Filter{})
	for _, e := range entries {
		kept += size(&e)
	}
	if b := j.Bytes(); b != kept || b > 20_000 || kept == 0 {
		t.Errorf("%d bytes counted, %d kept", b, kept)
	}
}
