package gone

import (
	"strings"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		c    Case
		want Verdict
		text string
	}{
		"the first answer":          {Case{Known: 9, Missing: 1, Recognised: true}, Doubtful, "for 10s"},
		"a second one, too soon":    {Case{Known: 9, Missing: 1, For: Again - 1}, Doubtful, "for 10s"},
		"a second one":              {Case{Known: 9, Missing: 1, For: Again}, Gone, "shows 8 of the cluster's 9 servers, and not server 1"},
		"two of three":              {Case{Known: 3, Missing: 2, For: Again}, Gone, ""},
		"three of nine":             {Case{Known: 9, Missing: 3, For: Hold - 1}, Doubtful, "for 5m0s"},
		"three of nine, later":      {Case{Known: 9, Missing: 3, For: Hold}, Gone, ""},
		"three of ten":              {Case{Known: 10, Missing: 3, For: Again}, Gone, ""},
		"all, with another token":   {Case{Known: 2, Missing: 2, For: time.Hour}, Doubtful, "another project"},
		"all, with the known token": {Case{Known: 2, Missing: 2, Recognised: true, For: Hold - 1}, Doubtful, "for 5m0s"},
		"all, as was asked":         {Case{Known: 2, Missing: 2, Recognised: true, Asked: true, For: Again}, Gone, ""},
		"asked with another token":  {Case{Known: 2, Missing: 2, Asked: true, For: time.Hour}, Doubtful, "another project"},
		"all, later":                {Case{Known: 2, Missing: 2, Recognised: true, For: Hold}, Gone, ""},
		"nothing is known":          {Case{For: Hold - 1}, Doubtful, "for 5m0s"},
	} {
		tc.c.Name, tc.c.Kind = "server 1", "servers"
		v := tc.c.Judge()
		if v.Verdict != tc.want || !strings.Contains(v.Evidence, tc.text) || (v.Verdict == Doubtful) != (v.Wait > 0) {
			t.Errorf("%s: %v: %+v, want %v with %q", name, v.Verdict, v, tc.want, tc.text)
		}
	}
}
