#!/usr/bin/env bash
# Makes sure that there is a browser for the tests of web pages, and prints its path. On Debian and Ubuntu, root gets one installed.
set -euo pipefail
find_browser() {
	local name
	for name in "${BROWSER:-}" chromium-headless-shell headless-shell chromium chromium-browser google-chrome; do
		if [ -n "$name" ] && command -v "$name"; then return; fi
	done
	return 1
}
if find_browser; then exit; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	echo "installing Chromium (100 MB, once)" >&2
	apt-get update -qq >&2
	apt-get install -y -qq --no-install-recommends chromium-headless-shell >/dev/null ||
		apt-get install -y -qq --no-install-recommends chromium >/dev/null
	find_browser
	exit
fi
echo "no browser is found: install Chromium, or set BROWSER to its path" >&2
exit 1
