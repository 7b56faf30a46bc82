#!/bin/sh
# A kind cluster that is a Hetzner cluster: up, env, status, load, dev and down (kind/cmd/kindcloud). What up prints on
# standard output is for a shell: eval "$(scripts/up.sh)".
#
#	KIND_NAME=fakecloud KIND_SUBNET=172.30.0.0/16 scripts/up.sh [up|env|status|load|dev|down] [flags, --help]
set -eu
cd "$(dirname "$0")/.."
scripts/need.sh go
# The usual mistakes, before anything is compiled; kind/environment checks the rest.
wrong() {
	echo "$1" >&2
	exit 2
}
case ${KIND_NAME:-x} in
*[!a-z0-9-]*) wrong "KIND_NAME=\"$KIND_NAME\": must be at most 40 lower-case letters, digits and hyphens, such as team-2" ;;
esac
case ${KIND_SUBNET:-0.0.0.0/16} in
*.*.*.*/16) ;;
*) wrong "KIND_SUBNET=$KIND_SUBNET: must be an IPv4 /16, such as 172.30.0.0/16" ;;
esac
case ${1:-} in
up | env | status | load | dev | down) ;;
*) set -- up "$@" ;;
esac
case $* in
load) wrong "no image is named, such as with make load IMAGE=my-ccm:dev: name one that Docker has" ;;
env | *" -h"* | *" --help"*) ;;
*) scripts/need.sh docker ;;
esac
exec scripts/with-docker.sh scripts/gorun.sh kind/cmd/kindcloud "$@"
