#!/bin/sh
# Fails if a text contains a phrase of the list below (see CONTRIBUTING.md, "Plain English"). It prints
# the place, the phrase and the plain words. It does not find a phrase that is split over two lines.
# A line of the list is a regular expression, the plain words, and what is plain although it matches.
#
#   scripts/plain-english.sh          checks everything
#   scripts/plain-english.sh PATH...  checks these paths
set -eu
cd "$(dirname "$0")/.."

phrases='nobody|no one, or say who: no client, no spec|NoBody
somebody|someone, or say who: another client, a user
whoever|the one that, or say who: the caller, a user
beside|next to, in addition to
in place of|instead of
goes on|continues
for ever|forever, without end
tells whether|reports whether
of whom|of which, whose
(t?here )?is no [a-z]+|is not a, must be, cannot|here is no|is no longer
(t?here )?are no [a-z]+|are not, must be, cannot|here are no|are no longer
knows no|does not know
takes it that|assumes that
take it that|assume that
tells that|reports whether, shows that
no news|nothing new
no business|say who does it'

[ $# -gt 0 ] || set -- '*.go' '*.md' '*.sh' '*.yaml' '*.yml' '*.tpl' '*.txt' '*.html' '*Makefile' '.ci/*'
git rev-parse --git-dir >/dev/null # else git grep below would find nothing
status=0
while IFS='|' read -r phrase plain but; do
	found=$(git grep --untracked -nowiE -e "$phrase" -- "$@" ':(exclude)scripts/plain-english.sh' |
		grep -vE "${but:-^$}" | sed "s/\$/: write: $plain/")
	[ -z "$found" ] || {
		echo "$found"
		status=1
	}
done <<EOT
$phrases
EOT
exit $status
