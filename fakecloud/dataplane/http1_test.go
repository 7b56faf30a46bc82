package dataplane

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
)

// ask sends a request and returns the status of the answer, or 0 if the connection ends.
func ask(t *testing.T, c net.Conn, in *bufio.Reader, request string) int {
	t.Helper()
	if _, err := io.WriteString(c, request); err != nil {
		return 0
	}
	method, _, _ := strings.Cut(request, " ")
	resp, err := http.ReadResponse(in, &http.Request{Method: method})
	if err != nil {
		return 0
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Error(err)
	}
	return resp.StatusCode
}

func TestAConnectionContinuesAfterAnErrorOfTheTarget(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{})
	l.apply(balance([]Service{httpService(80)}, l.place("gone", "127.0.0.1:1")))
	c := l.dial(80)
	in := bufio.NewReader(c)
	for _, request := range []string{okHead + "\r\n", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", okHead + "\r\n"} {
		if code := ask(t, c, in, request); code != http.StatusServiceUnavailable {
			t.Fatalf("%q: status %d, want 503", request, code)
		}
	}
	if code := ask(t, c, in, postHead+"Content-Length: 5\r\n\r\n"); code != http.StatusServiceUnavailable {
		t.Errorf("status %d, want 503", code)
	}
	awaitClosed(t, c) // because the request is not complete
}

// closingTarget answers one request per connection and closes it without having said so. closed counts that.
func closingTarget(t *testing.T, closed *atomic.Int32) *tcpTarget {
	t.Helper()
	return newTCPTargetAt(t, "t", "127.0.0.1:0", func(c net.Conn) {
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		closeQuietly(c)
		closed.Add(1)
	})
}

func TestASpareConnectionThatTheTargetHasClosedIsReplaced(t *testing.T) {
	t.Parallel()
	var closed atomic.Int32
	l := newLab(t, Options{})
	tg := l.place("t", closingTarget(t, &closed).at())
	l.apply(balance([]Service{httpService(80)}, tg))
	l.awaitHealth(Healthy, 80, tg)
	c := l.dial(80)
	in := bufio.NewReader(c)
	for i, request := range []string{
		okHead + "\r\n", okHead + "\r\n",
		// Must not be repeated:
		postHead + "Content-Length: 2\r\n\r\nhi", chunkedHead + helloChunks, "DELETE / HTTP/1.1\r\nHost: a\r\n\r\n",
	} {
		if code := ask(t, c, in, request); code != http.StatusOK {
			t.Errorf("%q: status %d, want 200", request, code)
		}
		await(t, "the target has closed the connection", func() bool { return int(closed.Load()) == i+1 })
	}
}

func TestSpareConnectionsEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*lab){
		"after a time": func(l *lab) {
			l.stepUntil(defaultIdleTimeout, "they end", func() bool { return l.spare() == 0 })
		},
		"with their target":          func(l *lab) { l.apply(balance([]Service{httpService(80)})) },
		"with their service":         func(l *lab) { l.apply(balance(nil)) },
		"with their load balancer":   func(l *lab) { l.Remove(lbID) },
		"when the target has moved":  func(l *lab) { l.place("t", "127.0.0.1:1"); get(t, l.client(), lbURL) },
		"when the engine is stopped": func(l *lab) { _ = l.Close(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended := make(chan bool, 1)
			target := newTCPTargetAt(t, "t", "127.0.0.1:0", func(c net.Conn) {
				in := bufio.NewReader(c)
				if _, err := http.ReadRequest(in); err == nil {
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
					_, _ = in.ReadByte()
					ended <- true
				}
			})
			l := newLab(t, Options{})
			tg := l.place("t", target.at())
			l.apply(balance([]Service{httpService(80)}, tg))
			l.awaitHealth(Healthy, 80, tg)
			get(t, l.client(), lbURL)
			await(t, "the connection is spare", func() bool { return l.spare() == 1 })
			end(l)
			<-ended
		})
	}
}

// spare returns the number of spare connections to targets.
func (l *lab) spare() int {
	lb, err := l.balancer(lbID)
	if err != nil {
		return 0
	}
	lb.spare.mu.Lock()
	defer lb.spare.mu.Unlock()
	n := 0
	for _, links := range lb.spare.links {
		n += len(links)
	}
	return n
}

func TestAnEarlyAnswerReachesTheClient(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{})
	target := newTCPTargetAt(t, "t", "127.0.0.1:0", func(c net.Conn) {
		in := bufio.NewReader(c)
		if _, err := http.ReadRequest(in); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
		}
		_, _ = io.CopyN(io.Discard, in, 1<<20)
	})
	tg := l.place("t", target.at())
	l.apply(balance([]Service{httpService(80)}, tg))
	l.awaitHealth(Healthy, 80, tg)
	c := l.dial(80)
	code := ask(t, c, bufio.NewReader(c), postHead+"Content-Length: 10000000\r\n\r\nhello")
	if code != http.StatusRequestEntityTooLarge {
		t.Errorf("status %d, want 413", code)
	}
	_, _ = c.Write(make([]byte, 9_000_000)) // until the target's end reaches the client
	awaitClosed(t, c)
	await(t, "nothing is left", func() bool { return l.open() == 0 && l.backend(80, "t").active.Load() == 0 })
}

func TestRemovingALoadBalancerEndsItsRequests(t *testing.T) {
	t.Parallel()
	arrived, left := make(chan bool, 1), make(chan bool, 1)
	l, _ := httpLab(t, httpService(80), func(_ http.ResponseWriter, r *http.Request) {
		arrived <- true
		<-r.Context().Done()
		left <- true
	})
	c := l.dial(80)
	_, _ = io.WriteString(c, okHead+"\r\n")
	<-arrived
	l.Remove(lbID)
	awaitClosed(t, c)
	<-left
}

func TestAHeadMayArriveInPiecesAndBeLarge(t *testing.T) {
	t.Parallel()
	l, _ := httpLab(t, httpService(80), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Y", r.Header.Get("X"))
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprint(w, len(body))
	})
	c := l.dial(80)
	in := bufio.NewReaderSize(c, 64<<10)
	long := strings.Repeat("x", 9000)
	request := postHead + "X: " + long + "\r\nContent-Length: 20000\r\n\r\n" + strings.Repeat("b", 20000)
	go func() {
		for part := range slices.Chunk([]byte(request+request), 1500) {
			_, _ = c.Write(part)
		}
	}()
	for range 2 {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		if resp.Header.Get("Y") != long || string(body) != "20000" {
			t.Errorf("%d bytes of header, body %s", len(resp.Header.Get("Y")), body)
		}
	}
}

func TestTheErrorAnswerOfAnIdleRequestIsNotCutOff(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{})
	cut := false
	client := &clientConn{ctx: t.Context(), lb: newBalancer(l.Engine, 1)}
	x := &exchange{client: client, last: new(atomic.Int64), cut: func() { cut = true }}
	x.begin(&serviceConf{})
	x.hold(stopFunc(func() { x.answered.Store(true) })) // an error answer that begins at once
	x.expire(l.clock.Now())
	if cut {
		t.Error("the error answer is cut off")
	}
	x.expire(l.clock.Now())
	if !cut {
		t.Error("an answer that a client does not read is not cut off")
	}
	x.end()
	x.begin(&serviceConf{Service: Service{HTTP: HTTPConfig{TimeoutIdle: defaultIdleTimeout}}})
	x.touch()
	x.expire(l.clock.Now())
	if x.stopped() {
		t.Error("the next request on the connection is ended")
	}
}

// FuzzHead checks that http.ReadRequest and http.ReadResponse need no more than the head that peekHead finds, and that it finds the same
// head however the bytes arrive.
func FuzzHead(f *testing.F) {
	for _, r := range rawRequests {
		f.Add([]byte(r.send))
	}
	for _, a := range rawAnswers {
		f.Add([]byte(a))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var heads [2]string
		for i, source := range []io.Reader{bytes.NewReader(data), iotest.OneByteReader(bytes.NewReader(data))} {
			in, head, err := peekHead(bufio.NewReaderSize(source, 64), source)
			if err != nil {
				continue
			}
			heads[i] = string(head)
			if len(head) > in.Buffered() || !strings.HasPrefix(string(data), heads[i]) {
				t.Fatalf("head %q of %q, %d bytes buffered", head, data, in.Buffered())
			}
		}
		if heads[0] != heads[1] {
			t.Fatalf("at once %q, byte by byte %q", heads[0], heads[1])
		}
		if heads[0] == "" || strings.ContainsAny(heads[0][:1], "\r\n") {
			return
		}
		rest := &watchedReader{}
		whole := bufio.NewReader(io.MultiReader(strings.NewReader(heads[0]), rest))
		if r, err := http.ReadRequest(whole); err == nil && rest.used {
			t.Errorf("request %v needs more than %q", r, heads[0])
		}
		rest.used = false
		whole = bufio.NewReader(io.MultiReader(strings.NewReader(heads[0]), rest))
		if r, err := http.ReadResponse(whole, nil); err == nil && rest.used {
			t.Errorf("answer %v needs more than %q", r, heads[0])
		}
	})
}

// watchedReader ends, and records that it was read.
type watchedReader struct{ used bool }

func (r *watchedReader) Read([]byte) (int, error) {
	r.used = true
	return 0, io.EOF
}
