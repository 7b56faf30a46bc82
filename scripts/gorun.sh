#!/usr/bin/env bash
# Compiles the program in a folder of the checkout, with progress, and runs it: scripts/gorun.sh FOLDER [ARGUMENTS…]
# Unlike `go run`, it shows from the first second that it works, and the program may leave a process in the background.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1
shift
[ ! -e "$folder/go.mod" ] || export GOWORK=off # a module of its own: see go.work
program=$(mktemp -d -t gorun.XXXXXX)
trap 'rm -rf "$program"' EXIT
scripts/progress.sh "compiling $folder" go -C "$folder" build -v -o "$program/$(basename "$folder")" .
"$program/$(basename "$folder")" "$@"
