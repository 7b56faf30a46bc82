package contract

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/longtest"
)

func attack(t *testing.T, seed uint64) Attack {
	t.Helper()
	document := ForTest(t)
	return Attack{
		Document: document, Seed: seed, Token: "secret", Operations: document.Operations(),
		Path: func(op *Operation) string { return fillPath(op, "42") },
	}
}

// collect returns the first n hostile requests.
func collect(t *testing.T, a Attack, n int) []Hostile {
	t.Helper()
	requests, err := a.Requests()
	if err != nil {
		t.Fatal(err)
	}
	var all []Hostile
	for hostile := range requests {
		if all = append(all, hostile); len(all) == n {
			break
		}
	}
	return all
}

func TestHostileRequestsAreTheSameForTheSameSeed(t *testing.T) {
	longtest.SkipRace(t)
	t.Parallel()
	first, second, other := collect(t, attack(t, 1), 300), collect(t, attack(t, 1), 300), collect(t, attack(t, 2), 300)
	differ := 0
	for i := range first {
		if first[i].Target != second[i].Target || !bytes.Equal(first[i].Body, second[i].Body) {
			t.Fatalf("request %d differs: %s and %s", i, first[i].Why, second[i].Why)
		}
		if first[i].Why != other[i].Why {
			differ++
		}
	}
	if differ == 0 {
		t.Error("another seed gave the same requests")
	}
}

func TestNoServerMayAcceptAHostileRequest(t *testing.T) {
	longtest.SkipRace(t)
	t.Parallel()
	a := attack(t, 3)
	kinds := make(map[string]int)
	for _, hostile := range collect(t, a, 3000) {
		kind, _, _ := strings.Cut(hostile.Why, ":")
		kinds[kind]++
		request := hostile.Request(t.Context())
		op := a.Document.Match(request.Method, request.URL.Path)
		authorized := request.Header.Get("Authorization") == "Bearer "+a.Token
		exists := op != nil && hostile.Target == a.Path(op)
		if !authorized || !exists || request.Method == http.MethodGet || len(hostile.Body) > 1<<20 {
			continue
		}
		if kind == "number" {
			continue // the document does not bound every integer, for example ports
		}
		if a.Document.ValidateRequest(op, hostile.Body) == nil {
			t.Errorf("%s: the document allows the request: %s %s %s", hostile.Why, hostile.Method, hostile.Target, hostile.Body)
		}
	}
	for _, attack := range attacks {
		if kinds[attack.name] == 0 {
			t.Errorf("no request of this kind: %s", attack.name)
		}
	}
	t.Logf("%v", kinds)
}

func TestAHostileRequestBreaksOff(t *testing.T) {
	t.Parallel()
	request := Hostile{Method: "POST", Target: "/v1/servers", Body: []byte(`{"na`), BreaksOff: true}.Request(t.Context())
	body, err := io.ReadAll(request.Body)
	if string(body) != `{"na` || !errors.Is(err, io.ErrUnexpectedEOF) || request.ContentLength != 5 {
		t.Errorf("got %q, %v, length %d", body, err, request.ContentLength)
	}
	if request := (Hostile{Method: "GET", Target: "/v1/servers/%zz?%zz"}).Request(t.Context()); request.URL.Path != "/v1/servers/%zz" ||
		request.URL.RawQuery != "%zz" {
		t.Errorf("a malformed target became %#v", request.URL)
	}
	if _, err := (Attack{Document: ForTest(t)}).Requests(); err == nil {
		t.Error("an attack without operations is accepted")
	}
}

// FuzzValidateResponse searches an answer that makes the checker panic.
func FuzzValidateResponse(f *testing.F) {
	document := ForTest(f)
	f.Add("get_server", 200, `{"server": {"id": 1}}`)
	f.Add("list_networks", 200,
		`{"networks": [], "meta": {"pagination": {"page": 1, "per_page": 25, "previous_page": null, "next_page": null, "last_page": 1, "total_entries": 0}}}`)
	f.Add("get_action", 200,
		`{"action": {"id": 1, "command": "c", "status": "running", "progress": 1e99, "started": "", "finished": null, "resources": [], "error": null}}`)
	f.Add("get_action", 404, `{"error": {"code": "not_found", "message": "m", "details": null}}`)
	f.Add("", 422, `{"error": {"code": "invalid_input", "message": "m", "details": {"fields": [{"name": "a", "messages": [1]}]}}}`)
	f.Add("list_load_balancers", 200, `{"load_balancers": [{"targets": [{"type": {}}]}]}`)
	f.Fuzz(func(_ *testing.T, id string, status int, body string) {
		_ = document.ValidateResponse(document.Operation(id), status, headers(), []byte(body))
	})
}
