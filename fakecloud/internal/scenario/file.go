// Package scenario reads scenario files, and has the built-in ones.
//
//	name: sold-out
//	description: Server type $type is sold out in $location.
//	parameters:
//	  - {name: type, default: cx23, description: a server type}
//	  - {name: location, default: fsn1, description: a location}
//	changes:
//	  - offer: {server_type: $type, location: $location, available: false}
//
// A change is in force from `at` until `until`, both after the start: at once, and until the scenario ends, by default. With `repeat`,
// all begins anew after that time. A change has one of `offer`, `limit`, `tokens` and `fault`: see cloud.Change.
package scenario

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/seed"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/strictjson"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/scenario"
)

// MaxBytes is the size of the largest allowed file, before and after its parameters and aliases are replaced.
const MaxBytes = 1 << 20

// nodeBytes is how much a part of a file counts in addition to its text.
const nodeBytes = 16

// File is a scenario file.
type File struct {
	name string
	head
	changes []*yaml.Node
}

// head is a file without its changes.
type head struct {
	Name        string               `json:"name"`
	Description string               `json:"description"`
	Parameters  []scenario.Parameter `json:"parameters"`
	Repeat      string               `json:"repeat"`
	Changes     json.RawMessage      `json:"changes"`
}

var (
	validName     = regexp.MustCompile(`^[a-z][a-z0-9-]{0,63}$`)
	parameterName = regexp.MustCompile(`^[a-z_]{1,64}$`)
	reference     = regexp.MustCompile(`\$([a-z_]+)`)
)

// Parse reads a scenario file. Its errors name the file and a line.
func Parse(name string, data []byte) (*File, error) {
	f := &File{name: name}
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("%s: must have at most %d bytes", name, MaxBytes)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("is empty; it must have name, description and changes")
		}
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if !errors.Is(dec.Decode(&more), io.EOF) {
		return nil, fmt.Errorf("%s: must be one document; remove what follows ---", name)
	}
	root := doc.Content[0]
	if left(MaxBytes, root, nil) < 0 {
		return nil, f.tooLarge()
	}
	if err := f.decode(root, &f.head, ""); err != nil {
		return nil, err
	}
	switch changes := seed.Child(root, "changes"); {
	case !validName.MatchString(f.Name):
		return nil, f.at(seed.Child(root, "name"),
			"name: %.64q must have 1 to 64 lower-case letters, digits and dashes, and begin with a letter", f.Name)
	case f.Description == "":
		return nil, f.at(root, "description: is required, a sentence")
	case changes.Kind != yaml.SequenceNode || len(changes.Content) == 0:
		return nil, f.at(changes, "changes: is required, a list such as [{limit: {project: 1, kind: server, most: 1}}]")
	default:
		f.changes = changes.Content
	}
	return f, f.checkReferences(root)
}

// checkReferences returns an error for a parameter that is not declared, declared twice, or not used.
func (f *File) checkReferences(root *yaml.Node) error {
	known, used := map[string]bool{}, map[string]bool{}
	for _, p := range f.Parameters {
		if !parameterName.MatchString(p.Name) || known[p.Name] {
			return f.at(seed.Child(root, "parameters"), "parameters: name %.64q must be a word of its own, of lower-case letters", p.Name)
		}
		known[p.Name] = true
	}
	err := eachScalar(root, func(n *yaml.Node) error {
		for _, m := range reference.FindAllStringSubmatch(n.Value, -1) {
			if used[m[1]] = true; !known[m[1]] {
				return f.at(n, "$%.64s: must be one of the parameters %v", m[1], slices.Sorted(maps.Keys(known)))
			}
		}
		return nil
	})
	for name := range known {
		if err == nil && !used[name] {
			err = f.at(seed.Child(root, "parameters"), "parameters: $%s is used nowhere; remove it", name)
		}
	}
	return err
}

func eachScalar(n *yaml.Node, do func(*yaml.Node) error) error {
	if n.Kind == yaml.ScalarNode {
		return do(n)
	}
	for _, c := range n.Content {
		if err := eachScalar(c, do); err != nil {
			return err
		}
	}
	return nil
}

// left returns how much of a number of bytes is left after a node with its aliases and the values of its parameters. It is negative if
// they are more. It looks at no more than that.
func left(bytes int, n *yaml.Node, values map[string]string) int {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	bytes -= nodeBytes + len(n.Value)
	for _, r := range reference.FindAllString(n.Value, -1) {
		bytes -= len(values[r[1:]])
	}
	for _, child := range n.Content {
		if bytes < 0 {
			break
		}
		bytes = left(bytes, child, values)
	}
	return bytes
}

func (f *File) tooLarge() error {
	return fmt.Errorf("%s: must have at most %d MiB with the values of its parameters and aliases; shorten them, and look for one that "+
		"contains itself", f.name, MaxBytes>>20)
}

func (f *File) at(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %w", f.name, n.Line, fmt.Errorf(format, args...))
}

// decode decodes a node into a struct with JSON tags. An unknown field is an error. path is where the node is in the file.
func (f *File) decode(n *yaml.Node, to any, path string) error {
	fields, err := seed.Decode(n)
	if err != nil {
		return f.at(n, "%s%w", path, err)
	}
	data, err := json.Marshal(fields)
	if err != nil {
		return f.at(n, "%s%w", path, err)
	}
	err = strictjson.Decode(data, to)
	wrong := (*json.UnmarshalTypeError)(nil)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong):
		return f.at(seed.Locate(n, wrong.Field), "%s%s: must be %s, not a %s", path, wrong.Field, typeName(wrong.Type), wrong.Value)
	case strings.Contains(err.Error(), "unknown field"):
		field := strings.Trim(strings.TrimPrefix(err.Error(), "json: unknown field "), `"`)
		return f.at(find(n, field), "%s%w; see the documentation of scenario files for the fields", path, err)
	}
	return f.at(n, "%s%w", path, err)
}

// find returns the first key of a name below a node, or the node.
func find(n *yaml.Node, key string) *yaml.Node {
	found := n
	_ = eachScalar(n, func(s *yaml.Node) error {
		if s.Value != key {
			return nil
		}
		found = s
		return io.EOF // to end
	})
	return found
}

func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a text"
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "a list"
	}
	return "an object"
}

// Scenario returns the scenario with values for the parameters: value@value, in their order, or name=value.
func (f *File) Scenario(values string) (cloud.Scenario, error) {
	given, err := f.values(values)
	if err != nil {
		return cloud.Scenario{}, err
	}
	texts := []*yaml.Node{{Value: f.Description}, {Value: f.Repeat}}
	if left(MaxBytes, &yaml.Node{Content: append(texts, f.changes...)}, given) < 0 {
		return cloud.Scenario{}, f.tooLarge()
	}
	s := cloud.Scenario{Name: f.Name, Description: fill(f.Description, given), Parameters: given}
	if f.Repeat != "" {
		text, _ := json.Marshal(fill(f.Repeat, given))
		if err := json.Unmarshal(text, &s.Repeat); err != nil {
			return s, fmt.Errorf("%s: repeat: %w", f.name, err)
		}
	}
	for i, n := range f.changes {
		var change cloud.Change
		if err := f.decode(filled(n, given), &change, fmt.Sprintf("changes[%d].", i)); err != nil {
			return s, err
		}
		s.Changes = append(s.Changes, change)
	}
	return s, nil
}

// Explain adds the line of the change to an error of the cloud.
func (f *File) Explain(err error) error {
	wrong := (*cloud.ChangeError)(nil)
	if !errors.As(err, &wrong) || wrong.Change >= len(f.changes) {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	return f.at(f.changes[wrong.Change], "%w", err)
}

// values returns the values of all parameters.
func (f *File) values(text string) (map[string]string, error) {
	all, names := map[string]string{}, []string{}
	for _, p := range f.Parameters {
		all[p.Name] = p.Default
		names = append(names, p.Name)
	}
	if text == "" {
		return all, nil
	}
	for i, part := range strings.Split(text, "@") {
		name, value, named := strings.Cut(part, "=")
		if !named {
			if value = part; i >= len(names) {
				return nil, fmt.Errorf("%s: %.128q: has more than %d values; they are %s", f.name, text, len(names),
					strings.Join(names, "@"))
			}
			name = names[i]
		}
		if _, ok := all[name]; !ok {
			return nil, fmt.Errorf("%s: parameter %.64q: must be one of %s", f.name, name, strings.Join(names, ", "))
		}
		all[name] = value
	}
	return all, nil
}

func fill(text string, values map[string]string) string {
	return reference.ReplaceAllStringFunc(text, func(r string) string { return values[r[1:]] })
}

// filled returns a copy of a node in which the parameters have their values. Without quotes, "7" is a number then; with quotes, a text.
func filled(n *yaml.Node, values map[string]string) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	c := *n
	if reference.MatchString(n.Value) {
		c.Value = fill(n.Value, values)
		if n.Style == 0 {
			c.Tag = ""
		}
	}
	c.Content = nil
	for _, child := range n.Content {
		c.Content = append(c.Content, filled(child, values))
	}
	return &c
}
