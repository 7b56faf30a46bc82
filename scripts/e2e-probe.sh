#!/usr/bin/env bash
# Runs every spec with the cloud-controller-manager that the file CCM describes, whatever the file says that it lacks, and
# writes what failed into the file: features into lacks, other specs into knownGaps. It takes the settings of
# scripts/e2e.sh; with FOCUS or LABELS, the file keeps what it says about other specs.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -n "${CCM:-}" ] || { echo "no CCM is named: name its file, such as CCM=e2e/ccms/ccm-from-scratch.yaml" >&2 && exit 2; }
export E2E_OUT=${E2E_OUT:-$PWD/out/e2e-probe}
rm -f "$E2E_OUT/specs.json" # an earlier run's results are not this one's
status=0
E2E_PROBE=1 scripts/e2e.sh "$@" || status=$?
if [ "$status" -gt 1 ]; then # ginkgo says 1 for failed specs
	exit "$status"
fi
go run ./e2e/cmd/e2e probe "$CCM" "$E2E_OUT"
