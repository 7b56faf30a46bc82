package recording

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The markers replace a value. They keep its JSON type, and nothing else.
const (
	markerString  = "[string]"
	markerNumber  = "[number]"
	markerBool    = "[boolean]"
	markerObject  = "[object]"
	markerArray   = "[array]"
	markerSecret  = "[secret]"
	markerNotJSON = "[not JSON]"
)

// Redactor takes out of exchanges what is private. It is for one recording: the same value gets the same pseudonym in all of it.
// Its methods must not be called at the same time.
type Redactor struct {
	*pseudonyms
	public  map[string]bool // names of the catalogue
	secrets map[string]string
	collect *[]int64 // if set, ids are only collected
}

// NewRedactor returns a Redactor. Names of the catalogue, such as those of server types, pass: see [CatalogueNames].
func NewRedactor(catalogue []string) *Redactor {
	r := &Redactor{pseudonyms: newPseudonyms(), public: map[string]bool{}, secrets: map[string]string{}}
	for _, name := range catalogue {
		r.public[name] = true
	}
	return r
}

// Message is an exchange as it passed.
type Message struct {
	Method, Path, Query string // the path is without the base path
	RequestHeader       http.Header
	Request             []byte
	Status              int // 0 if no answer came
	ResponseHeader      http.Header
	Response            []byte
}

// Exchange returns the exchange without what is private. The caller sets its numbers and times.
func (r *Redactor) Exchange(m *Message) Exchange {
	request, sent := parseBody(m.Request)
	response, answered := parseBody(m.Response)
	var ids []int64
	r.collect = &ids
	r.path(m.Method, m.Path)
	r.query(m.Path, m.Query)
	r.body(allFields().request, request, false)
	r.body(allFields().response, response, true)
	r.collect = nil
	r.learn(ids)

	e := Exchange{
		Method: recordedMethod(m.Method), Path: r.path(m.Method, m.Path), Query: r.query(m.Path, m.Query),
		RequestHeaders: r.requestHeaders(m.RequestHeader), Status: m.Status,
	}
	if sent {
		e.Request = encode(r.body(allFields().request, request, false))
	}
	if m.Status != 0 {
		e.ResponseHeaders = responseHeaders(m.ResponseHeader)
	}
	if answered {
		e.Response = encode(r.body(allFields().response, response, true))
	}
	return e
}

func recordedMethod(method string) string {
	if slices.Contains(methods, method) {
		return method
	}
	return "OTHER"
}

// parseBody decodes a body, and reports whether there is one. A body that is not JSON becomes a marker.
func parseBody(body []byte) (v any, ok bool) {
	if len(body) == 0 {
		return nil, false
	}
	v, err := decode(body)
	if err != nil {
		return notJSON{}, true
	}
	return v, true
}

// notJSON is a body that is not JSON.
type notJSON struct{}

// body redacts a body. In an answer, the first name is made singular.
func (r *Redactor) body(tree *field, v any, answer bool) any {
	if _, broken := v.(notJSON); broken {
		return markerNotJSON
	}
	members, ok := v.(map[string]any)
	if !ok {
		return marker(v)
	}
	// What a member says may depend on others: a secret of one is looked for in the messages of the other.
	out := make(map[string]any, len(members))
	for _, name := range sorted(members) {
		f := tree.child(name)
		if answer {
			f = tree.member(name, members[name])
		}
		r.member(out, f, name, members, answer)
	}
	return out
}

// member redacts one member of an object into another one.
func (r *Redactor) member(out map[string]any, f *field, name string, members map[string]any, answer bool) {
	if f == nil {
		out[r.unknownName(name, answer)] = marker(members[name])
		return
	}
	out[name] = r.value(f, members[name], members, answer)
}

var plainName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,39}$`)

// unknownName returns the name of a field that the list of fields lacks. A new field of an answer is what a recording is for: its name
// passes, if it looks like one and is not a value that was replaced. A request may have any text there.
func (r *Redactor) unknownName(name string, answer bool) string {
	if r.texts[name] == "" && (allFields().names[name] || answer && plainName.MatchString(name)) {
		return name
	}
	return "unknown-" + r.text(name)
}

// value redacts a value. siblings are the other members of the object that has it.
func (r *Redactor) value(f *field, v any, siblings map[string]any, answer bool) any {
	switch v := v.(type) {
	case nil:
		return nil
	case map[string]any:
		return r.object(f, v, answer)
	case []any:
		entry := f.child("*")
		if entry == nil {
			return marker(v)
		}
		out := make([]any, len(v))
		for i := range v {
			out[i] = r.value(entry, v[i], siblings, answer)
		}
		return out
	case bool:
		if f.class == classBool {
			return v
		}
	case json.Number:
		if kind, _ := f.kind(); kind != "" {
			if id, err := v.Int64(); err == nil && id >= 0 {
				return json.Number(fmt.Sprint(r.id(kindOf(kind, siblings), id)))
			}
		}
		if f.class == classNumber || f.class == classPattern {
			return v
		}
	case string:
		return r.scalar(f, v, siblings, answer)
	}
	return marker(v)
}

func (r *Redactor) object(f *field, v map[string]any, answer bool) any {
	out := make(map[string]any, len(v))
	switch {
	case f.class == classLabels:
		for _, key := range sorted(v) {
			value, isText := v[key].(string)
			if !isText {
				out[r.labelKey(key)] = marker(v[key])
				continue
			}
			out[r.labelKey(key)] = r.text(value)
		}
	case f.class == classSeries:
		for _, key := range sorted(v) {
			if !seriesName.MatchString(key) {
				key = markerString
			}
			out[key] = r.series(v[key])
		}
	case len(v) > 0 && len(f.children) == 0:
		return marker(v)
	default:
		for _, name := range sorted(v) {
			r.member(out, f.child(name), name, v, answer)
		}
	}
	return out
}

// labelKey replaces the parts of a label's key.
func (r *Redactor) labelKey(key string) string {
	prefix, name, ok := strings.Cut(key, "/")
	if !ok {
		return r.text(key)
	}
	return r.text(prefix) + "/" + r.text(name)
}

var (
	seriesName = regexp.MustCompile(`^[a-z0-9_.]{1,60}$`)
	decimal    = regexp.MustCompile(`^-?[0-9]{1,20}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,3})?$`)
	lowerWord  = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,59}$`)
	pattern    = regexp.MustCompile(`^([0-9?*]{1,5}(-[0-9]{1,5})?|any)$`)
	recordType = regexp.MustCompile(`^[A-Z]{1,10}$`)
	digits     = regexp.MustCompile(`^[0-9]{1,18}$`)
)

// series keeps the numbers of a time series, and their form.
func (r *Redactor) series(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, value := range v {
			if name != "values" {
				name = r.unknownName(name, true)
			}
			out[name] = r.series(value)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = r.series(v[i])
		}
		return out
	case string:
		if decimal.MatchString(v) {
			return v
		}
	case json.Number, nil:
		return v
	}
	return marker(v)
}

// publicKinds are the kinds of resources of the catalogue with public ids.
var publicKinds = map[string]bool{"location": true, "datacenter": true, "server_type": true, "load_balancer_type": true, "iso": true}

// id returns the pseudonym of an id.
func (r *Redactor) id(kind string, id int64) int64 {
	if publicKinds[kind] {
		return id
	}
	if r.collect != nil {
		*r.collect = append(*r.collect, id)
		return 0
	}
	return r.ids[id]
}

// scalar redacts a text.
func (r *Redactor) scalar(f *field, s string, siblings map[string]any, answer bool) any {
	kind, always := f.kind()
	if kind != "" && digits.MatchString(s) {
		if id, err := json.Number(s).Int64(); err == nil {
			return fmt.Sprint(r.id(kindOf(kind, siblings), id))
		}
	}
	if always {
		return r.text(s) // a name where an id is expected
	}
	switch f.class {
	case classBool: // in a query
		if s == "true" || s == "false" {
			return s
		}
	case classEnum, classPublic, classCode, classTime, classPattern, classNumber:
		if r.passes(f, s, siblings, answer) {
			return s
		}
		return r.text(s)
	case classText:
		return r.text(s)
	case classHex:
		return r.hex(s)
	case classPath:
		if s != "" && s != "/" {
			return "/" + r.text(s)
		}
		return s
	case classSelect:
		return r.selector(s)
	case classRecord:
		return r.record(s)
	case classRRset:
		name, kind, _ := strings.Cut(s, "/")
		if !recordType.MatchString(kind) {
			return r.text(s)
		}
		return r.text(name) + "/" + kind
	case classMessage:
		return r.message(s)
	case classField:
		if isField(s) {
			return s
		}
		return r.text(s)
	case classKey:
		return r.secret(s, true)
	case classSecret:
		return r.secret(s, false)
	}
	return marker(s)
}

// passes reports whether a text says nothing about anyone.
func (r *Redactor) passes(f *field, s string, siblings map[string]any, answer bool) bool {
	switch f.class {
	case classEnum:
		return f.values[s]
	case classPublic:
		// An image's name and description are those of the catalogue, unless a user made the image.
		if kind, _ := siblings["type"].(string); answer && kind != "snapshot" && kind != "backup" && kind != "private" {
			return true
		}
		return r.public[s]
	case classCode:
		return lowerWord.MatchString(s) && r.secrets[s] == "" && r.texts[s] == ""
	case classTime:
		_, err := time.Parse(time.RFC3339, s)
		return err == nil
	case classPattern:
		return pattern.MatchString(s)
	case classNumber:
		return decimal.MatchString(s)
	}
	return false
}

// secret returns the marker of a secret, and remembers it for messages. Keys get a number, so that a replay can use the same key twice.
func (r *Redactor) secret(s string, numbered bool) string {
	if s == "" {
		return ""
	}
	if r.secrets[s] == "" {
		r.secrets[s] = markerSecret
		if numbered {
			r.secrets[s] = fmt.Sprintf("[secret %d]", r.next("secret"))
		}
	}
	return r.secrets[s]
}

var selectorPart = regexp.MustCompile(`[^\s,()=!]+`)

// selector replaces the keys and values of a label selector.
func (r *Redactor) selector(s string) string {
	return selectorPart.ReplaceAllStringFunc(s, func(part string) string {
		if part == "in" || part == "notin" {
			return part
		}
		return r.labelKey(part)
	})
}

var recordPart = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\S+`)

// record replaces the parts of a DNS record's value. Numbers and the tags of CAA stay.
func (r *Redactor) record(s string) string {
	return recordPart.ReplaceAllStringFunc(s, func(part string) string {
		inner, quoted := strings.CutPrefix(part, `"`)
		switch {
		case quoted:
			return `"` + r.text(strings.TrimSuffix(inner, `"`)) + `"`
		case len(part) <= 10 && digits.MatchString(part), part == "issue", part == "issuewild", part == "iodef", part == ".":
			return part
		case len(part) >= 16 && hexText.MatchString(part):
			return r.hex(part)
		}
		return r.text(part)
	})
}

var fieldIndex = regexp.MustCompile(`^([0-9]{1,6}|\*)$`)

// isField reports whether a text is the path of a field of the API, such as services.0.listen_port.
func isField(s string) bool {
	for i, name := range strings.Split(s, ".") {
		if !allFields().names[name] && (i == 0 || !fieldIndex.MatchString(name)) {
			return false
		}
	}
	return true
}

// path redacts a path.
func (r *Redactor) path(method, path string) string {
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	route := match(method, path)
	for i, s := range segments {
		var c class
		plain, err := url.PathUnescape(s)
		switch {
		case err != nil:
			segments[i] = r.text(s)
			continue
		case route == nil && fixedSegments()[s] || s == "":
			continue
		case route == nil:
			c = classText
		default:
			if c = route.param(i); c == "" {
				continue
			}
		}
		if c == classEnum && recordType.MatchString(s) {
			continue
		}
		replaced, _ := r.scalar(&field{class: c}, plain, nil, false).(string)
		segments[i] = url.PathEscape(replaced)
	}
	return "/" + strings.Join(segments, "/")
}

// catalogueLists are the lists of entries with public names.
var catalogueLists = map[string]bool{
	"server_types": true, "load_balancer_types": true, "locations": true, "datacenters": true, "isos": true, "images": true,
}

// query redacts a query. A value that cannot be read becomes a marker.
func (r *Redactor) query(path, raw string) map[string][]string {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return map[string][]string{markerString: {markerString}}
	}
	out := make(map[string][]string, len(values))
	for _, name := range sorted(values) {
		f := allFields().query.child(name)
		if name == "name" && catalogueLists[strings.Trim(path, "/")] {
			f = &field{class: classPublic}
		}
		shown := name
		if f == nil {
			shown = r.unknownName(name, false)
		}
		for _, v := range values[name] {
			redacted := any(markerString)
			if f != nil {
				redacted = r.scalar(f, v, nil, false)
			}
			out[shown] = append(out[shown], fmt.Sprint(redacted))
		}
	}
	return out
}

// marker returns the marker of a value.
func marker(v any) any {
	switch v.(type) {
	case nil:
		return nil
	case bool:
		return markerBool
	case json.Number:
		return markerNumber
	case map[string]any:
		return markerObject
	case []any:
		return markerArray
	}
	return markerString
}
