#!/usr/bin/env bash
# Runs golangci-lint in the version pinned here, built from source through the Go module proxy
# and kept in the user's cache, so that nothing has to be installed by hand.
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
for module in . fakecloud kind/nodeimage; do
	(cd "$module" && "$bin" run --allow-parallel-runners "$@") || status=1
done
exit $status
