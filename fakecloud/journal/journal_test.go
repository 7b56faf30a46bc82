package journal

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

func TestAJournalKeepsTheLatestEntriesInOrder(t *testing.T) {
	t.Parallel()
	j := &Journal{Capacity: 3}
	for range 5 {
		j.Add(&Entry{Method: "GET"})
	}
	got := j.Entries(Filter{})
	if len(got) != 3 || got[0].Seq != 3 || got[2].Seq != 5 {
		t.Fatalf("kept %+v, want 3, 4, 5", got)
	}
	if n := j.Count(Filter{Since: 4}); n != 1 {
		t.Errorf("since 4: %d, want 1", n)
	}
	if n := j.Count(Filter{Since: 99}); n != 0 {
		t.Errorf("since the future: %d, want 0", n)
	}
	j.Reset()
	if n := j.Count(Filter{}); n != 0 {
		t.Errorf("after Reset: %d", n)
	}
	j.Add(&Entry{})
	if got := j.Entries(Filter{}); len(got) != 1 || got[0].Seq != 6 || j.Last() != 6 {
		t.Errorf("numbering after Reset: %+v", got)
	}
}

func TestAFilterMatches(t *testing.T) {
	t.Parallel()
	e := Entry{
		Seq: 7, Method: "POST", Route: "/servers/{id}/actions/poweron", Operation: "power_on_server", Path: "/v1/servers/42/actions/poweron", ResourceID: 42,
		Status: 423, ErrorCode: "locked", Client: "hcloud-go/2.52.0 ccm/1", Fault: "f", Project: 2,
	}
	for name, tc := range map[string]struct {
		f    Filter
		want bool
	}{
		"everything":           {Filter{}, true},
		"method in lower case": {Filter{Method: "post"}, true},
		"other method":         {Filter{Method: "GET"}, false},
		"route":                {Filter{Route: e.Route}, true},
		"beginning of a route": {Filter{Route: "/servers/*"}, true},
		"other route":          {Filter{Route: "/servers"}, false},
		"path":                 {Filter{Path: e.Path}, true},
		"other path":           {Filter{Path: "/v1/servers/4"}, false},
		"operation":            {Filter{Operation: "power_on_server"}, true},
		"other operation":      {Filter{Operation: "power_off_server"}, false},
		"resource":             {Filter{ResourceID: 42}, true},
		"other resource":       {Filter{ResourceID: 43}, false},
		"status":               {Filter{Status: 423}, true},
		"other status":         {Filter{Status: 200}, false},
		"code":                 {Filter{ErrorCode: "locked"}, true},
		"other code":           {Filter{ErrorCode: "conflict"}, false},
		"client":               {Filter{Client: "ccm/"}, true},
		"other client":         {Filter{Client: "terraform"}, false},
		"fault":                {Filter{Fault: "f"}, true},
		"other fault":          {Filter{Fault: "g"}, false},
		"project":              {Filter{Project: 2}, true},
		"other project":        {Filter{Project: 1}, false},
		"writes":               {Filter{Writes: true}, true},
		"errors":               {Filter{Errors: true}, true},
		"dropped":              {Filter{Dropped: true}, false},
		"since before":         {Filter{Since: 6}, true},
		"since it":             {Filter{Since: 7}, false},
	} {
		if got := tc.f.Matches(&e); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	if (&Filter{Writes: true}).Matches(&Entry{Seq: 1, Method: "GET"}) {
		t.Error("a GET counts as a write")
	}
	if !(&Filter{Dropped: true, Errors: true}).Matches(&Entry{Seq: 1}) {
		t.Error("an entry without status is not dropped")
	}
}

func TestAFilterIsReadFromAQuery(t *testing.T) {
	t.Parallel()
	q, _ := url.ParseQuery("method=post&route=/servers&path=/v1/servers&operation=create_server&resource_id=42&status=201&error_code=x&client=c&fault=f&project=3&since=9&writes&errors=true&dropped=false&limit=5")
	f, err := ParseFilter(q, "limit")
	want := Filter{
		Method: "POST", Route: "/servers", Path: "/v1/servers", Operation: "create_server", ResourceID: 42, Status: 201, ErrorCode: "x",
		Client: "c", Fault: "f", Project: 3, Since: 9, Writes: true, Errors: true,
	}
	if err != nil || f != want {
		t.Fatalf("%+v, %v; want %+v", f, err, want)
	}
	for query, say := range map[string]string{
		"status=abc":  "status",
		"since=-1":    "since",
		"writes=oui":  "true or false",
		"methode=GET": "method, operation",
	} {
		q, _ := url.ParseQuery(query)
		if _, err := ParseFilter(q); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %v, want an error that says %q", query, err, say)
		}
	}
}

func TestAwaitReturnsWhenEnoughHaveCome(t *testing.T) {
	t.Parallel()
	j := &Journal{}
	got := make(chan []Entry)
	go func() {
		entries, err := j.Await(t.Context(), Filter{Writes: true}, 2)
		if err != nil {
			t.Error(err)
		}
		got <- entries
	}()
	j.Add(&Entry{Method: "POST"})
	j.Add(&Entry{Method: "GET"})
	j.Add(&Entry{Method: "DELETE"})
	if entries := <-got; len(entries) != 2 || entries[1].Seq != 3 {
		t.Errorf("%+v", entries)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	if entries, err := j.Await(ctx, Filter{}, 4); !errors.Is(err, enough) || len(entries) != 3 {
		t.Errorf("%d entries, %v", len(entries), err)
	}
}

func TestNoEntryIsLostWhenManyAddAndWait(t *testing.T) {
	t.Parallel()
	const writers, each = 8, 500
	j := &Journal{Capacity: writers * each}
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				j.Add(&Entry{Method: "GET"})
			}
		})
	}
	entries, err := j.Await(t.Context(), Filter{}, writers*each)
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

func BenchmarkAdd(b *testing.B) {
	j := &Journal{}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			j.Add(&Entry{Method: "GET", Route: "/servers/{id}", Status: 200})
		}
	})
}

// FuzzAFilterSurvivesItsQuery checks that Query writes what ParseFilter reads.
func FuzzAFilterSurvivesItsQuery(f *testing.F) {
	f.Add("method=post&route=/servers/*&path=/v1/servers/42&operation=create_server&resource_id=42&status=201&error_code=locked&client=a+b&fault=f%26&project=2&since=18446744073709551615&writes&errors=1&dropped=true")
	f.Add("status=0&writes=false&client=")
	f.Fuzz(func(t *testing.T, query string) {
		q, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		want, err := ParseFilter(q)
		if err != nil {
			return
		}
		if got, err := ParseFilter(want.Query()); err != nil || got != want {
			t.Errorf("%+v became %+v, %v", want, got, err)
		}
	})
}

// Memory is bounded in bytes, not only in entries: a query may have 60 kB.
func TestAJournalIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	j := &Journal{MaxBytes: 100_000}
	const n = 1000
	for i := range n {
		j.Add(&Entry{Method: "GET", Path: "/v1/servers", Query: fmt.Sprintf("name=%d%s", i, strings.Repeat("x", 1500))})
	}
	got := j.Entries(Filter{})
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
	j.Reset()
	if b := j.Bytes(); b != 0 {
		t.Errorf("%d bytes after Reset", b)
	}
}

func TestLongFieldsAreClipped(t *testing.T) {
	t.Parallel()
	j := &Journal{}
	line := strings.Repeat("é", 50_000)
	j.Add(&Entry{Path: line, Query: line, Client: line, Fault: "short"})
	e := j.Entries(Filter{})[0]
	for _, s := range []string{e.Path, e.Query, e.Client} {
		if len(s) > MaxField || !strings.HasSuffix(s, "é…") || !utf8.ValidString(s) {
			t.Errorf("%d bytes, %q", len(s), s[max(0, len(s)-10):])
		}
	}
	if e.Fault != "short" {
		t.Error(e.Fault)
	}
}

func TestTheBytesAreRightWhenManyAdd(t *testing.T) {
	t.Parallel()
	j := &Journal{Capacity: 64, MaxBytes: 20_000}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				j.Add(&Entry{Query: strings.Repeat("x", i%(100*(w+1)))})
				if w == 0 && i%500 == 0 {
					j.Reset()
				}
			}
		})
	}
	wg.Wait()
	var kept int64
	for _, e := range j.Entries(Filter{}) {
		kept += e.size()
	}
	if b := j.Bytes(); b != kept || b > 20_000 || kept == 0 {
		t.Errorf("%d bytes counted, %d kept", b, kept)
	}
}
