package fakecloud_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// listed says how to create a resource whose list is read in pages.
type listed struct {
	name string // as in the answer to a list
	body string // %s is the name
}

var lists = []listed{
	{"servers", `{"name": "%s", "server_type": "cx23", "image": "ubuntu-24.04", "location": "fsn1"}`},
	{"networks", `{"name": "%s", "ip_range": "10.0.0.0/16"}`},
	{"load_balancers", `{"name": "%s", "load_balancer_type": "lb11", "location": "fsn1"}`},
	{"volumes", `{"name": "%s", "size": 10, "location": "fsn1"}`},
	{"firewalls", `{"name": "%s"}`},
	{"floating_ips", `{"name": "%s", "type": "ipv4", "home_location": "fsn1"}`},
	{"primary_ips", `{"name": "%s", "type": "ipv4", "location": "fsn1", "assignee_type": "server"}`},
	{"placement_groups", `{"name": "%s", "type": "spread"}`},
	{"zones", `{"name": "%s.example.org", "mode": "primary"}`},
	{"certificates", `{"name": "%s", "type": "managed", "domain_names": ["%[1]s.example.org"]}`},
}

// create creates one, and returns its id.
func (l listed) create(t *testing.T, h http.Handler, name string) int64 {
	t.Helper()
	code, body := request(t, h, http.MethodPost, "/v1/"+l.name, fmt.Sprintf(l.body, name))
	var answer map[string]json.RawMessage
	var made struct{ ID int64 }
	if code != http.StatusCreated || json.Unmarshal(body, &answer) != nil || json.Unmarshal(answer[l.name[:len(l.name)-1]], &made) != nil {
		t.Errorf("POST /%s: %d %s", l.name, code, body)
	}
	return made.ID
}

// page reads one page of the list. next is the number of the page after it, 0 for the last one.
func (l listed) page(t *testing.T, h http.Handler, query string) (ids []int64, next int) {
	t.Helper()
	code, body := request(t, h, http.MethodGet, "/v1/"+l.name+"?"+query, "")
	var answer map[string]json.RawMessage
	var found []struct{ ID int64 }
	var meta struct {
		Pagination struct {
			Next int `json:"next_page"`
		}
	}
	if code != http.StatusOK || json.Unmarshal(body, &answer) != nil || json.Unmarshal(answer["meta"], &meta) != nil ||
		json.Unmarshal(answer[l.name], &found) != nil {
		t.Errorf("GET /%s?%s: %d %s", l.name, query, code, body)
	}
	for _, f := range found {
		ids = append(ids, f.ID)
	}
	return ids, meta.Pagination.Next
}

// ids reads the list in pages, in the order of ids.
func (l listed) ids(t *testing.T, h http.Handler, perPage int) (ids []int64) {
	t.Helper()
	for next := 1; next != 0; {
		var more []int64
		more, next = l.page(t, h, fmt.Sprintf("sort=id:asc&page=%d&per_page=%d", next, perPage))
		ids = append(ids, more...)
	}
	return ids
}

// write creates and deletes resources at random until stop is closed. It finds what it has just created.
func write(t *testing.T, h http.Handler, client int, stop chan struct{}) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(uint64(client), 1))
	var paths []string
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		if len(paths) < 3 || rnd.IntN(2) == 0 {
			l := lists[rnd.IntN(len(lists))]
			id := l.create(t, h, fmt.Sprintf("new-%d-%d", client, i))
			if newest, _ := l.page(t, h, "sort=id:desc&per_page=50"); !slices.Contains(newest, id) {
				t.Errorf("%s: %d was created and is not listed", l.name, id)
			}
			paths = append(paths, fmt.Sprintf("/v1/%s/%d", l.name, id))
			continue
		}
		n := rnd.IntN(len(paths))
		if code, body := request(t, h, http.MethodDelete, paths[n], ""); code >= 300 {
			t.Errorf("DELETE %s: %d %s", paths[n], code, body)
		}
		paths = slices.Delete(paths, n, n+1)
	}
}

// check reads the list in pages: it begins with the oldest ids, and has nothing twice. It returns how many are listed.
func (l listed) check(t *testing.T, h http.Handler, perPage int, oldest []int64) int {
	t.Helper()
	ids := l.ids(t, h, perPage)
	if len(ids) < len(oldest) || !slices.Equal(ids[:len(oldest)], oldest) ||
		!slices.Equal(slices.Compact(slices.Sorted(slices.Values(ids))), ids) {
		t.Errorf("%s: got %v, want %v first, and each id once", l.name, ids, oldest)
	}
	return len(ids)
}

// Sixteen clients create and delete resources of all kinds. Four others read all lists in pages meanwhile: what was there before
// is listed once, nothing is listed twice, and each client finds what it has just created.
func TestEverythingIsListedOnceWhileOthersWrite(t *testing.T) {
	t.Parallel()
	const writers, readers, rounds, oldest = 16, 4, 40, 7
	c := newCloud(t, fakecloud.Options{})
	h := c.Handler()
	before := map[string][]int64{}
	for _, l := range lists {
		for i := range oldest {
			l.create(t, h, fmt.Sprintf("oldest-%d", i))
		}
		before[l.name] = l.ids(t, h, 50)
	}
	stop := make(chan struct{})
	var writing, reading sync.WaitGroup
	for client := range writers {
		writing.Go(func() { write(t, h, client, stop) })
	}
	var read atomic.Int64
	for client := range readers {
		reading.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(client), 2))
			for range rounds {
				l := lists[rnd.IntN(len(lists))]
				read.Add(int64(l.check(t, h, 1+rnd.IntN(10), before[l.name])))
			}
		})
	}
	reading.Wait()
	close(stop)
	writing.Wait()
	if read.Load() <= readers*rounds*oldest {
		t.Errorf("%d entries were read: others have written nothing", read.Load())
	}
}
