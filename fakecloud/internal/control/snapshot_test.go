package control

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/api"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/requestlog"
)

// deadlines is a connection that counts how often its deadline moved.
type deadlines struct {
	*httptest.ResponseRecorder
	moved int
}

func (d *deadlines) SetReadDeadline(time.Time) error {
	d.moved++
	return nil
}

func TestASnapshotMayTakeAnyTimeToArrive(t *testing.T) {
	t.Parallel()
	core := cloud.New(cloud.Options{})
	t.Cleanup(core.Close)
	c := New(core, api.New(api.Options{Cloud: core, Journal: &requestlog.Log{}}), &requestlog.Log{}, "instant", 0)
	var text strings.Builder
	if err := core.Save(&text); err != nil {
		t.Fatal(err)
	}
	whole, half := text.String(), text.String()[:text.Len()/2]
	thenFails := func(err error) io.Reader { return io.MultiReader(strings.NewReader(half), iotest.ErrReader(err)) }
	for what, tc := range map[string]struct {
		body   io.Reader
		most   int64
		status int
		says   string
	}{
		"in parts":      {iotest.OneByteReader(strings.NewReader(whole)), maxSnapshot, 200, "speed"},
		"cut off":       {strings.NewReader(half), maxSnapshot, 400, "snapshot: line "},
		"breaks off":    {thenFails(io.ErrClosedPipe), maxSnapshot, 400, "closed pipe"},
		"does not come": {thenFails(os.ErrDeadlineExceeded), maxSnapshot, 408, "for 1m0s"},
		"too large":     {strings.NewReader(whole), int64(len(half)), 413, fmt.Sprintf("at most %d bytes", len(half))},
	} {
		c.maxSnapshot = tc.most
		server := &http.Server{ReadTimeout: time.Minute}
		ctx := context.WithValue(t.Context(), http.ServerContextKey, server)
		r := httptest.NewRequestWithContext(ctx, http.MethodPut, "/snapshot", tc.body)
		r.Host, r.Header = "localhost", http.Header{"Content-Type": {"application/json"}}
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		c.Handler().ServeHTTP(w, r)
		if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.says) {
			t.Errorf("%s: %d %s; want %d and %q", what, w.Code, w.Body, tc.status, tc.says)
		}
		if what == "in parts" && w.moved < len(whole) {
			t.Errorf("the deadline moved %d times for %d parts", w.moved, len(whole))
		}
	}
}
