#!/usr/bin/env bash
# Builds the container images FROM scratch, without pulling anything, and hands them to Docker where
# there is one.
#
#   scripts/image.sh                                    both: fakecloud:dev and ccm-from-scratch:dev
#   IMAGE=registry.example/ccm:v1 scripts/image.sh ccm-from-scratch
#   OUT=out/images ARCH=arm64 scripts/image.sh          as files, out/images/<name>.tar
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- fakecloud ccm-from-scratch
if [ -n "${IMAGE:-}" ] && [ $# -gt 1 ]; then
	echo "IMAGE=$IMAGE: which one? scripts/image.sh fakecloud, or scripts/image.sh ccm-from-scratch" >&2
	exit 2
fi
arch=${ARCH:-$(go env GOARCH)}
if [ -n "${OUT:-}" ]; then
	out=$OUT
	mkdir -p "$out"
	# Files may be published: they must not depend on this folder. Other images share Go's cache with all other builds.
	export GOFLAGS="${GOFLAGS:-} -trimpath"
else
	if ! command -v docker >/dev/null || ! docker version >/dev/null 2>&1; then
		echo "no Docker answers: set OUT=folder to keep the images as files" >&2
		exit 1
	fi
	out=$(mktemp -d -t images.XXXXXX)
	trap 'rm -rf "$out"' EXIT
fi
source=https://github.com/ccm-from-scratch/ccm-from-scratch
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)

for name in "$@"; do
	case $name in
	fakecloud)
		description="A simulated Hetzner Cloud with a local API"
		how="docker run --rm -p 127.0.0.1:4242:4242"
		special=(-package github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/cmd/fakecloud
			-env FAKECLOUD_LISTEN=:4242 -env FAKECLOUD_CONTROL=127.0.0.1:4243
			-expose 4242 -expose 4243 -health health)
		;;
	ccm-from-scratch)
		description="A cloud-controller-manager for Kubernetes on the Hetzner Cloud"
		how="deploy it as ccm/deploy/README.md says:"
		special=(-package ./ccm/cmd/ccm-from-scratch -expose 10258 -expose 8233)
		;;
	*)
		echo "$name: want fakecloud or ccm-from-scratch" >&2
		exit 2
		;;
	esac
	image=${IMAGE:-$name:dev}
	scripts/progress.sh "compiling $name" go run -v ./scripts/image "${special[@]}" -tag "$image" -arch "$arch" -o "$out/$name.tar" \
		-label "org.opencontainers.image.title=$name" \
		-label "org.opencontainers.image.description=$description" \
		-label org.opencontainers.image.licenses=Apache-2.0 \
		-label "org.opencontainers.image.source=$source" \
		-label "org.opencontainers.image.revision=$revision"
	if [ -n "${OUT:-}" ]; then
		echo "$image for linux/$arch is in $out/$name.tar; docker load -i $out/$name.tar"
	else
		docker load -q -i "$out/$name.tar"
		echo "$how $image"
	fi
done
