#!/usr/bin/env bash
# Runs the end-to-end suite: scripts/e2e.sh [flags of ginkgo run]. Environment:
#   E2E_CLUSTER  embedded (default): a control plane of real programs on this machine, without Docker
#   LABELS       a Ginkgo label filter, as "service && !fault"
#   FOCUS        a regular expression on the specs' names
#   PROCS        how many specs run at a time (default: 2)
#   E2E_OUT      where reports, logs and coverage go (default: out/e2e)
#   E2E_CCM      a cloud-controller-manager to test in place of ours
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

# The last run's results go, but nothing else does: the folder may be anybody's.
mark=$E2E_OUT/.made-by-e2e
if [ -e "$mark" ]; then
	rm -rf "$E2E_OUT"
elif [ -n "$(ls -A "$E2E_OUT" 2>/dev/null)" ]; then
	echo "E2E_OUT=$E2E_OUT: is not empty and was not made by this script; name another folder" >&2
	exit 2
fi
mkdir -p "$E2E_OUT/coverage"
touch "$mark"

# The control plane's programs: minutes the first time, with progress, then at once.
E2E_KUBERNETES=$(go run ./e2e/framework/cluster/cmd/kubebin)
export E2E_KUBERNETES

if [ -z "${E2E_CCM:-}" ]; then
	echo "building the CCM"
	export E2E_CCM=$E2E_OUT/ccm-from-scratch
	go build -cover -coverpkg=./ccm/... -o "$E2E_CCM" ./ccm/cmd/ccm-from-scratch
fi
# Not by `go tool ginkgo`: that passes a Ctrl-C on to ginkgo, which gets it from the terminal as well, and
# takes the second one for the order to skip cleaning up.
ginkgo=$(go tool -n ginkgo)

# In a process group of its own, to which every signal is passed on once, whether it comes from a terminal
# or was sent to this script alone.
color=()
[ -t 1 ] || color=(--no-color)
set -m
"$ginkgo" run ${color[@]+"${color[@]}"} --silence-skips \
	--procs="${PROCS:-2}" --randomize-all --poll-progress-after=60s --timeout=40m \
	--label-filter="${LABELS:-}" --focus="${FOCUS:-}" \
	--junit-report=junit.xml --json-report=report.json --output-dir="$E2E_OUT" --keep-going \
	"$@" ./e2e </dev/null &
suite=$!
set +m
trap 'kill -INT -- "-$suite" 2>/dev/null' INT
trap 'kill -TERM -- "-$suite" 2>/dev/null' TERM HUP
status=0
wait "$suite" || status=$?
while kill -0 "$suite" 2>/dev/null; do # a signal ends wait, not the suite
	wait "$suite" || status=$?
done
trap - INT TERM HUP

if [ -e "$E2E_OUT/specs.md" ]; then
	echo
	sed -n '1s/^# //p; /^\*\*/p; /^| \*\*/p' "$E2E_OUT/specs.md" # how many, and those that failed
fi
echo "reports: $E2E_OUT/specs.md, junit.xml, report.json; logs: $E2E_OUT/control-plane-*"
if [ -n "$(ls -A "$E2E_OUT/coverage" 2>/dev/null)" ]; then
	go tool covdata textfmt -i="$E2E_OUT/coverage" -o="$E2E_OUT/coverage.txt"
	echo "the CCM's statements that the suite ran: $(go tool cover -func="$E2E_OUT/coverage.txt" | awk '/^total:/ {print $3}')"
fi
exit $status
