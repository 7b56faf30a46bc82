#!/usr/bin/env bash
# A kind cluster that is a Hetzner cluster: up, env, status, load, dev and down (kind/cmd/kindcloud). What up prints on
# standard output is for a shell: eval "$(scripts/up.sh)".
#
#	KIND_NAME=fakecloud KIND_SUBNET=172.30.0.0/16 scripts/up.sh [up|env|status|load|dev|down] [flags, --help]
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
up | env | status | load | dev | down) ;;
*) set -- up "$@" ;;
esac
exec scripts/with-docker.sh scripts/gorun.sh kind/cmd/kindcloud "$@"
