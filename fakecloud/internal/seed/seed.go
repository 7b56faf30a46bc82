// Package seed creates the resources of a YAML file through the public API.
//
//	ssh_keys:
//	  - {name: admin, public_key: ssh-ed25519 AAAA…}
//	networks:
//	  - name: cluster
//	    ip_range: 10.0.0.0/16
//	    subnets: [{type: cloud, network_zone: eu-central, ip_range: 10.0.1.0/24}]
//	servers:
//	  - name: web-1
//	    server_type: cx23
//	    image: ubuntu-24.04
//	    networks: [cluster]
//	    actions:
//	      - change_protection: {delete: true, rebuild: true}
//	load_balancers:
//	  - name: web
//	    load_balancer_type: lb11
//	    location: fsn1
//	    targets: [{type: server, server: {id: web-1}}]
//
// Each item is the body of the POST request that creates it, with two additions. A field for an id may have the name of
// the resource. `actions` are requests that follow: the name of an action of the resource, and its body.
//
// The sections are created in the order of their dependencies, not in their order in the file. The items of a section are
// created in their order in the file. A file may have several documents. Each may name its `project`. A project that does not
// exist is created. The default is the project "default".
package seed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// MaxBytes is the size of the largest allowed file.
const MaxBytes = 16 << 20

// sections are the parts of a document, in the order of their creation.
var sections = []string{
	"ssh_keys", "placement_groups", "certificates", "networks", "firewalls", "primary_ips", "servers", "volumes", "floating_ips",
	"load_balancers", "zones",
}

// Document is one document of a seed file, parsed but not applied.
type Document struct {
	// Project is the name of the document's project.
	Project string
	items   []item
}

// item is one resource to create.
type item struct {
	file    string
	section string
	index   int
	node    *yaml.Node
	body    map[string]any
	actions []action
	during  string // the name of the current action, for errors
}

// action is one request that follows the creation of an item.
type action struct {
	name string
	body map[string]any
	node *yaml.Node
}

// Parse reads a seed file. Its errors name file, line and path.
func Parse(file string, data []byte) ([]Document, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("%s: must have at most %d bytes; split it into several files", file, MaxBytes)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var docs []Document
	for {
		var node yaml.Node
		err := dec.Decode(&node)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		doc, err := parseDocument(file, &node)
		if err != nil {
			return nil, err
		}
		docs = append(docs, doc)
	}
}

func parseDocument(file string, node *yaml.Node) (Document, error) {
	doc := Document{Project: "default"}
	root := node.Content[0]
	if root.Tag == "!!null" {
		return doc, nil
	}
	if root.Kind != yaml.MappingNode {
		return doc, at(file, root, "must have sections with lists: %s", strings.Join(sections, ", "))
	}
	found := map[string]*yaml.Node{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		switch {
		case found[key.Value] != nil:
			return doc, at(file, key, "duplicate section %.64q; merge the two", key.Value)
		case key.Value == "project":
			if value.Kind != yaml.ScalarNode || value.Value == "" {
				return doc, at(file, value, "project: must be a name")
			}
			doc.Project = value.Value
		case !slices.Contains(sections, key.Value):
			return doc, at(file, key, "unknown section %.64q: must be one of project, %s", key.Value, strings.Join(sections, ", "))
		}
		found[key.Value] = value
	}
	for _, section := range sections {
		list := resolve(found[section])
		if list == nil || list.Tag == "!!null" {
			continue
		}
		if list.Kind != yaml.SequenceNode {
			return doc, at(file, list, "%s: must be a list", section)
		}
		for i, node := range list.Content {
			it, err := parseItem(item{file: file, section: section, index: i, node: resolve(node)})
			if err != nil {
				return doc, err
			}
			doc.items = append(doc.items, it)
		}
	}
	return doc, nil
}

func parseItem(it item) (item, error) {
	body, err := Decode(it.node)
	if err != nil {
		return it, it.errorf(it.node, "%w", err)
	}
	it.body = body
	list, ok := body["actions"]
	if !ok || list == nil {
		return it, nil
	}
	delete(body, "actions")
	node := Child(it.node, "actions")
	entries, ok := list.([]any)
	if !ok {
		return it, it.errorf(node, "actions: must be a list")
	}
	for i, entry := range entries {
		n := Child(node, fmt.Sprint(i))
		m, ok := entry.(map[string]any)
		if !ok || len(m) != 1 {
			return it, it.errorf(n, "actions.%d: must be one action with its body, such as change_protection: {delete: true}", i)
		}
		for name, v := range m {
			a := action{name: name, node: n, body: map[string]any{}}
			if v != nil {
				if a.body, ok = v.(map[string]any); !ok {
					return it, it.errorf(n, "actions.%d.%.64s: must be the body of the request", i, name)
				}
			}
			it.actions = append(it.actions, a)
		}
	}
	return it, nil
}

// Decode returns a mapping in the form of JSON.
func Decode(node *yaml.Node) (map[string]any, error) {
	if node.Kind != yaml.MappingNode {
		return nil, errors.New("must be an object with the fields of a resource")
	}
	var v any
	if err := node.Decode(&v); err != nil {
		return nil, err
	}
	clean, err := toJSON(v)
	if err != nil {
		return nil, err
	}
	return clean.(map[string]any), nil
}

func toJSON(v any) (any, error) {
	var err error
	switch x := v.(type) {
	case map[string]any:
		for k := range x {
			if x[k], err = toJSON(x[k]); err != nil {
				return nil, err
			}
		}
		return x, nil
	case map[any]any:
		m := make(map[string]any, len(x))
		for k, item := range x {
			if m[fmt.Sprint(k)], err = toJSON(item); err != nil {
				return nil, err
			}
		}
		return m, nil
	case []any:
		for i := range x {
			if x[i], err = toJSON(x[i]); err != nil {
				return nil, err
			}
		}
		return x, nil
	case float64:
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return nil, fmt.Errorf("%v: must be a number that JSON can have", x)
		}
	case time.Time:
		return x.Format(time.RFC3339), nil
	}
	return v, nil
}

// resolve follows an alias.
func resolve(n *yaml.Node) *yaml.Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// Child returns the node of a field or an element, or the parent if it does not exist.
func Child(n *yaml.Node, name string) *yaml.Node {
	n = resolve(n)
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == name {
				return n.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		for i, c := range n.Content {
			if fmt.Sprint(i) == name {
				return c
			}
		}
	}
	return n
}

// Locate returns the node of a path such as services.0.listen_port. If it does not exist, it returns the last node on the
// way that exists.
func Locate(n *yaml.Node, path string) *yaml.Node {
	for name := range strings.SplitSeq(path, ".") {
		n = Child(n, name)
	}
	return n
}

func at(file string, n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %w", file, n.Line, fmt.Errorf(format, args...))
}

func (it *item) errorf(n *yaml.Node, format string, args ...any) error {
	name := ""
	if s, ok := it.body["name"].(string); ok {
		name = fmt.Sprintf(" %.64q", s)
	}
	if it.during != "" {
		name += ": " + it.during
	}
	return at(it.file, n, "%s[%d]%s: %w", it.section, it.index, name, fmt.Errorf(format, args...))
}

// Target is the API that a document's resources are created with.
type Target struct {
	// Do sends a request to the API, in the document's project, and returns status
	// and body.
	Do func(ctx context.Context, method, path string, body []byte) (int, []byte, error)
	// Await waits until the actions end. If one fails, it returns an error with the reason.
	Await func(ctx context.Context, actions []int64) error
}

// Check returns an error for each field that the API does not know. do answers with invalid_input for such
// fields, and carries nothing out (api.OnlyUnknownFields).
func (d *Document) Check(ctx context.Context, do func(ctx context.Context, method, path string, body []byte) (int, []byte, error)) error {
	var errs []error
	for i := range d.items {
		it := &d.items[i]
		errs = append(errs, it.eachRequest(func(node *yaml.Node, action string, body map[string]any) error {
			path := "/" + it.section
			if action != "" {
				path += "/1/actions/" + url.PathEscape(action)
			}
			data, err := json.Marshal(body)
			if err != nil {
				return it.errorf(node, "%w", err)
			}
			status, answer, err := do(ctx, http.MethodPost, path, data)
			if err == nil && status == http.StatusUnprocessableEntity && bytes.Contains(answer, []byte(`"invalid_input"`)) {
				err = it.apiError(node, status, answer)
			}
			return err
		}))
	}
	return errors.Join(errs...)
}

// eachRequest calls do for the creation of an item, with the action "", and for each of its actions.
func (it *item) eachRequest(do func(node *yaml.Node, action string, body map[string]any) error) error {
	errs := []error{do(it.node, "", it.body)}
	for _, a := range it.actions {
		it.during = a.name
		errs = append(errs, do(Child(a.node, a.name), a.name, a.body))
		it.during = ""
	}
	return errors.Join(errs...)
}

// Apply creates the resources of a document and waits for their actions. It stops at the first error: the resources that
// it created before stay.
func (d *Document) Apply(ctx context.Context, t Target) (created int, err error) {
	for i := range d.items {
		if err := d.items[i].create(ctx, t); err != nil {
			return created, err
		}
		created++
	}
	return created, nil
}
