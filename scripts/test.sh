#!/bin/sh
# Runs the unit and contract tests of modules, with the race detector where there is a C compiler: scripts/test.sh FOLDER…
# With SHORT=1, sweeps and simulations run a share of their cases, and the checks of the repository itself, in scripts, do not run.
# --stress has scripts/stress repeat the tests, and --json prints the events of go test.
set -eu
cd "$(dirname "$0")/.."
scripts/need.sh go

# scripts/lint.sh runs vet on these. go test would run it once more, on them and on each package that they import.
vetted=$(sed -n 's/^for module in \(.*\); do$/ \1 /p' scripts/lint.sh)
# Go repeats the result of a test until a file changes that the test has read, but looks only at files of the test's own
# module. The tests of these modules read others.
uncached=" kind/nodeimage "
# These use other modules of this checkout, or share what is compiled with those, through go.work. All others stand alone.
workspace=" . e2e e2e/hetzner fakecloud/gomegacloud "

# The packages that do not run: the specs are a suite of their own.
others="/e2e/hetzner/specs( |\$)${SHORT:+|/ccm-from-scratch/scripts/}"

# within runs a command in the folder of a module, with its settings.
within() (
	cd "$1" || exit
	case $workspace in *" $1 "*) ;; *) export GOWORK=off ;; esac
	"$2" "$1"
)

run() {
	flags="-json -timeout=30m $race ${SHORT:+-short}" # the sweeps of the machine controller take minutes, on a busy machine many
	case $vetted in *" $1 "*) flags="$flags -vet=off" ;; esac
	case $uncached in *" $1 "*) flags="$flags -count=1" ;; esac
	all=$(go list ./...) && echo "$all" | grep -vE "$others" | xargs go test $flags
}

# list prints the packages that have tests, each with its settings.
list() { go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}} {{.ImportPath}} '"${GOWORK:-}{{end}}" ./... | grep -vE "$others" || :; }

mode=run
case $1 in --*) mode=${1#--} && shift ;; esac
# -race needs cgo.
race=-race
export CGO_ENABLED=1
if [ "$(env -u CGO_ENABLED go env CGO_ENABLED)" != 1 ] || ! command -v "$(go env CC)" >/dev/null; then
	race=
	export CGO_ENABLED=0
	[ "$mode" = json ] || echo "note: no C compiler, so the tests run without the race detector" >&2
fi
case $mode in
json)
	status=0
	for module in "$@"; do within "$module" run || status=1; done
	exit $status
	;;
stress)
	packages=$(for module in "$@"; do within "$module" list; done)
	export RACE="$race"
	exec scripts/gorun.sh scripts/stress "$packages"
	;;
esac
scripts/tool.sh helm controller-gen >/dev/null # tests call these, and would not show that they are compiled
gotestsum=$(scripts/tool.sh gotestsum)
echo "compiling and testing $*: minutes the first time (Ctrl-C stops it)"
seconds=0 end='\n'
[ ! -t 1 ] || end='\r' # on a terminal, the next line takes its place
while sleep 20 >/dev/null 2>&1; do
	seconds=$((seconds + 20))
	printf "testing: $seconds s so far$end"
done &
trap 'kill $!' EXIT
trap 'exit 130' INT TERM HUP
# At the end, it says what was tested, and fails if nothing was.
# shellcheck disable=SC2016
"$gotestsum" --format=pkgname --format-icons=text --ignore-non-json-output-lines --raw-command \
	--post-run-command='sh -c "echo unit: \$((TESTS_TOTAL-TESTS_FAILED-TESTS_SKIPPED)) passed, \$TESTS_FAILED failed, \$TESTS_SKIPPED skipped; test \$TESTS_TOTAL -gt 0"' \
	-- scripts/test.sh --json "$@"
