// Package netdev makes a network interface of this machine the cloud's network: a [Binder] gives the
// addresses of load balancers to the interface, a [Router] makes the kernel forward what the routes
// of a network say and nothing else, and [GiveAddress] gives an interface one address, such as that of
// the metadata service.
//
// It is for a container of its own on the network that the servers are on (kind's nodes on Docker's).
// It needs Linux and CAP_NET_ADMIN in its network namespace, and neither programs such as ip nor a
// shell: everything goes over netlink.
//
//	docker network create --subnet 172.30.0.0/16 --ip-range 172.30.200.0/24 --gateway 172.30.255.254 cluster
//	docker run --network cluster --ip 172.30.0.1 --user 0 --cap-drop ALL --cap-add NET_ADMIN --cap-add NET_RAW \
//	    --sysctl net.ipv4.conf.all.send_redirects=0 fakecloud:dev --listen 172.30.0.1:4242 \
//	    --reserved 172.30.0.0/24 --reserved 172.30.200.0/24 --public-ipv4 172.30.64.0/18 \
//	    --data-plane-interface eth0 --load-balancer-ipv4 172.30.100.0/24 --router-interface eth0 \
//	    --metadata 169.254.169.254:80
//
// With Docker's own gateway out of the way, the router has the first address of the network, as the
// cloud's networks have it. NET_RAW is for announcing addresses and may be missing. Servers need routes
// via the router: to what is routed (10.244.0.0/16) and to 169.254.169.254/32.
//
// What is added to the kernel is marked (addresses by their label, routes by their table and
// protocol), so that only what is marked is ever removed, also by a successor of a process that was
// killed.
//
// # What is not modelled
//
// IPv6 is not routed. An address is not probed for other owners before it is taken: the ranges must be
// such that nobody else has their addresses. Who may send through the router is not checked: the
// members of the cloud's network are whoever is on the interface's network.
package netdev
