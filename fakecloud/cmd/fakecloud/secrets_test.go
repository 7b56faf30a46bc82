package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/contract"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/control"
)

type fields = map[string]any

// secretFields are the fields of the API document that may hold a secret by their names: true for those that do.
var secretFields = map[string]bool{
	"password": true, "root_password": true, "wss_url": true, "private_key": true, "tsig_key": true, "user_data": true,
	"private_net": false, "public_key": false, "ssh_key": false, "ssh_keys": false, "tsig_algorithm": false, "use_private_ip": false,
}

// hasSecrets are the paths of the control API that show secrets on purpose, or that outputs reads in another way.
var hasSecrets = map[string]bool{
	"/snapshot":      true, // a cloud that loads it needs them
	"/events":        true, // endless: read below
	"/journal/await": true, // the same entries as /journal
}

// vault is a running program, and its secrets.
type vault struct {
	*testing.T
	running
	secrets map[string]string // by what they are
	events  lockedBuffer
}

// keep adds a secret, whatever it looks like when it is in a JSON text.
func (v *vault) keep(what, secret string) {
	v.Helper()
	if len(secret) < 8 {
		v.Fatalf("%s: %q is too short for a secret", what, secret)
	}
	v.secrets[what] = strings.Trim(marshalled(secret), `"`)
}

// search fails for each secret in a text.
func (v *vault) search(where, text string) {
	v.Helper()
	for what, secret := range v.secrets {
		if strings.Contains(text, secret) {
			v.Errorf("%s has the %s", where, what)
		}
	}
}

func marshalled(x any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(x)
	return strings.TrimSpace(b.String())
}

// request sends a request and returns the status and the answer. body may be a text.
func (v *vault) request(method, url string, body any) (int, string) {
	v.Helper()
	text, raw := body.(string)
	if body != nil && !raw {
		text = marshalled(body)
	}
	req := must(http.NewRequestWithContext(v.Context(), method, url, strings.NewReader(text)))(v)
	req.Header.Set("Authorization", "Bearer "+v.token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "first-secret-token-0123456789/1.0")
	resp := must(http.DefaultClient.Do(req))(v)
	defer func() { _ = resp.Body.Close() }()
	answer := must(io.ReadAll(resp.Body))(v)
	return resp.StatusCode, string(answer)
}

// do sends a valid request to the API. It keeps all secrets of the answer, and returns the id of the resource in key.
func (v *vault) do(method, path string, body any, key string) string {
	v.Helper()
	status, text := v.request(method, v.endpoint+path, body)
	var answer fields
	if err := json.Unmarshal([]byte(text), &answer); err != nil || status >= 300 {
		v.Fatalf("%s %s: %d %s", method, path, status, text)
	}
	for name, secret := range secretFields {
		if text, ok := answer[name].(string); secret && ok {
			v.keep(name+" of "+method+" "+path, text)
			hash := sha256.Sum256([]byte(text)) // guests know passwords by it
			v.keep("hash of the "+name+" of "+method+" "+path, base64.StdEncoding.EncodeToString(hash[:]))
		}
	}
	if _, text := v.request("GET", v.control+"/actions/idle", nil); !strings.HasPrefix(text, "{") {
		v.Fatal(text)
	}
	resource, _ := answer[key].(fields)
	return fmt.Sprintf("%.0f", resource["id"])
}

// followEvents copies the stream of events of a control API until the test ends.
func followEvents(tb testing.TB, control string, to io.Writer) {
	tb.Helper()
	req := must(http.NewRequestWithContext(tb.Context(), http.MethodGet, control+"/events", nil))(tb)
	resp := must(http.DefaultClient.Do(req))(tb)
	go func() {
		_, _ = io.Copy(to, resp.Body)
		_ = resp.Body.Close()
	}()
}

// await waits until a text has come to a buffer.
func (v *vault) await(b *lockedBuffer, text string) {
	v.Helper()
	for !strings.Contains(b.String(), text) {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-v.Context().Done():
			v.Fatalf("%q has not come", text)
		}
	}
}

// keyPair returns a certificate and its key.
func keyPair(t *testing.T) (certificate, key string) {
	t.Helper()
	private := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		DNSNames: []string{"example.com"}}
	der := must(x509.CreateCertificate(rand.Reader, template, template, private.Public(), private))(t)
	pkcs8 := must(x509.MarshalPKCS8PrivateKey(private))(t)
	encode := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", pkcs8)
}

// TestSecretsAreInNoOutput creates all resources with all secrets, and makes mistakes with them. It looks for them in everything
// that can be read without a token, and in errors. Panics have no output of their own: net/http logs their value, and none of
// the program's has a value that comes from a request.
func TestSecretsAreInNoOutput(t *testing.T) {
	const token = "first-secret-token-0123456789"
	v := &vault{T: t, running: start(t, environment{}, "--log-level", "debug", "--log-format", "json", "--actions", "instant",
		"--guests", "--token", token)}
	v.secrets = map[string]string{}
	v.request("GET", v.control+"/metrics", nil) // from this first look on, bodies are kept
	followEvents(v.T, v.control, &v.events)
	v.keep("token", token)
	certificate, key := keyPair(t)
	v.keep("private key", key)
	v.keep("middle of the private key", key[60:100])
	userData := "#cloud-config\npassword: user-data-secret"
	v.keep("user_data", userData)
	v.keep("middle of user_data", "user-data-secret")
	tsig := func(secret string) []fields {
		k := base64.StdEncoding.EncodeToString([]byte(secret))
		v.keep("TSIG key "+secret, k)
		return []fields{{"address": "198.51.100.1", "tsig_key": k, "tsig_algorithm": "hmac-sha256"}}
	}

	server := fields{"name": "s", "server_type": "cx23", "image": "debian-13", "location": "fsn1", "user_data": userData}
	one := "/servers/" + v.do("POST", "/servers", server, "server") + "/actions/"
	v.do("POST", one+"reset_password", nil, "")
	v.do("POST", one+"enable_rescue", nil, "")
	v.do("POST", one+"request_console", nil, "")
	v.do("POST", one+"rebuild", fields{"image": "debian-13"}, "")
	zone := fields{"name": "second.example", "mode": "secondary", "primary_nameservers": tsig("of a new zone")}
	v.do("POST", "/zones", zone, "zone")
	v.do("GET", "/zones/second.example", nil, "") // the API shows the key, and keeps this answer
	v.do("POST", "/zones/second.example/actions/change_primary_nameservers", fields{"primary_nameservers": tsig("of a change")}, "")
	v.do("PUT", "/zones/second.example", fields{"labels": fields{"a": "b"}}, "")
	v.do("GET", "/zones", nil, "")
	v.do("POST", "/certificates", fields{"name": "c", "certificate": certificate, "private_key": key}, "certificate")
	_, other := v.request("POST", v.control+"/tokens", fields{"project": 1, "token": "second-secret-token"})
	v.keep("second token", "second-secret-token")
	if !strings.Contains(other, "second-secret-token") {
		t.Fatal(other)
	}

	v.mistakes(certificate, key, userData)
	v.do("POST", "/placement_groups", fields{"name": "the-last-one", "type": "spread"}, "")
	v.outputs()
	v.knowsAllSecretFields()
}

// mistakes sends requests that carry secrets and are wrong.
func (v *vault) mistakes(certificate, key, userData string) {
	v.Helper()
	v.keep("wrong TSIG key", "wrong!tsig-secret")
	v.keep("wrong token", "wrong-token-secret")
	with := func(all fields, name string, value any) fields {
		c := fields{name: value}
		for k, x := range all {
			if k != name {
				c[k] = x
			}
		}
		return c
	}
	cert := fields{"name": "wrong", "certificate": certificate, "private_key": key}
	server := fields{"name": "wrong", "server_type": "cx23", "image": "debian-13", "location": "fsn1", "user_data": userData}
	ns := fields{"address": "198.51.100.1", "tsig_key": "wrong!tsig-secret", "tsig_algorithm": "hmac-md5"}
	zone := fields{"name": "wrong.example", "mode": "secondary", "primary_nameservers": []any{ns}}
	const other = "second-secret-token" // valid, too
	labelled := with(with(server, "name", 7), "labels", fields{"a-" + other: other})
	v.request("POST", v.endpoint+"/servers?name=%73econd-secret-token", labelled)
	v.request("GET", v.endpoint+"/"+other+"?name=a"+other, nil)
	v.request("GET", v.endpoint+"/servers?"+other+"=1", nil)
	v.request("POST", v.endpoint+"/servers", `{"name": "\u0073econd-secret-token", "labels": {"`+other+`": 1}}`)
	for _, m := range []struct {
		path string
		body any
	}{
		{"/certificates", with(cert, "certificate", key)}, {"/certificates", with(cert, "private_key", key[:len(key)/2])},
		{"/certificates", with(cert, "name", key)}, {"/certificates", with(cert, "private_key", fields{"key": key})},
		{"/certificates", with(cert, "type", key)}, {"/certificates", with(cert, "labels", fields{key: "a"})},
		{"/certificates", marshalled(cert) + key}, {"/certificates", marshalled(cert)[:200]},
		{"/servers", with(server, "user_data", strings.Repeat(userData, 2000))}, {"/servers", with(server, "user_data", []any{userData})},
		{"/servers", with(server, "name", 7)}, {"/servers", with(server, "server_type", "none")},
		{"/zones", zone}, {"/zones", with(zone, "primary_nameservers", ns)}, {"/zones", with(zone, "mode", "none")},
		{"/zones", with(zone, "primary_nameservers", []any{with(ns, "tsig_algorithm", "wrong!tsig-secret")})},
		{"/zones", with(zone, "primary_nameservers", []any{with(ns, "address", "none")})},
		{"/zones/second.example/actions/change_primary_nameservers", fields{"primary_nameservers": []any{ns}}},
		{"/servers?token=wrong-token-secret&private_key=" + "wrong-token-secret", fields{}},
		{"/servers?tsig_key=wrong-token-secret&user_data=wrong-token-secret", fields{}},
		{"/servers?name=" + v.token, fields{}}, {"/servers/" + v.token, fields{}}, {"/servers/" + v.token + "/actions/poweron", fields{}},
		{"/" + v.token, fields{}},
	} {
		status, answer := v.request("POST", v.endpoint+m.path, m.body)
		if status < 400 {
			v.Errorf("POST %.60s %.60s: %d", m.path, marshalled(m.body), status)
		}
		if !strings.Contains(m.path, v.token) { // else the client sees its own path
			v.search(fmt.Sprintf("the error of POST %.60s, %s,", m.path, answer), answer)
		}
	}
	for path, body := range map[string]any{
		"/tokens": fields{"project": 1, "token": "wrong-token-secret with a space"}, "/tokens/wrong-token-secret": fields{"api_date": "x"},
		"/projects": fields{"name": "p", "token": "wrong-token-secret with a space"},
	} {
		method := "POST"
		if strings.Count(path, "/") > 1 {
			method = "PUT"
		}
		if status, answer := v.request(method, v.control+path, body); status < 400 {
			v.Errorf("%s %s: %d", method, path, status)
		} else {
			v.search("the error of "+path, answer)
		}
	}
	v.token = "wrong-token-secret"
	if status, answer := v.request("GET", v.endpoint+"/servers", nil); status != http.StatusUnauthorized {
		v.Errorf("a wrong token: %d", status)
	} else {
		v.search("the error of a wrong token", answer)
	}
	v.token = "first-secret-token-0123456789"
}

// exchanges looks for secrets in the bodies of all requests.
func (v *vault) exchanges() {
	v.Helper()
	_, text := v.request("GET", v.control+"/journal/count", nil)
	var last struct {
		Seq int `json:"last_seq"`
	}
	if err := json.Unmarshal([]byte(text), &last); err != nil || last.Seq == 0 {
		v.Fatalf("%s: %v", text, err)
	}
	bodies := 0
	for seq := range last.Seq {
		path := fmt.Sprintf("/journal/%d", seq+1)
		status, text := v.request("GET", v.control+path, nil)
		var answer struct {
			Request, Response string
			Kept              bool
		}
		if err := json.Unmarshal([]byte(text), &answer); err != nil || status != http.StatusOK || !answer.Kept {
			v.Errorf("GET %s: %d %s", path, status, text)
		}
		bodies += min(len(answer.Request), 1)
		v.search("GET "+path, strings.ReplaceAll(answer.Request+answer.Response, `\n`, "\n"))
		v.search("GET "+path, answer.Request+answer.Response)
	}
	if bodies < 20 {
		v.Errorf("%d requests were shown with a body, want at least 20", bodies)
	}
}

// outputs looks for secrets in everything that can be read without a token.
func (v *vault) outputs() {
	v.Helper()
	paths := []string{"/state?kind=zone", "/doors/guests?server=s"}
	for _, e := range control.Endpoints() {
		if e.Method == http.MethodGet && !strings.ContainsAny(e.Path, "{") && !hasSecrets[e.Path] {
			paths = append(paths, e.Path)
		}
	}
	for _, path := range paths {
		status, text := v.request("GET", v.control+path, nil)
		if status != http.StatusOK {
			v.Errorf("GET %s: %d %s", path, status, text)
		}
		v.search("GET "+path, text)
	}
	v.exchanges()
	resp := must(http.Get(v.control + "/events?snapshot=true"))(v)
	var snapshot lockedBuffer
	go func() {
		_, _ = io.Copy(&snapshot, resp.Body)
	}()
	v.await(&snapshot, `"synced"`)
	_ = resp.Body.Close()
	v.search("a snapshot of GET /events", snapshot.String())
	v.await(&v.events, "the-last-one")
	if !strings.Contains(v.events.String(), "hmac-sha256") {
		v.Error("the events lack the zone's name server")
	}
	v.search("GET /events", v.events.String())
	v.await(v.logs, "/v1/placement_groups")
	v.search("the log", v.logs.String())
}

// knowsAllSecretFields compares secretFields with the API document.
func (v *vault) knowsAllSecretFields() {
	v.Helper()
	path, err := contract.Find()
	if err != nil {
		v.Log("without the API document, new fields are not noticed: ", err)
		return
	}
	text := must(os.ReadFile(path))(v)
	var document any
	check(v, json.Unmarshal(text, &document))
	suspicious := regexp.MustCompile(`password|secret|token|key|user_data|private|tsig|credential|wss`)
	var walk func(any)
	walk = func(x any) {
		if all, ok := x.([]any); ok {
			for _, y := range all {
				walk(y)
			}
		}
		object, _ := x.(fields)
		properties, _ := object["properties"].(fields)
		for name := range properties {
			if _, known := secretFields[name]; !known && suspicious.MatchString(name) {
				v.Errorf("the API document has a field %q: does it hold a secret?", name)
			}
		}
		for _, y := range object {
			walk(y)
		}
	}
	walk(document)
}
