#!/bin/bash
# The part of a pod network that each node does for itself, on a network whose
# router knows the way to every node's pods. Run at every start of the node (its
# routes are lost when its container stops) and at every start of the kubelet (a
# Node that was deleted and registers again may get another pod CIDR).
#
# CLUSTER_CIDR, SERVICE_CIDR, ROUTER, METADATA and PUBLIC come from /etc/default/pod-network.
set -euo pipefail

# Other nodes' pods, the metadata service and Floating IPs lie behind the router.
# Nothing needs to answer there yet.
for range in "$CLUSTER_CIDR" "$METADATA" "$PUBLIC"; do
	ip route replace "$range" via "$ROUTER"
done

# The node IPAM controller says which part of the pods' range is this node's.
kubeconfig=/etc/kubernetes/kubelet.conf
cidr=
until [ -n "$cidr" ]; do
	if [ -f "$kubeconfig" ]; then
		cidr=$(kubectl --kubeconfig="$kubeconfig" --request-timeout=5s get node "$(hostname)" \
			-o 'jsonpath={.spec.podCIDR}' 2>/dev/null) || cidr=
	fi
	[ -n "$cidr" ] || sleep 1
done

# ptp gives each pod a route of its own. A packet to an address of this node that
# no pod has must end here, or it would travel to the router and back until its
# TTL ends.
ip route replace unreachable "$cidr"

# What leaves the pod network does so under the node's address. ptp's own ipMasq
# would hide pods from each other.
iptables -w -t nat -N POD-NETWORK 2>/dev/null || iptables -w -t nat -F POD-NETWORK
iptables -w -t nat -A POD-NETWORK -d "$CLUSTER_CIDR" -j RETURN
iptables -w -t nat -A POD-NETWORK -j MASQUERADE
iptables -w -t nat -C POSTROUTING -s "$CLUSTER_CIDR" -j POD-NETWORK 2>/dev/null ||
	iptables -w -t nat -A POSTROUTING -s "$CLUSTER_CIDR" -j POD-NETWORK

# kube-proxy has replaced the addresses of Services before. What is left is for a port that no Service has. It would leave
# the host, and whatever answers there would look like the Service.
for chain in FORWARD OUTPUT; do
	iptables -w -C "$chain" -d "$SERVICE_CIDR" -j REJECT 2>/dev/null || iptables -w -A "$chain" -d "$SERVICE_CIDR" -j REJECT
done

# Last, for the kubelet says that the node is ready as soon as this file is there.
# The addresses that are in use are noted in /run, which is empty after a restart
# like the set of pods.
mkdir -p /etc/cni/net.d
cat >/etc/cni/net.d/.pod-network <<EOF
{
  "cniVersion": "1.0.0",
  "name": "pod-network",
  "plugins": [
    {
      "type": "ptp",
      "mtu": $(cat /sys/class/net/eth0/mtu),
      "ipMasq": false,
      "ipam": {
        "type": "host-local",
        "dataDir": "/run/pod-network",
        "ranges": [[{"subnet": "$cidr"}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
EOF
mv /etc/cni/net.d/.pod-network /etc/cni/net.d/10-pod-network.conflist
echo "this node's pods have $cidr of $CLUSTER_CIDR; others are reached through $ROUTER"
