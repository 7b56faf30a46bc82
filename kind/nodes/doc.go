// Package nodes makes the cloud's servers nodes: each is a container of a kind
// cluster. It attaches to fakecloud (package fakecloud/hypervisor), does to the containers what
// the cloud's actions do to the servers, and reports containers that start or stop by themselves.
//
// What a server's actions do to its container:
//
//	create_server       nothing, or a look for the container that the server's label names
//	start_server        docker create at the first start, then docker start
//	attach_to_network   what start_server does, if the server is on without a container
//	stop_server         docker kill: the power is cut
//	shutdown_server     systemd is asked to shut down, as by ACPI; the server is off when it has
//	reboot_server       docker restart: systemd is asked, and the container started again
//	reset_server        docker kill, then docker start
//	rebuild_server      the container is removed and made again, user data is run again
//	change_server_type  docker start; what a container may use is not limited
//	delete_server       docker rm, with its volumes
//
// A container that dies makes its server off, one that is started by hand makes it running.
//
// A container has its server's name, and its address is the server's: the private one in the
// network that the cluster's Docker network plays, else the public IPv4, if the cloud takes
// those from that network too. A server with neither is on without a container, until it is attached to the network. A server
// cannot be backed without an image, a free address and room on the host: start_server, or attach_to_network, fails with the
// code resource_unavailable and says why. A server that has another address at its next start gets its container there.
//
// When a container has started for the first time, and its containerd answers, the server's user
// data is run in it (package cloudinit says how much of it); a server without user data joins the
// cluster by itself. No action waits for the join, as in the cloud: a server is running when its power is on. A
// configuration for kubeadm lies ready in every node, so that user data may join with
//
//	kubeadm join --config=/kind/kubeadm.conf
//
// Every 10 seconds, the hypervisor reads the counters of each running container, and reports the server's usage to the cloud,
// for the metrics.
//
// Containers that kind made before become servers by [Adopt].
//
// Left out: images (all nodes run the cluster's node image, whatever the server's is), rescue systems, ISOs,
// snapshots, consoles; disks, cores and memory of server types; interfaces that a server gets or loses while its
// container runs: it keeps its address until it is off; interfaces in other networks; IPv6.
package nodes
