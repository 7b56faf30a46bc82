#!/bin/sh
# Looks whether this machine has what a command needs. If not, it says in one sentence what is needed, what was found and what to do.
#
#	scripts/need.sh go      Go in the version of go.mod, and folders that it can write to
#	scripts/need.sh docker  a Docker that answers this user
set -eu

fail() {
	echo "$*" >&2
	exit 1
}

need_go() {
	cd "$(dirname "$0")/.."
	needed=$(awk '$1 == "go" {print $2}' go.mod)
	where="get it at https://go.dev/dl/"
	command -v go >/dev/null || fail "Go $needed or later is needed, and no go is in the PATH: $where"
	[ -n "${HOME:-}" ] || { [ -n "${XDG_CACHE_HOME:-}${GOCACHE:-}" ] && [ -n "$(go env GOMODCACHE)" ]; } ||
		fail "HOME is not set, so that what is compiled has no place: set HOME to a folder that you may write to"
	# An older go that may do so downloads the one that go.mod names.
	found=$(go env GOVERSION GOCACHE GOMODCACHE 2>/dev/null) || found=
	version=${found%%[!a-z0-9.]*} number=${found#go}
	minor=${number#*.} minor=${minor%%[!0-9]*}
	least=${needed#*.} least=${least%%.*}
	case $version in
	devel*) ;;
	go1.*) [ "${minor:-0}" -ge "$least" ] ;;
	*) false ;;
	esac || fail "Go $needed or later is needed, and $(command -v go) is" \
		"$(GOTOOLCHAIN=local go version 2>&1 | head -n 1): $where"
	cache=${XDG_CACHE_HOME:-${HOME:-}/.cache}/ccm-from-scratch
	IFS='
'
	for folder in "$cache" $(echo "$found" | sed 1d); do
		mkdir -p "$folder" 2>/dev/null && [ -w "$folder" ] || fail "$folder cannot be written, where what is compiled and" \
			"downloaded is kept: set HOME to a folder that you may write to"
	done
}

need_docker() {
	command -v docker >/dev/null ||
		fail "Docker is needed, and no docker is in the PATH: get it at https://docs.docker.com/get-docker/"
	if answer=$(docker version 2>&1); then return; fi
	case $answer in
	*"permission denied"*)
		fail "Docker runs, but this user may not talk to it (permission denied): add the user to its group with" \
			"sudo usermod -aG docker \"\$USER\", and log in again"
		;;
	*) fail "Docker is needed, and does not answer: start it. docker version says: $(echo "$answer" | tail -n 1)" ;;
	esac
}

case ${1:-} in
go | docker) "need_$1" ;;
*) fail "usage: scripts/need.sh go|docker" ;;
esac
