#!/usr/bin/env bash
# Runs a go command that compiles, and shows on standard error that it works: at once what is waited for, and from time to
# time how much was downloaded and compiled. What the command prints on standard output stays there.
#
#	scripts/progress.sh "compiling the CCM" go build -v -o ccm ./ccm/cmd/ccm-from-scratch
#
# `go build -v` (or `go install -v`, `go run -v`, `go vet -v`) names each package that it compiles on a line of its own;
# modules are lines that begin with "go: downloading". Other lines are passed on. PROGRESS_EVERY is in seconds.
set -uo pipefail
what=$1 every=${PROGRESS_EVERY:-10}
shift
echo "$what ... (Ctrl-C stops it; what is compiled stays in Go's cache)" >&2

# `go test -c` names no package; then there is none to count.
report() {
	local packages=''
	[ "$compiled" -eq 0 ] || packages=", $compiled packages compiled"
	echo "$what: $1$packages, $downloaded modules downloaded" >&2
}

count() {
	local line part='' shown=$SECONDS status
	compiled=0 downloaded=0
	while :; do
		IFS= read -r -t 1 line
		status=$?
		if [ $status -gt 128 ]; then
			part+=$line # the time is up, perhaps in the middle of a line
		elif [ $status -eq 0 ] || [ -n "$part$line" ]; then
			line=$part$line part=''
			case $line in
			'go: downloading '*) downloaded=$((downloaded + 1)) ;;
			*[[:space:]:#]* | '') [ -z "$line" ] || printf '%s\n' "$line" >&2 ;;
			*) compiled=$((compiled + 1)) ;;
			esac
		fi
		if [ $status -gt 0 ] && [ $status -le 128 ]; then
			break
		fi
		if [ $((SECONDS - shown)) -ge "$every" ]; then
			shown=$SECONDS
			report "$SECONDS s so far"
		fi
	done
	[ $SECONDS -lt "$every" ] || report "ended after $SECONDS s"
}

# The command's standard output is passed around the pipe that its standard error goes through.
{ "$@" 2>&1 >&3 3>&- | count 3>&-; } 3>&1
exit "${PIPESTATUS[0]}"
