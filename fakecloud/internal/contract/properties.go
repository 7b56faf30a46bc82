package contract

import (
	"maps"
	"path"
	"slices"
	"strings"
)

// This file finds the documented values that no answer had: a property that is always null, a list that is always empty, a
// status that never occurs. Such answers are valid, but a client would meet the other values for the first time in
// production.

// Unseen returns the documented values that no answer of the given operations had. They are pointers such as
// "/server/public_net/ipv4/ip". "*" stands for the entries of a list, and "=" is followed by an allowed value of an enum.
// Resources have the same pointer in all operations: an entry of "servers" is a "server".
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
	// Leave out the parts of unseen values.
	return slices.DeleteFunc(all, func(value string) bool {
		for i := range value {
			if i > 0 && (value[i] == '/' || value[i] == '=') && unseen[value[:i]] {
				return true
			}
		}
		return false
	})
}

// note adds the documented values of a successful answer.
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

// asOne returns the same pointer for a resource in all places: alone, in a list, within another resource, and for a load
// balancer's target within a target.
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

// documentedValues returns all values of a schema in the form of Unseen.
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
