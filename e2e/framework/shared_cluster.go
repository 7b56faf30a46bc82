package framework

import (
	"context"
	"crypto/x509"
	"net"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
)

// sharedCluster is a cluster, with its cloud, that all specs share.
type sharedCluster struct {
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
	faults  fault.Rules
	roots   func(context.Context) (*x509.CertPool, error)
	// ccm is the CCM that runs in the cluster, nil if it is not the suite's to change.
	ccm *podCCM
}

// client returns a client of the cloud with the name of an application.
func (s *sharedCluster) client(application string) *hcloud.Client {
	return hcloud.NewClient(hcloud.WithEndpoint(s.endpoint), hcloud.WithToken(s.token), hcloud.WithApplication(application, "1"),
		hcloud.WithPollOpts(hcloud.PollOpts{BackoffFunc: hcloud.ConstantBackoff(Polling)}))
}
