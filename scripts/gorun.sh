#!/bin/sh
# Compiles the program in a folder of the checkout, with progress, and becomes that program: scripts/gorun.sh FOLDER [ARGUMENTS…]
# A signal that ends it ends the program. Each checkout has one file per program in the user's cache, which Go does not link again
# while it is current.
set -eu
cd "$(dirname "$0")/.."
scripts/need.sh go
folder=$1 name=$(basename "$1")
shift
[ ! -e "$folder/go.mod" ] || export GOWORK=off # a module of its own: see go.work
programs=${XDG_CACHE_HOME:-$HOME/.cache}/ccm-from-scratch/programs/$(pwd -P | cksum | tr ' ' -)/$folder
program=$programs/$name new=$programs/$name.$$
mkdir -p "$programs"
# Another one may run or compile it at the same time: the new one takes its place at once, and is whole.
ln "$program" "$new" 2>/dev/null || :
trap 'rm -f "$new"' EXIT
scripts/progress.sh "compiling $folder" go -C "$folder" build -v -o "$new" . &
compile=$! stopped=''
trap 'stopped=yes; kill $compile 2>/dev/null' INT TERM HUP
status=0
wait $compile || status=$?
if [ -n "$stopped" ]; then
	wait $compile || :
	exit 130
fi
[ $status = 0 ] || exit $status
mv -f "$new" "$program" 2>/dev/null || rm "$new" # if both are the same file
trap - EXIT INT TERM HUP
exec "$program" "$@"
