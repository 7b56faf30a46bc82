package suite

import (
	"strings"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
)

func TestASpecPassesBothFilters(t *testing.T) {
	t.Parallel()
	for want, filters := range map[string][2]string{
		"":                           {"", ""},
		"node":                       {"node", ""},
		"!route":                     {"", "!route"},
		"(node || fault) && (!slow)": {"node || fault", "!slow"},
	} {
		if got := both(filters[0], filters[1]); got != want {
			t.Errorf("%v: got %s, want %s", filters, got, want)
		}
	}
}

func TestACCMIsDescribedOnce(t *testing.T) {
	err := Config{File: "ccm.yaml", CCM: framework.CCMDescription{Name: "a"}}.configure()
	if err == nil || !strings.Contains(err.Error(), "described twice") {
		t.Errorf("got %v", err)
	}
}
