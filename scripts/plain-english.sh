#!/usr/bin/env bash
# Fails if a text contains a phrase of the list below (see CONTRIBUTING.md, "Plain English"). It prints
# the place, the phrase and the plain words. It does not find a phrase that is split over two lines.
#
#   scripts/plain-english.sh          checks everything
#   scripts/plain-english.sh PATH...  checks these paths
set -euo pipefail
cd "$(dirname "$0")/.."

phrases='nobody|no one, or say who: no client, no spec
somebody|someone, or say who: another client, a user
whoever|the one that, or say who: the caller, a user
beside|next to, in addition to
in place of|instead of
goes on|continues
for ever|forever, without end
tells whether|reports whether
of whom|of which, whose'

paths=("$@")
if [ $# = 0 ]; then
	paths=('*.go' '*.md' '*.sh' '*.yaml' '*.yml' '*.tpl' '*.txt' '*.html' '*Makefile' '.ci/*')
fi
git rev-parse --git-dir >/dev/null # else git grep below would find nothing
status=0
while IFS='|' read -r phrase plain; do
	first=${phrase:0:1}
	if git grep --untracked -nowE "[${first^}$first]${phrase:1}" -- "${paths[@]}" ':(exclude)scripts/plain-english.sh' |
		sed "s/\$/: write: $plain/"; then
		status=1
	fi
done <<<"$phrases"
exit $status
