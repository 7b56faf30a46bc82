package requestlog

import (
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

func TestAFilterMatches(t *testing.T) {
	t.Parallel()
	e := journal.Entry{
		Seq: 7, Method: "POST", Route: "/servers/{id}/actions/poweron", Operation: "power_on_server",
		Path: "/v1/servers/42/actions/poweron", ResourceID: 42,
		Status: 423, ErrorCode: "locked", Client: "hcloud-go/2.52.0 ccm/1", Fault: "f", Project: 2,
	}
	for name, tc := range map[string]struct {
		f    journal.Filter
		want bool
	}{
		"everything":           {journal.Filter{}, true},
		"method in lower case": {journal.Filter{Method: "post"}, true},
		"other method":         {journal.Filter{Method: "GET"}, false},
		"route":                {journal.Filter{Route: e.Route}, true},
		"beginning of a route": {journal.Filter{Route: "/servers/*"}, true},
		"other route":          {journal.Filter{Route: "/servers"}, false},
		"path":                 {journal.Filter{Path: e.Path}, true},
		"other path":           {journal.Filter{Path: "/v1/servers/4"}, false},
		"operation":            {journal.Filter{Operation: "power_on_server"}, true},
		"other operation":      {journal.Filter{Operation: "power_off_server"}, false},
		"resource":             {journal.Filter{ResourceID: 42}, true},
		"other resource":       {journal.Filter{ResourceID: 43}, false},
		"status":               {journal.Filter{Status: 423}, true},
		"other status":         {journal.Filter{Status: 200}, false},
		"code":                 {journal.Filter{ErrorCode: "locked"}, true},
		"other code":           {journal.Filter{ErrorCode: "conflict"}, false},
		"client":               {journal.Filter{Client: "ccm/"}, true},
		"other client":         {journal.Filter{Client: "terraform"}, false},
		"fault":                {journal.Filter{Fault: "f"}, true},
		"other fault":          {journal.Filter{Fault: "g"}, false},
		"project":              {journal.Filter{Project: 2}, true},
		"other project":        {journal.Filter{Project: 1}, false},
		"writes":               {journal.Filter{Writes: true}, true},
		"errors":               {journal.Filter{Errors: true}, true},
		"dropped":              {journal.Filter{Dropped: true}, false},
		"since before":         {journal.Filter{Since: 6}, true},
		"since it":             {journal.Filter{Since: 7}, false},
	} {
		if got := matches(&tc.f, &e); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	if matches(&journal.Filter{Writes: true}, &journal.Entry{Seq: 1, Method: "GET"}) {
		t.Error("a GET counts as a write")
	}
	if !matches(&journal.Filter{Dropped: true, Errors: true}, &journal.Entry{Seq: 1}) {
		t.Error("an entry without status is not dropped")
	}
}
