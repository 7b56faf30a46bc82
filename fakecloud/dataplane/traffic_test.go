package dataplane

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// meteredTarget is a target that counts the bytes that it gets and sends. It answers a request of HTTP and ends, unless that
// asks for an upgrade. What follows an upgrade, and all that is not HTTP, it echoes, except for a PROXY header.
type meteredTarget struct {
	*tcpTarget
	got, sent atomic.Int64
}

func newMeteredTarget(t *testing.T, name string) *meteredTarget {
	m := &meteredTarget{}
	m.tcpTarget = newTCPTargetAt(t, name, "127.0.0.1:0", func(c net.Conn) {
		in := bufio.NewReader(io.TeeReader(c, writerFunc(func(p []byte) { m.got.Add(int64(len(p))) })))
		out := io.MultiWriter(writerFunc(func(p []byte) { m.sent.Add(int64(len(p))) }), c)
		first, _ := in.Peek(4)
		if string(first) == "PROX" {
			_, _ = in.ReadString('\n')
			first, _ = in.Peek(4)
		}
		if string(first) == "GET " {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			if r.Header.Get("Upgrade") == "" {
				_, _ = io.WriteString(out, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
				return
			}
			_, _ = io.WriteString(out, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		}
		_, _ = io.Copy(out, in)
	})
	return m
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }

func TestTheTrafficOfATargetIsWhatItGetsAndSends(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("x", 100_000)
	hello := func(t *testing.T, l *lab) {
		if _, body := get(t, l.client(), lbURL); body != "hello" {
			t.Fatalf("body %q", body)
		}
	}
	for name, c := range map[string]struct {
		service Service
		send    func(*testing.T, *lab)
	}{
		"tcp": {tcpService(80), func(t *testing.T, l *lab) { echo(t, l.dial(80), text) }},
		"tcp with a PROXY header": {
			Service{Protocol: TCP, ListenPort: 80, DestinationPort: 80, ProxyProtocol: true},
			func(t *testing.T, l *lab) { echo(t, l.dial(80), text) },
		},
		"http":                     {httpService(80), hello},
		"http with a PROXY header": {Service{Protocol: HTTP, ListenPort: 80, DestinationPort: 80, ProxyProtocol: true}, hello},
		"upgraded http": {httpService(80), func(t *testing.T, l *lab) {
			c := l.dial(80)
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			resp, err := http.ReadResponse(bufio.NewReaderSize(c, 16), nil)
			if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
				t.Fatal(resp, err)
			}
			echo(t, c, text)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, Options{})
			busy := newMeteredTarget(t, "busy")
			target := l.place("busy", busy.at())
			probed := c.service
			probed.HealthCheck = HealthCheck{Protocol: HTTP, Port: 81} // without a PROXY header
			l.apply(balance([]Service{probed}, target))
			l.awaitHealth(Healthy, 80, target)
			if in, out := target.Traffic.In.Load(), target.Traffic.Out.Load(); in != 0 || out != 0 {
				t.Errorf("a probe counts as traffic: %d in, %d out", in, out)
			}
			before := [2]int64{busy.got.Load(), busy.sent.Load()}
			c.send(t, l)
			await(t, "all bytes are counted", func() bool {
				return target.Traffic.In.Load() == busy.got.Load()-before[0] && target.Traffic.Out.Load() == busy.sent.Load()-before[1] &&
					target.Traffic.In.Load() > 0 && target.Traffic.Out.Load() > 0
			})
		})
	}
}

func TestTheTrafficOfARemovedTargetIsCountedWhileItsConnectionsLast(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{})
	target := l.place("a", newMeteredTarget(t, "a").at())
	l.apply(balance([]Service{tcpService(80)}, target))
	l.awaitHealth(Healthy, 80, target)
	c := l.dial(80)
	echo(t, c, "first")
	l.apply(balance([]Service{tcpService(80)}))
	echo(t, c, "second")
	await(t, "11 bytes are counted in each direction", func() bool { // after they were sent
		return target.Traffic.In.Load() == 11 && target.Traffic.Out.Load() == 11
	})
}
