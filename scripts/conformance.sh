#!/usr/bin/env bash
# Runs Kubernetes' own specs of load balancers, and those of networking that belong to conformance, against our CCM and the
# simulated cloud on a kind cluster, and writes what they show to e2e/CONFORMANCE.md. It fails if a spec has become worse. Environment:
#   FOCUS     a regular expression on the specs' names; then the page goes to out/conformance, and the one in e2e stays
#   PROCS     how many specs run at a time (default: 10; they wait far more than they compute)
#   E2E_KEEP  1 keeps the kind cluster, and uses one that was kept
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "$(uname)" != Linux ]; then
	echo "conformance: needs Linux, since the specs connect to addresses of Docker's network from this host; run it in a Linux VM" >&2
	exit 2
fi
out=$PWD/out/conformance module=kind/nodeimage/modules/kubernetes page=e2e/CONFORMANCE.md
[ -z "${FOCUS:-}" ] || page=$out/CONFORMANCE.md
rm -rf "$out"
mkdir -p "$out"

scripts/progress.sh "compiling Kubernetes' specs (minutes the first time)" go -C "$module" test -c -o "$out/conformance.test" ./conformance
scripts/progress.sh "compiling Ginkgo" go -C "$module" build -v -o "$out/ginkgo" github.com/onsi/ginkgo/v2/ginkgo
programs=$(scripts/gorun.sh kind/nodeimage kubernetes) # kubectl, which the specs call

export KIND_NAME=${KIND_NAME:-conformance} KIND_SUBNET=${KIND_SUBNET:-172.28.0.0/16}
cleanup() {
	if [ -n "${E2E_KEEP:-}" ]; then
		echo "kept: eval \"\$(KIND_NAME=$KIND_NAME scripts/up.sh env)\"; remove it: KIND_NAME=$KIND_NAME make down"
		return
	fi
	scripts/up.sh down
}
trap cleanup EXIT
if [ -z "${E2E_KEEP:-}" ] || ! scripts/up.sh env >/dev/null 2>&1; then
	scripts/up.sh down # what a killed run has left
	scripts/up.sh up --actions=20ms --rate-limit=0 >/dev/null
fi
eval "$(scripts/up.sh env)"

# The images of the specs' pods: the nodes pull them where this host can, else they are built from source.
for image in $("$out/conformance.test" --list-images); do
	echo "pulling $image ... (Ctrl-C stops it)" >&2
	if ! docker pull --quiet "$image"; then
		scripts/gorun.sh kind/nodeimage agnhost "$image"
		scripts/up.sh load "$image"
	fi
done

while sleep 10; do
	echo "running Kubernetes' specs: $SECONDS s so far, $( (grep -a -o '•' "$out/log.txt" || true) | wc -l) specs ended; all output: $out/log.txt" >&2
done &
progress=$!
status=0
"$out/ginkgo" run --procs="${PROCS:-10}" --no-color --silence-skips --poll-progress-after=120s --timeout=2h --keep-going \
	--label-filter='Feature: containsAny LoadBalancer || (sig-network && Conformance)' --focus="${FOCUS:-}" \
	--json-report=report.json --junit-report=junit.xml --output-dir="$out" "$out/conformance.test" -- \
	--provider=skeleton --kubeconfig="$KUBECONFIG" --kubectl-path="$programs/kubectl" --num-nodes=2 \
	</dev/null >"$out/log.txt" 2>&1 || status=$? # specs that are not supported fail, too
kill "$progress"
[ -s "$out/report.json" ] || {
	tail -n 50 "$out/log.txt" >&2
	echo "conformance: the specs did not run (status $status); see $out/log.txt" >&2
	exit 1
}
go run ./e2e/cmd/e2e conformance "$out/report.json" e2e/upstream/unsupported.yaml "$page"
