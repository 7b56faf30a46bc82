package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// pagedWorld has placement groups that stay, each followed by one that may be deleted.
type pagedWorld struct {
	fixture
	t          *testing.T
	p          cloud.Project
	kept, gone []int64
	begun, end atomic.Int64 // deletions that have begun and that have ended
}

func newPagedWorld(t *testing.T) *pagedWorld {
	t.Helper()
	w := &pagedWorld{fixture: newFixture(t, nil), t: t}
	w.p, _ = w.cloud.Project(1)
	for i := range 12 {
		w.kept = append(w.kept, w.create(fmt.Sprint("kept-", i), map[string]string{"kept": ""}))
		w.gone = append(w.gone, w.create(fmt.Sprint("gone-", i), nil))
	}
	return w
}

func (w *pagedWorld) create(name string, labels map[string]string) int64 {
	g, _, err := w.p.CreatePlacementGroup(cloud.CreatePlacementGroup{Name: name, Type: "spread", Labels: labels})
	if err != nil {
		w.t.Error(err)
		return 0
	}
	return g.ID
}

// write creates groups, changes those that stay, and deletes a third of the others if told so.
func (w *pagedWorld) write(deletes bool) {
	for i, id := range w.gone {
		w.create(fmt.Sprint("new-", i), nil)
		if _, err := w.p.UpdatePlacementGroup(w.kept[i],
			cloud.UpdateResource{Labels: map[string]string{"kept": fmt.Sprint("v", i)}}); err != nil {
			w.t.Error(err)
		}
		if !deletes || i%3 != 0 {
			continue
		}
		w.begun.Add(1)
		if err := w.p.DeletePlacementGroup(id); err != nil {
			w.t.Error(err)
		}
		w.end.Add(1)
	}
}

// list returns the ids on all pages, as a client reads them. It calls between before each page but the first.
func (w *pagedWorld) list(query string, between func()) (ids []int64) {
	w.t.Helper()
	for page := 1; ; page++ {
		a := w.do(w.t, "one", http.MethodGet, fmt.Sprintf("/v1/placement_groups?per_page=3&page=%d%s", page, query), "")
		var list struct {
			Groups []struct{ ID int64 } `json:"placement_groups"`
		}
		if err := json.Unmarshal([]byte(a.body), &list); err != nil || a.status != http.StatusOK {
			w.t.Fatalf("page %d: %d, %v", page, a.status, err)
		}
		for _, g := range list.Groups {
			ids = append(ids, g.ID)
		}
		if a.Meta.Pagination.NextPage == nil {
			return ids
		}
		between()
	}
}

// A page is a part of the list by ascending ids at the time of its request. New entries have higher ids, and a deletion moves
// later entries towards earlier pages. A client that reads page after page while others write thus sees the ids in ascending
// order, none twice. An entry that exists all the time is on a page, unless deletions have moved it to one that was read before:
// as many entries can be missing as were deleted.
func TestPagesWhileOthersWrite(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		query   string
		deletes bool
		exact   bool // whether no entry is missing
	}{
		"others create and change":             {"", false, true},
		"others delete, too":                   {"", true, false},
		"others delete what is not selected":   {"&label_selector=kept", true, true},
		"others create what is not selected":   {"&label_selector=kept", false, true},
		"others delete, and ids are the order": {"&sort=id", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 20 {
				w := newPagedWorld(t)
				before := w.end.Load()
				// One client writes from the first page on, and the reader waits for it after the third.
				var writer sync.WaitGroup
				pages := 0
				ids := w.list(tc.query, func() {
					pages++
					switch pages {
					case 1:
						writer.Go(func() { w.write(tc.deletes) })
					case 3:
						writer.Wait()
					}
				})
				deleted := int(w.begun.Load() - before)
				writer.Wait()
				for i := range ids[1:] {
					if ids[i] >= ids[i+1] {
						t.Fatalf("the ids are not in ascending order, or one is listed twice: %v", ids)
					}
				}
				missing := slices.DeleteFunc(slices.Clone(w.kept), func(id int64) bool { return slices.Contains(ids, id) })
				if tc.exact && len(missing) > 0 || len(missing) > deleted {
					t.Fatalf("%v are missing in %v after %d deletions", missing, ids, deleted)
				}
			}
		})
	}
}
