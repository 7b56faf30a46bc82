package api

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

func TestTheJournalKeepsNoSecretsOfAQuery(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	for sent, kept := range map[string]string{
		"token=abc":                        "token=REDACTED",
		"name=a&access_token=abc&page=1":   "name=a&access_token=REDACTED&page=1",
		"Client-Secret=a%20b":              "Client-Secret=REDACTED",
		"%74oken=abc":                      "%74oken=REDACTED",
		"root_password=x&api_key=y&apikey": "root_password=REDACTED&api_key=REDACTED&apikey",
		"X-Amz-Signature=abc;token=a":      "X-Amz-Signature=REDACTED",
		"token=%zz":                        "token=REDACTED",
		"name=my%20token&sort=name":        "name=my%20token&sort=name",
		"fingerprint=a:b&label_selector=k": "fingerprint=a:b&label_selector=k",
	} {
		since, _ := f.journal.Last(t.Context())
		f.do(t, "one", http.MethodGet, "/v1/ssh_keys?"+sent, "")
		if entries := f.entries(t, journal.Filter{Since: since}); len(entries) != 1 || entries[0].Query != kept {
			t.Errorf("%s: the journal has %+v, want %s", sent, entries, kept)
		}
	}
}

func TestTheJournalHasTheIDOfTheResource(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.addKeys(t, "a")
	var key int64
	p, _ := f.cloud.Project(1)
	for k := range p.View().SSHKeys.All() {
		key = k.ID
	}
	id := strconv.FormatInt(key, 10)
	if _, err := f.Faults().Add(t.Context(), fault.Rule{Path: "/ssh_keys/" + id, Method: "DELETE",
		Effect: fault.Effect{Kind: fault.KindAPIError, Code: "conflict"}}); err != nil {
		t.Fatal(err)
	}
	for request, want := range map[string]int64{
		"GET /v1/ssh_keys/" + id:               key,
		"PUT /v1/ssh_keys/" + id:               key,
		"DELETE /v1/ssh_keys/" + id:            key, // a fault rule answers
		"GET /v1/ssh_keys/77":                  77,  // does not exist
		"GET /v1/ssh_keys/x":                   0,
		"GET /v1/ssh_keys/-5":                  0,
		"GET /v1/ssh_keys":                     0,
		"POST /v1/ssh_keys":                    0, // creates nothing
		"POST /v1/servers/42/actions/poweroff": 42,
		"GET /v1/servers/42/actions/43":        42,
		"GET /v1/actions/43":                   43,
		"GET /v1/nothing/42":                   0,
		"PATCH /v1/ssh_keys/42":                0,
	} {
		last, _ := f.journal.Last(t.Context())
		method, path, _ := strings.Cut(request, " ")
		f.do(t, "one", method, path, "{}")
		if e := f.entries(t, journal.Filter{Since: last}); len(e) != 1 || e[0].ResourceID != want {
			t.Errorf("%s: %+v, want %d", request, e, want)
		}
	}
}

func TestTheJournalHasTheIDOfTheResourceWhenTheAnswerIsLost(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	if _, err := f.Faults().Add(t.Context(), fault.Rule{Effect: fault.Effect{Kind: fault.KindDrop, After: true}}); err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/placement_groups",
		strings.NewReader(`{"name": "g", "type": "spread"}`))
	r.Header.Set("Authorization", "Bearer one")
	func() {
		defer func() {
			if p, _ := recover().(error); !errors.Is(p, http.ErrAbortHandler) {
				t.Errorf("panic %v", p)
			}
		}()
		f.ServeHTTP(httptest.NewRecorder(), r)
	}()
	e := f.entries(t, journal.Filter{Operation: "create_placement_group", Dropped: true})
	if len(e) != 1 || e[0].Handled != http.StatusCreated || e[0].ResourceID == 0 {
		t.Errorf("entries: %+v", e)
	}
}
