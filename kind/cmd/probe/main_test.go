package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	proxyproto "github.com/pires/go-proxyproto"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/whoami"
)

func send(t *testing.T, method, target string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// started runs serve and returns its listener, and a function that ends it and waits.
func started(t *testing.T, h http.Handler, ending func()) (l net.Listener, end func()) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, []net.Listener{l}, h, 0, ending) }()
	t.Cleanup(cancel)
	return l, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestItSaysWhoItIsAndWhoAsked(t *testing.T) {
	t.Parallel()
	l, _ := started(t, newPod(settings{pod: "p-1", node: "n-1", service: "ns/web"}).handler(), nil)
	direct := "http://" + l.Addr().String()
	for _, ask := range []string{direct, direct + "/fetch?url=" + url.QueryEscape(direct)} {
		status, body := send(t, http.MethodGet, ask)
		var got whoami.Answer
		if err := json.Unmarshal([]byte(body), &got); err != nil || status != http.StatusOK {
			t.Fatalf("%s: %d %s", ask, status, body)
		}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		if got.Pod != "p-1" || got.Node != "n-1" || got.Service != "ns/web" || got.PortName != "p"+port ||
			!strings.HasPrefix(got.Client, "127.0.0.1:") {
			t.Errorf("%s: %+v", ask, got)
		}
	}
}

func TestItReadsAProxyProtocolHeader(t *testing.T) {
	t.Parallel()
	l, _ := started(t, newPod(settings{}).handler(), nil)
	for version := byte(1); version <= 2; version++ {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		client, lb := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 4711}, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80}
		if _, err := proxyproto.HeaderProxyFromAddrs(version, client, lb).WriteTo(conn); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		var got whoami.Answer
		err = json.NewDecoder(response.Body).Decode(&got)
		if err != nil || got.Client != client.String() || got.ProxyProtocol != int(version) || got.ProxyDestination != lb.String() ||
			got.Peer != conn.LocalAddr().String() {
			t.Errorf("version %d: %+v, %v", version, got, err)
		}
		_, _ = response.Body.Close(), conn.Close()
	}
}

func TestItIsReadyAsLongAsItIsToldSo(t *testing.T) {
	t.Parallel()
	p := newPod(settings{})
	server := httptest.NewServer(p.handler())
	t.Cleanup(server.Close)
	ready := func(want int) {
		t.Helper()
		if got, _ := send(t, http.MethodGet, server.URL+"/ready"); got != want {
			t.Errorf("/ready is %d, want %d", got, want)
		}
	}
	ready(200)
	if status, _ := send(t, http.MethodPut, server.URL+"/ready?status=418"); status != 200 {
		t.Error(status)
	}
	ready(418)
	for _, bad := range []string{"", "99", "600", "x"} {
		if status, _ := send(t, http.MethodPut, server.URL+"/ready?status="+bad); status != 400 {
			t.Errorf("status=%s: %d", bad, status)
		}
	}
	ready(418)
	p.end()
	ready(418)
	if status, _ := send(t, http.MethodGet, server.URL); status != 200 {
		t.Error("it does not answer while it ends:", status)
	}
}

func TestItEndsGently(t *testing.T) {
	t.Parallel()
	p := newPod(settings{})
	l, end := started(t, p.handler(), p.end)
	end()
	if !p.ending.Load() {
		t.Error("it never said that it ends")
	}
	// Its port may be another test's by now.
	if conn, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("it still listens: %v, %v", conn, err)
	}
}

func TestWhatCannotBeReachedIsABadGateway(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(newPod(settings{}).handler())
	t.Cleanup(server.Close)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for target, want := range map[string]int{gone.URL: http.StatusBadGateway, "%zz": http.StatusBadRequest} {
		if status, body := send(t, http.MethodGet, server.URL+"/fetch?url="+url.QueryEscape(target)); status != want {
			t.Errorf("%s: %d %s, want %d", target, status, body, want)
		}
	}
}

func TestPortsAreListsAndRanges(t *testing.T) {
	t.Parallel()
	ports, err := parsePorts("80,8080-8082")
	if err != nil || !slices.Equal(ports, []int{80, 8080, 8081, 8082}) {
		t.Error(ports, err)
	}
	for _, bad := range []string{"", "0", "65536", "90-80", "a", "1-", ",80"} {
		if ports, err := parsePorts(bad); err == nil {
			t.Errorf("%q: %v", bad, ports)
		}
	}
}

func FuzzPorts(f *testing.F) {
	f.Add("80,8080-8099")
	f.Fuzz(func(t *testing.T, text string) {
		ports, err := parsePorts(text)
		for _, p := range ports {
			if err != nil || p < 1 || p > 65535 {
				t.Errorf("%q: %d, %v", text, p, err)
			}
		}
	})
}

func TestTheProxyConnects(t *testing.T) {
	t.Parallel()
	l, _ := started(t, http.HandlerFunc(connect), nil)
	target := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	t.Cleanup(target.Close)
	transport := target.Client().Transport.(*http.Transport).Clone()
	transport.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: l.Addr().String()})
	client := &http.Client{Transport: transport}
	ask := func(to string) (string, error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, to, nil)
		if err != nil {
			return "", err
		}
		response, err := client.Do(request)
		if err != nil {
			return "", err
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		return string(body), err
	}
	if body, err := ask(target.URL); err != nil || body != "hello" {
		t.Errorf("%q, %v", body, err)
	}
	gone := httptest.NewTLSServer(http.NotFoundHandler())
	gone.Close()
	if _, err := ask(gone.URL); err == nil || !strings.Contains(err.Error(), "Bad Gateway") {
		t.Errorf("%v, want 502", err)
	}
	if status, body := send(t, http.MethodGet, "http://"+l.Addr().String()); status != http.StatusMethodNotAllowed ||
		!strings.Contains(body, "CONNECT") {
		t.Errorf("%d %s", status, body)
	}
}
