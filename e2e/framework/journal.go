package framework

import (
	. "github.com/onsi/ginkgo/v2"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// Journal is what specs ask about the requests that the cloud has got. On a cloud that keeps none it is
// empty.
type Journal interface {
	Entries(fakecloud.JournalFilter) []fakecloud.JournalEntry
	Count(fakecloud.JournalFilter) int
	Last() uint64
}

// recentJournal is the part of a journal that is newer than an entry. What many specs share keeps the latest
// entries only, so that what is counted from its beginning becomes fewer.
type recentJournal struct {
	Journal
	since uint64
}

func (j recentJournal) Entries(f fakecloud.JournalFilter) []fakecloud.JournalEntry {
	GinkgoHelper()
	f.Since = max(f.Since, j.since)
	return j.Journal.Entries(f)
}

func (j recentJournal) Count(f fakecloud.JournalFilter) int {
	GinkgoHelper()
	f.Since = max(f.Since, j.since)
	return j.Journal.Count(f)
}

// noJournal is that of a cloud that keeps none. A spec that counts requests is skipped when it does.
type noJournal struct{}

func (noJournal) Entries(fakecloud.JournalFilter) []fakecloud.JournalEntry { return nil }
func (noJournal) Last() uint64                                             { return 0 }
func (noJournal) Count(fakecloud.JournalFilter) int {
	Skip("counts the requests to the cloud, which only a simulated cloud tells")
	return 0
}
