#!/usr/bin/env bash
# Tidies the go.mod of modules: scripts/tidy.sh FOLDER… With --check, it fails if one is not tidy, and changes nothing.
# Some name a release of another one: they are tidied with that of this checkout, which has no checksum in go.sum, since that would change
# with each line.
set -euo pipefail
cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
settings=$(go run ./scripts/modproxy "$tmp")
eval "$settings"
own=github.com/ccm-from-scratch/
if [ "${1:-}" = --check ]; then
	shift
	status=0
	for module in "$@"; do
		if ! diff=$(cd "$module" && go mod tidy -diff) && { [ -z "$diff" ] || grep '^[-+][^-+]' <<<"$diff" | grep -v "^+$own"; }; then
			echo "$module/go.mod is not tidy: run make tidy" >&2
			status=1
		fi
	done
	exit $status
fi
for module in "$@"; do
	echo "go mod tidy in $module" >&2
	(cd "$module" && go mod tidy)
done
for module in "$@"; do
	sed -i.orig "\\#^$own#d" "$module/go.sum" && rm "$module/go.sum.orig"
done
