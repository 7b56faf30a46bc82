#!/bin/sh
# Builds the container images FROM scratch, without pulling anything, and hands them to Docker where there is one.
#
#   scripts/image.sh                                    fakecloud:dev, ccm-from-scratch:dev, machine-controller:dev
#   IMAGE=registry.example/ccm:v1 scripts/image.sh ccm-from-scratch
#   OUT=out/images ARCH=arm64 scripts/image.sh          as files, out/images/<name>.tar, with what each
#                                                       program is built from, <name>.arm64.cdx.json
#   OUT=out/images ARCH="amd64 arm64" TAG=v1 scripts/image.sh
#                                                       one file for both: an OCI archive with an index
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- fakecloud ccm-from-scratch machine-controller
fail() {
	echo "$1" >&2
	exit 2
}
[ -z "${IMAGE:-}" ] || [ $# = 1 ] || fail "IMAGE=$IMAGE: which one? scripts/image.sh ccm-from-scratch, or another one"
scripts/need.sh go
arches=${ARCH:-$(go env GOARCH)}
several=$(echo "$arches" | grep ' [^ ]' || :)
if [ -n "${OUT:-}" ]; then
	out=$OUT
	mkdir -p "$out"
	bills=$(scripts/tool.sh cyclonedx-gomod)
	# Files may be published: they must not depend on this folder. Other images share Go's cache with all other builds.
	export GOFLAGS="${GOFLAGS:-} -trimpath"
else
	[ -z "$several" ] || fail "ARCH=$ARCH: Docker takes one architecture: set OUT=folder for an archive of several"
	scripts/need.sh docker || fail "without Docker, OUT=folder keeps the images as files"
	out=$(mktemp -d)
	trap 'rm -rf "$out"' EXIT
	trap 'exit 130' INT TERM HUP
fi
source=https://github.com/ccm-from-scratch/ccm-from-scratch
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || :)}"

build() {
	name=$1
	image=${IMAGE:-$name:${TAG:-dev}}
	case $name in
	fakecloud)
		description="A simulated Hetzner Cloud with a local API"
		how="docker run --rm -p 127.0.0.1:4242:4242"
		set -- -package github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/cmd/fakecloud \
			-env FAKECLOUD_LISTEN=:4242 -env FAKECLOUD_CONTROL=127.0.0.1:4243 \
			-expose 4242 -expose 4243 -health health
		;;
	ccm-from-scratch)
		description="A cloud-controller-manager for Kubernetes on the Hetzner Cloud"
		how="deploy it as ccm/deploy/README.md says:"
		set -- -package ./ccm/cmd/ccm-from-scratch -expose 10258 -expose 8233
		;;
	machine-controller)
		description="A machine controller for Kubernetes on the Hetzner Cloud"
		how="deploy it as ccm/machine/README.md says:"
		set -- -package ./ccm/cmd/machine-controller -expose 8080 -expose 8081
		;;
	*) fail "$name: must be one of fakecloud, ccm-from-scratch, machine-controller" ;;
	esac
	[ -z "${OUT:-}" ] || set -- "$@" -bills "$bills"
	for arch in $arches; do set -- "$@" -arch="$arch"; done
	scripts/progress.sh "compiling $name" go run -v ./scripts/image "$@" -tag "$image" -o "$out/$name.tar" \
		-label "org.opencontainers.image.title=$name" \
		-label "org.opencontainers.image.description=$description" \
		-label org.opencontainers.image.licenses=Apache-2.0 \
		-label "org.opencontainers.image.source=$source" \
		-label "org.opencontainers.image.revision=$revision"
	if [ -n "${OUT:-}" ]; then
		load="docker load -i $out/$name.tar"
		[ -z "$several" ] || load="skopeo copy --all oci-archive:$out/$name.tar docker://registry.example/$image"
		echo "$image for $arches is in $out/$name.tar; $load"
	else
		docker load -q -i "$out/$name.tar"
		echo "$how $image"
	fi
}
for name in "$@"; do build "$name"; done
