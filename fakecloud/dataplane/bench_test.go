package dataplane

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"testing"
)

// BenchmarkTraffic measures the cost of the load balancer: each case runs once through it and once
// without it, "direct". HTTP has a bare httputil.ReverseProxy as a second baseline: the minimum cost of
// an HTTP proxy in Go.
func BenchmarkTraffic(b *testing.B) {
	drain := newTCPTargetAt(b, "drain", "127.0.0.1:0", func(c net.Conn) {
		_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, make([]byte, 256<<10))
	})
	mirror := newTCPTargetAt(b, "mirror", "127.0.0.1:0", func(c net.Conn) { _, _ = io.Copy(struct{ io.Writer }{c}, c) })
	payload := make([]byte, 64<<10)
	web := newHTTPTarget(b, "web", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			_, _ = w.Write(payload)
			return
		}
		_, _ = io.WriteString(w, "ok")
	})
	target, _ := url.Parse(web.URL)
	bare := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }})
	b.Cleanup(bare.Close)

	l := newLab(b, Options{})
	balanced := func(name, at string, id int64, p Protocol) string {
		tg := l.place(name, at)
		address := netip.AddrFrom4([4]byte{198, 51, 100, byte(id)})
		l.apply(LoadBalancer{ID: id, Addresses: []netip.Addr{address}, Targets: []Target{tg}, Services: []Service{
			{Protocol: p, ListenPort: 8080, DestinationPort: 80, HealthCheck: HealthCheck{Retries: 1}},
		}})
		l.awaitHealth(Healthy, 8080, tg)
		local, _ := l.locate(address, 8080)
		return local.String()
	}
	for _, v := range []struct{ name, drain, mirror, web string }{
		{"direct", drain.at(), mirror.at(), at(web)},
		{"balanced", balanced("drain", drain.at(), 1, TCP), balanced("mirror", mirror.at(), 2, TCP), balanced("web", at(web), 3, HTTP)},
		{"reverseproxy", "", "", at(bare)},
	} {
		if v.drain != "" {
			b.Run("tcp-stream/"+v.name, func(b *testing.B) { benchStream(b, v.drain) })
			b.Run("tcp-roundtrip/"+v.name, func(b *testing.B) { benchRoundTrip(b, v.mirror) })
			b.Run("tcp-connect/"+v.name, func(b *testing.B) { benchConnect(b, v.mirror) })
		}
		b.Run("http-small/"+v.name, func(b *testing.B) { benchGet(b, "http://"+v.web+"/") })
		b.Run("http-64KiB/"+v.name, func(b *testing.B) { b.SetBytes(64 << 10); benchGet(b, "http://"+v.web+"/large") })
	}
}

func mustDial(b *testing.B, at string) net.Conn {
	b.Helper()
	c, err := net.Dial("tcp", at)
	if err != nil {
		b.Fatal(err)
	}
	return c
}

func benchStream(b *testing.B, at string) {
	c := mustDial(b, at)
	defer closeQuietly(c)
	buf := make([]byte, 128<<10)
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		if _, err := c.Write(buf); err != nil {
			b.Fatal(err)
		}
	}
}

func benchRoundTrip(b *testing.B, at string) {
	c := mustDial(b, at)
	defer closeQuietly(c)
	buf := make([]byte, 256)
	for b.Loop() {
		if _, err := c.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, buf); err != nil {
			b.Fatal(err)
		}
	}
}

func benchConnect(b *testing.B, at string) {
	buf := make([]byte, 1)
	for b.Loop() {
		c := mustDial(b, at)
		if _, err := c.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, buf); err != nil {
			b.Fatal(err)
		}
		abort(c) // avoid TIME_WAIT, which would use up the ports
	}
}

func benchGet(b *testing.B, url string) {
	tr := &http.Transport{MaxIdleConnsPerHost: 64}
	defer tr.CloseIdleConnections()
	c := &http.Client{Transport: tr}
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			resp, err := c.Get(url)
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			closeQuietly(resp.Body)
		}
	})
}
