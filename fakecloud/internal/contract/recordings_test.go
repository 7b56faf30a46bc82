package contract_test

import (
	"bytes"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/recording"
)

// TestARecordingOfHcloudGoIsReplayed records the walks of an unmodified hcloud-go over all resources, and replays each against a new
// cloud. Nothing may differ. It fails if an operation is not replayed that hcloud-go has.
func TestARecordingOfHcloudGoIsReplayed(t *testing.T) {
	t.Parallel()
	names := recording.CatalogueNames()
	replayed := make(map[string]int)
	exchanges := 0
	for name, about := range topics {
		if about.walk == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			report := replay(t, recordWalk(t, about.walk, names))
			for _, d := range report.Differences {
				t.Errorf("%+v", d)
			}
			for _, s := range report.NotReplayable {
				if why := leftOut[s.Method+" "+s.Path]; why == "" {
					t.Errorf("not replayed: %+v", s)
				}
			}
			for operation, n := range report.Operations {
				replayed[operation] += n
				exchanges += n
			}
		})
	}
	t.Logf("%d exchanges of %d operations were replayed", exchanges, len(replayed))
	if len(replayed) < 175 {
		t.Errorf("only %d operations were replayed", len(replayed))
	}
}

// leftOut are exchanges of the walks that cannot be replayed, and the reason.
var leftOut = map[string]string{
	"GET /actions": "the walk asks for ids that no answer has shown, and for the action of the zone file below",
	"POST /zones/6400/actions/import_zonefile": "zone files are redacted",
}

// recordWalk records one walk in a file, as the program does.
func recordWalk(t *testing.T, about func(walk), names []string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "recording")
	file, err := recording.Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	w := bareWorld(t, nil, func(o *fakecloud.Options) { o.RateLimit = 1_000_000 })
	rec, err := recording.NewRecorder(file, recording.Options{
		Target: &url.URL{Scheme: "http", Host: "fakecloud.invalid", Path: "/v1"}, Catalogue: names, Transport: w.cloud.Transport(),
		Now: w.clock.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.handler = rec
	step := func(int) time.Duration { // instead of waiting
		w.clock.Step(actionTime / 4)
		return 0
	}
	client := w.cloud.Client(
		hcloud.WithHTTPClient(&http.Client{Transport: fakecloud.InProcess(rec)}),
		hcloud.WithPollOpts(hcloud.PollOpts{BackoffFunc: step}),
		hcloud.WithRetryOpts(hcloud.RetryOpts{BackoffFunc: step, MaxRetries: 5}),
	)
	about(walk{world: w, Client: client, ctx: t.Context()})
	if _, err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, recording.FileName)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: others can read the recording", info.Mode(), err)
	}
	return path
}

func replay(t *testing.T, path string) *recording.Report {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := recording.Read(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	report, err := recording.Verify(t.Context(), rec)
	if err != nil {
		t.Fatal(err)
	}
	return report
}
