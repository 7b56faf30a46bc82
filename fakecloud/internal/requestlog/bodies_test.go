package requestlog

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

func TestBodiesAreShownWithoutSecrets(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		``:                                  ``,
		`{}`:                                `{}`,
		`{"name":"a","size":10}`:            `{"name":"a","size":10}`,
		`{"root_password":"s3cret","id":1}`: `{"root_password":"REDACTED","id":1}`,
		`{"a":{"user_data": "s3cret" },"b":[1,"x"]}`:         `{"a":{"user_data":"REDACTED" },"b":[1,"x"]}`,
		`{"private_key":{"deep":["s3cret"]},"n":null}`:       `{"private_key":"REDACTED","n":null}`,
		`[{"Token":"s3cret"},{"token":null}]`:                `[{"Token":"REDACTED"},{"token":"REDACTED"}]`,
		`{"name": "-----BEGIN PRIVATE KEY-----s3cret"}`:      `{"name": "REDACTED"}`,
		`["-----BEGIN EC PRIVATE KEY-----s3cret", "x"]`:      `["REDACTED", "x"]`,
		`{"labels":{"token":"value"},"k":"token"}`:           `{"labels":{"token":"REDACTED"},"k":"token"}`,
		`{"ssh_keys":[1],"public_key":"ssh-ed25519 AAAA"}`:   `{"ssh_keys":[1],"public_key":"ssh-ed25519 AAAA"}`,
		`{"name":"a","user_data":"s3cret cut o`:              `{"name":"a","user_data":"REDACTED"`,
		`{"name":"a","labels":{"x":"s3cret`:                  `{"name":"a","labels":{"x" … the rest is not kept`,
		`{"name":s3cret}`:                                    `{"name" … the rest is not kept`,
		`{"l":{"PRIVATE KEY s3cret":"a"}}`:                   `{"l":{"REDACTED":"a"}}`,
		`"s3cret"`:                                           ``,
		`password=s3cret`:                                    ``,
		`{"wss_url":"wss://console?token=s3cret","id":1}   `: `{"wss_url":"REDACTED","id":1}`,
		`{"id":1} {"root_password":"s3cret"}`:                `{"id":1} {"root_password":"REDACTED"}`,
	} {
		got := (&Log{}).withoutSecrets([]byte(body))
		if got != want {
			t.Errorf("%s\nshown as %s\nwant     %s", body, got, want)
		}
	}
}

func FuzzBodiesAreShownWithoutSecrets(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"user_data":"x"}],"b":"PRIVATE KEY"}`))
	f.Add([]byte(`{"token`))
	f.Add([]byte(`[[[`))
	f.Fuzz(func(t *testing.T, body []byte) {
		shown := (&Log{}).withoutSecrets(body)
		if !json.Valid(body) || shown == "" {
			return
		}
		var v any
		if err := json.Unmarshal([]byte(shown), &v); err != nil {
			t.Fatalf("%q is shown as %q, which is not JSON", body, shown)
		}
		if where := secretIn(v); where != "" {
			t.Errorf("%q is shown with a secret in %s: %q", body, where, shown)
		}
	})
}

// secretIn returns where a value has a secret, or "".
func secretIn(v any) string {
	switch v := v.(type) {
	case string:
		if secretText.MatchString(v) {
			return "a text"
		}
	case []any:
		for _, item := range v {
			if where := secretIn(item); where != "" {
				return where
			}
		}
	case map[string]any:
		for name, member := range v {
			if secretText.MatchString(name) {
				return "a name"
			}
			if secretField.MatchString(name) && member != "REDACTED" {
				return name
			}
			if where := secretIn(member); where != "" {
				return where
			}
		}
	}
	return ""
}

func TestBodiesOfTheLatestRequestsAreKept(t *testing.T) {
	t.Parallel()
	j := &Log{}
	j.Add(&journal.Entry{Method: "GET"})
	if j.Observed() {
		t.Error("a new log is observed")
	}
	observed := 0
	j.Observe(func(*journal.Entry, time.Duration) { observed++ })
	for range maxBodies + 1 {
		j.AddDetailed(&journal.Entry{Method: "POST"}, &Details{Request: []byte(`{"password":"x"}`), Response: []byte(`{"id":1}`)})
	}
	if observed != maxBodies+1 {
		t.Errorf("%d requests were observed, want %d", observed, maxBodies+1)
	}
	for seq, want := range map[uint64]struct {
		kept, exists bool
	}{0: {}, 1: {exists: true}, 2: {exists: true}, 3: {true, true}, maxBodies + 2: {true, true}, maxBodies + 3: {}} {
		e, request, response, kept, err := j.Bodies(seq)
		if (err == nil) != want.exists || kept != want.kept || want.exists && e.Seq != seq {
			t.Errorf("request %d: entry %d, kept %v, %v; want %+v", seq, e.Seq, kept, err, want)
		}
		if kept && (request != `{"password":"REDACTED"}` || response != `{"id":1}`) {
			t.Errorf("request %d: %s, %s", seq, request, response)
		}
	}
	_ = j.Reset(t.Context())
	if _, _, _, _, err := j.Bodies(maxBodies + 2); err == nil {
		t.Error("an emptied log has bodies")
	}
}
