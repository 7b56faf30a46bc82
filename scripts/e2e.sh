#!/usr/bin/env bash
# Runs the end-to-end suite. Environment:
#   E2E_CLUSTER  embedded (default): a control plane of real programs on this machine, without Docker
#   LABELS       a Ginkgo label filter, as "service && !fault"
#   FOCUS        a regular expression on the specs' names
#   PROCS        how many specs run at a time (default: 2)
#   E2E_OUT      where reports, logs and coverage go (default: out/e2e)
set -euo pipefail
cd "$(dirname "$0")/.."

export E2E_CLUSTER=${E2E_CLUSTER:-embedded}
export E2E_OUT=${E2E_OUT:-$PWD/out/e2e}
case $E2E_CLUSTER in
embedded) echo "e2e on an embedded control plane (E2E_CLUSTER=embedded)" ;;
*)
	echo "E2E_CLUSTER=$E2E_CLUSTER: only embedded is there yet" >&2
	exit 2
	;;
esac

rm -rf "$E2E_OUT"
mkdir -p "$E2E_OUT/coverage"

# The control plane's programs: minutes the first time, with progress, then at once.
E2E_KUBERNETES=$(go run ./e2e/framework/cluster/cmd/kubebin)
export E2E_KUBERNETES

echo "building the CCM"
export E2E_CCM=$E2E_OUT/ccm-from-scratch
go build -cover -coverpkg=./ccm/... -o "$E2E_CCM" ./ccm/cmd/ccm-from-scratch

status=0
go tool ginkgo run \
	--procs="${PROCS:-2}" --randomize-all --poll-progress-after=60s --timeout=40m \
	--label-filter="${LABELS:-}" --focus="${FOCUS:-}" \
	--junit-report=junit.xml --json-report=report.json --output-dir="$E2E_OUT" --keep-going \
	./e2e "$@" || status=$?

echo "reports: $E2E_OUT/junit.xml and report.json"
if [ -n "$(ls -A "$E2E_OUT/coverage" 2>/dev/null)" ]; then
	go tool covdata textfmt -i="$E2E_OUT/coverage" -o="$E2E_OUT/coverage.txt"
	echo "the CCM's statements that the suite ran: $(go tool cover -func="$E2E_OUT/coverage.txt" | awk '/^total:/ {print $3}')"
fi
exit $status
