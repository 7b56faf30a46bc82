package framework

import (
	"context"
	"net"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// sharedCluster is a cluster with a cloud that all specs share.
type sharedCluster struct {
	// kubeconfig is the path of an administrator's kubeconfig.
	kubeconfig string
	// endpoint and token are the cloud's API, for this host.
	endpoint, token string
	// network is the name of the private network that the nodes are in, "" if they are in none.
	network string
	// nodes are the names of the nodes that can be targets and were there at first, if specs have only these and their own
	// as targets; else nil.
	nodes []string
	// dial connects to an address of the cloud from outside of the cluster.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	// outside is the address of such a connection's client, as load balancers see it; "" if it is not known.
	outside string
	// podImage is the image of the pods that specs put behind Services.
	podImage string
	// control is that of a simulated cloud, nil for a real one.
	control control
	// machineController reports whether the machine controller runs in the cluster.
	machineController bool
	// hypervisorLog returns the log of what makes servers into nodes, nil if that is not a process of ours.
	hypervisorLog func() (string, error)
	// exec runs a command on a node, nil if the suite may not do so.
	exec func(ctx context.Context, node string, command ...string) error
	// restartCloud kills the cloud's program and starts it again, nil if the suite may not do so.
	restartCloud func(context.Context) error
	// ccm is the CCM that runs in the cluster, nil if the suite may not change it.
	ccm *podCCM
}

// client returns a client of the cloud with the name of an application.
func (s *sharedCluster) client(application string) *hcloud.Client {
	return hcloud.NewClient(hcloud.WithEndpoint(s.endpoint), hcloud.WithToken(s.token), hcloud.WithApplication(application, "1"),
		hcloud.WithPollOpts(hcloud.PollOpts{BackoffFunc: hcloud.ConstantBackoff(Polling)}))
}
