package recording

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/simclock"
)

type object = map[string]any

// testSSHKey is a public key of no one.
const testSSHKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJsvqlNCPOsyJZzPYQKm0cdfs5HE54cU4mQLsIJ1hT1P secret-comment"

var testStart = time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC)

// buffer is a file in memory.
type buffer struct{ bytes.Buffer }

func (*buffer) Close() error { return nil }

// world is a simulated cloud with a recorder before it.
type world struct {
	*testing.T
	cloud  *fakecloud.Cloud
	client *http.Client
	file   buffer
	token  string
	rec    *Recorder
	wrong  wrong
}

// wrong changes an answer of the cloud before it is recorded. It gets the body decoded, or nil without a body.
type wrong func(r *http.Request, a *wrongAnswer)

type wrongAnswer struct {
	status int
	header http.Header
	body   object
}

func newWorld(t *testing.T, w wrong, change ...func(*fakecloud.Options)) *world {
	t.Helper()
	o := fakecloud.Options{
		Clock: simclock.NewAt(testStart, 0), Actions: "realistic", RateLimit: fakecloud.RealRateLimit, RandomSeed: 1,
	}
	for _, f := range change {
		f(&o)
	}
	cloud := fakecloud.New(o)
	t.Cleanup(cloud.Close)
	world := &world{T: t, cloud: cloud, token: cloud.Token(), wrong: w}
	target := &url.URL{Scheme: "http", Host: "fakecloud.invalid", Path: "/v1"}
	var err error
	world.rec, err = NewRecorder(&world.file, Options{
		Target: target, Catalogue: CatalogueNames(), Transport: lying{cloud.Transport(), w},
		Now: func() time.Time { now, _ := cloud.Now(t.Context()); return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	world.client = &http.Client{Transport: fakecloud.InProcess(world.rec)}
	return world
}

// lying is a transport that changes answers.
type lying struct {
	next http.RoundTripper
	wrong
}

func (l lying) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(r)
	if err != nil || l.wrong == nil {
		return resp, err
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	a := &wrongAnswer{status: resp.StatusCode, header: resp.Header}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &a.body); err != nil {
			return nil, err
		}
	}
	l.wrong(r, a)
	resp.StatusCode, text = a.status, nil
	if a.body != nil {
		text = encode(a.body)
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	resp.Header.Del("Content-Length")
	return resp, nil
}

// do sends a request and returns the answer.
func (w *world) do(method, path string, body any) (int, object) {
	w.Helper()
	var text []byte
	switch body := body.(type) {
	case nil:
	case string:
		text = []byte(body)
	default:
		text = encode(body)
	}
	req, err := http.NewRequestWithContext(w.Context(), method, "http://127.0.0.1/v1"+path, bytes.NewReader(text))
	if err != nil {
		w.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "hcloud-go/2.52.0 "+private["user agent"]+"/1.0")
	if w.token != "" {
		req.Header.Set("Authorization", "Bearer "+w.token)
	}
	resp, err := w.client.Do(req)
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err = io.ReadAll(resp.Body)
	if err != nil {
		w.Fatal(err)
	}
	var out object
	_ = json.Unmarshal(text, &out) // some have no body
	return resp.StatusCode, out
}

// step lets time pass.
func (w *world) step(d time.Duration) {
	w.Helper()
	if err := w.cloud.Step(w.Context(), d); err != nil {
		w.Fatal(err)
	}
}

// idOf returns the id of a resource of an answer, for a path.
func (w *world) idOf(answer object, name string) string {
	w.Helper()
	id, ok := at(answer, name, "id").(float64)
	if !ok {
		w.Fatalf("no %s in %v", name, answer)
	}
	return string(encode(int64(id)))
}

// await reads an action until it ends, as clients do.
func (w *world) await(answer object) {
	w.Helper()
	path := "/actions/" + w.idOf(answer, "action")
	for range 200 {
		_, a := w.do("GET", path, nil)
		if at(a, "action", "status") != running {
			return
		}
		w.step(500 * time.Millisecond)
	}
	w.Fatalf("%s does not end", path)
}

// read returns the recording.
func (w *world) read() *Recording {
	w.Helper()
	if _, err := w.rec.Close(); err != nil {
		w.Fatal(err)
	}
	rec, err := Read(bytes.NewReader(w.file.Bytes()))
	if err != nil {
		w.Fatal(err)
	}
	return rec
}

// verify replays the recording.
func (w *world) verify() *Report {
	w.Helper()
	report, err := Verify(w.Context(), w.read())
	if err != nil {
		w.Fatal(err)
	}
	return report
}
