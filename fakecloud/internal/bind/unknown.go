package bind

import (
	"context"
	"maps"
	"slices"
	"strings"
)

// Unknown returns a *cloud.Error, invalid_input, with the fields of body that the struct of out does not have, or nil. It
// does not report the errors that [Unread] finds.
func Unknown(ctx context.Context, body []byte, out any, day string) error {
	b := binder{day: day, ctx: ctx, findUnknown: true}
	if b.decode(body, out) != nil {
		return nil //nolint:nilerr // Unread reports it
	}
	return b.err()
}

// MaxUnread is how many fields [Unread] names at most. It bounds what a request adds to logs.
const MaxUnread = 20

// noteUnread notes the first names of an object that its struct does not have.
func (b *binder) noteUnread(path string, obj map[string]any, fields []field) {
	var names []string
	for name := range obj {
		if slices.ContainsFunc(fields, func(f field) bool { return f.name == name && f.known(b.day) }) {
			continue
		}
		if i, _ := slices.BinarySearch(names, name); i < MaxUnread {
			names = slices.Insert(names, i, name)
			names = names[:min(len(names), MaxUnread)]
		}
	}
	for _, name := range names[:min(len(names), MaxUnread-len(b.unread))] {
		b.unread = append(b.unread, join(path, abbreviate(name)))
	}
}

// noteUnknown records the fields of an object that its struct does not have.
func (b *binder) noteUnknown(path string, obj map[string]any, fields []field) {
	var known []string
	for _, f := range fields {
		if f.on(b.day) {
			known = append(known, f.name)
		}
	}
	message := "is unknown: must be one of " + strings.Join(known, ", ")
	for _, name := range slices.Sorted(maps.Keys(obj)) {
		if !slices.Contains(known, name) && !b.ends() {
			b.note(join(path, abbreviate(name)), message)
		}
	}
}
