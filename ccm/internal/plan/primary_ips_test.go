package plan

import (
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

func TestAPrimaryIPIsNamedByItsIDOrItsName(t *testing.T) {
	t.Parallel()
	all := []*hcloud.PrimaryIP{{ID: 7, Name: "edge"}, {ID: 8, Name: "7"}, {ID: 9, Name: "spare"}}
	for name, want := range map[string]int64{"7": 7, "8": 8, "edge": 7, "spare": 9, "10": 0, "": 0} {
		if got := FindPrimaryIP(all, name); (got == nil) != (want == 0) || got != nil && got.ID != want {
			t.Errorf("%q: %+v, want %d", name, got, want)
		}
	}
}
