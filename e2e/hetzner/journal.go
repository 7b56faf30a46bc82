package hetzner

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// Journal is the log of the requests to the cloud. That of a real cloud is empty. A request without an answer fails the spec.
type Journal struct {
	of journal.Journal // nil of a real cloud
	// since is the latest entry before the spec. The cloud keeps only the latest entries: a count from the beginning could decrease.
	since uint64
}

// Entries returns the entries that match, oldest first.
func (j Journal) Entries(f journal.Filter) []journal.Entry {
	GinkgoHelper()
	if j.of == nil {
		return nil
	}
	f.Since = max(f.Since, j.since)
	entries, err := j.of.Entries(context.Background(), f)
	Expect(err).NotTo(HaveOccurred())
	return entries
}

// Count returns the number of entries that match. On a real cloud, it skips the spec.
func (j Journal) Count(f journal.Filter) int {
	GinkgoHelper()
	if j.of == nil {
		Skip("counts requests: needs a simulated cloud, which records them")
	}
	f.Since = max(f.Since, j.since)
	n, err := j.of.Count(context.Background(), f)
	Expect(err).NotTo(HaveOccurred())
	return n
}

// Last returns the number of the latest entry.
func (j Journal) Last() uint64 {
	GinkgoHelper()
	if j.of == nil {
		return 0
	}
	seq, err := j.of.Last(context.Background())
	Expect(err).NotTo(HaveOccurred())
	return seq
}
