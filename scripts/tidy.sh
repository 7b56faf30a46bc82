#!/usr/bin/env bash
# Tidies the go.mod of modules: scripts/tidy.sh FOLDER… That of the root names a release of fakecloud: it is tidied with the
# fakecloud of this checkout, which has no checksum in go.sum, since that would change with each line.
set -euo pipefail
cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
settings=$(go run ./scripts/modproxy "$tmp")
eval "$settings"
for module in "$@"; do
	echo "go mod tidy in $module" >&2
	(cd "$module" && go mod tidy)
done
sed -i.orig '/^github.com\/ccm-from-scratch\//d' go.sum && rm go.sum.orig
