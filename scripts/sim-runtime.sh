#!/usr/bin/env bash
# Writes the overlay with which the simulation is compiled (go build -overlay), and prints its name. It replaces a few
# lines of Go's runtime, so that a seed gives the same history each time, on a busy machine too:
#
#	runtime/rand.go         chance (the order of maps, of select, and of timers that fire at the same instant) is a
#	                        sequence that begins anew in each testing/synctest bubble
#	runtime/proc.go         the monitor takes no processor away from a goroutine that runs for long or is in a system
#	                        call, and the global queue is not looked at every 61st time
#	internal/sync/mutex.go  a mutex is not handed over in another way after a millisecond of waiting
#
# The synctest package alone gives fake time, but leaves all of this to chance.
set -eu
"$(dirname "$0")/need.sh" go
set -o pipefail
root=$(go env GOROOT)/src
out=${TMPDIR:-/tmp}/ccm-sim-runtime-$(go env GOVERSION)-$(id -u)
mkdir -p "$out"

# change <file of the runtime> <line> <text that replaces it>...
change() {
	local from=$root/$1 to=$out/${1//\//_} text
	shift
	text=$(cat "$from" && printf x)
	while [ $# -gt 0 ]; do
		case $text in
		*"$1"*) text=${text/"$1"/"$2"} ;;
		*)
			echo "$from has no longer: $1: correct $0 for $(go env GOVERSION)" >&2
			exit 1
			;;
		esac
		shift 2
	done
	text=${text%x}
	# The same content keeps its time, so that nothing is compiled again.
	[ -f "$to" ] && [ "$(cat "$to" && printf x)" = "${text}x" ] || printf '%s' "$text" >"$to"
}

change runtime/rand.go \
	$'func rand() uint64 {\n' \
	$'func rand() uint64 {\n\tif gp := getg().m.curg; gp != nil && gp.bubble != nil {\n\t\treturn bubbleRand(gp.bubble)\n\t}\n' \
	$'func cheaprand() uint32 {\n' \
	$'func cheaprand() uint32 {\n\tif gp := getg().m.curg; gp != nil && gp.bubble != nil {\n\t\treturn uint32(bubbleRand(gp.bubble))\n\t}\n' \
	$'// rand32 is uint32(rand())' \
	$'var bubbleRandID, bubbleRandState uint64\n\n//go:nosplit\nfunc bubbleRand(b *synctestBubble) uint64 {\n\tif bubbleRandID != b.id {\n\t\tbubbleRandID, bubbleRandState = b.id, 0\n\t}\n\tbubbleRandState += 0x9e3779b97f4a7c15\n\tz := bubbleRandState\n\tz = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9\n\tz = (z ^ (z >> 27)) * 0x94d049bb133111eb\n\treturn z ^ (z >> 31)\n}\n\n// rand32 is uint32(rand())' \
	$'\tglobalRand.state.Init(*seed)\n' \
	$'\tclear(seed[:])\n\tglobalRand.state.Init(*seed)\n'
change runtime/proc.go \
	$'func retake(now int64) uint32 {\n' \
	$'func retake(now int64) uint32 {\n\tif true {\n\t\treturn 0\n\t}\n' \
	'if pp.schedtick%61 == 0 && !sched.runq.empty() {' \
	'if false {'
change internal/sync/mutex.go 'starvationThresholdNs = 1e6' 'starvationThresholdNs = 1 << 62'

printf '{"Replace": {"%s": "%s", "%s": "%s", "%s": "%s"}}\n' \
	"$root/runtime/rand.go" "$out/runtime_rand.go" "$root/runtime/proc.go" "$out/runtime_proc.go" \
	"$root/internal/sync/mutex.go" "$out/internal_sync_mutex.go" >"$out/overlay.json"
echo "$out/overlay.json"
