#!/bin/sh
# Checks texts with plain-english.sh, scripts with shfmt and with shellcheck where that is installed, workflows with actionlint, and code with golangci-lint.
set -eu
cd "$(dirname "$0")/.."
scripts/need.sh go

status=0
scripts/plain-english.sh || status=1
shfmt=$(scripts/tool.sh shfmt)
shell() { git ls-files '*.sh' .ci/run kind/nodeimage/docker-shim/docker; }
shell | xargs "$shfmt" -d || status=1
if command -v shellcheck >/dev/null; then
	shell | xargs shellcheck --severity=warning --exclude=SC1007 || status=1
else
	echo "note: shellcheck is not installed, so the scripts are checked in CI only" >&2
fi
actionlint=$(scripts/tool.sh actionlint)
"$actionlint" || status=1
bin=$(scripts/tool.sh golangci-lint)
# golangci-lint looks at one module at a time.
for module in . e2e e2e/hetzner fakecloud fakecloud/gomegacloud kind/nodeimage; do
	echo "linting the module $module (minutes the first time; Ctrl-C stops it)" >&2
	# With less garbage collection it takes a quarter less of the processors, and up to twice the memory.
	work=off
	case $module in . | e2e | e2e/hetzner | fakecloud/gomegacloud) work= ;; esac
	(cd "$module" && GOWORK=$work GOGC=${GOGC:-400} "$bin" run --allow-parallel-runners "$@") || status=1
done
exit $status
