package recording

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/api"
)

// fieldList is made from the API document by TestTheListOfFieldsIsTheDocuments: part, path, class and values, separated by tabs.
// In a path, "*" is each entry of a list. The first name of a response's path is the singular: "server" also stands for the entries
// of "servers".
//
//go:embed fields.tsv
var fieldList string

// class says what the values of a field are, and so which of them pass.
type class string

// The classes. "id:" is followed by the kind of the resource, or by "?" and the member that says the kind. The value of classText and
// classPublic is a kind of resource: its ids are allowed there, too.
const (
	classNumber  class = "number"  // a number that says nothing about anyone, or its digits: passes
	classBool    class = "bool"    // passes
	classEnum    class = "enum"    // passes if it is one of the values of the document
	classPublic  class = "public"  // of the catalogue: passes in answers, and in requests if the catalogue has it
	classCode    class = "code"    // a code or command that the API chose: passes if it is a word in lower case
	classTime    class = "time"    // passes if it is a time as per RFC 3339
	classPattern class = "pattern" // ports, hours and statuses, such as 80-85, 22-02 and 2??: passes
	classText    class = "text"    // a name, an address, a description: gets a pseudonym
	classRecord  class = "record"  // a DNS record's value: its parts get pseudonyms
	classRRset   class = "rrset"   // name/type of a record set
	classPath    class = "path"    // the path of a health check
	classHex     class = "hex"     // a fingerprint or a MAC address: gets other digits
	classLabels  class = "labels"  // an object with any keys
	classSelect  class = "selector"
	classMessage class = "message" // of an error: what is known to be private is replaced in it
	classField   class = "field"   // the path of a field of the request
	classSeries  class = "series"  // an object of time series
	classKey     class = "key"     // a public key, a certificate or its private key: a marker with a number
	classSecret  class = "secret"  // a marker
	classID            = "id:"
)

// field is a node of the tree of fields. A field may be a value in one request and an object in another one.
type field struct {
	class    class
	values   map[string]bool // of classEnum, see also kind
	children map[string]*field
}

// child returns a field's member, "*" for an entry of a list. It returns nil for an unknown one.
func (f *field) child(name string) *field {
	if f == nil {
		return nil
	}
	return f.children[name]
}

// add adds a path to the tree.
func (f *field) add(path string, c class, values []string) {
	for name := range strings.SplitSeq(path, ".") {
		if f.children == nil {
			f.children = make(map[string]*field)
		}
		if f.children[name] == nil {
			f.children[name] = &field{}
		}
		f = f.children[name]
	}
	f.class = c
	for _, v := range values {
		if f.values == nil {
			f.values = make(map[string]bool)
		}
		f.values[v] = true
	}
}

// fields are all fields of the API.
type fields struct {
	request, response, query *field
	names                    map[string]bool // of all of them
	words                    map[string]bool // the values of enumerations
}

var allFields = sync.OnceValue(func() *fields {
	all := &fields{&field{}, &field{}, &field{}, map[string]bool{}, map[string]bool{}}
	for line := range strings.SplitSeq(strings.Trim(fieldList+errorFields, "\n"), "\n") {
		cells := strings.Split(line, "\t")
		if len(cells) != 4 {
			panic(fmt.Sprintf("fields.tsv: %q must have four cells", line))
		}
		var values []string
		if cells[3] != "" {
			values = strings.Split(cells[3], " ")
		}
		part := map[string]*field{"request": all.request, "response": all.response, "query": all.query}[cells[0]]
		part.add(cells[1], class(cells[2]), values)
		for name := range strings.SplitSeq(cells[1], ".") {
			all.names[name] = true
		}
		for _, v := range values {
			all.words[v] = true // kinds of resources are words, too
		}
	}
	return all
})

// errorFields are the fields of an error, common to all operations.
const errorFields = `response	error.code	code	
response	error.message	message	
response	error.details.fields.*.name	field	
response	error.details.fields.*.messages.*	message	
response	error.details.limits.*.name	code	
response	error.details.announcement	message	
response	error.details.nearest.*	message	
`

// member returns the field of a member of an answer. The tree has the singular of a list's name.
func (f *field) member(name string, value any) *field {
	if name == "next_actions" {
		name = "actions"
	}
	if _, list := value.([]any); !list {
		return f.child(name)
	}
	entry := f.child(strings.TrimSuffix(name, "s"))
	if entry == nil {
		return nil
	}
	return &field{children: map[string]*field{"*": entry}}
}

// kind returns the kind of resource that a value may be the id of, and reports whether it always is an id. A kind that begins with "?"
// is in the member that follows. It returns "" for a field without ids.
func (f *field) kind() (kind string, always bool) {
	if kind, always = strings.CutPrefix(string(f.class), classID); always {
		return kind, true
	}
	if f.class == classText || f.class == classPublic {
		for kind := range f.values {
			return kind, false
		}
	}
	return "", false
}

// kindOf returns the kind of resource that an id is of.
func kindOf(kind string, siblings map[string]any) string {
	if member, dynamic := strings.CutPrefix(kind, "?"); dynamic {
		kind, _ = siblings[member].(string)
	}
	return kind
}

// route is one operation of the API.
type route struct {
	method, pattern, operation string
	segments                   []string
}

var routes = sync.OnceValue(func() []route {
	var all []route
	for _, r := range api.Routes() {
		all = append(all, route{r.Method, r.Pattern, r.OperationID, strings.Split(r.Pattern[1:], "/")})
	}
	return all
})

// match returns the route of a path, or nil. A route without parameters wins.
func match(method, path string) *route {
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	var found *route
	fixed := -1
	for i, r := range routes() {
		if r.method != method || len(r.segments) != len(segments) {
			continue
		}
		n := 0
		for j, s := range r.segments {
			switch {
			case s == segments[j]:
				n++
			case !strings.HasPrefix(s, "{") || segments[j] == "":
				n = -len(segments) - 1
			}
		}
		if n >= 0 && n > fixed {
			found, fixed = &routes()[i], n
		}
	}
	return found
}

// param returns the class of the i-th segment of the route's path, or "" if it is a fixed word.
func (r *route) param(i int) class {
	switch name := r.segments[i]; {
	case name == "{rr_type}":
		return classEnum
	case name == "{action_id}" || name == "{id}" && i > 0 && r.segments[i-1] == "actions":
		return classID + "action"
	case name == "{id}", name == "{id_or_name}":
		return class(classID + strings.TrimSuffix(r.segments[0], "s"))
	case strings.HasPrefix(name, "{"):
		return classText
	}
	return ""
}
