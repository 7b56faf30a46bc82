// Package cluster makes a kind cluster with a network like Hetzner's: a
// Docker network with a fixed subnet, nodes with fixed addresses, no overlay,
// kubelets that wait for a cloud-controller-manager, and pods of different nodes
// that reach each other only through the network's router.
//
// It reproduces these properties of a cluster on Hetzner servers in a private network:
//
//   - Nodes run with cloud-provider: external and without a provider ID. They keep
//     the taint node.cloudprovider.kubernetes.io/uninitialized until a CCM lifts it.
//   - A packet to another node's pods is sent to the network's router
//     (Network.Router), with the pod's own source address; the router knows the
//     routes that exist in the cloud. No router answers at that
//     address until the cloud runs, so pods of different nodes do not reach each other before.
//   - 169.254.169.254, the address of the metadata service, lies behind the router too.
//   - Packets leave the pod network under the node's address.
//
// Left out: IPv6; several control planes (kind would need its load
// balancer's image); rootless Docker and user namespaces for nodes that join
// later; CNI plugins other than ptp.
//
// kind does the work through its Go API; Docker is used through its command
// line, as kind does. On disk, it keeps only a kubeconfig: Open finds a cluster of
// another process by labels in Docker.
//
// If the host's Docker cannot run privileged containers, scripts/with-docker.sh puts another docker
// into PATH that works there.
package cluster
