#!/usr/bin/env bash
# A kind cluster that is a Hetzner cluster: up, env, dev and down (kind/cmd/kindcloud). What up prints on
# standard output is for a shell: eval "$(scripts/up.sh)".
#
#	KIND_NAME=fakecloud KIND_SUBNET=172.30.0.0/16 scripts/up.sh [up|env|dev|down] [flags, --help]
set -euo pipefail
cd "$(dirname "$0")/.."
command=up
case ${1:-} in
up | env | dev | down)
	command=$1
	shift
	;;
esac
# A file of its own, and not go run's: the hypervisor stays in the background.
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ccm-from-scratch/kind
mkdir -p "$cache"
program=$(mktemp -d "$cache/program.XXXXXX")
trap 'rm -rf "$program"' EXIT
scripts/progress.sh "compiling kindcloud" go build -v -o "$program/kindcloud" ./kind/cmd/kindcloud
scripts/with-docker.sh "$program/kindcloud" "$command" "$@"
