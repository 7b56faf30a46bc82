# The start of each transcript: a folder with a key and the hook, and clients of OpenSSH that ask nothing. 41749 is the port of web-1.
exec 2>&1
trap 'fakecloud stop >/dev/null; FAKECLOUD_STATE_FILE=$HOME/other.json fakecloud stop >/dev/null; kill $(jobs -p) 2>/dev/null' EXIT
cd "$HOME" || exit
mkdir .ssh
! command -v ssh-keygen >/dev/null || ssh-keygen -q -t ed25519 -N '' -f .ssh/id_ed25519
printf '%s\n' "IdentityFile $HOME/.ssh/id_ed25519" "UserKnownHostsFile $HOME/known" 'StrictHostKeyChecking accept-new' 'LogLevel ERROR' >config
port() { fakecloud guest "$1" | sed -n '1s/.* -p \([0-9]*\) .*/\1/p'; }
client() {
	local program=$1
	shift
	[ "$*" = "${*/41749/}" ] || set -- "${@/41749/$(port web-1)}"
	command "$program" -F config -o BatchMode=yes "$@"
}
ssh() { client ssh "$@"; }
scp() { client scp -q "$@"; }
sftp() { client sftp -q "$@"; }
