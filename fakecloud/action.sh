#!/usr/bin/env bash
# The step of action.yml: gets the program, starts it, and tells the steps that follow where it is. Of the runner's files it uses
# GITHUB_PATH, GITHUB_ENV and GITHUB_OUTPUT.
set -euo pipefail
folder=$(cd "$(dirname "$0")" && pwd)
home=${RUNNER_TEMP:?}/fakecloud
bin=$home/bin
mkdir -p "$bin"
module=github.com/ccm-from-scratch/ccm-from-scratch/fakecloud
releases=${RELEASES_URL:-https://github.com/ccm-from-scratch/ccm-from-scratch/releases/download} # a test sets another one

# download gets the program of a release, and compares it with the release's checksums.
download() {
	local system arch name tmp=$home/download
	case $(uname -s) in
	Linux) system=linux ;;
	Darwin) system=darwin ;;
	*) system=windows ;;
	esac
	case $(uname -m) in
	aarch64 | arm64) arch=arm64 ;;
	*) arch=amd64 ;;
	esac
	name=fakecloud-$system-$arch
	[ $system != windows ] || name=$name.exe
	mkdir -p "$tmp"
	curl -fsSL --retry 3 -o "$tmp/$name" "$releases/$1/$name" || return 1
	curl -fsSL --retry 3 -o "$tmp/SHA256SUMS" "$releases/$1/SHA256SUMS" || return 1
	local sum
	sum=$(cd "$tmp" && { sha256sum "$name" 2>/dev/null || shasum -a 256 "$name"; } | cut -d' ' -f1)
	if ! grep -Eq "^$sum [ *]$name\$" "$tmp/SHA256SUMS"; then
		echo "::error::$name of release $1: its checksum is not in SHA256SUMS; try again, or use another version"
		exit 1
	fi
	chmod +x "$tmp/$name"
	mv "$tmp/$name" "$bin/fakecloud${name##*"$arch"}"
}

if [ -n "${INPUT_VERSION:-}" ]; then
	if ! download "$INPUT_VERSION"; then
		echo "release $INPUT_VERSION has no program for this runner, or cannot be reached: go install compiles it"
		GOBIN=$bin CGO_ENABLED=0 go install "$module/cmd/fakecloud@$INPUT_VERSION"
	fi
elif command -v go >/dev/null; then
	(cd "$folder" && GOWORK=off CGO_ENABLED=0 go build -o "$bin/" ./cmd/fakecloud)
else
	echo "::error::fakecloud: Go is not installed, which compiles the program: run actions/setup-go before, or set the input version"
	exit 1
fi

export FAKECLOUD_STATE_FILE=$home/server.json
read -ra args <<<"${INPUT_ARGS:-}"
# Ports that are free: other jobs may run on the machine. A warning becomes one of the job.
exports=$("$bin/fakecloud" start --listen=127.0.0.1:0 --control=127.0.0.1:0 --rate-limit="${INPUT_RATE_LIMIT:-0}" \
	--projects="${INPUT_PROJECTS:-fixed}" --actions="${INPUT_ACTIONS:-realistic}" ${args[@]+"${args[@]}"} \
	2> >(sed 's/^fakecloud: warning: /::warning::/' >&2))
eval "$exports"
echo "$bin" >>"$GITHUB_PATH"
{
	echo "HCLOUD_ENDPOINT=$HCLOUD_ENDPOINT"
	echo "HCLOUD_TOKEN=$HCLOUD_TOKEN"
	echo "FAKECLOUD_STATE_FILE=$FAKECLOUD_STATE_FILE"
	[ -z "${SSL_CERT_FILE:-}" ] || echo "SSL_CERT_FILE=$SSL_CERT_FILE"
} >>"$GITHUB_ENV"
{
	echo "endpoint=$HCLOUD_ENDPOINT"
	echo "control=$(sed -n 's/^# the page.*: //p' <<<"$exports")"
} >>"$GITHUB_OUTPUT"
"$bin/fakecloud" status
