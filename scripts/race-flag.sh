#!/usr/bin/env bash
# Prints -race where the race detector can be used: it needs cgo and a C compiler.
if [ "$(go env CGO_ENABLED)" = 1 ] && command -v "$(go env CC)" >/dev/null 2>&1; then
	echo -race
else
	echo "note: no C compiler, so the tests run without the race detector" >&2
fi
