package recording

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// unknownID is added to ids of the recording that stand for no resource: requests for them fail, as recorded.
const unknownID = 1 << 50

// translator makes a request for the simulation of a recorded one.
type translator struct {
	*mapping
	keys     *keyring
	unseeded map[resourceID]string // why a resource could not be made
	refused  bool                  // the recorded answer is an error
	domains  []string              // of a certificate to make
	reason   string                // why the request cannot be replayed
	secrets  bool                  // it has redacted values
	named    []resourceID          // the resources that the request names
}

func (t *translator) fail(format string, args ...any) {
	if t.reason == "" {
		t.reason = fmt.Sprintf(format, args...)
	}
}

func (t *translator) resolve(kind string, id int64) int64 {
	fake, ok := t.id(kind, id)
	t.named = append(t.named, resourceID{kind, id})
	switch {
	case ok:
		return fake
	case t.refused:
		return unknownID + id
	}
	what := strings.TrimSpace(kind + " " + strconv.FormatInt(id, 10))
	if why := t.unseeded[resourceID{kind, id}]; why != "" {
		t.fail("%s existed before the recording and could not be made: %s", what, why)
	} else {
		t.fail("no earlier answer of the recording shows %s", what)
	}
	return id
}

// value translates a value of a body. name is the member that has it, siblings are the other members.
func (t *translator) value(f *field, name string, v any, siblings map[string]any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, key := range sorted(v) {
			out[key] = t.value(f.child(key), key, v[key], v)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = t.value(f.child("*"), name, v[i], siblings)
		}
		return out
	case json.Number:
		if f != nil {
			if kind, _ := f.kind(); kind != "" {
				if id, ok := number(v); ok && id > 0 {
					return t.resolve(kindOf(kind, siblings), id)
				}
			}
		}
		return v
	case string:
		return t.scalar(f, name, v, siblings)
	}
	return v
}

func (t *translator) scalar(f *field, name, s string, siblings map[string]any) any {
	if f == nil {
		return s // the API ignores unknown fields
	}
	if kind, _ := f.kind(); kind != "" && digits.MatchString(s) {
		if id, ok := number(s); ok && id > 0 {
			return strconv.FormatInt(t.resolve(kindOf(kind, siblings), id), 10)
		}
	}
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		t.secrets = true
		return t.secret(name, s)
	}
	return t.text(s)
}

// secret returns a value for a marker.
func (t *translator) secret(name, marker string) any {
	switch name {
	case "public_key":
		return t.keys.public(marker)
	case "certificate":
		certificate, _ := t.keys.pair(t.domains)
		return certificate
	case "private_key":
		_, key := t.keys.pair(t.domains)
		return key
	case "user_data":
		return "#cloud-config\n"
	case "tsig_key":
		return "cmVjb3JkZWQtdHNpZy1rZXk="
	}
	t.fail("the value of %s was redacted", name)
	return marker
}

// path translates a path.
func (t *translator) path(r *route, path string) string {
	segments := strings.Split(path[1:], "/")
	for i, s := range segments {
		if r == nil || r.param(i) == "" {
			continue
		}
		plain, err := url.PathUnescape(s)
		if err != nil {
			continue
		}
		text, _ := t.scalar(&field{class: r.param(i)}, "", plain, nil).(string)
		segments[i] = url.PathEscape(text)
	}
	return "/" + strings.Join(segments, "/")
}

// query translates a query.
func (t *translator) query(recorded map[string][]string) string {
	out := url.Values{}
	for name, values := range recorded {
		for _, v := range values {
			if v == markerString {
				t.fail("the value of the query parameter %s was redacted", name)
			}
			f := allFields().query.child(name)
			if f != nil {
				v, _ = t.scalar(f, name, v, nil).(string)
			}
			out.Add(name, v)
		}
	}
	return out.Encode()
}

// body translates a body.
func (t *translator) body(recorded json.RawMessage) []byte {
	if len(recorded) == 0 {
		return nil
	}
	v, err := decode(recorded)
	if err != nil || v == any(markerNotJSON) {
		return []byte(`{"`)
	}
	return encode(t.value(allFields().request, "", v, nil))
}
