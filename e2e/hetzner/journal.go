package hetzner

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// Journal is the log of the requests to the cloud. That of a real cloud is empty.
type Journal interface {
	Entries(journal.Filter) []journal.Entry
	Count(journal.Filter) int
	Last() uint64
}

// cloudJournal is the journal of a simulated cloud. A request without an answer fails the spec.
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

// recentJournal is the part of a journal that is newer than an entry. A journal keeps only the latest entries: a count
// from its beginning could decrease.
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

// noJournal is the journal of a real cloud. It skips a spec that counts requests.
type noJournal struct{}

func (noJournal) Entries(journal.Filter) []journal.Entry { return nil }
func (noJournal) Last() uint64                           { return 0 }
func (noJournal) Count(journal.Filter) int {
	Skip("counts requests: needs a simulated cloud, which records them")
	return 0
}
