#!/bin/sh
# Runs a go command that compiles, and shows on standard error that it works: at once what is waited for, and then how much was
# downloaded and compiled, on a terminal in one line that is rewritten, elsewhere in a line from time to time. What the command
# prints on standard output stays there.
#
#	scripts/progress.sh "compiling the CCM" go build -v -o ccm ./ccm/cmd/ccm-from-scratch
#
# `go build -v` (or `go install -v`, `go run -v`, `go vet -v`) names each package that it compiles on a line of its own;
# modules are lines that begin with "go: downloading". Other lines are passed on. PROGRESS_EVERY is in seconds.
set -u
what=$1 every=${PROGRESS_EVERY:-10} begin=$(date +%s) mark=$(printf '\036') width='' clear=''
shift
[ "$1" != go ] || "$(dirname "$0")/need.sh" go || exit
echo "$what ... (Ctrl-C stops it; what is compiled stays in Go's cache)" >&2
if [ -t 2 ]; then
	width=$(stty size <&2) width=${width#* } clear=$(printf '\r\033[K')
	[ "${width:-0}" -gt 1 ] || width=80
fi

say() { printf '%s%s\n' "$clear" "$1" >&2; }

# report says how far it is. `go test -c` names no package; then there is none to count.
report() {
	text="$what: $1" of=''
	[ "${total:-0}" -eq 0 ] || of=" of at most $total"
	[ "$compiled" -eq 0 ] || text="$text, $compiled$of packages compiled"
	[ "$downloaded" -eq 0 ] || text="$text, $downloaded modules downloaded"
	if [ -n "$width" ]; then
		printf "%s%.$((width - 1))s" "$clear" "$text" >&2
	else
		say "$text"
	fi
}

# count reads what the command prints on standard error. Those lines end with a mark that the clock below prints, perhaps in the
# middle of a line of the command.
count() {
	compiled=0 downloaded=0 total='' part='' offline='' shown=$begin
	while IFS= read -r line; do
		case $line in
		*"$mark"*)
			part=$part${line%"$mark"*} line=${line##*"$mark"}
			[ "$line" != end ] || break
			[ -n "$total" ] || [ $compiled = 0 ] || total=$(packages "$@")
			if [ -n "$width" ] || [ $((line - shown)) -ge "$every" ]; then
				shown=$line
				report "$((line - begin)) s so far"
			fi
			continue
			;;
		esac
		line=$part$line part=''
		case $line in
		'go: downloading '*) downloaded=$((downloaded + 1)) ;;
		*'module lookup disabled'* | *'dial tcp'*) # ten of these say no more than the first
			[ -n "$offline" ] || say "this needs modules that are not on this machine, and no proxy for them answers: connect it to the network for the first build, or set GOPROXY. Go says: $line"
			offline=1
			;;
		*[[:space:]:#]*) say "$line" ;;
		?*) compiled=$((compiled + 1)) ;;
		esac
	done
	[ -z "$part" ] || say "$part"
	ended=$(($(date +%s) - begin)) width='' # a line that stays
	if [ $ended -ge "$every" ]; then report "ended after $ended s"; else printf '%s' "$clear" >&2; fi
}

# packages prints how many packages `go build` or `go install` compiles at most, with the settings of its arguments.
packages() {
	list=$(echo "$*" | sed -nE 's/ -o [^ ]+//; s/ -v / /; s/ run ([^ ]+) .*/ build \1/; s/^(go( -C [^ ]+)?) (build|install) /\1 list -deps /p')
	$list 2>/dev/null | wc -l | tr -d ' '
}

# Standard error of the command and the clock share a pipe. Its end is not waited for, since a program in the background may keep it open.
pipe=$(mktemp -d) && mkfifo "$pipe/pipe" || exit
count "$@" <"$pipe/pipe" &
counter=$!
exec 3>"$pipe/pipe"
rm -r "$pipe"
while sleep 1 && printf '%s%s\n' "$mark" "$(date +%s)"; do :; done >&3 2>/dev/null &
clock=$!
"$@" 2>&3 3>&- &
command=$! stopped=''
# Go removes its temporary files after an interrupt, and only then.
trap 'stopped=yes; kill -INT $command 2>/dev/null && say "$what: stopping"' INT TERM HUP
wait $command
status=$?
while kill -0 $command 2>/dev/null; do # a signal ends wait, not the command
	wait $command
	status=$?
done
kill $clock 2>/dev/null
printf '%send\n' "$mark" >&3
wait $counter
[ -z "$stopped" ] || exit 130
exit $status
