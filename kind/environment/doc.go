// Package environment makes a kind cluster that is a Hetzner cluster: the cluster
// of package kind/cluster, fakecloud in a container on its network as
// the cloud, and a cloud-controller-manager in the cluster.
//
// Its parts, in the order of their creation:
//
//   - The nodes' image (cluster.EnsureImage), the images of fakecloud and of the CCM
//     (scripts/image: one static program each, nothing pulled).
//   - The cluster, on a Docker network with fixed addresses.
//   - The cloud, at Network.Router: its routes route, its Floating IPs lead to
//     nodes, its load balancers have addresses of Network.LoadBalancers, it serves
//     metadata at
//     169.254.169.254. Its API and its control API are published on this host's
//     loopback.
//   - A network of the cloud for the Docker network, and a server for each
//     node, with the node's address.
//   - The hypervisor (package kind/nodes), a process in the background of
//     this host: what happens to a server happens to its container. Its log and its process id are in Folder.
//   - The CCM, on the control plane's node.
//
// Left out: servers have no public addresses but Floating IPs, since a Docker network gives a container one address
// only; load balancers therefore reach servers by the private network. Load balancers' addresses
// are reached from the host on Linux only; elsewhere, from a container on the network.
//
// On disk, it keeps only a folder in the user's cache: Open finds the environment of another
// process through Docker.
package environment
