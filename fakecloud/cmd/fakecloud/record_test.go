package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/recording"
)

// startRecord runs fakecloud record before an API and returns the endpoint that it prints, and a function that stops it.
func startRecord(t *testing.T, target, dir string) (endpoint string, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	logs := &lockedBuffer{}
	cmd := newCommand(environment{}.lookup, nil)
	cmd.SetArgs([]string{"record", "--target", target, "--listen", "127.0.0.1:0", "--out", dir})
	cmd.SetOut(w)
	cmd.SetErr(logs)
	ended := make(chan error, 1)
	go func() {
		err := cmd.ExecuteContext(ctx)
		_ = w.Close()
		ended <- err
	}()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { _ = stop() })
	line, err := bufio.NewReader(r).ReadString('\n')
	endpoint, ok := strings.CutPrefix(strings.TrimSpace(line), "export HCLOUD_ENDPOINT=")
	if err != nil || !ok {
		t.Fatalf("%q, %v, %v: %s", line, err, stop(), logs)
	}
	return endpoint, stop
}

// runVerify runs fakecloud verify and returns what it prints and its exit status.
func runVerify(t *testing.T, args ...string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	cmd := newCommand(environment{}.lookup, nil)
	cmd.SetArgs(append([]string{"verify"}, args...))
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		return out.String() + err.Error(), exitStatus(err)
	}
	return out.String(), 0
}

func TestAClientIsRecordedAndReplayed(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "--actions", "instant")
	dir := filepath.Join(t.TempDir(), "new", "recording")
	endpoint, stop := startRecord(t, p.endpoint, dir)
	client := p.client(hcloud.WithEndpoint(endpoint))
	var group sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d"} { // several connections at once
		group.Go(func() {
			opts := hcloud.PlacementGroupCreateOpts{Name: "private-" + name, Type: hcloud.PlacementGroupTypeSpread}
			if _, _, err := client.PlacementGroup.Create(t.Context(), opts); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	groups, err := client.PlacementGroup.AllWithOpts(t.Context(), hcloud.PlacementGroupListOpts{ListOpts: hcloud.ListOpts{PerPage: 3}})
	if err != nil || len(groups) != 4 {
		t.Errorf("%v, %v", groups, err)
	}
	page, resp, err := client.PlacementGroup.List(t.Context(), hcloud.PlacementGroupListOpts{ListOpts: hcloud.ListOpts{PerPage: 3}})
	if err != nil || len(page) != 3 || !strings.Contains(resp.Header.Get("Link"), "<"+endpoint+"/") {
		t.Errorf("%v, %v, links %q must lead through the recorder", page, err, resp.Header.Get("Link"))
	}
	if resp, err := http.Get(strings.TrimSuffix(endpoint, "/v1") + "/other"); err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("a path outside of the API: %v, %v", resp, err)
	} else {
		_ = resp.Body.Close()
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	file := filepath.Join(dir, recording.FileName)
	text, err := os.ReadFile(file)
	if err != nil || strings.Contains(string(text), "private-") || strings.Count(string(text), "\n") != 8 {
		t.Errorf("%s, %v", text, err)
	}
	report := filepath.Join(t.TempDir(), "report.json")
	out, status := runVerify(t, dir, "--json", report)
	if status != 0 || !strings.Contains(out, "7 exchanges with other, 7 replayed, 0 not, 0 undecided\n0 differences\n") {
		t.Errorf("%d: %s", status, out)
	}
	var read recording.Report
	asJSON, err := os.ReadFile(report)
	if err != nil || json.Unmarshal(asJSON, &read) != nil || read.Operations["create_placement_group"] != 4 {
		t.Errorf("%s, %v", asJSON, err)
	}
	changed := bytes.Replace(text, []byte(`"placement_groups":[`), []byte(`"placement_groups":[],"old":[`), 1)
	check(t, os.WriteFile(file, changed, 0o600))
	if out, status := runVerify(t, dir); status != 1 || !strings.Contains(out, "GET /placement_groups: missing field at old") {
		t.Errorf("%d: %s", status, out)
	}
}

func TestBadInputOfRecordAndVerify(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if out, status := runVerify(t, dir); status != 2 || !strings.Contains(out, recording.FileName) {
		t.Errorf("without a recording: %d %s", status, out)
	}
	check(t, os.WriteFile(filepath.Join(dir, recording.FileName), []byte("{}\n"), 0o600))
	for _, args := range [][]string{{dir}, {}, {dir, dir}, {dir, "--nothing"}} {
		if out, status := runVerify(t, args...); status != 2 {
			t.Errorf("%v: %d %s", args, status, out)
		}
	}
	nothing := `{"format":"fakecloud-recording","version":1,"target":"other","started":"2026-11-20T12:00:00Z"}`
	for _, more := range []string{"", "\n" + `{"seq":1,"at_ms":0,"end_ms":0,"method":"GET","path":"/servers","status":0}`} {
		check(t, os.WriteFile(filepath.Join(dir, recording.FileName), []byte(nothing+more), 0o600))
		out, status := runVerify(t, dir)
		if status != 2 || !strings.Contains(out, "0 replayed") || !strings.Contains(out, "proves nothing") {
			t.Errorf("%q: %d %s", more, status, out)
		}
	}
	for _, args := range [][]string{
		{"--out", dir},                     // has a recording
		{},                                 // no directory
		{"--target", "x/v1"},               // no URL
		{"--target", "http://127.0.0.1:1"}, // no base path
		{"--target", "http://api.example/v1", "--out", filepath.Join(dir, "http")}, // all between could read the token
		{"--out", filepath.Join(dir, recording.FileName, "x")},
		{"--out", filepath.Join(dir, "x"), "--listen", "nowhere"},
	} {
		cmd := newCommand(environment{}.lookup, nil)
		cmd.SetArgs(append([]string{"record", "--listen", "127.0.0.1:0"}, args...))
		cmd.SetErr(io.Discard)
		cmd.SetOut(io.Discard)
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "record: --") {
			t.Errorf("record %v: %v", args, err)
		}
	}
}
