package remote_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// TestTheWireFormat uses the control API like a program in another language.
func TestTheWireFormat(t *testing.T) {
	t.Parallel()
	c := fakecloud.New(fakecloud.Options{})
	t.Cleanup(c.Close)
	w := &world{T: t, Cloud: c}
	url := controlURL(t, c)
	first := w.create("first").Server

	send := func(method, path, body string, status int) map[string]any {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
		ok(t, err)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		ok(t, err)
		defer func() { _ = resp.Body.Close() }()
		b, _ := io.ReadAll(resp.Body)
		var out map[string]any
		if err := json.Unmarshal(b, &out); err != nil || resp.StatusCode != status {
			t.Fatalf("%s %s: %d %s (%v), want %d", method, path, resp.StatusCode, b, err, status)
		}
		return out
	}

	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/hypervisors",
		strings.NewReader(`{"name": "wire", "selector": "role=worker", "task_timeout": "1m", "grace": "2s", "ping": "10ms"}`))
	ok(t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	ok(t, err)
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewReader(resp.Body)
	next := func(types ...string) map[string]any {
		t.Helper()
		for {
			line, err := lines.ReadBytes('\n')
			var out map[string]any
			if err != nil || json.Unmarshal(line, &out) != nil {
				t.Fatalf("line %q: %v", line, err)
			}
			for _, typ := range types {
				if out["type"] == typ {
					return out
				}
			}
			if out["type"] != "ping" {
				t.Fatalf("line %s, want one of %v", line, types)
			}
		}
	}
	if m := next("machine")["machine"].(map[string]any); m["server"] != float64(first.ID) || m["name"] != "first" {
		t.Errorf("%v", m)
	}
	next("synced")
	next("ping")

	second := w.create("second")
	task := next("task")["task"].(map[string]any)
	if task["command"] != "create_server" || task["action"] != float64(second.Action.ID) || task["runs"] != false ||
		task["deadline"] == nil {
		t.Errorf("%v", task)
	}
	list := send("GET", "/hypervisors", "", 200)["hypervisors"].([]any)
	if h := list[0].(map[string]any); len(list) != 1 || h["name"] != "wire" || h["connected"] != true || h["selector"] != "role=worker" ||
		h["task_timeout"] != "1m0s" || h["grace"] != "2s" || fmt.Sprint(h["tasks"]) != fmt.Sprint([]any{task["action"]}) {
		t.Errorf("%v", list)
	}
	send("POST", fmt.Sprintf("/hypervisors/wire/tasks/%d", second.Action.ID), `{"error": {"message": "no room"}}`, 200)
	if a, _, err := w.Client().Action.GetByID(t.Context(), second.Action.ID); err != nil || a.ErrorCode != "action_failed" ||
		a.ErrorMessage != "no room" {
		t.Errorf("%+v, %v", a, err)
	}
	send("POST", fmt.Sprintf("/hypervisors/wire/servers/%d", first.ID), `{"running": false}`, 200)
	w.wantStatus(first, "off")

	send("POST", fmt.Sprintf("/hypervisors/wire/tasks/%d", second.Action.ID), `{}`, 410)
	send("POST", "/hypervisors/wire/tasks/x", `{}`, 400)
	send("POST", "/hypervisors/wire/tasks/1", `{"err": 1}`, 400)
	send("POST", "/hypervisors/wire/servers/1", `{"running": true}`, 404)
	send("POST", "/hypervisors/wire/servers/1", `{}`, 400)
	send("POST", "/hypervisors/unknown/tasks/1", `{}`, 409)
	send("POST", "/hypervisors", `{"name": "wire", "grace": 3}`, 400)
	send("DELETE", "/hypervisors/unknown", "", 409)
	send("DELETE", "/hypervisors/wire", "", 200)
	if end := next("end"); !strings.Contains(end["reason"].(string), "detached") {
		t.Errorf("%v", end)
	}
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Errorf("after the end: %q, %v", rest, err)
	}
	if list := send("GET", "/hypervisors", "", 200)["hypervisors"].([]any); len(list) != 0 {
		t.Errorf("%v", list)
	}
}
