#!/usr/bin/env bash
# Runs the unit and contract tests of modules, with the race detector where there is a C compiler: scripts/test.sh FOLDER…
set -euo pipefail
cd "$(dirname "$0")/.."

# scripts/lint.sh runs vet on these. go test would run it once more, on them and on each package that they import.
vetted=" . e2e e2e/hetzner fakecloud fakecloud/gomegacloud kind/nodeimage "
# Go repeats the result of a test until a file changes that the test has read, but looks only at files of the test's own
# module. The tests of these modules read others.
uncached=" kind/nodeimage "
# These use other modules of this checkout, or share what is compiled with those, through go.work. All others stand alone.
workspace=" . e2e e2e/hetzner fakecloud/gomegacloud "

# -race needs cgo.
race=-race
export CGO_ENABLED=1
if [ "$(env -u CGO_ENABLED go env CGO_ENABLED)" != 1 ] || ! command -v "$(go env CC)" >/dev/null; then
	race=
	export CGO_ENABLED=0
	echo "note: no C compiler, so the tests run without the race detector" >&2
fi
scripts/tool.sh helm controller-gen >/dev/null # tests call these, and would not show that they are compiled
gotestsum=$(scripts/tool.sh gotestsum)

run() {
	local module flags failed=0
	for module in "$@"; do
		flags=(-json -timeout=30m ${race:+"$race"}) # the sweeps of the machine controller take minutes, on a busy machine many
		[[ $vetted != *" $module "* ]] || flags+=(-vet=off)
		[[ $uncached != *" $module "* ]] || flags+=(-count=1)
		(
			cd "$module"
			[[ $workspace == *" $module "* ]] || export GOWORK=off
			go list ./... | grep -v '/e2e/hetzner/specs$' | xargs go test "${flags[@]}"
		) || failed=1
	done
	return $failed
}

echo "compiling and testing $*: minutes the first time (Ctrl-C stops it)"
while sleep 20 >/dev/null 2>&1; do echo "testing: $SECONDS s so far"; done &
trap 'kill $!' EXIT
# At the end, it says what was tested, and fails if nothing was.
# shellcheck disable=SC2016
run "$@" | "$gotestsum" --format=pkgname --format-icons=text --ignore-non-json-output-lines --raw-command \
	--post-run-command='sh -c "echo unit: \$((TESTS_TOTAL-TESTS_FAILED-TESTS_SKIPPED)) passed, \$TESTS_FAILED failed, \$TESTS_SKIPPED skipped; test \$TESTS_TOTAL -gt 0"' \
	-- cat
