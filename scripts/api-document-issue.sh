#!/usr/bin/env bash
# Opens an issue with what has changed in Hetzner's public API document, unless one is open. Without a change it does nothing.
# It needs gh and jq. Its arguments are those of the program api-document.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
make -s api-document ARGS="-newer $work/newer.json $*" >"$work/text" 2>&1 || [ -e "$work/newer.json" ] || {
	cat "$work/text" >&2
	exit 1
}
[ -e "$work/newer.json" ] || { echo "the public document is the one that the tests know" && exit; }
{
	cat "$work/text"
	known=${XDG_CACHE_HOME:-$HOME/.cache}/ccm-from-scratch/hetzner/cloud.spec.json
	if [ -e "$known" ]; then
		printf '\n```diff\n'
		diff -U2 <(jq -S . "$known") <(jq -S . "$work/newer.json") | head -c 50000 || true
		printf '\n```\n'
	fi
} >"$work/body"
title="The API document has changed"
if [ -n "$(gh issue list --state open --search "in:title \"$title\"" --json number --jq '.[].number')" ]; then
	echo "an issue is open: $title"
else
	gh label create difference --force >/dev/null # an issue cannot have a label that does not exist
	gh issue create --title "$title" --label difference --body-file "$work/body"
fi
