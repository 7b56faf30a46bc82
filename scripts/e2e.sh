#!/usr/bin/env bash
# Runs the end-to-end suite: scripts/e2e.sh [flags of ginkgo run]. With -v, everything that Ginkgo prints is shown. Environment:
#   E2E_CLUSTER  kind: a kind cluster whose nodes are servers of a simulated cloud; the default where Docker answers
#                embedded: a control plane of real programs on this host, without Docker; else the default
#                existing: the cluster of KUBECONFIG, with E2E_CLOUD=hcloud and HCLOUD_TOKEN (e2e/README.md)
#   LABELS       a Ginkgo label filter, such as "service && !fault"; hour: the specs that take an hour, which run only then
#   FOCUS        a regular expression on the specs' names
#   SHARD        2/5 for the second of five parts of the specs, such as for five machines: e2e merge makes one report of all
#   DURATIONS    the specs.json of an earlier run, by which the specs are divided (default: e2e/shards/durations.txt)
#   PROCS        how many specs run at a time
#   CCM          a file that describes the cloud-controller-manager to test instead of ours (e2e/README.md)
#   E2E_KEEP     1 keeps the kind cluster, and uses one that was kept
#   E2E_OUT      where reports, logs and coverage go (default: out/e2e-$E2E_CLUSTER, with SHARD=2/5 out/e2e-$E2E_CLUSTER-2-of-5)
#   E2E_CCM      the program of a cloud-controller-manager to test instead of ours (embedded)
#   E2E_CCM_DELAY  seconds by which each start of the CCM is delayed, to find specs that look too early (embedded)
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/need.sh go
# resolve makes the name of a file absolute, since ginkgo runs the suite in another folder.
resolve() {
	if ! [ -f "${!1}" ] || ! [ -r "${!1}" ]; then
		echo "$1=${!1}: must be a file that can be read, in $PWD if its name does not begin with /" >&2
		exit 2
	fi
	export "$1=$(cd "$(dirname "${!1}")" && pwd)/$(basename "${!1}")"
}
[ -z "${CCM:-}" ] || resolve CCM
[ -z "${DURATIONS:-}" ] || resolve DURATIONS

# choose says on what cluster the specs run, and why.
choose() {
	local why="E2E_CLUSTER=${E2E_CLUSTER:-}"
	if [ -z "${E2E_CLUSTER:-}" ]; then
		if grep -Es '^driver(Command)?:' "${CCM:-}" | grep -Evq "^driver: *[\"']*(hetzner)?[\"']* *(#|\$)"; then
			E2E_CLUSTER=embedded why="since its driver has no kind cluster"
		elif why=$(scripts/need.sh docker 2>&1); then
			E2E_CLUSTER=kind why="since Docker answers; E2E_CLUSTER=embedded needs none"
		else
			E2E_CLUSTER=embedded why="with Docker it would be a kind cluster: $why"
		fi
	elif [ "$E2E_CLUSTER" = kind ]; then
		scripts/need.sh docker
	fi
	case $E2E_CLUSTER in
	kind) echo "e2e on a kind cluster ($why)" ;;
	embedded) echo "e2e on an embedded control plane ($why)" ;;
	existing) echo "e2e on the cluster of KUBECONFIG=${KUBECONFIG:-} ($why)" ;;
	*)
		echo "E2E_CLUSTER=$E2E_CLUSTER: must be one of kind, embedded, existing" >&2
		exit 2
		;;
	esac
	export E2E_CLUSTER
}
choose
# A part of the specs does not replace the results of all.
export E2E_OUT=${E2E_OUT:-$PWD/out/e2e-$E2E_CLUSTER${SHARD:+-${SHARD/\//-of-}}}

# The last run's results go, but nothing else does: the folder may be that of another program.
mark=$E2E_OUT/.made-by-e2e
if read -r other 2>/dev/null <"$mark" && [ "$other" != $$ ] && ps -o args= -p "$other" 2>/dev/null | grep -q 'e2e\.sh'; then
	echo "E2E_OUT=$E2E_OUT: another run, process $other, writes there: wait for its end, or end it (kill $other)" >&2
	exit 2
elif [ -e "$mark" ]; then
	rm -rf "$E2E_OUT"
elif [ -n "$(ls -A "$E2E_OUT" 2>/dev/null)" ]; then
	echo "E2E_OUT=$E2E_OUT: is not empty and was not made by this script; name another folder" >&2
	exit 2
fi
mkdir -p "$E2E_OUT/coverage"
echo $$ >"$mark"

run=()    # what runs ginkgo
cannot=   # the labels of specs that cannot run here
cleanup=: # what is done in the end, whatever happens
failed=:  # what a failed run says
case $E2E_CLUSTER in
embedded)
	cannot='!real-nodes' procs=14 # they wait far more than they compute; each takes 0.3 GB
	# The control plane's programs: minutes the first time, with progress, then at once.
	KUBEBUILDER_ASSETS=$(scripts/gorun.sh kind/nodeimage kubernetes)
	export KUBEBUILDER_ASSETS
	if [ -z "${E2E_CCM:-}" ] && [ -z "${CCM:-}" ]; then
		export E2E_CCM=$E2E_OUT/ccm-from-scratch
		scripts/progress.sh "compiling the CCM" go build -v -cover -coverpkg=./ccm/... -o "$E2E_CCM" ./ccm/cmd/ccm-from-scratch
	fi
	export E2E_MACHINE_CONTROLLER=$E2E_OUT/machine-controller
	scripts/progress.sh "compiling the machine controller" go build -v -cover -coverpkg=./ccm/... -o "$E2E_MACHINE_CONTROLLER" ./ccm/cmd/machine-controller
	;;
kind)
	cannot='!own-cloud' procs=4 # they wait more than they compute, but some start whole nodes
	run=(scripts/with-docker.sh)
	# Not those of `make up`, which may be there at the same time.
	export KIND_NAME=${KIND_NAME:-e2e} KIND_SUBNET=${KIND_SUBNET:-172.29.0.0/16}
	scripts/progress.sh "compiling kind/cmd/kindcloud" go build -v -o "$E2E_OUT/kindcloud" ./kind/cmd/kindcloud
	kindcloud() { scripts/with-docker.sh "$E2E_OUT/kindcloud" "$@"; }
	cleanup() {
		if [ -n "${E2E_KEEP:-}" ]; then
			echo "kept: eval \"\$(KIND_NAME=$KIND_NAME scripts/up.sh env)\"; kubectl get nodes; remove it: KIND_NAME=$KIND_NAME make down"
			return
		fi
		echo "removing the kind cluster $KIND_NAME"
		kindcloud down
	}
	failed() {
		[ -n "${E2E_KEEP:-}" ] || echo "to look inside the cluster after a failure: E2E_KEEP=1 make e2e FOCUS='…'"
	}
	cleanup=cleanup failed=failed
	if [ -n "${E2E_KEEP:-}" ] && kindcloud env >/dev/null 2>&1; then
		echo "uses the kind cluster $KIND_NAME that was kept"
	else
		trap cleanup EXIT # also what is half there
		kindcloud down    # what a killed run has left
		kindcloud up --without-ccm --actions=20ms --rate-limit=0 --node-monitor-grace-period=8s >/dev/null
	fi
	;;
existing)
	cannot='!own-cloud && !fake-only' procs=2
	# All that the run makes in cluster and cloud has its name, so that it is found again.
	export E2E_RUN=${E2E_RUN:-e2e-$(date -u +%Y%m%d-%H%M%S)-$$}
	echo "the run's name is $E2E_RUN; should it be killed: make e2e-clean RUN=$E2E_RUN"
	cleanup() {
		if [ -n "${E2E_KEEP:-}" ]; then
			echo "kept; remove it: make e2e-clean RUN=$E2E_RUN"
			return
		fi
		RUN=$E2E_RUN go run ./e2e/hetzner/cmd/clean
	}
	cleanup=cleanup
	;;
esac
trap '$cleanup' EXIT
procs=${PROCS:-$procs}
filter=$cannot${LABELS:+" && ($LABELS)"} timeout=40m
case ${LABELS:-} in
*hour*) timeout=100m ;;
*) filter+=' && !hour' ;;
esac

# Not by `go tool ginkgo`: that passes on a Ctrl-C, which ginkgo gets from the terminal as well: the second one skips cleaning up.
# Only what the suite imports: of several programs go build would link each, and throw it away.
scripts/progress.sh "compiling the suite" go build -v ./e2e/hetzner
ginkgo=$(go tool -n ginkgo)
scripts/progress.sh "compiling e2e/cmd/e2e" go build -v -o "$E2E_OUT/e2e" ./e2e/cmd/e2e

# progress says in one line what the specs wait for, until they begin.
progress() {
	local files end='\n'
	[ ! -t 2 ] || end='\r' # on a terminal, the next line takes its place
	while sleep "${PROGRESS_EVERY:-10}" && kill -0 "$suite" 2>/dev/null; do
		files=("$E2E_OUT"/control-plane-*/kube-controller-manager.log)
		if ! [ -d "$E2E_OUT/control-plane-1" ]; then
			printf "compiling the specs: $SECONDS s so far$end"
		elif ! [ -e "${files[0]}" ] || [ "${#files[@]}" -lt "$procs" ]; then
			printf "starting the control planes, which takes longest the first time: $SECONDS s so far$end"
		else
			break
		fi
	done
}

# Of each failure, the console shows a screen at most. ginkgo.log has all that Ginkgo prints, and the report page what matters of it.
console=
exec 3>&1
if ! [[ " $* " =~ \ --?vv?\  ]]; then
	mkfifo "$E2E_OUT/console"
	"$E2E_OUT/e2e" console "$E2E_OUT/ginkgo.log" <"$E2E_OUT/console" &
	console=$!
	exec 3>"$E2E_OUT/console"
fi

# In a process group of its own, to which every signal is passed on once, whether it comes from a terminal
# or was sent to this script alone.
color=()
[ -t 1 ] || color=(--no-color)
set -m
${run[@]+"${run[@]}"} "$ginkgo" run ${color[@]+"${color[@]}"} --silence-skips \
	--procs="$procs" --randomize-all --poll-progress-after=3m --timeout="$timeout" \
	--label-filter="$filter" --focus="${FOCUS:-}" \
	--keep-going \
	"$@" ./e2e/hetzner/specs </dev/null >&3 &
suite=$!
set +m
exec 3>&- # so that the console ends with the suite
case $E2E_CLUSTER in
embedded) progress >&2 & ;;
kind) echo "first, the CCM is deployed and all nodes become usable" ;;
esac
trap 'kill -INT -- "-$suite" 2>/dev/null' INT
trap 'kill -TERM -- "-$suite" 2>/dev/null' TERM HUP
status=0
wait "$suite" || status=$?
while kill -0 "$suite" 2>/dev/null; do # a signal ends wait, not the suite
	wait "$suite" || status=$?
done
while [ -n "$console" ] && kill -0 "$console" 2>/dev/null; do
	wait "$console" || :
done
trap - INT TERM HUP

if [ -n "$(ls -A "$E2E_OUT/coverage" 2>/dev/null)" ]; then
	go tool covdata textfmt -i="$E2E_OUT/coverage" -o="$E2E_OUT/coverage.txt"
	echo "the CCM's statements that the suite ran: $(go tool cover -func="$E2E_OUT/coverage.txt" | awk '/^total:/ {print $3}')"
fi
if [ -e "$E2E_OUT/specs.json" ]; then
	if [ "$(dirname "$E2E_OUT")" = "$PWD/out" ]; then
		"$E2E_OUT/e2e" report out
		echo "report of all runs: $PWD/out/report.html"
	fi
	echo "report: $E2E_OUT/report.html; results: specs.json, junit.xml; logs: $E2E_OUT/ginkgo.log, control-plane-*"
	echo
	results=0
	"$E2E_OUT/e2e" results "$E2E_OUT" | tee -a "${GITHUB_STEP_SUMMARY:-/dev/null}" || results=$?
	case $status in 0 | 1) status=$results ;; esac # for Ginkgo, a known gap is a failure
fi
rm -f "$E2E_OUT/e2e" "$E2E_OUT/console"
[ $status = 0 ] || $failed
exit $status
