// Package netdev makes a network interface of this machine the cloud's network: a [Binder] gives the
// addresses of load balancers to the interface, a [Router] makes the kernel forward what the routes
// of a network say and nothing else, and [GiveAddress] gives an interface one address, such as that of
// the metadata service.
//
// It is for a container of its own on the network that the servers are on (kind's nodes on Docker's).
// It needs Linux and CAP_NET_ADMIN in the network namespace, which a container gets by
//
//	docker run --user 0 --cap-add NET_ADMIN --sysctl net.ipv4.conf.all.send_redirects=0 …
//
// and neither programs such as ip nor a shell: everything goes over netlink. What is added to the
// kernel is marked (addresses by their label, routes by their table and protocol), so that only what is
// marked is ever removed, also by a successor of a process that was killed.
//
// # What is not modelled
//
// IPv6 is not routed. An address is not probed for other owners before it is taken: the ranges must be
// such that nobody else has their addresses. Who may send through the router is not checked: the
// members of the cloud's network are whoever is on the interface's network.
package netdev
