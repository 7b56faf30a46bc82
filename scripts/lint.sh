#!/usr/bin/env bash
# Checks texts with plain-english.sh and code with golangci-lint. The pinned version of golangci-lint is
# built from source through the Go module proxy and kept in the user's cache: nothing needs to be
# installed by hand.
set -euo pipefail
cd "$(dirname "$0")/.."

version=v2.15.0
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ccm-from-scratch/tools
bin=$cache/golangci-lint-$version-$(go env GOVERSION)

if [ ! -x "$bin" ]; then
	tmp=$(mktemp -d)
	trap 'rm -rf "$tmp"' EXIT
	GOBIN=$tmp GOFLAGS= scripts/progress.sh "compiling golangci-lint $version (once; one to five minutes)" go install -v "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$version"
	mkdir -p "$cache"
	mv "$tmp/golangci-lint" "$bin"
fi
# golangci-lint looks at one module at a time.
status=0
scripts/plain-english.sh || status=1
for module in . fakecloud kind/nodeimage; do
	echo "linting the module $module (minutes the first time; Ctrl-C stops it)" >&2
	# With less garbage collection it takes a quarter less of the processors, and up to twice the memory.
	(cd "$module" && export GOWORK=$([ "$module" = . ] || echo off) && GOGC=${GOGC:-400} "$bin" run --allow-parallel-runners "$@") || status=1
done
exit $status
