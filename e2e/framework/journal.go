package framework

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// Journal is what specs ask about the requests that the cloud has got. On a cloud that keeps none it is
// empty.
type Journal interface {
	Entries(journal.Filter) []journal.Entry
	Count(journal.Filter) int
	Last() uint64
}

// cloudJournal is the journal of a simulated cloud. A question that is not answered fails the spec.
type cloudJournal struct{ journal.Journal }

func (j cloudJournal) Entries(f journal.Filter) []journal.Entry {
	GinkgoHelper()
	entries, err := j.Journal.Entries(context.Background(), f)
	Expect(err).NotTo(HaveOccurred())
	return entries
}

func (j cloudJournal) Count(f journal.Filter) int {
	GinkgoHelper()
	n, err := j.Journal.Count(context.Background(), f)
	Expect(err).NotTo(HaveOccurred())
	return n
}

func (j cloudJournal) Last() uint64 {
	GinkgoHelper()
	seq, err := j.Journal.Last(context.Background())
	Expect(err).NotTo(HaveOccurred())
	return seq
}

// recentJournal is the part of a journal that is newer than an entry. What many specs share keeps the latest
// entries only, so that what is counted from its beginning becomes fewer.
type recentJournal struct {
	Journal
	since uint64
}

func (j recentJournal) Entries(f journal.Filter) []journal.Entry {
	GinkgoHelper()
	f.Since = max(f.Since, j.since)
	return j.Journal.Entries(f)
}

func (j recentJournal) Count(f journal.Filter) int {
	GinkgoHelper()
	f.Since = max(f.Since, j.since)
	return j.Journal.Count(f)
}

// noJournal is that of a cloud that keeps none. A spec that counts requests is skipped when it does.
type noJournal struct{}

func (noJournal) Entries(journal.Filter) []journal.Entry { return nil }
func (noJournal) Last() uint64                           { return 0 }
func (noJournal) Count(journal.Filter) int {
	Skip("counts the requests to the cloud, which only a simulated cloud tells")
	return 0
}
