package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/remote"
)

// shell runs the program in separate processes that share a state file.
type shell struct {
	*testing.T
	stateFile string
	env       []string
}

func newShell(t *testing.T, env ...string) *shell {
	t.Helper()
	s := &shell{t, filepath.Join(t.TempDir(), "a folder", "server.json"), env}
	t.Cleanup(func() { _, _, _ = s.run("stop") })
	return s
}

func (s *shell) command(args ...string) *exec.Cmd {
	cmd := exec.Command(program(), args...)
	cmd.Env = append(append(os.Environ(), "TEST_RUN_FAKECLOUD=1", "HCLOUD_TOKEN=", "FAKECLOUD_STATE_FILE="+s.stateFile), s.env...)
	return cmd
}

// run returns what the program prints, and its exit status.
func (s *shell) run(args ...string) (out, logs string, status int) {
	s.Helper()
	var stdout, stderr bytes.Buffer
	cmd := s.command(args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); errors.As(err, &exit) {
		status = exit.ExitCode()
	} else if err != nil {
		s.Fatalf("%v: %v", args, err)
	}
	return stdout.String(), stderr.String(), status
}

// must fails the test if the program fails.
func (s *shell) must(args ...string) string {
	s.Helper()
	out, logs, status := s.run(args...)
	if status != 0 {
		s.Fatalf("%v: exit status %d\n%s%s", args, status, out, logs)
	}
	return out
}

// start starts a server on free ports.
func (s *shell) start(args ...string) server {
	s.Helper()
	s.must(append([]string{"start", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0"}, args...)...)
	return s.state()
}

func (s *shell) state() (state server) {
	s.Helper()
	text, err := os.ReadFile(s.stateFile)
	if err == nil {
		err = json.Unmarshal(text, &state)
	}
	check(s, err)
	return state
}

// refused checks that a command fails with a message.
func (s *shell) refused(say string, args ...string) {
	s.Helper()
	if out, logs, status := s.run(args...); status != 1 && status != 2 || !strings.Contains(logs, say) {
		s.Errorf("%v: exit status %d, want 1 or 2, and %q\n%s%s", args, status, say, out, logs)
	}
}

// absent checks that all commands say that no server runs.
func (s *shell) absent() {
	s.Helper()
	if out, _, status := s.run("status"); status != 3 || !strings.HasPrefix(out, "not running") {
		s.Errorf("status: exit status %d\n%s", status, out)
	}
	if out := s.must("stop"); !strings.HasPrefix(out, "nothing to stop") {
		s.Errorf("stop: %s", out)
	}
	s.refused("env: no server of fakecloud start runs", "env")
	s.refused("wait: not ready after 1ms", "wait", "--timeout", "1ms")
	s.refused("step: no server of fakecloud start runs", "step", "1h")
}

func TestAServerInTheBackground(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.absent()
	out := s.must("start", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0")
	state := s.state()
	m := exports.FindStringSubmatch(strings.SplitN(out, "\n", 2)[0])
	if m == nil || m[1] != state.Endpoint || m[2] != fakecloud.DefaultToken || state.PID == 0 || state.Started.IsZero() {
		t.Fatalf("%+v\n%s", state, out)
	}
	if info, err := os.Stat(s.stateFile); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("the file, which has a token: %v, %v", info.Mode(), err)
	}
	s.must("wait")
	if again := s.must("env"); again != out {
		t.Errorf("env: %s, want %s", again, out)
	}
	get(t, state.Endpoint+"/servers") // without a token
	s.refused("start: a server runs already at "+state.Endpoint, "start", "--listen", "127.0.0.1:0")
	status := s.must("status")
	for _, line := range []string{`running`, `endpoint +` + state.Endpoint, `page +` + state.Control, `control API +` + state.Control, `requests +1`,
		`running actions +0, .*`, `log +.*server\.log`} {
		if !regexp.MustCompile(`(?m)^` + line + `$`).MatchString(status) {
			t.Errorf("status lacks %q:\n%s", line, status)
		}
	}
	log, err := os.ReadFile(state.Log)
	if err != nil || !strings.Contains(string(log), "msg=serving") || strings.Contains(string(log), "WARN") {
		t.Errorf("log: %v\n%s", err, log)
	}
	if out := s.must("stop"); out != "stopped\n" {
		t.Errorf("stop: %q", out)
	}
	if log, err := os.ReadFile(state.Log); err != nil || runtime.GOOS != "windows" && !strings.Contains(string(log), "msg=stopped") {
		t.Errorf("log: %v\n%s", err, log)
	}
	s.absent()
}

func TestAServerInTheBackgroundGetsTheFlags(t *testing.T) {
	t.Parallel()
	s := newShell(t, "FAKECLOUD_ACTIONS=250ms", "FAKECLOUD_CONTROL=127.0.0.1:0", "FAKECLOUD_TOKEN=of-the-environment")
	s.must("start", "--listen", "127.0.0.1:0", "--token", "one", "--token", "staging=two,3", "--rate-limit", "77", "--allowed-hosts", "a,b")
	state := s.state()
	// All users of the machine can read a command line.
	if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", state.PID)); err == nil && strings.Contains(string(line), "two") {
		t.Errorf("the server's command line has a token: %q", line)
	}
	if body := get(t, state.Control+"/tokens/two%2C3"); !strings.Contains(body, "staging") {
		t.Errorf("the token with a comma: %s", body)
	}
	for path, say := range map[string]string{"/profile": "250ms", "/rate_limit": "77", "/projects": "staging"} {
		if body := get(t, state.Control+path); !strings.Contains(body, say) {
			t.Errorf("%s: %s, want %s", path, body, say)
		}
	}
	if state.Token != "one" || !strings.Contains(s.must("status"), state.Control) {
		t.Errorf("%+v", state)
	}
}

func TestAServerThatWasKilledDoesNotRun(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	first := s.start()
	process := must(os.FindProcess(first.PID))(t)
	check(t, process.Kill())
	lock, err := acquire(t.Context(), s.stateFile+serverLock) // until it is gone
	check(t, err)
	_ = lock.Close()
	s.absent()
	if second := s.start(); second.PID == first.PID || second.Endpoint == "" {
		t.Errorf("%+v after %+v", second, first)
	}
}

// The process id of a server that is gone may be that of another program, here of the test: stop must not end it.
func TestAProcessIDThatAnotherProgramHasIsNotStopped(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	check(t, os.Mkdir(filepath.Dir(s.stateFile), 0o700))
	p := start(t, nil)
	check(t, (&server{PID: os.Getpid(), Endpoint: p.endpoint, Control: p.control}).write(s.stateFile))
	s.absent()
	if state := s.start(); state.PID == os.Getpid() {
		t.Errorf("%+v", state)
	}
}

func TestOneOfManyStartsWins(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for range 5 {
		wg.Go(func() {
			_, logs, status := s.run("start", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0")
			mu.Lock()
			defer mu.Unlock()
			if status == 0 {
				won++
			} else if !strings.Contains(logs, "a server runs already") {
				t.Errorf("exit status %d: %s", status, logs)
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Errorf("%d starts succeeded, want 1", won)
	}
	s.must("status")
}

func TestAServerThatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	taken := start(t, nil)
	address := strings.TrimPrefix(taken.control, "http://")
	s.refused("start: the server ended before it was ready: --listen "+address+": another program uses that port", "start",
		"--control", "127.0.0.1:0", "--listen", address)
	s.refused("start: --control off: fakecloud start needs the control API", "start", "--control", off)
	s.absent()
}

func TestTheJournalIsFollowed(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	state := s.start()
	get(t, state.Endpoint+"/servers?name=earlier")
	cmd := s.command("journal", "--follow", "--errors")
	out := must(cmd.StdoutPipe())(t)
	check(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := bufio.NewScanner(out)
	next := func(want string) {
		t.Helper()
		if !lines.Scan() || !regexp.MustCompile(`^\d{4}-\d\d-\d\dT[\d:.]+Z `+want+` [\d.µm]*s$`).MatchString(lines.Text()) {
			t.Errorf("%q, want %q: %v", lines.Text(), want, lines.Err())
		}
	}
	next(`GET /v1/servers\?name=earlier 401 unauthorized`)
	req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, state.Endpoint+"/locations", nil))(t)
	req.Header.Set("Authorization", "Bearer "+state.Token)
	if resp, err := http.DefaultClient.Do(req); err != nil || resp.StatusCode != http.StatusOK { // is not selected
		t.Fatal(resp, err)
	}
	get(t, state.Endpoint+"/a%1B%5B2J%0Ab%C2%9B%E2%80%AE")
	next(`GET /v1/a\\x1b\[2J\\nb\\u009b\\u202e 404 not_found`)
	if err := cmd.Process.Signal(os.Interrupt); err != nil && runtime.GOOS != "windows" {
		t.Fatal(err)
	}
	if lines.Scan() && runtime.GOOS != "windows" {
		t.Errorf("%q after the interrupt", lines.Text())
	}
}

func TestACloudIsSteeredFromAShell(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "--speed", "0")
	cloud := remote.New(p.control)
	before := must(cloud.Now(t.Context()))(t)
	for _, step := range []struct {
		args []string
		want string // a regular expression; after "error: ", of the error
	}{
		{[]string{"step", "1d"}, "^the cloud's clock shows .* and runs at speed 0\n$"},
		{[]string{"step", "soon"}, `error: ^step: duration "soon": must be a number with a unit`},
		{[]string{"speed", "60"}, "speed 60\n$"},
		{[]string{"speed", "fast"}, `error: ^speed: "fast": must be a number`},
		{[]string{"fault", "list"}, "^$"},
		{[]string{"fault", "add", `{"name": "a", "operation": "create_server", "first": 2, "effect": {"kind": "drop", "after": true}}`}, "^a\n$"},
		{[]string{"fault", "add", "--name", "b", "--writes", "--effect", "api_error", "--code", "conflict", "--latency", "2s"}, "^b\n$"},
		{[]string{"fault", "add", `{"name": "b", "first": 1, "effect": {"kind": "reset"}}`, "--name", "c", "--first", "3"}, "^c\n$"},
		{[]string{"fault", "list"}, `(?s)^a took 0 of 0 requests: .*"first":2.*\nb took.*"writes":true.*"latency":"2s","code":"conflict".*` +
			`\nc took.*"first":3,"effect":{"kind":"reset"}`},
		{[]string{"fault", "add"}, `error: ^add fault rule: effect.kind "": must be one of api_error, cut_body`},
		{[]string{"fault", "add", `{"first": `}, `error: ^fault add: the rule must be JSON`},
		{[]string{"fault", "add", `{"firsts": 1}`}, `error: ^fault add: the rule must be JSON.*firsts`},
		{[]string{"fault", "add", `{} {}`}, `error: ^fault add: the rule must be one JSON object`},
		{[]string{"fault", "remove", "a"}, "^$"},
		{[]string{"fault", "remove", "a"}, `error: ^fault remove: "a" does not exist`},
		{[]string{"scenario", "start", "sold-out=cx23@fsn1"}, "^1 sold-out: Server type cx23 is sold out in fsn1"},
		{[]string{"scenario", "list"}, "(?s)^running 1 sold-out: .*\nsold-out: "},
		{[]string{"scenario", "end", "1"}, "^$"},
		{[]string{"scenario", "end", "1"}, "error: ^scenario 1 does not exist"},
		{[]string{"scenario", "end", "one"}, `error: ^scenario end: "one": must be an id`},
		{[]string{"reset", "--keep", "faults"}, "^$"},
		{[]string{"fault", "list"}, `^b took`},
		{[]string{"reset", "--keep", "all"}, "error: ^keep: unknown part"},
		{[]string{"reset"}, "^$"},
		{[]string{"fault", "list"}, "^$"},
		{[]string{"journal", "--limit", "-1"}, "error: ^journal: --limit -1: must be"},
		{[]string{"status", "--markdown"}, `(?s)\| all \| 0 \| 0 \| 0 \|\n$`},
		{[]string{"env", "--shell", "tcsh"}, `error: ^env: `},
		{[]string{"completion", "bash"}, "fakecloud"},
	} {
		cmd := newCommand(environment{"FAKECLOUD_CONTROL": p.control, "FAKECLOUD_STATE_FILE": filepath.Join(t.TempDir(), "s")}.lookup, nil)
		cmd.SetArgs(step.args)
		var out bytes.Buffer
		cmd.SetOut(&out)
		err := cmd.ExecuteContext(t.Context())
		got, want := out.String(), step.want
		if say, ok := strings.CutPrefix(want, "error: "); ok && err != nil {
			got, want, err = err.Error(), say, nil
		}
		if err != nil || !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%q: %v\n%s\nwant %s", step.args, err, got, step.want)
		}
	}
	if after, err := cloud.Now(t.Context()); err != nil || after.Sub(before) < 3600e9 {
		t.Errorf("from %v to %v, %v", before, after, err)
	}
}

// Each of these texts may be of somebody else who uses the cloud.
func TestNoCommandPrintsControlCharacters(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.start()
	s.must("fault", "add", "--name", "a\x1b[2J\u009b", "--operation", "list_servers", "--effect", "drop")
	file := filepath.Join(t.TempDir(), "a.yaml")
	text := "name: mine\ndescription: \"\\e]0;title\\n9 forged\"\nchanges: [{limit: {project: 1, kind: server, most: 1}}]\n"
	check(t, os.WriteFile(file, []byte(text), 0o600))
	started := s.must("scenario", "start", file)
	listed, faults, summary := s.must("scenario", "list"), s.must("fault", "list"), s.must("status", "--markdown")
	for out, want := range map[string]string{
		started: `\x1b]0;title\n9 forged`, listed: `\x1b]0;title\n9 forged`, faults: `a\x1b[2J\u009b took`, summary: `| a\x1b[2J\u009b |`,
	} {
		if !strings.Contains(out, want) || strings.ContainsAny(out, "\x1b\u009b") {
			t.Errorf("%q, want %s", out, want)
		}
	}
}

func TestTheSummaryCountsRequestsAndFaults(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	state := s.start()
	s.must("fault", "add", "--name", "a|b", "--operation", "list_servers", "--effect", "api_error", "--code", "conflict")
	for _, path := range []string{"/servers", "/servers", "/locations"} {
		req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, state.Endpoint+path, nil))(t)
		req.Header.Set("Authorization", "Bearer "+state.Token)
		must(http.DefaultClient.Do(req))(t)
	}
	get(t, state.Endpoint+"/nowhere")
	out := s.must("status", "--markdown")
	for _, row := range []string{"| list_servers | 2 | 2 | 2 |", "| list_locations | 1 | 0 | 0 |", "| all | 4 | 3 | 2 |",
		"| none: GET of an unknown path | 1 | 1 | 0 |", `| a\|b | api_error | 2 | 2 |`} {
		if !strings.Contains(out, row+"\n") {
			t.Errorf("no row %s in\n%s", row, out)
		}
	}
	out = s.must("journal", "--operation", "list_servers", "--limit", "1")
	if strings.Count(out, "\n") != 1 || !strings.Contains(out, "fault=a|b") {
		t.Errorf("journal: %s", out)
	}
}

func TestEachShellReadsItsLines(t *testing.T) {
	t.Parallel()
	s := server{Endpoint: "http://127.0.0.1:1/v1", Token: `it's\`, CA: "a b", Control: "http://127.0.0.1:2"}
	for shell, want := range map[string]string{
		"zsh": "export HCLOUD_ENDPOINT=http://127.0.0.1:1/v1 HCLOUD_TOKEN='it'\\''s\\'\nexport SSL_CERT_FILE='a b'\n",
		"fish": "set -gx HCLOUD_ENDPOINT 'http://127.0.0.1:1/v1'\nset -gx HCLOUD_TOKEN 'it\\'s\\\\'\n" +
			"set -gx SSL_CERT_FILE 'a b'\n",
		"powershell": "$env:HCLOUD_ENDPOINT = 'http://127.0.0.1:1/v1'\n$env:HCLOUD_TOKEN = 'it''s\\'\n" +
			"$env:SSL_CERT_FILE = 'a b'\n",
	} {
		var out bytes.Buffer
		if err := s.export(&out, shell); err != nil || out.String() != want+controlLine+"http://127.0.0.1:2\n" {
			t.Errorf("%s: %v\n%s", shell, err, out.String())
		}
	}
	if err := s.export(&bytes.Buffer{}, "tcsh"); err == nil || !strings.Contains(err.Error(), `--shell "tcsh": must be one of`) {
		t.Errorf("%v", err)
	}
}

func TestWarnsOfATokenOfTheRealCloud(t *testing.T) {
	t.Parallel()
	for token, warn := range map[string]bool{
		"": false, fakecloud.DefaultToken: false, strings.Repeat("a", 64): false, strings.Repeat("b", 64): true,
		strings.Repeat("b", 63): false, strings.Repeat("b", 63) + "-": false,
	} {
		var out bytes.Buffer
		(&server{Token: strings.Repeat("a", 64)}).warnRealToken(&out, environment{"HCLOUD_TOKEN": token}.lookup, replacedToken)
		text := out.String()
		if (text != "") != warn || warn && (!strings.Contains(text, "HCLOUD_ENDPOINT") || strings.Contains(text, token)) {
			t.Errorf("%q: %s", token, text)
		}
	}
	s := newShell(t, "HCLOUD_TOKEN="+strings.Repeat("b", 64))
	s.start()
	if out, logs, _ := s.run("env"); !strings.Contains(logs, "looks like a token of the real cloud") || strings.Contains(out, "warning") {
		t.Errorf("%s\n%s", out, logs)
	}
}
