#!/usr/bin/env bash
# Fuzzes every fuzz target of the repository, one after the other, for FUZZTIME each.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${FUZZTIME:-30s}
grep -rlE '^func Fuzz' --include='*_test.go' . | while read -r file; do
	grep -oE '^func Fuzz[A-Za-z0-9_]*' "$file" | awk '{print $2}' | while read -r target; do
		echo "== $target in $(dirname "$file")"
		# Without a limit, most of the time goes into making inputs shorter that are new, not into others.
		go test -C "$(dirname "$file")" -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1x . </dev/null
	done
done
