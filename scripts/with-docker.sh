#!/bin/sh
# Runs a command with a docker in its PATH that can run kind's nodes.
#
#	scripts/with-docker.sh go run ./kind/cmd/kindcloud up
#
# A Docker daemon that lacks CAP_SYS_RESOURCE, as in a sandbox, cannot run privileged containers ("unable to apply caps: operation not
# permitted"). There, and only there, kind/nodeimage/docker-shim comes first in the PATH and asks for everything else that privileged means.
set -eu

# lacks_sys_resource reports whether this host runs a Docker daemon without the capability. A daemon elsewhere, or none that can be seen,
# is taken to be normal.
lacks_sys_resource() {
	proc=${DOCKER_SHIM_PROC:-/proc}
	for comm in "$proc"/[0-9]*/comm; do
		read -r name 2>/dev/null <"$comm" || continue
		[ "$name" = dockerd ] || continue
		bounding=$(awk '/^CapBnd:/ {print $2}' "${comm%/comm}/status") || continue
		[ -n "$bounding" ] && [ $((0x$bounding >> 24 & 1)) = 0 ] && return 0
	done
	return 1
}

# Each node takes about 13 inotify instances of the host's root, and most systems allow 128 in all. Without one, containerd does not see
# its CNI configuration and kube-proxy ends with "too many open files". Root raises the limit until the next boot; anyone else is told.
raise_inotify() {
	limit=${DOCKER_SHIM_PROC:-/proc}/sys/fs/inotify/max_user_instances enough=1024
	[ -r "$limit" ] && read -r now <"$limit" && [ "$now" -lt 512 ] || return 0
	if { echo $enough >"$limit"; } 2>/dev/null; then
		echo "note: fs.inotify.max_user_instances was $now, enough for about $((now / 15)) nodes in all; now it is $enough" >&2
	else
		echo "note: fs.inotify.max_user_instances is $now, enough for about $((now / 15)) nodes in all; for more: sudo sysctl fs.inotify.max_user_instances=$enough" >&2
	fi
}

raise_inotify
if lacks_sys_resource; then
	PATH=$(cd "$(dirname "$0")/../kind/nodeimage" && pwd)/docker-shim:$PATH
	export PATH
	echo "note: the Docker daemon lacks CAP_SYS_RESOURCE; nodes run with every other capability instead of --privileged" >&2
fi
exec "$@"
