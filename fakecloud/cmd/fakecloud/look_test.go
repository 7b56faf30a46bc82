package main

import (
	"bufio"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// silentServer accepts connections and answers none. It closes came when a request has come.
func silentServer(t *testing.T, came chan struct{}) string {
	t.Helper()
	socket := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = socket.Close() })
	go func() {
		conn, err := socket.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = bufio.NewReader(conn).ReadString('\n')
		close(came)
		<-t.Context().Done()
	}()
	return socket.Addr().String()
}

func TestTheLogOfAServerIsFollowedUntilItsEnd(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	state := s.start("--log-level", "debug")
	cmd := s.command("logs", "--follow")
	out := must(cmd.StdoutPipe())(t)
	check(t, cmd.Start())
	lines := bufio.NewScanner(out)
	next := func(want string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), want) {
				return
			}
		}
		t.Fatalf("%q did not come: %v", want, lines.Err())
	}
	next("msg=serving")
	get(t, state.Endpoint+"/volumes")
	next("path=/v1/volumes")
	s.must("stop")
	if runtime.GOOS != "windows" {
		next("msg=stopped")
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if log := s.must("logs"); !strings.Contains(log, "path=/v1/volumes") {
		t.Errorf("after the end: %s", log)
	}
}

func TestTheAddressOfThePage(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.refused("ui: no server of fakecloud start runs; start one with fakecloud start", "ui")
	state := s.start()
	if out := s.must("ui"); out != state.Control+"\n" {
		t.Errorf("%q, want %s", out, state.Control)
	}
	if runtime.GOOS != "linux" {
		t.Skip("opens it with another program")
	}
	bin := t.TempDir()
	script(t, bin, "xdg-open", `echo "$1" >"$0.opened"`)
	s.env = []string{"PATH=" + bin}
	s.must("ui", "--open")
	if opened, err := os.ReadFile(filepath.Join(bin, "xdg-open.opened")); err != nil || string(opened) != state.Control+"\n" {
		t.Errorf("opened %q, %v", opened, err)
	}
	s.env = []string{"PATH="}
	s.refused("ui: --open: ", "ui", "--open")
}

// script writes a program for a test.
func script(t *testing.T, dir, name, body string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
}

func TestTheDoctorNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("its programs are scripts of a shell")
	}
	busy := start(t, nil)
	api := strings.TrimSuffix(strings.TrimPrefix(busy.endpoint, "http://"), "/v1")
	control := strings.TrimPrefix(busy.control, "http://")
	bin, secret := t.TempDir(), strings.Repeat("b", len(fakecloud.DefaultToken))
	script(t, bin, "curl", `echo "curl 7.81.0 (x86_64) libcurl/7.81.0"`)
	script(t, bin, "go", `echo "go version go1.9.2 linux/amd64"`)
	script(t, bin, "kubectl", `echo "Client Version: v1.36.0"`)
	script(t, bin, "docker", `echo "permission denied while trying to connect to the Docker daemon socket" >&2; exit 1`)
	free := []string{"--listen", "127.0.0.1:0", "--control", "127.0.0.1:0"}
	for _, c := range []struct {
		name   string
		env    []string
		args   []string
		status int
		want   []string // regular expressions of lines
	}{
		{"a machine without a fault", nil, free, 0, []string{`ok +/.*/a folder can be written, for fakecloud start`,
			`ok +127.0.0.1:0 is free, for --listen`, `ok +127.0.0.1:0 is free, for --control`, `ok +HCLOUD_TOKEN has no token of the real cloud.*`,
			`ok +curl 7.81.0, .*`, `ok +kubectl 1.36.0, .*`, `note +jq, to read answers.*, is not there: install it .*`,
			`note +go 1.9.2, .*, is too old: install go1.26 or later`, `note +Docker Engine, .*, refuses this user: add it to the group docker.*`,
			`(ok|note) +127.65.0.1 is .*`, `(ok|note) +127.66.0.1 is .*`}},
		{"a real token", []string{"HCLOUD_TOKEN=" + secret}, free, 0, []string{`note +HCLOUD_TOKEN looks like a token of the real cloud.*unset it`}},
		{"no programs", []string{"PATH=/nowhere"}, free, 0, []string{`note +curl, .*, is not there.*`, `note +Docker Engine, .*, is not there.*`}},
		{"a port that is used", nil, []string{"--listen", api, "--control", "127.0.0.1:0"}, 1, []string{
			`fix +` + api + `, for --listen, cannot be used; end the program that has it, or name another address .*`}},
		{"a cloud that runs", nil, []string{"--listen", api, "--control", control}, 0, []string{
			`ok +a cloud runs already; its page is http://` + control + `\. .*`}},
		{"a state file in a file", []string{"FAKECLOUD_STATE_FILE=" + filepath.Join(bin, "curl", "server.json")}, free, 1, []string{
			`fix +the folder of the state file, for fakecloud start, cannot be written; name another one with --state-file: .*`}},
	} {
		s := newShell(t, append([]string{"PATH=" + bin}, c.env...)...)
		out, logs, status := s.run(append([]string{"doctor"}, c.args...)...)
		if status != c.status || logs != "" || strings.Contains(out, secret) {
			t.Errorf("%s: exit status %d, want %d\n%s%s", c.name, status, c.status, out, logs)
		}
		for _, want := range c.want {
			if !regexp.MustCompile(`(?m)^` + want + `$`).MatchString(out) {
				t.Errorf("%s: no line %s in\n%s", c.name, want, out)
			}
		}
	}
	s := newShell(t)
	state := s.start()
	if out := s.must("doctor"); !strings.Contains(out, "ok       a server of fakecloud start runs; its page is "+state.Control+"\n") {
		t.Errorf("while a server of start runs:\n%s", out)
	}
}

// The Go that the doctor asks for is that of the module.
func TestTheDoctorAsksForTheGoOfTheModule(t *testing.T) {
	t.Parallel()
	mod := must(os.ReadFile("../../go.mod"))(t)
	for _, tool := range tools {
		if tool.name == "go" && !strings.Contains(string(mod), "\ngo "+strings.TrimPrefix(tool.least, "go")+".") {
			t.Errorf("%s is not that of go.mod", tool.least)
		}
	}
}
