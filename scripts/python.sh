#!/usr/bin/env bash
# Makes sure that there is a Python with the packages hcloud and requests, for the tests of the pages, and prints its path. The first that
# has both is taken: $PYTHON, those of PATH, /usr/bin/python3, one of an earlier run. Without one, the packages are installed: Debian's for
# root, else those of PyPI into a virtual environment in the user's cache.
set -euo pipefail
version=2.27.0 # of hcloud, from PyPI
environment=${XDG_CACHE_HOME:-$HOME/.cache}/ccm-from-scratch/python-hcloud-$version
find_python() {
	local python
	for python in "${PYTHON:-}" python3 python /usr/bin/python3 "$environment/bin/python"; do
		if [ -n "$python" ] && "$python" -c 'import hcloud, requests' 2>/dev/null; then
			command -v "$python"
			return
		fi
	done
	return 1
}
if find_python; then exit; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	echo "installing python3-hcloud (1 MB, once)" >&2
	if apt-get update -qq >&2 && apt-get install -y -qq --no-install-recommends python3-hcloud >/dev/null && find_python; then exit; fi
fi
if command -v python3 >/dev/null; then
	echo "installing hcloud $version of PyPI into $environment (1 MB, once)" >&2
	if python3 -m venv "$environment" >&2 && "$environment/bin/python" -m pip install -q "hcloud==$version" requests >&2 && find_python; then exit; fi
fi
echo "no Python has hcloud and requests: install them with pip install hcloud requests, or set PYTHON to the path of one that has" >&2
exit 1
