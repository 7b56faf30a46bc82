package framework

import (
	"context"
	"crypto/x509"
	"net"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
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

// Faults make a simulated cloud misbehave.
type Faults interface {
	Add(fakecloud.Fault) (fakecloud.Fault, error)
	Get(name string) (fakecloud.FaultStatus, bool)
	Remove(name string) bool
	Await(ctx context.Context, name string, applied uint64) (fakecloud.FaultStatus, error)
}

// site is a cluster, with its cloud, that all specs share.
type site struct {
	// kubeconfig is the path of an administrator's.
	kubeconfig string
	// endpoint and token are the cloud's API, for this host.
	endpoint, token string
	// network is the name of the private network that the nodes are in, "" if they are in none.
	network string
	// dial connects to an address of the cloud from outside of the cluster.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	// outside is the address of such a connection's client, as load balancers see it; "" if it is not known.
	outside string
	// podImage is the image of the pods that specs put behind Services.
	podImage string
	// journal, faults and roots are those of a simulated cloud; on another, journal is empty and the others
	// are nil.
	journal Journal
	faults  Faults
	roots   func(context.Context) (*x509.CertPool, error)
	// ccm is the CCM that runs in the cluster, nil if it is not the suite's to change.
	ccm *podCCM
}

// client returns a client of the cloud with the name of an application.
func (s *site) client(application string) *hcloud.Client {
	return hcloud.NewClient(hcloud.WithEndpoint(s.endpoint), hcloud.WithToken(s.token), hcloud.WithApplication(application, "1"),
		hcloud.WithPollOpts(hcloud.PollOpts{BackoffFunc: hcloud.ConstantBackoff(Polling)}))
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
