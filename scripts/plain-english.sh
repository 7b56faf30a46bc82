#!/bin/sh
# Counts stiff turns in the comments of Go files, per 10,000 words, and fails if there are more than the limit (CONTRIBUTING.md, "Plain
# English"). A turn is often right; many of them make a text that has to be read twice. net/http has 32.
#
#   scripts/plain-english.sh          prints the number of each part
#   scripts/plain-english.sh PATH...  prints the comments of these files that have one
set -eu
cd "$(dirname "$0")/.."
limit=26

turns='also (if|after|when|while|without|with|for|by|where)|anew|whose|that there (is|are|was|were)|(is|are|be|was|were) (no|none)
(of|for|from|to|by|with|in|about|than|as|and|or|that) what|(,|of|in|from|for|by|to|at|after|under|on) which|of (its|their) own
(has|have) (found|made|sent|seen|set|created|read|run|written|taken|begun|ended|changed|asked|left|added|lost|become|had)'

git rev-parse --git-dir >/dev/null # else git grep below would find nothing
show=$#
[ $# -gt 0 ] || set -- '*.go'
git grep --untracked -nE -e '^[[:space:]]*//' -- "$@" | awk -v show="$show" -v limit="$limit" -v turns="$(echo "$turns" | paste -sd'|' -)" '
	BEGIN {
		gsub(/ /, "  ", turns)
		turns = " (" turns ") " # each word stands between two spaces, so that turns can follow each other
	}
	{
		part = $0
		sub(/[\/:].*/, "", part)
		text = tolower(substr($0, index($0, "//") + 2))
		words[part] += split(text, word, " ")
		gsub(/,/, " , ", text)
		gsub(/[^a-z,]+/, "  ", text)
		text = "  " text "  "
		n = gsub(turns, "&", text)
		found[part] += n
		if (show && n) print
	}
	END {
		for (part in words) {
			if (!show) printf "stiff turns in 10,000 words of comments: %s %d\n", part, found[part] * 10000 / words[part]
			allWords += words[part]
			all += found[part]
		}
		all = int(all * 10000 / (allWords + !allWords))
		if (!show) printf "stiff turns in 10,000 words of comments: %d, at most %d\n", all, limit
		exit !show && all > limit
	}'
