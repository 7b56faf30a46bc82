package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// execute runs a command within the test. It returns what it prints and its error.
func execute(t *testing.T, env environment, args ...string) (string, error) {
	t.Helper()
	cmd := newCommand(env.lookup, nil)
	cmd.SetArgs(args)
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// TestMessagesSayWhatToDo has each class of mistakes, with the whole message: a regular expression, where {…} stands for an address
// or a path.
func TestMessagesSayWhatToDo(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	check(t, os.WriteFile(text, []byte("hello"), 0o600))
	api := strings.TrimSuffix(strings.TrimPrefix(p.endpoint, "http://"), "/v1")
	fields := strings.NewReplacer("{control}", p.control, "{api}", api, "{dir}", dir, "{text}", text, "{none}", "127.0.0.1:1")
	for _, m := range []struct {
		line   string
		status int
		want   string
	}{
		// The parser's own words.
		{"--ratelimit 3", 2, `--ratelimit: there is no such flag; did you mean --rate-limit\? fakecloud --help lists all`},
		{"start --ratelimit 3", 2, `start: --ratelimit: there is no such flag; did you mean --rate-limit\? fakecloud start --help lists all`},
		{"--port 1", 2, `--port: there is no such flag; fakecloud --help lists all`},
		{"--background-state-fil x", 2, `--background-state-fil: there is no such flag; fakecloud --help lists all`},
		{"-x", 2, `-x: there is no such flag; fakecloud --help lists all`},
		{"journal -x", 2, `journal: -x: there is no such flag; fakecloud journal --help lists all`},
		{"--listen", 2, `--listen: the value is missing; write --listen host:port`},
		{"--rate-limit many", 2, `--rate-limit "many": must be a whole number`},
		{"journal --since -1", 2, `journal: --since "-1": must be a whole number of at least 0`},
		{"--speed fast", 2, `--speed "fast": must be a number`},
		{"--tls=maybe", 2, `--tls "maybe": must be true or false`},
		{"--keep-actions soon", 2, `--keep-actions: duration "soon": must be a number with a unit, such as 250ms, 1m30s or 1d`},
		{"--log-level loud", 2, `--log-level "loud": must be debug, info, warn or error`},
		{"stats", 2, `"stats": there is no such command; did you mean start or status\? fakecloud --help lists all`},
		{"down", 2, `"down": there is no such command; did you mean stop\? fakecloud --help lists all`},
		{"fault ad", 2, `fault: "ad": there is no such command; did you mean add\? fakecloud fault --help lists all`},
		{"snapshot store x", 2, `snapshot: "store": there is no such command; fakecloud snapshot --help lists all`},
		{"step", 2, `step: wrong number of arguments, 0; the form is fakecloud step DURATION \[flags\]`},
		{"stop it", 2, `stop: wrong number of arguments, 1; the form is fakecloud stop \[flags\]`},
		{"verify", 2, `verify: wrong number of arguments, 0; the form is fakecloud verify DIR \[flags\]`},
		// No cloud, or something else at its address.
		{"step 1h --control {none}", 1, `step: no cloud answers at http://{none}: start one with fakecloud start, or name its control API ` +
			`with --control \(.*refused.*\)`},
		{"snapshot save x --control {none}", 1, `snapshot save: no cloud answers at http://{none}: start one .*`},
		{"journal --control {api}", 1, `journal: http://{api} is not a control API: it answered 404; name its address with --control`},
		{"step 1h --control 4243", 2, `step: --control "4243": must be host:port, such as 127.0.0.1:4243`},
		{"logs", 1, `logs: no server of fakecloud start runs; start one with fakecloud start`},
		{"wait --timeout 1ms", 1, `wait: not ready after 1ms: no server of fakecloud start runs; start one with fakecloud start`},
		// What the cloud refuses, in its own words and once.
		{"step --control {control} -- -1h", 2, `clock step -1h0m0s: must be 0 to .*`},
		{"speed --control {control} -- -1", 2, `clock speed -1: must be 0 \(stand still\) to 1000000`},
		{"fault add --control {control} --effect drop --probability 2", 2, `add fault rule: probability 2: must be 0 to 1`},
		{"scenario start --control {control} sold-in", 1, `scenario "sold-in" does not exist; it must be one of .*`},
		{"reset --control {control} --keep all", 2, `keep: unknown part "all": must be one of .*`},
		// Files.
		{"snapshot load --control {control} {text}", 2, `{text}: line 1: not a line of a snapshot: .*`},
		{"snapshot load --control {control} {dir}", 1, `snapshot load: {dir}: is a directory; name a file of fakecloud snapshot save`},
		{"snapshot save --control {control} {dir}", 1, `snapshot save: {dir}: is a directory; name a file in it`},
		{"snapshot save --control {control} {dir}/none/x", 1, `snapshot save: write {dir}/none/x: no such file or directory`},
		{"--seed {dir}/none.yaml", 1, `--seed: open {dir}/none.yaml: no such file or directory`},
		{"--snapshot {text}", 2, `--snapshot {text}: line 1: not a line of a snapshot: .*`},
		{"--tls --tls-ca-out {dir}/none/ca.pem", 1, `--tls-ca-out: open {dir}/none/ca.pem: no such file or directory`},
		// Addresses.
		{"--listen 127.0.0.1:4200 --control 127.0.0.1:4200", 2, `--control 127.0.0.1:4200: the API listens there ` +
			`\(--listen 127.0.0.1:4200\); choose another port \(0 is any free one\)`},
		{"--listen :4200 --control 127.0.0.1:4200", 2, `--control 127.0.0.1:4200: the API listens there .*`},
		{"--listen 4242", 2, `--listen "4242": must be host:port, such as 127.0.0.1:4242: .*`},
		{"--listen {api}", 1, `--listen {api}: another program uses that port; stop it or choose another port .*`},
		{"record --out x --target y", 2, `record: --target "y": must be a URL such as https://api.hetzner.cloud/v1`},
	} {
		env := environment{"FAKECLOUD_STATE_FILE": filepath.Join(dir, "s.json")}
		args := strings.Fields(fields.Replace(m.line))
		if strings.HasPrefix(m.line, "--") && !strings.Contains(m.line, "listen") {
			args = append(args, "--listen", "127.0.0.1:0")
		}
		if strings.HasPrefix(m.line, "--") && !strings.Contains(m.line, "--control") && !slices.Contains(args, "--listen=") &&
			len(args) > 1 {
			args = append(args, "--control", "127.0.0.1:0")
		}
		if runtime.GOOS == "windows" && strings.Contains(m.want, "no such file") {
			continue // it has other words
		}
		_, err := execute(t, env, args...)
		if err == nil || !regexp.MustCompile("^"+fields.Replace(m.want)+"$").MatchString(err.Error()) || exitStatus(err) != m.status {
			t.Errorf("%s: exit status %d\n%v\nwant %d\n%s", m.line, exitStatus(err), err, m.status, fields.Replace(m.want))
		}
	}
	_, err := execute(t, environment{"FAKECLOUD_RATE_LIMIT": "many"}, "start")
	if want := `variable FAKECLOUD_RATE_LIMIT="many": must be a whole number`; err == nil || err.Error() != want || exitStatus(err) != 2 {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestAServerWithAWrongFlagEndsWithTheStatusOfOne(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	_, logs, status := s.run("start", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--actions", "soon")
	want := "fakecloud: start: action profile \"soon\": must be instant, realistic or a duration such as 250ms\n"
	if logs != want || status != 2 {
		t.Errorf("exit status %d, %s, want 2, %s", status, logs, want)
	}
}

// An interrupt is not an error of a request, and says so once.
func TestAnInterruptIsCalledOne(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("a test cannot interrupt a process there")
	}
	s := newShell(t)
	cmd := s.command("fault", "list", "--control")
	hung := make(chan struct{})
	cmd.Args = append(cmd.Args, silentServer(t, hung))
	var logs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &logs, &logs
	check(t, cmd.Start())
	<-hung
	_ = cmd.Process.Signal(os.Interrupt)
	_ = cmd.Wait()
	if logs.String() != "fakecloud: interrupted\n" || cmd.ProcessState.ExitCode() != 130 {
		t.Errorf("exit status %d\n%s", cmd.ProcessState.ExitCode(), logs.String())
	}
}

// TestHelpFitsATerminal looks at --help of each command.
func TestHelpFitsATerminal(t *testing.T) {
	t.Parallel()
	var all []*cobra.Command
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		all = append(all, cmd)
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(newCommand(environment{}.lookup, nil))
	for _, cmd := range all {
		if cmd.Example == "" && !cmd.HasSubCommands() {
			t.Errorf("%s: no example", cmd.CommandPath())
		}
		if cmd.Parent() == cmd.Root() && cmd.GroupID == "" {
			t.Errorf("%s: no group", cmd.CommandPath())
		}
		help, err := execute(t, nil, append(strings.Fields(cmd.CommandPath())[1:], "--help")...)
		if err != nil || !strings.Contains(help, "Usage:") || strings.Contains(help, "--json ") && cmd.Name() != "verify" {
			t.Errorf("%s: %v\n%s", cmd.CommandPath(), err, help)
		}
		for line := range strings.Lines(help) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > helpColumns {
				t.Errorf("%s: %d columns: %s", cmd.CommandPath(), n, line)
			}
		}
	}
	if help, _ := execute(t, nil, "--help"); !strings.Contains(help, "page") || !strings.Contains(help, "http://"+defaultControl) {
		t.Errorf("it does not name the page:\n%s", help)
	}
}

func TestTheVersionIsACommand(t *testing.T) {
	t.Parallel()
	flag, err := execute(t, nil, "--version")
	if command, err2 := execute(t, nil, "version"); err != nil || err2 != nil || command != flag || command == "" {
		t.Errorf("%q, %q: %v, %v", command, flag, err, err2)
	}
}
