#!/usr/bin/env bash
# Checks texts with plain-english.sh and code with golangci-lint.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=$(scripts/tool.sh golangci-lint)
# golangci-lint looks at one module at a time.
status=0
scripts/plain-english.sh || status=1
for module in . fakecloud kind/nodeimage; do
	echo "linting the module $module (minutes the first time; Ctrl-C stops it)" >&2
	# With less garbage collection it takes a quarter less of the processors, and up to twice the memory.
	(cd "$module" && export GOWORK=$([ "$module" = . ] || echo off) && GOGC=${GOGC:-400} "$bin" run --allow-parallel-runners "$@") || status=1
done
exit $status
