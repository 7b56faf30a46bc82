#!/usr/bin/env bash
# Runs a command with a docker in its PATH that can run kind's nodes.
#
#	scripts/with-docker.sh go run ./kind/cmd/kindup up
#
# On a normal host that is the docker that is there, and this script does nothing
# but run the command. Where the Docker daemon itself lacks CAP_SYS_RESOURCE, as
# in a sandbox, it cannot run privileged containers ("unable to apply caps:
# operation not permitted"); there, and only there, scripts/docker-shim comes
# first in PATH, which asks for everything else that privileged means.
set -euo pipefail

# lacks_sys_resource says whether this host runs a Docker daemon without the
# capability. A daemon elsewhere, or none that can be seen, is taken to be normal.
lacks_sys_resource() {
	local proc=${DOCKER_SHIM_PROC:-/proc} comm name bounding
	for comm in "$proc"/[0-9]*/comm; do
		read -r name 2>/dev/null <"$comm" || continue
		[ "$name" = dockerd ] || continue
		bounding=$(awk '/^CapBnd:/ {print $2}' "${comm%/comm}/status") || continue
		[ -n "$bounding" ] && ((((16#$bounding >> 24) & 1) == 0)) && return 0
	done
	return 1
}

if lacks_sys_resource; then
	PATH=$(cd "$(dirname "$0")" && pwd)/docker-shim:$PATH
	export PATH
	echo "note: the Docker daemon lacks CAP_SYS_RESOURCE; nodes run with every other capability instead of --privileged" >&2
fi
exec "$@"
