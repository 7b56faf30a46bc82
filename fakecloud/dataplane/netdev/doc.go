// Package netdev makes a network interface of this machine the cloud's network. A [Binder] adds the
// addresses of load balancers to the interface. A [Router] makes the kernel forward packets by the
// routes of a network only. [GiveLinkLocal] adds the address of the metadata service.
//
// It is made for a separate container in the servers' network, such as Docker's network of kind's nodes.
// It needs Linux and CAP_NET_ADMIN in its network namespace. It uses netlink, so that it needs no shell
// and no programs such as ip.
//
//	docker network create --subnet 172.30.0.0/16 --ip-range 172.30.200.0/24 --gateway 172.30.255.254 cluster
//	docker run --network cluster --ip 172.30.0.1 --user 0 --cap-drop ALL --cap-add NET_ADMIN --cap-add NET_RAW \
//	    --sysctl net.ipv4.conf.all.send_redirects=0 fakecloud:dev --listen 172.30.0.1:4242 \
//	    --reserved 172.30.0.0/24 --reserved 172.30.200.0/24 --data-plane-interface eth0 \
//	    --load-balancer-ipv4 172.30.100.0/24 --router-interface eth0 --metadata 169.254.169.254:80
//
// Docker's own gateway gets another address, so that the router has the first address of the network, as
// in the cloud's networks. NET_RAW is optional: it is for announcing addresses. Servers need routes via
// the router to the routed ranges (10.244.0.0/16), to 169.254.169.254/32, and to the public addresses
// (198.18.0.0/15), including Floating IPs.
//
// The package marks what it adds to the kernel: addresses by their label, routes by their table and
// protocol. It removes only marked addresses and routes, including those of a process that was killed.
//
// # What is not modelled
//
// IPv6 is not routed. An address is not checked for other owners before it is used: the ranges must be
// free. The router forwards for every machine on the interface's network, whether it is a member of the
// cloud's network or not.
package netdev
