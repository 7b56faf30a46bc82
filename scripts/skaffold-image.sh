#!/usr/bin/env bash
# Builds the CCM's image for skaffold, which sets IMAGE, PUSH_IMAGE and, for debugging, SKAFFOLD_GO_GCFLAGS.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${IMAGE:?is set by skaffold}"
if [ -n "${SKAFFOLD_GO_GCFLAGS:-}" ]; then # delve needs a program that is not optimized
	export GOFLAGS="${GOFLAGS:-} '-gcflags=${SKAFFOLD_GO_GCFLAGS}'"
fi
scripts/image.sh ccm-from-scratch
if [ "${PUSH_IMAGE:-false}" = true ]; then
	docker push "$IMAGE"
else
	scripts/up.sh load "$IMAGE"
fi
