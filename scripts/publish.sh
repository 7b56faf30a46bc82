#!/usr/bin/env bash
# Publishes a release: puts its images and its charts into a registry, signs them and the checksums, and makes the release on
# GitHub with all files. scripts/release.sh makes the files first, if they are not there. It can be run again after an error.
#
#   scripts/publish.sh v1.2.3            needs cosign, gh, and a login to the registry
#   scripts/publish.sh --dry-run v1.2.3  does all but what others would see, and prints that
#   REGISTRY=registry.example/folder     a registry other than GitHub's
set -euo pipefail
cd "$(dirname "$0")/.."

dry=
if [ "${1:-}" = --dry-run ]; then
	dry=1
	shift
fi
[ $# = 1 ] || { echo "usage: scripts/publish.sh [--dry-run] vX.Y.Z" >&2 && exit 2; }
tag=$1
registry=${REGISTRY:-ghcr.io/ccm-from-scratch}
files=${OUT:-$PWD/out/release/$tag}
if [ -e "$files" ]; then
	scripts/release.sh --check "$tag" >/dev/null # the tag may have moved since
else
	scripts/release.sh "$tag"
fi
(cd "$files" && sha256sum --check --quiet SHA256SUMS)

work=$(mktemp -d -t publish.XXXXXX)
trap 'rm -rf "$work"' EXIT
crane() { "$(scripts/tool.sh crane)" "$@"; }
helm() { "$(scripts/tool.sh helm)" "$@"; }
seen() {
	echo "+ $*" >&2
	[ -n "$dry" ] || "$@"
}

for archive in "$files"/*.tar; do
	name=$(basename "$archive" .tar)
	mkdir "$work/$name"
	tar -xf "$archive" -C "$work/$name"
	digest=$(grep -o 'sha256:[0-9a-f]*' "$work/$name/index.json")
	seen crane push "$work/$name" "$registry/$name:$tag"
	seen cosign sign --yes "$registry/$name@$digest"
done
chart() {
	local name=$1 digest plain=
	[[ $registry != 127.0.0.1* ]] || plain=--plain-http
	digest=$(helm push $plain "$files/$name-${tag#v}.tgz" "oci://$registry/charts" 2>&1 | tee /dev/stderr | awk '$1 == "Digest:" {print $2}')
	cosign sign --yes "$registry/charts/$name@$digest"
}
seen chart ccm-from-scratch
seen chart fakecloud
seen cosign sign-blob --yes --bundle "$work/SHA256SUMS.sigstore.json" "$files/SHA256SUMS"

# A draft until it has all files.
release() {
	local kind=--latest
	[[ $tag != *-* ]] || kind=--prerelease
	gh release view "$tag" >/dev/null 2>&1 ||
		gh release create "$tag" --draft --verify-tag --title "$tag" --notes-file "$files/NOTES.md" "$kind"
	gh release upload "$tag" --clobber "$files"/* "$work/SHA256SUMS.sigstore.json"
	gh release edit "$tag" --draft=false
}
seen release
[ -z "$dry" ] || echo "nothing was published; the files are in $files"
