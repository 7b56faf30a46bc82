package proxy_test

import (
	"bufio"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/doors/proxy"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// start returns an empty cloud and a proxy to it.
func start(t *testing.T, o proxy.Options) (*fakecloud.Cloud, *proxy.Proxy) {
	t.Helper()
	cloud := fakecloud.New(fakecloud.Options{})
	t.Cleanup(cloud.Close)
	if o.API == nil {
		o.API = cloud.Handler()
	}
	o.Token = cloud.Token()
	p, err := proxy.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return cloud, p
}

// dial returns a connection to a proxy.
func dial(t *testing.T, p *proxy.Proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.Access().Proxy, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestTheAPIAnswersUnderItsRealName(t *testing.T) {
	t.Parallel()
	cloud, p := start(t, proxy.Options{})
	client := hcloud.NewClient(hcloud.WithToken(cloud.Token()), hcloud.WithHTTPClient(p.Client())) // no endpoint: it is the real one
	if _, _, err := client.SSHKey.Create(t.Context(), hcloud.SSHKeyCreateOpts{Name: "k", PublicKey: sshKey}); err != nil {
		t.Fatal(err)
	}
	// Links lead to the real name again.
	_, answer, err := client.ServerType.List(t.Context(), hcloud.ServerTypeListOpts{ListOpts: hcloud.ListOpts{PerPage: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if link := answer.Header.Get("Link"); !strings.Contains(link, "<https://api.hetzner.cloud/v1/server_types?") || answer.ProtoMajor != 2 {
		t.Errorf("%s, Link: %s", answer.Proto, link)
	}
}

const sshKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA x"

// TestOnlyTheAPIIsAnswered sends what programs, other users of the machine and web pages can send.
func TestOnlyTheAPIIsAnswered(t *testing.T) {
	t.Parallel()
	said := make(chan string, 20)
	_, p := start(t, proxy.Options{Refused: func(s string) { said <- s }, Allow: []string{"Allowed.example:81"}})
	const lead = "leads to the simulated cloud; --allow "
	for _, c := range [][3]string{
		{"CONNECT example.com:443", "403 fakecloud: example.com:443 is refused", lead + "example.com:443"},
		{"CONNECT api.hetzner.cloud:80", "403 fakecloud: api.hetzner.cloud:80", lead},
		{"CONNECT api.hetzner.cloud.example:443", "403 ", lead},
		{"CONNECT 127.0.0.1:22", "403 ", lead},
		{"CONNECT allowed.example:443", "403 ", lead},
		{"CONNECT nothing", "403 fakecloud: CONNECT nothing must name host:port", ""},
		{"GET http://example.com/", "403 Forbidden", lead + "example.com"},
		{"GET https://allowed.example:81/", "403 Forbidden", lead},
		{"GET /v1/servers", "403 Forbidden", "set it as HTTPS_PROXY"}, // of a page, after its name was rebound to this machine
		{"GET http://API.hetzner.cloud./v1/servers", "401 Unauthorized", "unauthorized"},
	} {
		conn := dial(t, p)
		_, _ = io.WriteString(conn, c[0]+" HTTP/1.1\r\nHost: api.hetzner.cloud\r\n\r\n")
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, _ := io.ReadAll(answer.Body); !strings.HasPrefix(answer.Status, c[1]) || !strings.Contains(string(body), c[2]) {
			t.Errorf("%s: %s\n%s", c[0], answer.Status, body)
		}
	}
	if s := <-said; s != "example.com:443 is refused, because only api.hetzner.cloud on port 443 "+lead+"example.com:443 lets it pass" {
		t.Errorf("Refused got %q", s)
	}
	request, _ := http.NewRequestWithContext(t.Context(), "GET", "https://api.hetzner.cloud/v1/servers", nil)
	request.Host = "example.com"
	answer, err := p.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if _ = answer.Body.Close(); answer.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("another host inside: %s", answer.Status)
	}
}

func TestAnAllowedHostPasses(t *testing.T) {
	t.Parallel()
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Method+" "+r.Host)
	}))
	defer plain.Close()
	secure := httptest.NewTLSServer(plain.Config.Handler)
	defer secure.Close()
	at := func(url string) string { _, host, _ := strings.Cut(url, "://"); return host }
	_, p := start(t, proxy.Options{Allow: []string{at(plain.URL), at(secure.URL), "127.0.0.1:1"}})
	client := p.Client()
	client.Transport.(*http.Transport).Proxy = func(*http.Request) (*url.URL, error) {
		return url.Parse(p.Access().Proxy) // for addresses of this machine, too
	}
	client.Transport.(*http.Transport).TLSClientConfig.RootCAs.AddCert(secure.Certificate())
	for _, url := range []string{plain.URL, secure.URL} {
		answer, err := client.Get(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		body, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if string(body) != "GET "+at(url) {
			t.Errorf("%s: %s", url, body)
		}
	}
	if _, err := client.Get("https://127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "is allowed, and cannot be reached") {
		t.Errorf("%v", err)
	}
}

func TestWrongOptionsAreExplained(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]proxy.Options{
		`proxy address "0.0.0.0:0": must be host:port of a loopback address`:          {Address: "0.0.0.0:0"},
		`proxy address ":0": must be host:port of a loopback address`:                 {Address: ":0"},
		`proxy address "4245": must be host:port of a loopback address`:               {Address: "4245"},
		`allowed host "https://example.com": must be a host or host:port`:             {Allow: []string{"https://example.com"}},
		`allowed host "*.example.com": must be a host or host:port`:                   {Allow: []string{"*.example.com"}},
		`allowed host "": must be a host or host:port`:                                {Allow: []string{""}},
		`allowed host "API.hetzner.cloud:443": it is the simulated cloud's; leave it`: {Allow: []string{"API.hetzner.cloud:443"}},
	} {
		if _, err := proxy.Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for _, endpoint := range []string{"", "127.0.0.1:4242", "http://127.0.0.1:4242", "https://api.hetzner.cloud/v1"} {
		if _, err := proxy.To(endpoint, ""); err == nil || !strings.Contains(err.Error(), "must be that of a simulated cloud") {
			t.Errorf("%q: %v", endpoint, err)
		}
	}
}

// TestTheAuthorityIsOfThisRunAndForOneName looks at what a program trusts.
func TestTheAuthorityIsOfThisRunAndForOneName(t *testing.T) {
	t.Parallel()
	_, p := start(t, proxy.Options{})
	dir := p.Access().Dir
	info, err := os.Stat(dir)
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "authority.pem"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	ca, err := x509.ParseCertificate(block.Bytes)
	if err != nil || !slices.Equal(ca.PermittedDNSDomains, []string{proxy.APIHost}) || !ca.PermittedDNSDomainsCritical {
		t.Errorf("%+v, %v", ca, err)
	}
	bundle, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil || !strings.HasSuffix(string(bundle), string(text)) || strings.Contains(string(bundle), "PRIVATE KEY") {
		t.Errorf("ca.pem does not end with authority.pem, or has a key: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Close: %v", err)
	}
	if _, err := p.Client().Get("https://api.hetzner.cloud/v1/servers"); err == nil {
		t.Error("a closed proxy answers")
	}
}

// TestTheEnvironmentOfAChild compares it with a file.
func TestTheEnvironmentOfAChild(t *testing.T) {
	t.Parallel()
	env := proxy.Access{Proxy: "http://127.0.0.1:4245", Dir: "/d", Token: "t"}.Environ([]string{"A=1", "HCLOUD_ENDPOINT=x",
		"HCLOUD_TOKEN=real", "NO_PROXY=hetzner.cloud", "JAVA_TOOL_OPTIONS=-Xmx1g", "HCLOUD_CONTEXT=prod"})
	got := strings.ReplaceAll(strings.Join(env, "\n")+"\n", `\`, "/")
	if want, err := os.ReadFile("testdata/environ.txt"); err != nil || got != string(want) {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
}

// TestAnotherProcessesCloudAnswers has a cloud behind its endpoint. What it drops is dropped, once.
func TestAnotherProcessesCloudAnswers(t *testing.T) {
	t.Parallel()
	far := fakecloud.New(fakecloud.Options{})
	defer far.Close()
	endpoint, err := far.Start(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	api, err := proxy.To(endpoint, "")
	if err != nil {
		t.Fatal(err)
	}
	_, p := start(t, proxy.Options{API: api})
	client := hcloud.NewClient(hcloud.WithToken(far.Token()), hcloud.WithHTTPClient(p.Client()))
	list := hcloud.ServerListOpts{ListOpts: hcloud.ListOpts{LabelSelector: "a=b"}}
	if servers, _, err := client.Server.List(t.Context(), list); err != nil || len(servers) > 0 {
		t.Errorf("%v, %v", servers, err)
	}
	if _, err := far.Faults().Add(t.Context(), fault.Rule{Operation: "create_ssh_key", First: 1, Effect: fault.LoseAnswer()}); err != nil {
		t.Fatal(err)
	}
	if key, _, err := client.SSHKey.Create(t.Context(), hcloud.SSHKeyCreateOpts{Name: "k", PublicKey: sshKey}); err == nil {
		t.Errorf("the answer %v was to be lost", key)
	}
	entries, err := far.Journal().Entries(t.Context(), journal.Filter{})
	if err != nil || len(entries) != 2 || !strings.Contains(entries[0].Query, "label_selector=a%3Db") {
		t.Errorf("%v, %v", entries, err)
	}
}

// TestALongTunnelEndsWithTheProxy has an allowed host that never ends its connection.
func TestALongTunnelEndsWithTheProxy(t *testing.T) {
	t.Parallel()
	host, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	_, p := start(t, proxy.Options{Allow: []string{host.Addr().String()}})
	conn := dial(t, p)
	// The client does not wait for the answer.
	_, _ = fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\nhello", host.Addr())
	far, err := host.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	got := make([]byte, 5)
	if _, err := io.ReadFull(far, got); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
	_ = p.Close()
	if _, err := io.ReadAll(far); err != nil && !errors.Is(err, net.ErrClosed) && !strings.Contains(err.Error(), "reset") {
		t.Error(err)
	}
	if _, err := io.ReadAll(conn); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Error(err)
	}
}
