package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// creating holds a body for each operation that creates a resource of its own.
var creating = map[string]string{
	"create_ssh_key":         `{"name": "k", "public_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"}`,
	"create_network":         `{"name": "n", "ip_range": "10.0.0.0/16"}`,
	"create_server":          `{"name": "s", "server_type": "cx23", "image": "debian-13"}`,
	"create_primary_ip":      `{"name": "p", "type": "ipv4", "location": "fsn1"}`,
	"create_placement_group": `{"name": "g", "type": "spread"}`,
	"create_load_balancer":   `{"name": "l", "load_balancer_type": "lb11", "location": "fsn1"}`,
	"create_certificate":     `{"name": "c", "type": "managed", "domain_names": ["example.com"]}`,
}

func TestTheJournalNamesWhatWasCreated(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	for _, route := range Routes() {
		if route.Method != http.MethodPost || strings.Contains(route.Pattern, "{") || notModelledOperation(route.OperationID) {
			continue
		}
		body, ok := creating[route.OperationID]
		if !ok {
			t.Errorf("%s: no body to test it with", route.OperationID)
			continue
		}
		a := f.do(t, "one", route.Method, "/v1"+route.Pattern, body)
		var shown map[string]json.RawMessage
		var resource struct{ ID int64 }
		if err := json.Unmarshal([]byte(a.body), &shown); err != nil {
			t.Fatal(err)
		}
		member := strings.TrimPrefix(route.OperationID, "create_")
		if err := json.Unmarshal(shown[member], &resource); err != nil || resource.ID == 0 {
			t.Fatalf("%s: %v, %s", route.OperationID, err, a.body)
		}
		entries := f.journal.Entries(journal.Filter{ResourceID: resource.ID})
		if len(entries) != 1 || entries[0].Operation != route.OperationID || entries[0].ResourceID != resource.ID {
			t.Errorf("%s created %d: %+v", route.OperationID, resource.ID, entries)
		}
	}
}

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
		since := f.journal.Last()
		f.do(t, "one", http.MethodGet, "/v1/ssh_keys?"+sent, "")
		if entries := f.journal.Entries(journal.Filter{Since: since}); len(entries) != 1 || entries[0].Query != kept {
			t.Errorf("%s: the journal has %+v, want %s", sent, entries, kept)
		}
	}
}

func notModelledOperation(id string) bool {
	return slices.ContainsFunc(notModelledRoutes(), func(r Route) bool { return r.OperationID == id })
}

func TestTheJournalNamesWhatARequestIsAbout(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.addKeys(t, "a")
	var key int64
	p, _ := f.cloud.Project(1)
	for k := range p.View().SSHKeys.All() {
		key = k.ID
	}
	id := strconv.FormatInt(key, 10)
	if _, err := f.Faults().Add(fault.Rule{Path: "/ssh_keys/" + id, Method: "DELETE", Effect: fault.Effect{Kind: fault.KindAPIError, Code: "conflict"}}); err != nil {
		t.Fatal(err)
	}
	for request, want := range map[string]int64{
		"GET /v1/ssh_keys/" + id:               key,
		"PUT /v1/ssh_keys/" + id:               key,
		"DELETE /v1/ssh_keys/" + id:            key, // which a fault rule answers
		"GET /v1/ssh_keys/77":                  77,  // which does not exist
		"GET /v1/ssh_keys/x":                   0,
		"GET /v1/ssh_keys/-5":                  0,
		"GET /v1/ssh_keys":                     0,
		"POST /v1/ssh_keys":                    0, // which creates nothing
		"POST /v1/servers/42/actions/poweroff": 42,
		"GET /v1/servers/42/actions/43":        42,
		"GET /v1/actions/43":                   43,
		"GET /v1/nothing/42":                   0,
		"PATCH /v1/ssh_keys/42":                0,
	} {
		last := f.journal.Last()
		method, path, _ := strings.Cut(request, " ")
		f.do(t, "one", method, path, "{}")
		if e := f.journal.Entries(journal.Filter{Since: last}); len(e) != 1 || e[0].ResourceID != want {
			t.Errorf("%s: %+v, want %d", request, e, want)
		}
	}
}

func TestTheJournalNamesWhatWasCreatedWhenTheAnswerIsLost(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	if _, err := f.Faults().Add(fault.Rule{Effect: fault.Effect{Kind: fault.KindDrop, After: true}}); err != nil {
		t.Fatal(err)
	}
	for operation, body := range creating {
		path := "/v1/" + strings.TrimPrefix(operation, "create_") + "s"
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, bytes.NewReader([]byte(body)))
		r.Header.Set("Authorization", "Bearer one")
		func() {
			defer func() {
				if p, _ := recover().(error); !errors.Is(p, http.ErrAbortHandler) {
					t.Errorf("%s: panic %v", operation, p)
				}
			}()
			f.ServeHTTP(httptest.NewRecorder(), r)
		}()
		e := f.journal.Entries(journal.Filter{Operation: operation, Dropped: true})
		if len(e) != 1 || e[0].Handled != http.StatusCreated || e[0].ResourceID == 0 {
			t.Errorf("%s: %+v", operation, e)
		}
	}
}
