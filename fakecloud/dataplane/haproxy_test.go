package dataplane

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// haproxyVersion is the version that rawRequests was compared with, Debian 12's. Others answer some requests differently.
const haproxyVersion = "version 2.6."

// newRawTarget is a target that takes all that a proxy lets through. Its answers show what it got.
func newRawTarget(t testing.TB) *tcpTarget {
	return newTCPTargetAt(t, "t", "127.0.0.1:0", func(c net.Conn) {
		for in := bufio.NewReader(c); ; {
			r, err := http.ReadRequest(in)
			if err != nil {
				if !errors.Is(err, io.EOF) {
					_, _ = io.WriteString(c, "HTTP/1.1 499 Bad\r\nTarget: t\r\nContent-Length: 0\r\n\r\n")
				}
				return
			}
			if a, ok := rawAnswers[r.URL.Path]; ok {
				_, _ = io.WriteString(c, a)
				_, _ = io.Copy(io.Discard, r.Body)
				return
			}
			if r.Header.Get("Expect") == "100-continue" {
				_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			saw := seen(r, body)
			answer := fmt.Sprintf("HTTP/1.1 200 OK\r\nTarget: t\r\nContent-Length: %d\r\n\r\n", len(saw))
			if r.Method != http.MethodHead {
				answer += saw
			}
			if _, err := io.WriteString(c, answer); err != nil {
				return
			}
		}
	})
}

// seen describes a request as a target gets it, without what the proxies may do in their own way.
func seen(r *http.Request, body []byte) string {
	lines := []string{"Host: " + r.Host}
	for name, values := range r.Header {
		value := strings.Join(strings.Fields(strings.Join(values, ", ")), " ")
		if name != "X-Forwarded-Proto" && name != "X-Forwarded-Port" && value != "keep-alive" {
			lines = append(lines, name+": "+value)
		}
	}
	for name, values := range r.Trailer {
		lines = append(lines, "trailer "+name+": "+strings.Join(values, ", "))
	}
	slices.Sort(lines)
	return fmt.Sprintf("%s %s %s\n%s\n%d bytes", r.Method, r.RequestURI, r.Proto, strings.Join(lines, "\n"), len(body))
}

// play sends a request and returns the outcome, and the body of the last answer.
func play(t *testing.T, c net.Conn, r rawRequest) (outcome, body string) {
	t.Helper()
	defer closeQuietly(c)
	_ = c.SetDeadline(time.Now().Add(patience))
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.WriteString(c, r.send)
		if r.halfClose {
			_ = closeWrite(c)
		}
	}()
	in := bufio.NewReader(c)
	method, _, _ := strings.Cut(r.send, " ")
	var out []string
	for left := max(r.answers, 1); left > 0; {
		resp, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			return strings.Join(append(out, ended(t, err)), " "), ""
		}
		status := fmt.Sprint(resp.StatusCode)
		if resp.Header.Get("Target") != "" {
			status += "+"
		}
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			status += " cut"
		}
		out, body = append(out, status), string(b)
		if resp.StatusCode >= 200 {
			left--
		}
	}
	<-sent
	if !r.halfClose { // else the other side must close without a further request
		if _, err := io.WriteString(c, okHead+"\r\n"); err != nil {
			return strings.Join(append(out, ended(t, err)), " "), body
		}
	}
	if _, err := in.Peek(1); err != nil {
		return strings.Join(append(out, ended(t, err)), " "), body
	}
	return strings.Join(append(out, "open"), " "), body
}

func ended(t *testing.T, err error) string {
	t.Helper()
	if isTimeout(err) {
		t.Error("the connection is neither answered nor closed")
	}
	return "closed"
}

// rawLab is a lab with one HTTP service in front of a newRawTarget.
func rawLab(t *testing.T) *lab {
	t.Helper()
	l := newLab(t, Options{})
	tg := l.place("t", newRawTarget(t).at())
	l.apply(balance([]Service{httpService(80)}, tg))
	l.awaitHealth(Healthy, 80, tg)
	return l
}

func TestUnusualRequestsHaveTheOutcomeOfTheTable(t *testing.T) {
	t.Parallel()
	for _, r := range rawRequests {
		t.Run(r.name, func(t *testing.T) {
			// A lab for each: the target may be about to close its connection of the request before.
			l := rawLab(t)
			if got, _ := play(t, l.dial(80), r); got != r.want {
				t.Errorf("%q, want %q", got, r.want)
			}
			await(t, "no request counts as active", func() bool { return l.backend(80, "t").active.Load() == 0 })
		})
	}
}

func TestTheTableIsWhatHAProxyDoes(t *testing.T) {
	t.Parallel()
	program := haproxyProgram(t)
	if text, err := exec.Command(program, "-v").Output(); err != nil || !strings.Contains(string(text), haproxyVersion) {
		t.Skipf("the table holds for HAProxy %s, and %s is another: %.60q", haproxyVersion, program, text)
	}
	address, _ := startHAProxy(t, proxyConfig{protocol: string(HTTP), target: newRawTarget(t).at()})
	for _, r := range rawRequests {
		t.Run(r.name, func(t *testing.T) {
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			want := r.haproxy
			if want == "" {
				want = r.want
			}
			got, saw := play(t, c, r)
			if got != want {
				t.Errorf("HAProxy: %q, want %q", got, want)
			}
			if (r.haproxy == "") != (r.why == "") {
				t.Error("a difference needs a reason")
			}
			l := rawLab(t)
			if _, ours := play(t, l.dial(80), r); strings.HasPrefix(want, "200+") && r.haproxy == "" && ours != saw {
				t.Errorf("the target sees %q, with HAProxy %q", ours, saw)
			}
		})
	}
}
