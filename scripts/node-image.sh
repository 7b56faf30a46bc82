#!/usr/bin/env bash
# Makes sure that Docker has an image for the nodes of kind clusters, and prints its name: kind's own where it can be
# pulled, else one that is built here from the Go module proxy and Debian's packages (once; then it is cached).
#
#	NODE_IMAGE=auto|pull|build|<name> NODE_IMAGE_MIRROR=<URL> scripts/node-image.sh
set -euo pipefail
cd "$(dirname "$0")/.."
echo "the node image: pulled, or built once in minutes, then found at once" >&2
exec scripts/gorun.sh kind/cmd/kindup image "$@"
