#!/usr/bin/env bash
# Tidies the go.mod of each module. That of the root names a release of fakecloud: it is tidied with the fakecloud of this
# checkout, which has no checksum in go.sum, since that would change with each line.
set -euo pipefail
cd "$(dirname "$0")/.."
proxy=$(mktemp -d)
trap 'rm -rf "$proxy"' EXIT
eval "$(GOFLAGS= go run ./scripts/modproxy "$proxy")"
for module in . fakecloud kind/nodeimage scripts/chart scripts/crds scripts/dev-env; do
	echo "go mod tidy in $module" >&2
	(cd "$module" && go mod tidy)
done
grep -v '^github.com/ccm-from-scratch/' go.sum >"$proxy/go.sum"
cat "$proxy/go.sum" >go.sum
