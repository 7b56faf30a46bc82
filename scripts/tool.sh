#!/bin/sh
# Prints the paths of programs of others: "$(scripts/tool.sh helm)" version. This is where their versions are. A program is
# compiled once, through the Go module proxy, and kept in the user's cache: nothing needs to be installed by hand, and no
# module of this repository gets its dependencies.
set -eu
cd "$(dirname "$0")/.."
scripts/need.sh go

cache=${XDG_CACHE_HOME:-$HOME/.cache}/ccm-from-scratch/tools
for name in "$@"; do
	case $name in
	actionlint) package=github.com/rhysd/actionlint/cmd/actionlint@v1.7.12 ;;
	controller-gen) package=sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0 ;;
	crane) package=github.com/google/go-containerregistry/cmd/crane@v0.22.1 ;;
	cyclonedx-gomod) package=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0 ;;
	golangci-lint) package=github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0 ;;
	gotestsum) package=gotest.tools/gotestsum@v1.13.0 ;;
	govulncheck) package=golang.org/x/vuln/cmd/govulncheck@v1.9.0 ;;
	helm) package=helm.sh/helm/v4/cmd/helm@v4.3.1 ;;
	shfmt) package=mvdan.cc/sh/v3/cmd/shfmt@v3.14.1 ;;
	*)
		echo "$name: must be a program that scripts/tool.sh lists" >&2
		exit 2
		;;
	esac
	version=${package##*@}
	bin=$cache/$name-$version-$(go env GOVERSION)
	if [ ! -x "$bin" ]; then
		tmp=$bin.$$
		trap 'rm -rf "$tmp"' EXIT
		trap 'exit 130' INT TERM HUP
		GOBIN=$tmp GOFLAGS='' CGO_ENABLED=0 scripts/progress.sh "compiling $name $version (once; some minutes)" go install -v "$package" >&2
		mv "$tmp/$name" "$bin"
		rm -r "$tmp"
	fi
	echo "$bin"
done
