package contract

import (
	"maps"
	"path"
	"slices"
	"strings"
)

// This file tells which of the values that the document knows were never seen in an answer: a property
// that is always null, a list that is always empty, a status that nothing ever has. Such answers are
// all valid, and yet a client finds out in production what the rest of the document is about.

// Unseen returns what the answers of the given operations may contain and none of theirs did: pointers as
// "/server/public_net/ipv4/ip", where "*" stands for the entries of a list, and a "=" is followed by one
// of the values that an enum allows. Resources are the same in all operations: an entry of "servers" is
// a "server".
func (r *Recorder) Unseen(operations []*Operation) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	unseen := make(map[string]bool)
	for _, op := range operations {
		maps.Copy(unseen, op.values())
	}
	for _, op := range operations {
		if r.seen[op.ID] == nil {
			continue
		}
		for value := range r.seen[op.ID].values {
			delete(unseen, value)
		}
	}
	all := slices.Sorted(maps.Keys(unseen))
	// What is in something unseen is unseen, too, and goes without saying.
	return slices.DeleteFunc(all, func(value string) bool {
		for i := range value {
			if i > 0 && (value[i] == '/' || value[i] == '=') && unseen[value[:i]] {
				return true
			}
		}
		return false
	})
}

// note adds the values of a successful answer that the document knows.
func (a *answers) note(op *Operation, instance any) {
	if a.values == nil {
		a.values = make(map[string]bool)
	}
	known := op.values()
	var walk func(pointer string, value any)
	walk = func(pointer string, value any) {
		if value == nil {
			return
		}
		if pointer = asOne(pointer); known[pointer] {
			a.values[pointer] = true
		}
		switch value := value.(type) {
		case map[string]any:
			for name, child := range value {
				walk(pointer+"/"+escape(name), child)
			}
		case []any:
			for _, child := range value {
				walk(pointer+"/*", child)
			}
		case string:
			if known[pointer+"="+value] {
				a.values[pointer+"="+value] = true
			}
		}
	}
	walk("", instance)
}

// embedded are resources that others contain as a whole.
var embedded = []string{"image", "iso", "load_balancer_type", "location", "placement_group", "server_type"}

// asOne returns the pointer of a resource within an answer as that of the resource: of an entry of a list,
// of one within another, and of a load balancer's target within a target.
func asOne(pointer string) string {
	parent, name := path.Split(pointer)
	switch {
	case strings.HasPrefix(pointer, "/next_actions/*"):
		return "/action" + strings.TrimPrefix(pointer, "/next_actions/*")
	case strings.HasSuffix(pointer, "/targets/*/targets/*"):
		return strings.TrimSuffix(pointer, "/targets/*")
	case slices.Contains(embedded, name):
		return "/" + name
	case name == "*" && strings.Count(parent, "/") == 2: // "/servers/"
		return strings.TrimSuffix(parent, "s/")
	}
	return pointer
}

// documentedValues returns all that a schema knows, as Unseen does.
func documentedValues(schema Schema) map[string]bool {
	values := make(map[string]bool)
	var walk func(pointer string, schema Schema)
	walk = func(pointer string, schema Schema) {
		if pointer = asOne(pointer); pointer != "" {
			values[pointer] = true
		}
		for _, branch := range list(schema["oneOf"]) {
			walk(pointer, branch.(Schema))
		}
		for name := range properties(schema) {
			walk(pointer+"/"+escape(name), property(schema, name))
		}
		if items, ok := schema["items"].(Schema); ok {
			walk(pointer+"/*", items)
		}
		for _, value := range list(schema["enum"]) {
			if text, ok := value.(string); ok {
				values[pointer+"="+text] = true
			}
		}
	}
	walk("", schema)
	return values
}
