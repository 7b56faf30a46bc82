package dataplane

import (
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"strings"
	"testing"
)

// http2Lab is a lab with an HTTPS service, and a client that uses HTTP/2.
func http2Lab(t *testing.T, handler http.HandlerFunc) (*lab, *http.Client) {
	t.Helper()
	l, _ := httpLab(t, httpsService(certificate(t, 1, "example.com")), handler)
	return l, l.client(func(tr *http.Transport) { tr.TLSClientConfig.ServerName = "example.com" })
}

const lbURL2 = "https://203.0.113.7/"

func TestHTTP2BodiesAndTrailersAreForwardedInBothDirections(t *testing.T) {
	t.Parallel()
	_, c := http2Lab(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		w.Header().Set("Trailer", "Sum")
		w.Header().Set("Connection", "close") // is not for a client with HTTP/2
		_, _ = io.Copy(w, r.Body)
		w.Header().Set("Sum", r.Trailer.Get("Sum"))
	})
	sent := make([]byte, 3<<20)
	_, _ = rand.Read(sent)
	in, out := io.Pipe()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, lbURL2, in)
	req.Trailer = http.Header{"Sum": {"42"}}
	go func() {
		_, _ = out.Write(sent)
		closeQuietly(out)
	}()
	resp, body := do(t, c, req)
	if resp.ProtoMajor != 2 || body != string(sent) || resp.Trailer.Get("Sum") != "42" || resp.Header.Get("Connection") != "" {
		t.Errorf("%s, %d of %d bytes, trailer %v, header %v", resp.Proto, len(body), len(sent), resp.Trailer, resp.Header)
	}
}

func TestHTTP2RequestsKeepTheirLength(t *testing.T) {
	t.Parallel()
	_, c := http2Lab(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, r.Header.Get("Content-Length")+" "+strings.Join(r.TransferEncoding, "")+" "+string(body))
	})
	for body, want := range map[string]string{"": "0  ", "hello": "5  hello"} {
		resp, err := c.Post(lbURL2, "text/plain", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		closeQuietly(resp.Body)
		if string(got) != want {
			t.Errorf("body %q: the target sees %q, want %q", body, got, want)
		}
	}
}

func TestAClientWithHTTP2ThatCancelsEndsItsRequestToTheTarget(t *testing.T) {
	t.Parallel()
	arrived, left := make(chan bool, 1), make(chan bool, 1)
	l, c := http2Lab(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			arrived <- true
			<-r.Context().Done()
			left <- true
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, lbURL2+"slow", nil)
	go func() {
		if resp, err := c.Do(req); err == nil {
			closeQuietly(resp.Body)
		}
	}()
	<-arrived
	cancel()
	<-left
	if resp, _ := get(t, c, lbURL2); resp.StatusCode != http.StatusOK {
		t.Errorf("afterwards %d", resp.StatusCode)
	}
	if s, _ := l.Stats(lbID); s.Connections != 1 {
		t.Errorf("%d connections, want 1", s.Connections)
	}
}

func TestAnAnswerThatIsCutOffIsAnErrorWithHTTP2(t *testing.T) {
	t.Parallel()
	_, c := http2Lab(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "50")
		_, _ = io.WriteString(w, "hello")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	resp, err := c.Get(lbURL2)
	if err == nil {
		_, err = io.ReadAll(resp.Body)
		closeQuietly(resp.Body)
	}
	if err == nil {
		t.Error("the client takes the answer for complete")
	}
}
