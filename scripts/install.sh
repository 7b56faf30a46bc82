#!/bin/sh
# Puts the program fakecloud of this checkout into Go's folder of programs, and says whether a shell finds it there.
set -eu
cd "$(dirname "$0")/.."
scripts/progress.sh "compiling fakecloud" go -C fakecloud install -v ./cmd/fakecloud
bin=$(go env GOBIN)
[ -n "$bin" ] || bin=$(go env GOPATH | cut -d: -f1)/bin
echo "$bin/fakecloud is installed"
found=$(command -v fakecloud || :)
case :$PATH: in
*:"$bin":*)
	[ "$found" = "$bin/fakecloud" ] || echo "fakecloud alone starts $found, which comes first in your PATH: remove that, or change the order"
	;;
*)
	echo "that folder is not in your PATH: add this line to the file that your shell reads first, such as ~/.profile or ~/.zshrc:"
	echo "export PATH=\"\$PATH:$bin\""
	;;
esac
