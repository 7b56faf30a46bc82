#!/bin/sh
# A kind cluster that is a Hetzner cluster: up, env, status, load, dev and down (kind/cmd/kindcloud). What up prints on
# standard output is for a shell: eval "$(scripts/up.sh)".
#
#	KIND_NAME=fakecloud KIND_SUBNET=172.30.0.0/16 scripts/up.sh [up|env|status|load|dev|down] [flags, --help]
set -eu
cd "$(dirname "$0")/.."
case ${1:-} in
up | env | status | load | dev | down) ;;
*) set -- up "$@" ;;
esac
case $* in
load)
	echo "no image is named, such as with make load IMAGE=my-ccm:dev: name one that Docker has" >&2
	exit 2
	;;
env | *" -h"* | *" --help"*) ;;
*) scripts/need.sh docker ;;
esac
exec scripts/with-docker.sh scripts/gorun.sh kind/cmd/kindcloud "$@"
