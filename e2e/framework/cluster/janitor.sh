# shellcheck shell=sh
# janitor <folder>: see janitor.go. Portable sh: it runs on Linux and on macOS.
trap '' HUP INT TERM
cat >/dev/null # until the process that hired us closes the pipe or dies
for note in "$1"/pids/*; do
	[ -f "$note" ] || continue
	read -r pid <"$note" || continue
	kill -s KILL -- "-$pid" 2>/dev/null # dash does not know -KILL before --
done
# A process that dies may still write for a moment.
tries=0
until rm -rf -- "$1" 2>/dev/null || [ "$tries" -ge 50 ]; do
	tries=$((tries + 1))
	sleep 0.1
done
[ ! -e "$1" ]
