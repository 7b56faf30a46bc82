package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/longtest"
)

// TestMain lets a test run this program, or the baseline of BenchmarkLoad, as a process of its own.
func TestMain(m *testing.M) {
	if os.Getenv("TEST_RUN_FAKECLOUD") != "" {
		if file, ok := strings.CutPrefix(os.Args[len(os.Args)-1], baselinePrefix); ok {
			fmt.Fprintln(os.Stderr, serveBaseline(file))
			os.Exit(1)
		}
		main()
		os.Exit(0)
	}
	status := m.Run()
	_ = os.RemoveAll(programFolder)
	os.Exit(status)
}

// programFolder has the program, if a test needed it and this process has the race detector.
var programFolder string

// program returns the file of the program that tests run as processes: this one, or one without the race detector. It would look for
// races in each process, and nothing would read them.
var program = sync.OnceValue(func() string {
	if !longtest.Raced() {
		return os.Args[0]
	}
	var err error
	if programFolder, err = os.MkdirTemp("", "fakecloud"); err != nil {
		panic(err)
	}
	file := filepath.Join(programFolder, "fakecloud"+filepath.Ext(os.Args[0]))
	if out, err := exec.Command("go", "build", "-o", file, ".").CombinedOutput(); err != nil {
		panic(fmt.Sprintf("go build: %v\n%s", err, out))
	}
	return file
})

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// must returns what a call has returned. An error ends the test: must(call())(t).
func must[T any](v T, err error) func(testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		check(tb, err)
		return v
	}
}

// did returns the error of a call of hcloud-go.
func did(_ any, _ *hcloud.Response, err error) error { return err }

// lockedBuffer is a buffer for concurrent use.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// running is a program that runs within the test.
type running struct {
	endpoint, token, control string
	logs                     *lockedBuffer
	lines                    []string
	stop                     func() error
}

// environment is a lookup function.
type environment map[string]string

func (e environment) lookup(name string) (string, bool) {
	v, ok := e[name]
	return v, ok
}

func (e environment) list() []string {
	var out []string
	for k, v := range e {
		out = append(out, k+"="+v)
	}
	return out
}

var exports = regexp.MustCompile(`^export HCLOUD_ENDPOINT=(\S+) HCLOUD_TOKEN=(\S+)$`)

// start runs the program and returns when it has printed where it listens. It uses free ports unless args name others.
func start(t *testing.T, env environment, args ...string) running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	p := running{logs: &lockedBuffer{}}
	cmd := newCommand(env.lookup, env.list())
	cmd.SetArgs(append([]string{"--listen", "127.0.0.1:0", "--control", "127.0.0.1:0"}, args...))
	cmd.SetOut(w)
	cmd.SetErr(p.logs)
	ended := make(chan error, 1)
	go func() {
		err := cmd.ExecuteContext(ctx)
		_ = w.Close()
		ended <- err
	}()
	p.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { _ = p.stop() })
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		p.lines = append(p.lines, lines.Text())
		if m := exports.FindStringSubmatch(lines.Text()); m != nil {
			p.endpoint, p.token = m[1], m[2]
		}
		if _, url, ok := strings.Cut(lines.Text(), controlLine); ok {
			p.control = url
			break // the last line
		}
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	if p.endpoint == "" {
		t.Fatalf("ended before it listened: %v\n%s", p.stop(), p.logs)
	}
	return p
}

func (p running) client(opts ...hcloud.ClientOption) *hcloud.Client {
	return hcloud.NewClient(append([]hcloud.ClientOption{hcloud.WithEndpoint(p.endpoint), hcloud.WithToken(p.token)}, opts...)...)
}

func get(t *testing.T, url string) string {
	t.Helper()
	req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))(t)
	resp := must(http.DefaultClient.Do(req))(t)
	defer func() { _ = resp.Body.Close() }()
	b := must(io.ReadAll(resp.Body))(t)
	return string(b)
}

func TestAClientNeedsOnlyThePrintedLines(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	types, err := p.client().ServerType.All(t.Context())
	if err != nil || len(types) == 0 {
		t.Errorf("%v, %v", types, err)
	}
	if p.token != fakecloud.DefaultToken {
		t.Errorf("token %q", p.token)
	}
	for path, say := range map[string]string{"/profile": "realistic", "/rate_limit": "3600", "/clock": `"speed": 1`} {
		if body := get(t, p.control+path); !strings.Contains(body, say) {
			t.Errorf("%s: %s, want %s", path, body, say)
		}
	}
	if err := p.stop(); err != nil {
		t.Error(err)
	}
	if logs := p.logs.String(); !strings.Contains(logs, "msg=serving") || !strings.Contains(logs, "msg=stopped") ||
		strings.Contains(logs, "WARN") {
		t.Errorf("%s", logs)
	}
}

func TestFlagsOverrideVariablesAndVariablesOverrideDefaults(t *testing.T) {
	t.Parallel()
	p := start(t, environment{
		"FAKECLOUD_ACTIONS": "5s", "FAKECLOUD_RATE_LIMIT": "77", "FAKECLOUD_SPEED": "", "FAKECLOUD_TOKEN": "one,staging=two",
		"FAKECLOUD_RATELIMIT": "1", "FAKECLOUD_SERVICE_HOST": "10.0.0.1", "FAKECLOUD_PORT": "tcp://10.0.0.1:80",
		"FAKECLOUD_LOG_FORMAT": "json",
	}, "--actions", "250ms")
	for path, say := range map[string]string{"/profile": "250ms", "/rate_limit": "77", "/projects": "staging"} {
		if body := get(t, p.control+path); !strings.Contains(body, say) {
			t.Errorf("%s: %s, want %s", path, body, say)
		}
	}
	if p.token != "one" {
		t.Errorf("token %q", p.token)
	}
	logs := p.logs.String()
	if !strings.Contains(logs, `"name":"FAKECLOUD_RATELIMIT"`) || strings.Count(logs, "is not a setting") != 1 {
		t.Errorf("%s", logs)
	}
}

func TestASnapshotStartsAnotherCloud(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "cloud.snapshot")
	order := func(p running, name string) {
		t.Helper()
		opts := hcloud.PlacementGroupCreateOpts{Name: name, Type: hcloud.PlacementGroupTypeSpread}
		check(t, did(p.client().PlacementGroup.Create(t.Context(), opts)))
	}
	names := func(p running) (all string) {
		t.Helper()
		groups := must(p.client().PlacementGroup.All(t.Context()))(t)
		for _, g := range groups {
			all += g.Name + " "
		}
		return all
	}
	snapshot := func(p running, verb, path string) error {
		cmd := newCommand(environment{"FAKECLOUD_CONTROL": strings.TrimPrefix(p.control, "http://")}.lookup, nil)
		cmd.SetArgs([]string{"snapshot", verb, path})
		cmd.SetOut(io.Discard)
		return cmd.ExecuteContext(t.Context())
	}
	first := start(t, nil, "--token", "one", "--token", "staging=two")
	order(first, "kept")
	check(t, snapshot(first, "save", file))
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file, which has tokens: %v, %v", info.Mode(), err)
	}
	order(first, "later")
	if err := snapshot(first, "load", file); err != nil || names(first) != "kept " {
		t.Errorf("after it was loaded: %q, %v", names(first), err)
	}
	second := start(t, nil, "--token", "three", "--token", "staging=four", "--snapshot", file)
	if second.token != "three" || names(second) != "kept " {
		t.Errorf("token %q, groups %q", second.token, names(second))
	}
	for _, token := range []string{"one", "two", "four"} {
		if _, err := second.client(hcloud.WithToken(token)).PlacementGroup.All(t.Context()); err != nil {
			t.Errorf("token %q: %v", token, err)
		}
	}
	check(t, os.WriteFile(file, []byte("hello"), 0o600))
	for _, err := range []error{snapshot(first, "load", file), newSnapshotFlag(t, file)} {
		if err == nil || !strings.Contains(err.Error(), "line 1: not a line of a snapshot") {
			t.Errorf("a file that is not a snapshot: %v", err)
		}
	}
	if err := snapshot(first, "save", t.TempDir()); err == nil || names(first) != "kept " {
		t.Errorf("saved to a directory: %v", err)
	}
}

// newSnapshotFlag starts the program with a file that it refuses.
func newSnapshotFlag(t *testing.T, file string) error {
	t.Helper()
	cmd := newCommand(environment{}.lookup, nil)
	cmd.SetArgs([]string{"--listen", "127.0.0.1:0", "--control", "off", "--snapshot", file})
	cmd.SetErr(io.Discard)
	return cmd.ExecuteContext(t.Context())
}

func TestTokensBelongToProjectsAndMayBeReadOnlyOrOfAnEarlierDay(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "--token", "reader:ro", "--token", "writer", "--token", "staging=other", "--token", "watched=spy:ro", "--token",
		"past:ro:2026-10-04")
	if p.token != "writer" {
		t.Errorf("printed the token %q, want the first one that may write", p.token)
	}
	create := func(token string) error {
		_, _, err := p.client(hcloud.WithToken(token)).PlacementGroup.Create(t.Context(),
			hcloud.PlacementGroupCreateOpts{Name: "x", Type: hcloud.PlacementGroupTypeSpread})
		return err
	}
	if err := create("writer"); err != nil {
		t.Error(err)
	}
	for _, token := range []string{"reader", "spy"} {
		if err := create(token); !hcloud.IsError(err, hcloud.ErrorCodeForbidden) {
			t.Errorf("%s: %v", token, err)
		}
	}
	if err := create("past"); !hcloud.IsError(err, "token_readonly") {
		t.Errorf("a token of an earlier day: %v", err)
	}
	for token, want := range map[string]int{"reader": 1, "other": 0, "spy": 0} {
		if groups, err := p.client(hcloud.WithToken(token)).PlacementGroup.All(t.Context()); err != nil || len(groups) != want {
			t.Errorf("%s sees %v, %v", token, groups, err)
		}
	}
}

func TestASeededCloudLooksUnused(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "--seed", "../../testdata/seed.yaml", "--rate-limit", "100", "--actions", "1h", "--log-level", "debug")
	servers, resp, err := p.client().Server.List(t.Context(), hcloud.ServerListOpts{})
	if err != nil || len(servers) != 3 {
		t.Fatalf("%v, %v", servers, err)
	}
	if left := resp.Header.Get("RateLimit-Remaining"); left != "99" {
		t.Errorf("%s requests left", left)
	}
	if body := get(t, p.control+"/journal/count?client=fakecloud-seed"); !strings.Contains(body, `"count": 0`) {
		t.Errorf("%s", body)
	}
	if body := get(t, p.control+"/profile"); !strings.Contains(body, "1h") {
		t.Errorf("%s", body)
	}
}

func TestHTTPSWithASelfSignedCertificate(t *testing.T) {
	t.Parallel()
	ca := filepath.Join(t.TempDir(), "ca file.pem")
	p := start(t, nil, "--tls", "--tls-ca-out", ca)
	pem := must(os.ReadFile(ca))(t)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	client := p.client(hcloud.WithHTTPClient(&http.Client{Transport: transport}))
	if _, err := client.Location.All(t.Context()); err != nil || !strings.HasPrefix(p.endpoint, "https://") {
		t.Errorf("%s: %v", p.endpoint, err)
	}
	if want := "export SSL_CERT_FILE='" + ca + "'"; p.lines[1] != want {
		t.Errorf("%q, want %q", p.lines[1], want)
	}
}

func TestUnknownTokensHaveProjectsOfTheirOwnOnRequest(t *testing.T) {
	t.Parallel()
	p := start(t, environment{"FAKECLOUD_PROJECTS": "auto"}, "--project-ttl", "30m")
	for _, token := range []string{"job-1", "job-2"} {
		if _, err := p.client(hcloud.WithToken(token)).Server.All(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if body := get(t, p.control+"/projects"); strings.Count(body, `"auto": true`) != 2 || strings.Contains(body, "job-") {
		t.Errorf("%s", body)
	}
	if _, err := start(t, nil).client(hcloud.WithToken("job-1")).Server.All(t.Context()); !hcloud.IsError(err,
		hcloud.ErrorCodeUnauthorized) {
		t.Errorf("without --projects auto: %v", err)
	}
}

func TestWrongSettingsAreExplained(t *testing.T) {
	t.Parallel()
	busy := start(t, nil)
	taken := strings.TrimSuffix(strings.TrimPrefix(busy.endpoint, "http://"), "/v1")
	for say, tc := range map[string]struct {
		env  environment
		args []string
	}{
		"--control " + taken + ": another program uses that port": {nil, []string{"--listen", "127.0.0.1:0", "--control", taken}},
		"rate limit -1":                                               {nil, []string{"--rate-limit", "-1"}},
		"--keep-actions 0s: must":                                     {nil, []string{"--keep-actions", "0s"}},
		`--projects "many": must be fixed or auto`:                    {nil, []string{"--projects", "many"}},
		"--project-ttl 0s: must be more than 0":                       {nil, []string{"--project-ttl", "0s"}},
		"must be a day":                                               {nil, []string{"--api-date", "June"}},
		"--speed -1: must be 0":                                       {nil, []string{"--speed", "-1"}},
		`--token "a=": must have the form [project=]token[:ro][:day]`: {nil, []string{"--token", "a="}},
		`--token: API date "June": must be a day such as 2026-06-01`:  {nil, []string{"--token", "x:ro:June"}},
		`--token: API date "b": must be a day`:                        {nil, []string{"--token", "a:b"}},
		"another --token has the same token":                          {nil, []string{"--token", "x", "--token", "b=x"}},
		"--data-plane-interface eth0: needs --load-balancer-ipv4":     {nil, []string{"--data-plane-interface", "eth0"}},
		"opening the interface for load balancers: ": {nil,
			[]string{"--data-plane-interface", "none7", "--load-balancer-ipv4", "172.30.100.0/24"}},
		"netdev: router: ":                           {nil, []string{"--router-interface", "none7"}},
		"--router-network: needs --router-interface": {nil, []string{"--router-network", "x"}},
		`--reserved "x": must be a range or an address`: {nil,
			[]string{"--reserved", "10.0.0.1", "--reserved", "x"}},
		"--metadata: listen on": {nil,
			[]string{"--control", off, "--metadata", taken}},
		"--scenario sold-in: scenario \"sold-in\" does not exist; it must be one of": {nil, []string{"--scenario", "sold-in"}},
		`--log-format "xml": must be text or json`:                                   {nil, []string{"--log-format", "xml"}},
		"--tls-cert and --tls-key: only one is set":                                  {nil, []string{"--control", off, "--tls-cert", "x"}},
		"--tls-cert and --tls-key: open": {nil, []string{"--control", off, "--tls-cert", "x",
			"--tls-key", "y"}},
		"health: the control API is off": {environment{"FAKECLOUD_CONTROL": off},
			[]string{"health"}},
		"health: no cloud answers at http://" + strings.Replace(taken, "127.0.0.1", "127.0.0.2", 1): {nil,
			[]string{"health", "--control", strings.Replace(taken, "127.0.0.1", "127.0.0.2", 1)}},
	} {
		if _, err := execute(t, tc.env, tc.args...); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%v: %v, want %q", tc.args, err, say)
		}
	}
}

// process is the program as a process of its own.
type process struct {
	*exec.Cmd
	endpoint, token string
	control         string // the address of the control API, without a path
	logs            *lockedBuffer
}

// startProcess starts the program on free ports, and returns when it has printed where it listens.
func startProcess(tb testing.TB, args ...string) process {
	tb.Helper()
	p := process{Cmd: exec.CommandContext(tb.Context(), program(), append([]string{"--listen", "127.0.0.1:0", "--control", "127.0.0.1:0"},
		args...)...), logs: &lockedBuffer{}}
	p.Env, p.Stderr = append(os.Environ(), "TEST_RUN_FAKECLOUD=1"), p.logs
	out := must(p.StdoutPipe())(tb)
	check(tb, p.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if m := exports.FindStringSubmatch(lines.Text()); m != nil {
			p.endpoint, p.token = m[1], m[2]
		}
		if strings.HasPrefix(lines.Text(), "# ") { // the last line
			p.control = strings.TrimPrefix(lines.Text(), controlLine)
			go func() { _, _ = io.Copy(io.Discard, out) }() // until the program ends
			return p
		}
	}
	tb.Fatalf("the program has not printed where it listens: %v\n%s", lines.Err(), p.logs)
	return process{}
}

func TestHealthAsksTheControlAPI(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	cmd := newCommand(environment{"FAKECLOUD_CONTROL": strings.Replace(p.control, "http://127.0.0.1", "", 1)}.lookup, nil)
	cmd.SetArgs([]string{"health"})
	var out bytes.Buffer
	cmd.SetOut(&out)
	if err := cmd.ExecuteContext(t.Context()); err != nil || out.String() != "ready\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestWarnsOfAddressesThatOtherMachinesReach(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "--listen", "0.0.0.0:0", "--control", ":0")
	if logs := p.logs.String(); strings.Count(logs, "level=WARN") != 2 {
		t.Errorf("%s", logs)
	}
	if !strings.HasPrefix(p.endpoint, "http://127.0.0.1:") {
		t.Errorf("endpoint %s: clients cannot connect to it", p.endpoint)
	}
}

func TestASignalStopsTheProcessCleanly(t *testing.T) {
	t.Parallel()
	// Under nohup the processes would inherit that SIGHUP is ignored. They do not from a process that handles it.
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, syscall.SIGHUP)
	defer signal.Stop(handled)
	for _, sig := range []os.Signal{syscall.SIGTERM, os.Interrupt, syscall.SIGHUP} {
		p := startProcess(t)
		check(t, p.Process.Signal(sig))
		if err := p.Wait(); err != nil || !strings.Contains(p.logs.String(), "msg=stopped") {
			t.Errorf("%v: %v\n%s", sig, err, p.logs.String())
		}
	}
}

func TestAShellReadsAQuotedTextUnchanged(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"abc/1.pem": "abc/1.pem", "a b": "'a b'", "it's": `'it'\''s'`, "$(x)": "'$(x)'"} {
		if got := quote(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
		if out, err := exec.CommandContext(t.Context(), "sh", "-c", fmt.Sprintf("printf %%s %s", quote(in))).Output(); err != nil ||
			string(out) != in {
			t.Errorf("the shell reads %q, %v", out, err)
		}
	}
}
