#!/usr/bin/env bash
# Builds the container image of fakecloud FROM scratch, without pulling anything, and hands it to Docker
# where there is one.
#
#   IMAGE=fakecloud:dev ARCH=arm64 OUT=fakecloud.tar scripts/image.sh
set -euo pipefail
cd "$(dirname "$0")/.."
image=${IMAGE:-fakecloud:dev}
arch=${ARCH:-$(go env GOARCH)}
out=${OUT:-}
if [ -z "$out" ]; then
	out=$(mktemp -t fakecloud-image.XXXXXX)
	trap 'rm -f "$out"' EXIT
fi
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
go run ./scripts/image \
	-package ./fakecloud/cmd/fakecloud -tag "$image" -arch "$arch" -o "$out" \
	-env FAKECLOUD_LISTEN=:4242 -env FAKECLOUD_CONTROL=127.0.0.1:4243 \
	-expose 4242 -expose 4243 -health health \
	-label org.opencontainers.image.title=fakecloud \
	-label "org.opencontainers.image.description=A simulated Hetzner Cloud with a local API" \
	-label org.opencontainers.image.licenses=Apache-2.0 \
	-label org.opencontainers.image.source=https://github.com/ccm-from-scratch/ccm-from-scratch \
	-label "org.opencontainers.image.revision=$revision"
if [ -n "${OUT:-}" ]; then
	echo "$image for linux/$arch is in $out; docker load -i $out"
elif command -v docker >/dev/null && docker version >/dev/null 2>&1; then
	docker load -q -i "$out"
	echo "docker run --rm -p 127.0.0.1:4242:4242 $image"
else
	echo "no Docker answers: set OUT=fakecloud.tar to keep the image as a file" >&2
	exit 1
fi
