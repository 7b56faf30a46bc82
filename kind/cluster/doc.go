// Package cluster makes a kind cluster whose network is a Hetzner network's: a
// Docker network with a fixed subnet, nodes with fixed addresses, no overlay,
// kubelets that wait for a cloud-controller-manager, and pods of different nodes
// that reach each other only through the network's router.
//
// What it reproduces of a cluster on Hetzner servers in a private network:
//
//   - Nodes run with cloud-provider: external and without a provider ID. They keep
//     the taint node.cloudprovider.kubernetes.io/uninitialized until a CCM lifts it.
//   - A packet to another node's pods is sent to the network's router
//     (Network.Router), with the pod's own source address; the router knows the
//     routes that exist in the cloud. No router answers at that
//     address until the cloud runs, so pods of different nodes do not reach each other before.
//   - 169.254.169.254, where the metadata service is, lies behind the router too.
//   - What leaves the pod network does so under the node's address.
//
// What it leaves out: IPv6; several control planes (kind would need its load
// balancer's image); rootless Docker and user namespaces for nodes that join
// later; CNI plugins other than ptp.
//
// kind does the work through its Go API; Docker is used through its command
// line, as kind does. Nothing is kept on disk but a kubeconfig: a cluster that
// another process made is found by labels in Docker (Open).
//
// A host whose Docker cannot run privileged containers needs scripts/with-docker.sh, which puts a docker that can be used
// there into PATH.
package cluster
