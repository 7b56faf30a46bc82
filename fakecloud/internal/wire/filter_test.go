package wire

import (
	"net/url"
	"strings"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

func TestAFilterIsReadFromAQuery(t *testing.T) {
	t.Parallel()
	q, _ := url.ParseQuery("method=post&route=/servers&path=/v1/servers&operation=create_server&resource_id=42&status=201&error_code=x" +
		"&client=c&fault=f&project=3&since=9&writes&errors=true&dropped=false&limit=5")
	f, err := ParseFilter(q, "limit")
	want := journal.Filter{
		Method: "POST", Route: "/servers", Path: "/v1/servers", Operation: "create_server", ResourceID: 42, Status: 201, ErrorCode: "x",
		Client: "c", Fault: "f", Project: 3, Since: 9, Writes: true, Errors: true,
	}
	if err != nil || f != want {
		t.Fatalf("%+v, %v; want %+v", f, err, want)
	}
	for query, say := range map[string]string{
		"status=abc":  "status",
		"since=-1":    "since",
		"writes=oui":  "true or false",
		"methode=GET": "method, operation",
	} {
		q, _ := url.ParseQuery(query)
		if _, err := ParseFilter(q); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %v, want an error that says %q", query, err, say)
		}
	}
}

// FuzzAFilterSurvivesItsQuery checks that Query writes what ParseFilter reads.
func FuzzAFilterSurvivesItsQuery(f *testing.F) {
	f.Add("method=post&route=/servers/*&path=/v1/servers/42&operation=create_server&resource_id=42&status=201&error_code=locked" +
		"&client=a+b&fault=f%26&project=2&since=18446744073709551615&writes&errors=1&dropped=true")
	f.Add("status=0&writes=false&client=")
	f.Fuzz(func(t *testing.T, query string) {
		q, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		want, err := ParseFilter(q)
		if err != nil {
			return
		}
		if got, err := ParseFilter(Query(want)); err != nil || got != want {
			t.Errorf("%+v became %+v, %v", want, got, err)
		}
	})
}
