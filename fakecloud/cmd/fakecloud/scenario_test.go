package main

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// curl is a command of a page that sends a request about scenarios.
var curl = regexp.MustCompile(`(?m)^\$ curl (?:-X ([A-Z]+) )?(?:-H Content-Type:application/json -d '([^']*)' )?http://127\.0\.0\.1:4243(/scenarios\S*)`)

// TestThePagesRehearseAnIncident starts the program with a flag of INCIDENTS.md, and sends the requests of both pages in their order.
func TestThePagesRehearseAnIncident(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"README.md", "INCIDENTS.md"} {
		text := must(os.ReadFile(filepath.Join("..", "..", page)))(t)
		p := start(t, nil)
		commands := curl.FindAllStringSubmatch(string(text), -1)
		if len(commands) != 3 {
			t.Errorf("%s: %d commands, want a start, a list and an end", page, len(commands))
		}
		for _, c := range commands {
			method := c[1]
			if method == "" && c[2] != "" {
				method = http.MethodPost
			}
			req := must(http.NewRequestWithContext(t.Context(), method, p.control+c[3], strings.NewReader(c[2])))(t)
			req.Header.Set("Content-Type", "application/json")
			resp := must(http.DefaultClient.Do(req))(t)
			_ = resp.Body.Close()
			if resp.StatusCode >= 300 {
				t.Errorf("%s: %s: %s", page, c[0], resp.Status)
			}
		}
		if all := get(t, p.control+"/scenarios"); !strings.Contains(all, `"running": []`) {
			t.Errorf("%s: a scenario runs: %s", page, all)
		}
	}
	p := start(t, nil, "--scenario", "sold-out=cx23@fsn1", "--scenario", "limit-servers")
	if all := get(t, p.control+"/scenarios"); !strings.Contains(all, "Server type cx23 is sold out in fsn1.") || !strings.Contains(all, `"id": 2`) {
		t.Errorf("after a start with two scenarios: %s", all)
	}
}
