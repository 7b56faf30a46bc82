package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/doors/proxy"
)

func TestWrongUseOfTheDoorsIsExplained(t *testing.T) {
	t.Parallel()
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	check(t, os.WriteFile(rules, []byte("- output: a"), 0o600))
	for _, c := range [][2]string{
		{"exec true", "1 exec: no cloud answers at http://127.0.0.1:1/v1: start one with fakecloud start and unset HCLOUD_ENDPOINT, or " +
			"name another one with it (dial tcp 127.0.0.1:1: connect: connection refused)"},
		{"exec", "2 exec: wrong number of arguments, 0; the form is fakecloud exec [flags] [--] COMMAND [ARGUMENT]..."},
		{"--proxy 0.0.0.0:0", `2 --proxy: proxy address "0.0.0.0:0": must be host:port of a loopback address, such as 127.0.0.1:4245`},
		{"--proxy 127.0.0.1:0 --proxy-allow a/b", `2 --proxy: allowed host "a/b": must be a host or host:port, such as ` +
			"registry.terraform.io"},
		{"--dns 5300", "2 --dns: DNS address 5300: listen udp: address 5300: missing port in address; choose another port " +
			"(0 is any free one)"},
		{"--guests-rules " + rules, `2 --guests-rules ` + rules + ": rule 1: match is missing; write a regular expression for the command"},
		{"--guests-rules /none", "1 --guests-rules /none: open /none: no such file or directory"},
	} {
		line, want := c[0], c[1]
		args := strings.Fields(line)
		if strings.HasPrefix(line, "--") {
			args = append(args, "--listen", "127.0.0.1:0", "--control", off)
		}
		_, err := execute(t, environment{"FAKECLOUD_STATE_FILE": rules + ".json", "HCLOUD_ENDPOINT": "http://127.0.0.1:1/v1"}, args...)
		if got := fmt.Sprint(exitStatus(err), " ", err); got != want {
			t.Errorf("%s: %s\nwant %s", line, got, want)
		}
	}
}

func TestEachShellReadsTheLinesOfADoor(t *testing.T) {
	t.Parallel()
	for shell, want := range map[string][2]string{
		"bash":       {"unset HCLOUD_ENDPOINT\n", "export JAVA_TOOL_OPTIONS='-Dx -Dhttps.proxyHost=127.0.0.1 "},
		"fish":       {"set -e HCLOUD_ENDPOINT\n", "set -gx HCLOUD_TOKEN 't\\'t'\n"},
		"powershell": {"Remove-Item -ErrorAction Ignore Env:HCLOUD_ENDPOINT\n", "$env:HCLOUD_TOKEN = 't''t'\n"},
	} {
		var out bytes.Buffer
		s := server{Token: "t't", Door: &proxy.Access{Proxy: "http://127.0.0.1:1", Dir: "d"}}
		err := s.exportDoor(&out, shell, environment{"JAVA_TOOL_OPTIONS": "-Dx"}.lookup)
		if text := out.String(); err != nil || !strings.Contains(text, want[0]) || !strings.Contains(text, want[1]) {
			t.Errorf("%s: %v\n%s", shell, err, text)
		}
	}
}

// TestACommandRunsInFrontOfTheCloud has a server with HTTPS, and a command that gets the signals of exec.
func TestACommandRunsInFrontOfTheCloud(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("the commands are for another shell")
	}
	s := newShell(t)
	s.refused("start one with fakecloud start; this command knows no other cloud", "env", "--as-hetzner")
	s.start("--tls", "--tls-ca-out", filepath.Join(t.TempDir(), "ca.pem"))
	s.refused("the server has no proxy; start it with fakecloud start --proxy 127.0.0.1:4245", "env", "--as-hetzner")
	// kill $PPID interrupts exec. That waits for the command.
	script := `trap 'exit 9' INT; kill -INT $PPID; while :; do sleep 0.01; done`
	if out, logs, status := s.run("exec", "--", "sh", "-c", script); status != 9 || out+logs != "" {
		t.Errorf("exit status %d\n%s%s", status, out, logs)
	}
	script = `curl -sS -H "Authorization: Bearer $HCLOUD_TOKEN" https://api.hetzner.cloud/v1/servers`
	if out, logs, status := s.run("exec", "sh", "-c", script); status != 127 && !strings.Contains(out, `"servers": []`) {
		t.Errorf("exit status %d\n%s%s", status, out, logs)
	}
}

// TestTheGuestsOfAServerAreShown has a server without guests, too.
func TestTheGuestsOfAServerAreShown(t *testing.T) {
	t.Parallel()
	without := start(t, nil)
	_, err := execute(t, nil, "guest", "--control", without.control)
	if want := "guest: the server has no guests; start it with fakecloud start --guests"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	v := &vault{T: t, running: start(t, nil, "--guests", "--actions", "instant"), secrets: map[string]string{}}
	id := v.do("POST", "/servers", fields{"name": "web-1", "server_type": "cx23", "image": "debian-13"}, "server")
	for _, args := range [][]string{{}, {"web-1"}, {id}} {
		out, err := execute(t, nil, append([]string{"guest", "--control", v.control}, args...)...)
		if err != nil || !strings.HasPrefix(out, id+"  web-1  ssh -p ") {
			t.Errorf("%v: %q, %v", args, out, err)
		}
	}
	_, err = execute(t, nil, "guest", "--control", v.control, "none")
	if want := `guest: "none": no server with this name or id has a guest; fakecloud guest lists all`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
