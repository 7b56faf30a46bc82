#!/usr/bin/env bash
# Makes all files of a release from its tag: images, programs, bills of materials, the Helm charts, the manifest, the notes
# and the checksums. It changes nothing else; scripts/publish.sh publishes the files.
#
#   scripts/release.sh v1.2.3          writes out/release/v1.2.3 (OUT=folder: another one)
#   scripts/release.sh --check v1.2.3  checks the tag and the change log, and prints the commands
#
# The files are built from a clone of the tag, not from the files of this folder. With the same version of Go, the same
# tag gives the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

fail() {
	echo "$1" >&2
	exit 1
}
check=
if [ "${1:-}" = --check ]; then
	check=1
	shift
fi
[ $# = 1 ] || fail "usage: scripts/release.sh [--check] vX.Y.Z"
tag=$1
version=${tag#v}
[[ $tag =~ ^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?$ ]] ||
	fail "$tag: must be a version such as v1.2.3 or v1.2.3-rc.1"
commit=$(git rev-parse -q --verify "refs/tags/$tag^{commit}") || fail "$tag: there is no such tag: make it with git tag -s $tag"
# These modules are released with the root module, at the same version.
for module in e2e fakecloud fakecloud/gomegacloud; do
	[ "$(git rev-parse -q --verify "refs/tags/$module/$tag^{commit}")" = "$commit" ] ||
		fail "$module/$tag: must be a tag of the same commit: make it with git tag -s $module/$tag $tag^{}"
done
own=github.com/ccm-from-scratch/ccm-from-scratch
for file in go.mod e2e/hetzner/go.mod fakecloud/gomegacloud/go.mod; do
	while read -r module required; do
		[ "$required" = "$tag" ] ||
			fail "$tag: its $file requires ${module#"$own"/} $required, must be $tag: change that and go.work, and move the tags"
	done < <(git show "$tag:$file" | awk -v own="$own" 'index($1, own) == 1 {print $1, $2}')
done
# What stands below the version's heading, until the next version or the links.
notes=$(git show "$tag:CHANGELOG.md" | awk -v heading="## [$version]" '
	index($0, heading) == 1 {on = 1; next}
	/^## / || /^\[[^]]*\]: / {on = 0}
	on')
[ -n "${notes//[[:space:]]/}" ] ||
	fail "$tag: CHANGELOG.md of the tag has nothing below \"## [$version]\": describe the version there and move the tag"
out=${OUT:-$root/out/release/$tag}
[ -n "$check" ] || [ ! -e "$out" ] || fail "$out exists: remove it first"

run() {
	echo "+ $*" >&2
	[ -n "$check" ] || "$@"
}

work=$(mktemp -d -t release.XXXXXX)
trap 'rm -rf "$work"' EXIT
new=$work/files
mkdir "$new"
run git clone --quiet --no-checkout "$root" "$work/source"
run git -C "$work/source" checkout --quiet "$tag"
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct "$tag")
# Only these settings decide what is built. The version in the programs comes from the tag.
export SOURCE_DATE_EPOCH GOFLAGS=-buildvcs=true GOWORK="$work/source/go.work"
run env OUT="$new" ARCH="amd64 arm64" TAG="$tag" "$work/source/scripts/image.sh" >/dev/null
# programs are for those who have no Go: NAME-SYSTEM-ARCHITECTURE.
programs() {
	local system arch name
	for system in linux darwin windows; do
		for arch in amd64 arm64; do
			for name in ccm/cmd/ccm-from-scratch fakecloud/cmd/fakecloud; do
				echo "compiling $(basename $name) for $system, $arch" >&2
				GOOS=$system GOARCH=$arch CGO_ENABLED=0 go -C "$work/source" build -trimpath -ldflags='-s -w' \
					-o "$new/$(basename $name)-$system-$arch$([ $system != windows ] || echo .exe)" "./$name"
			done
		done
	done
}
run programs
helm() { "$("$work/source/scripts/tool.sh" helm)" "$@"; }
for chart in ccm fakecloud; do
	run helm package "$work/source/$chart/chart" --version "$version" --app-version "$tag" --destination "$new"
done
manifest() {
	CHART="$new/ccm-from-scratch-$version.tgz" "$work/source/scripts/manifests.sh" -f "$work/source/ccm/deploy/values.yaml" >"$new/ccm-from-scratch.yaml"
}
run manifest
behaviour() { make -s -C "$work/source" behaviour >&2 && cp "$work/source/out/BEHAVIOUR.md" "$new"; }
run behaviour
write_notes() {
	printf '%s\n\n' "$notes"
	echo "Built with $(cd "$work/source" && go version | cut -d' ' -f3), with which the tag gives the same bytes again. Put an image into your registry with"
	echo "\`skopeo copy --all oci-archive:NAME.tar docker://registry.example/NAME:$tag\`; its digest then is:"
	echo
	local archive
	for archive in "$new"/*.tar; do
		echo "- $(basename "$archive" .tar): \`$(tar -xOf "$archive" index.json | grep -o 'sha256:[0-9a-f]*')\`"
	done
} >"$new/NOTES.md"
run write_notes
checksums() { (cd "$new" && sha256sum -- * >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" .); }
run checksums
run mkdir -p "$(dirname "$out")"
run mv "$new" "$out"
if [ -n "$check" ]; then
	echo "nothing was made; without --check the files will be in $out"
else
	chmod 755 "$out"
	echo "the files of $tag are in $out:"
	ls -l "$out"
fi
