package contract_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/contract"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/longtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/testhook"
)

// TestContractHostileRequestsBreakNothing sends ten thousand malformed, truncated, oversized and otherwise hostile
// requests to all routes of a project with some of all resources. The API must refuse them, change nothing, and not answer 5xx, except for
// the 501 of operations that are not modelled. The document must allow each answer.
func TestContractHostileRequestsBreakNothing(t *testing.T) {
	longtest.SkipRace(t)
	t.Parallel()
	document := contract.ForTest(t)
	recorder := contract.NewRecorder(document)
	w := bareWorld(t, nil) // the recorder is for the hostile requests only
	populate(w)
	paths := make(map[*contract.Operation]string)
	for _, op := range document.Operations() {
		paths[op] = "/v1" + existingPath(w, op)
	}
	before, state := everything(w, document), stateOf(w)
	handler := recorder.Middleware(w.handler)
	sent, refused := 0, 0
	for _, part := range longtest.Share(t, 10, 1) {
		attack := contract.Attack{
			Document: document, Seed: 2026 + part, Token: fakecloud.DefaultToken, Operations: document.Operations(),
			Path: func(op *contract.Operation) string { return paths[op] },
		}
		requests, err := attack.Requests()
		if err != nil {
			t.Fatal(err)
		}
		for hostile := range requests {
			response := httptest.NewRecorder()
			handler.ServeHTTP(response, hostile.Request(t.Context()))
			switch {
			case response.Code >= 500 && response.Code != http.StatusNotImplemented:
				t.Errorf("%s: %s %.200s: %d %s", hostile.Why, hostile.Method, hostile.Target, response.Code, response.Body)
			case response.Code < 300 && hostile.Method != http.MethodGet:
				t.Errorf("%s: accepted: %s %.200s: %d %s", hostile.Why, hostile.Method, hostile.Target, response.Code, response.Body)
			case response.Code >= 400:
				refused++
			}
			if sent++; sent%1000 == 0 {
				break
			}
		}
	}
	if err := recorder.Err(); err != nil {
		t.Error(err)
	}
	if stateOf(w) != state {
		t.Error("a request wrote to the cloud")
	}
	if after := everything(w, document); after != before {
		t.Errorf("the cloud has changed: %s", firstDifference(before, after))
	}
	t.Logf("%d requests, %d of them refused, the others read", sent, refused)
}

// stateOf returns the state of the default project. Each write makes a new state.
func stateOf(w *world) *cloud.State {
	w.Helper()
	project, ok := testhook.Core(w.cloud).Project(fakecloud.DefaultProject)
	if !ok {
		w.Fatal("no default project")
	}
	return project.View()
}

// everything returns all lists of the API as one text.
func everything(w *world, document *contract.Document) string {
	w.Helper()
	var all strings.Builder
	for _, op := range document.Operations() {
		if isList(op) {
			answer := w.send(op.Method, existingPath(w, op)+"?per_page=50", nil).Body.String()
			fmt.Fprintf(&all, "%s: %s\n", op.Path, strings.ReplaceAll(answer, "\n", ""))
		}
	}
	return all.String()
}
