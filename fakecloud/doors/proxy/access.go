package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// nobody is a log that is not kept.
var nobody = log.New(io.Discard, "", 0)

// Access is what a program needs to use a proxy.
type Access struct {
	Proxy string `json:"proxy"` // URL
	Dir   string `json:"dir"`   // the folder with what the program has to trust
	Token string `json:"-"`     // of the cloud
}

func (a Access) file(name string) string { return filepath.Join(a.Dir, name) }

// tokenVariables are where programs take the token of the API from: the CLI, hcloud-go's users, Ansible, Packer, Terraform; its modules'
// variable; lego and docker-machine; acme.sh and external-dns; webhooks of external-dns; machine-controller; hcloud_exporter.
const tokenVariables = "HCLOUD_TOKEN TF_VAR_hcloud_token HETZNER_API_TOKEN HETZNER_TOKEN HETZNER_API_KEY HZ_TOKEN HCLOUD_EXPORTER_TOKEN"

// unwanted are variables that would lead a program past the proxy, or to another token.
var unwanted = []string{
	"HCLOUD_ENDPOINT", "HCLOUD_ENDPOINT_FILE", "HCLOUD_CONTEXT", "HCLOUD_TOKEN_FILE", "HETZNER_API", "HETZNER_API_TOKEN_FILE",
}

// noProxy are the addresses of this machine. The proxy does not answer for them.
const noProxy = "localhost,127.0.0.1,127.0.0.0/8,::1"

// Variables returns the variables to set and those to remove. lookup returns the value that a variable has; it may be os.Getenv. Inherited
// proxies and exceptions from them are replaced: the real cloud could be reached by them.
func (a Access) Variables(lookup func(string) string) (set [][2]string, remove []string) {
	for _, v := range [][2]string{
		{a.Token, tokenVariables}, {a.Proxy, "HTTPS_PROXY https_proxy HTTP_PROXY http_proxy ALL_PROXY all_proxy"},
		{noProxy, "NO_PROXY no_proxy"}, {"1", "NODE_USE_ENV_PROXY"}, {a.file(authorityFile), "NODE_EXTRA_CA_CERTS DENO_CERT"},
		{a.file(bundleFile), "SSL_CERT_FILE CURL_CA_BUNDLE REQUESTS_CA_BUNDLE PERL_LWP_SSL_CA_FILE HTTPS_CA_FILE GIT_SSL_CAINFO " +
			"CARGO_HTTP_CAINFO PIP_CERT AWS_CA_BUNDLE NIX_SSL_CERT_FILE"},
		{strings.TrimSpace(lookup("JAVA_TOOL_OPTIONS") + " " + a.javaOptions()), "JAVA_TOOL_OPTIONS"},
	} {
		for name := range strings.FieldsSeq(v[1]) {
			set = append(set, [2]string{name, v[0]})
		}
	}
	return set, unwanted
}

// javaOptions are the settings of a Java program. It reads none of the other variables.
func (a Access) javaOptions() string {
	host, port, _ := strings.Cut(strings.TrimPrefix(a.Proxy, "http://"), ":")
	return fmt.Sprintf("-Dhttps.proxyHost=%s -Dhttps.proxyPort=%s -Dhttp.proxyHost=%[1]s -Dhttp.proxyPort=%[2]s "+
		"-Dhttp.nonProxyHosts=localhost|127.*|[::1] -Djavax.net.ssl.trustStore=%s -Djavax.net.ssl.trustStoreType=PKCS12",
		host, port, a.file(trustStoreFile))
}

// Environ returns the environment of a child process: base, such as os.Environ(), changed as [Access.Variables] says.
func (a Access) Environ(base []string) []string {
	values := map[string]string{}
	for _, e := range base {
		name, value, _ := strings.Cut(e, "=")
		values[name] = value
	}
	set, remove := a.Variables(func(name string) string { return values[name] })
	env := slices.DeleteFunc(slices.Clone(base), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return slices.Contains(remove, name) || slices.ContainsFunc(set, func(v [2]string) bool { return v[0] == name })
	})
	for _, v := range set {
		env = append(env, v[0]+"="+v[1])
	}
	return env
}

// To returns a handler that passes requests on to the API of a cloud in another process, at its endpoint, such as
// http://127.0.0.1:4242/v1. caFile has the certificates that its clients have to trust, or is "". A connection that the cloud drops is
// dropped, and no request is sent twice.
func To(endpoint, caFile string) (http.Handler, error) {
	at, err := url.Parse(endpoint)
	if err != nil || at.Host == "" || !strings.HasSuffix(strings.TrimSuffix(at.Path, "/"), "/v1") || isAPI(at.Hostname()) {
		return nil, fmt.Errorf("endpoint %q: must be that of a simulated cloud, such as http://127.0.0.1:4242/v1", endpoint)
	}
	transport := &http.Transport{DisableKeepAlives: true, DisableCompression: true} // a kept connection has requests repeated
	if caFile != "" {
		text, err := os.ReadFile(caFile)
		if err != nil {
			return nil, err
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(text)
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	base := *at
	base.Path = strings.TrimSuffix(strings.TrimSuffix(at.Path, "/"), "/v1")
	return &httputil.ReverseProxy{
		Transport: transport, ErrorLog: nobody, FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&base)
			r.Out.URL.RawQuery = r.In.URL.RawQuery
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}, nil
}
