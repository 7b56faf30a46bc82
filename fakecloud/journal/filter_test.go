package journal

import (
	"testing"
)

func TestAFilterMatches(t *testing.T) {
	t.Parallel()
	e := Entry{
		Seq: 7, Method: "POST", Route: "/servers/{id}/actions/poweron", Operation: "power_on_server", Path: "/v1/servers/42/actions/poweron", ResourceID: 42,
		Status: 423, ErrorCode: "locked", Client: "hcloud-go/2.52.0 ccm/1", Fault: "f", Project: 2,
	}
	for name, tc := range map[string]struct {
		f    Filter
		want bool
	}{
		"everything":           {Filter{}, true},
		"method in lower case": {Filter{Method: "post"}, true},
		"other method":         {Filter{Method: "GET"}, false},
		"route":                {Filter{Route: e.Route}, true},
		"beginning of a route": {Filter{Route: "/servers/*"}, true},
		"other route":          {Filter{Route: "/servers"}, false},
		"path":                 {Filter{Path: e.Path}, true},
		"other path":           {Filter{Path: "/v1/servers/4"}, false},
		"operation":            {Filter{Operation: "power_on_server"}, true},
		"other operation":      {Filter{Operation: "power_off_server"}, false},
		"resource":             {Filter{ResourceID: 42}, true},
		"other resource":       {Filter{ResourceID: 43}, false},
		"status":               {Filter{Status: 423}, true},
		"other status":         {Filter{Status: 200}, false},
		"code":                 {Filter{ErrorCode: "locked"}, true},
		"other code":           {Filter{ErrorCode: "conflict"}, false},
		"client":               {Filter{Client: "ccm/"}, true},
		"other client":         {Filter{Client: "terraform"}, false},
		"fault":                {Filter{Fault: "f"}, true},
		"other fault":          {Filter{Fault: "g"}, false},
		"project":              {Filter{Project: 2}, true},
		"other project":        {Filter{Project: 1}, false},
		"writes":               {Filter{Writes: true}, true},
		"errors":               {Filter{Errors: true}, true},
		"dropped":              {Filter{Dropped: true}, false},
		"since before":         {Filter{Since: 6}, true},
		"since it":             {Filter{Since: 7}, false},
	} {
		if got := tc.f.Matches(&e); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	if (&Filter{Writes: true}).Matches(&Entry{Seq: 1, Method: "GET"}) {
		t.Error("a GET counts as a write")
	}
	if !(&Filter{Dropped: true, Errors: true}).Matches(&Entry{Seq: 1}) {
		t.Error("an entry without status is not dropped")
	}
}
