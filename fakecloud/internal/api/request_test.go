package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// A malformed filter must not be ignored.
func TestAMalformedQueryIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.addKeys(t, "a", "b")
	for query, field := range map[string]string{
		"name=%zz":           "name",
		"per_page=1&name=%2": "name",
		"label_selector=a;b": "label_selector",
		"%zz=1":              "%zz",
	} {
		a := f.do(t, "one", http.MethodGet, "/v1/ssh_keys?"+query, "")
		if a.status != http.StatusUnprocessableEntity || a.code() != "invalid_input" || len(a.SSHKeys) != 0 {
			t.Errorf("%s: %d %s with %d keys, want 422 invalid_input", query, a.status, a.code(), len(a.SSHKeys))
			continue
		}
		fields, _ := json.Marshal(a.Error.Details["fields"])
		if !strings.Contains(string(fields), fmt.Sprintf(`"name":%q`, field)) {
			t.Errorf("%s: fields %s, want %q", query, fields, field)
		}
	}
}

func TestOnlyOneFormOfAnIDIsAccepted(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.addKeys(t, "a")
	id := f.do(t, "one", http.MethodGet, "/v1/ssh_keys", "").SSHKeys[0].ID
	for _, text := range []string{"+%d", "00%d", "-%d", "%%20%d", "%d.0", "%de0", "0x%x"} {
		path := "/v1/ssh_keys/" + fmt.Sprintf(text, id)
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete} {
			if a := f.do(t, "one", method, path, ""); a.status != http.StatusNotFound || a.code() != "not_found" {
				t.Errorf("%s %s: %d %s, want 404 not_found", method, path, a.status, a.code())
			}
		}
	}
	for _, query := range []string{"id=%2B1", "id=01", "id=0", "id=-1"} {
		if a := f.do(t, "one", http.MethodGet, "/v1/actions?"+query, ""); a.code() != "invalid_input" {
			t.Errorf("GET /actions?%s: %d %s, want invalid_input", query, a.status, a.code())
		}
	}
	body := `{"name": "s", "server_type": "cx23", "image": "debian-13", "ssh_keys": ["00%d"]}`
	if a := f.do(t, "one", http.MethodPost, "/v1/servers", fmt.Sprintf(body, id)); a.code() != "invalid_input" {
		t.Errorf("ssh_keys with leading zeros: %d %s, want invalid_input", a.status, a.code())
	}
	if a := f.do(t, "one", http.MethodGet, fmt.Sprintf("/v1/ssh_keys/%d", id), ""); a.status != http.StatusOK {
		t.Errorf("the id itself: %d", a.status)
	}
}

// The header has the query three times. Many clients and proxies refuse long headers.
func TestTheLinkHeaderIsBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.addKeys(t, "a", "b", "c")
	list := func(selector string) string {
		a := f.do(t, "one", http.MethodGet, "/v1/ssh_keys?page=2&per_page=1&label_selector="+url.QueryEscape(selector), "")
		if a.status != http.StatusOK || *a.Meta.Pagination.NextPage != 3 {
			t.Errorf("%d %+v", a.status, a.Meta)
		}
		return a.header.Get("Link")
	}
	if link := list("!other"); strings.Count(link, "label_selector=%21other") != 3 {
		t.Errorf("Link of a short query: %s", link)
	}
	if link := list("parity notin (" + strings.Repeat("x", 60) + strings.Repeat(","+strings.Repeat("y", 60), 900) + ")"); link != "" {
		t.Errorf("Link of a long query: %d bytes", len(link))
	}
}

// Pages of lists without filters are cached until the list changes.
func TestACachedPageIsThatOfTheRequest(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	for i, add := range []string{"a", "b"} {
		f.addKeys(t, add)
		for _, host := range []string{"one.example", "two.example"} {
			for range 3 {
				all := f.do(t, "one", http.MethodGet, "http://"+host+"/v1/ssh_keys?per_page=1", "")
				if len(all.SSHKeys) != 1 || *all.Meta.Pagination.TotalEntries != i+1 ||
					!strings.Contains(all.header.Get("Link"), "<http://"+host+"/v1/ssh_keys?") {
					t.Errorf("page 1 of %d keys at %s: %+v, %s", i+1, host, all.Meta, all.header.Get("Link"))
				}
				named := f.do(t, "one", http.MethodGet, "http://"+host+"/v1/ssh_keys?per_page=1&name="+add, "")
				if len(named.SSHKeys) != 1 || named.SSHKeys[0].Name != add {
					t.Errorf("the key %s at %s: %+v", add, host, named.SSHKeys)
				}
			}
		}
	}
}
