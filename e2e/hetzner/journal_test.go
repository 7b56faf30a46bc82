package hetzner

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fakecloudtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

func TestCountsDoNotDecreaseWhenTheJournalDropsOldEntries(t *testing.T) {
	RegisterTestingT(t) // Journal fails the spec if the cloud does not answer
	cloud := fakecloudtest.NewWith(t, fakecloud.Options{JournalSize: 6})
	ask := func(times int) {
		for range times {
			if _, _, err := cloud.Client().Server.GetByID(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	ask(6)
	recent := Journal{of: cloud.Journal()}
	recent.since = recent.Last()
	for n := range 4 {
		if got := recent.Count(journal.Filter{}); got != n {
			t.Errorf("after %d requests: counted %d", n, got)
		}
		if got := recent.Entries(journal.Filter{}); len(got) != n {
			t.Errorf("after %d requests: %v", n, got)
		}
		ask(1)
	}
	if got := recent.Entries(journal.Filter{Since: recent.Last() - 1}); len(got) != 1 {
		t.Errorf("since the last but one: %v", got)
	}
}
