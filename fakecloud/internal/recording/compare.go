package recording

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// comparer compares an answer of the simulation with the recorded one, and learns what the simulation calls the same things.
type comparer struct {
	*mapping
	seeded   map[resourceID]bool
	unseeded map[resourceID]string
	report   func(what, place, recorded, fake string)
	reads    bool // the request is a GET
	// lenient leaves out what a resource owes to its life before the recording.
	lenient bool
}

// volatile are enumerations and booleans that change by themselves. The time of a change is not compared.
var volatile = map[string]bool{
	"status": true, "issuance": true, "renewal": true, "delegation_status": true, "registrar": true,
	"locked": true, "available": true, "recommended": true,
}

// typeOf returns the JSON type of a value, also of one that a marker stands for.
func typeOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case json.Number:
		return "number"
	case map[string]any:
		return "object"
	case []any:
		return "array"
	case string:
		switch v {
		case markerNumber, markerBool, markerObject, markerArray:
			return strings.Trim(v, "[]")
		}
	}
	return "string"
}

// body compares two bodies.
func (c *comparer) body(recorded, fake any) {
	r, ok1 := recorded.(map[string]any)
	f, ok2 := fake.(map[string]any)
	if !ok1 || !ok2 {
		if typeOf(recorded) != typeOf(fake) {
			c.report(DiffType, "the body", typeOf(recorded), typeOf(fake))
		}
		return
	}
	c.members(nil, "", r, f)
}

// members compares the members of two objects. Without a field, they are bodies.
func (c *comparer) members(f *field, place string, recorded, fake map[string]any) {
	for _, name := range sorted(recorded) {
		child := f.child(name)
		if f == nil {
			child = allFields().response.member(name, recorded[name])
		}
		at := strings.TrimPrefix(place+"."+name, ".")
		other, ok := fake[name]
		if !ok {
			if !strings.HasPrefix(name, "unknown-") && !ofTraffic(at) {
				c.report(DiffMissing, at, typeOf(recorded[name]), "absent")
			}
			continue
		}
		c.value(child, at, name, recorded[name], other, recorded, fake)
	}
	for _, name := range sorted(fake) {
		at := strings.TrimPrefix(place+"."+name, ".")
		if _, ok := recorded[name]; !ok && !ofTraffic(at) {
			c.report(DiffAdditional, at, "absent", typeOf(fake[name]))
		}
	}
}

// value compares two values of a field. f is nil for an unknown field.
func (c *comparer) value(f *field, place, name string, recorded, fake any, siblings, fakeSiblings map[string]any) {
	want, got := typeOf(recorded), typeOf(fake)
	switch {
	case ofTraffic(place):
		return
	case want != got && (want == "null" || got == "null"):
		if !c.lenient && !depends(place, siblings, fakeSiblings) {
			c.report(DiffNull, place, want, got)
		}
		return
	case want != got:
		c.report(DiffType, place, want, got)
		return
	}
	switch r := recorded.(type) {
	case map[string]any:
		c.object(f, place, r, fake.(map[string]any))
	case []any:
		c.list(f, place, r, fake.([]any), siblings)
	case json.Number:
		c.id(f, place, r, fake, siblings)
	case bool:
		if f != nil && fake == !r && !c.lenient && !volatile[name] {
			c.report(DiffValue, place, fmt.Sprint(r), fmt.Sprint(fake))
		}
	case string:
		text, ok := fake.(string)
		if !ok {
			return // a marker of another type
		}
		c.text(f, place, name, r, text, siblings)
	}
}

// ofTraffic reports whether a field says what a load balancer has moved, or how a target answers: the replay has no traffic.
func ofTraffic(place string) bool {
	i := strings.LastIndexByte(place, '.') + 1
	switch place[i:] {
	case "ingoing_traffic", "outgoing_traffic":
		return true
	case "status", "detail", "http_status_code":
		return strings.HasSuffix(place[:i], "health_status.*.")
	}
	return false
}

// depends reports whether a value may be null or not because the two actions are not equally far, or the two lists not equally long.
func depends(place string, siblings, fakeSiblings map[string]any) bool {
	if strings.HasSuffix(place, ".finished") || strings.HasSuffix(place, ".error") {
		return siblings["status"] != fakeSiblings["status"]
	}
	return strings.HasPrefix(place, "meta.pagination.") && siblings["total_entries"] != fakeSiblings["total_entries"]
}

func (c *comparer) object(f *field, place string, recorded, fake map[string]any) {
	if f == nil {
		return
	}
	if f.class == classSeries {
		for _, name := range sorted(recorded) {
			if _, ok := fake[name]; !ok && name != markerString {
				c.report(DiffMissing, place+"."+name, typeOf(recorded[name]), "absent")
			}
		}
		return
	}
	kind, _ := f.child("id").idKind(recorded)
	id, _ := number(recorded["id"])
	zone, _ := number(recorded["zone"]) // of a record set
	if !c.lenient && (c.seeded[resourceID{kind, id}] || c.seeded[resourceID{"zone", zone}]) {
		c.lenient = true
		defer func() { c.lenient = false }()
	}
	c.members(f, place, recorded, fake)
}

// idKind returns the kind of resource that a field is the id of.
func (f *field) idKind(siblings map[string]any) (string, bool) {
	if f == nil {
		return "", false
	}
	kind, always := f.kind()
	return kindOf(kind, siblings), always
}

func (c *comparer) id(f *field, place string, recorded json.Number, fake any, siblings map[string]any) {
	kind, ok := f.idKind(siblings)
	want, ok1 := number(recorded)
	got, ok2 := number(fake)
	if !ok || !ok1 || !ok2 || want == 0 {
		return
	}
	if !c.learn(kind, want, got) {
		known, mapped := c.ids[resourceID{kind, want}]
		is := "another one"
		if mapped {
			is = fmt.Sprintf("%d, not %d", got, known)
		}
		c.report(DiffReference, place, fmt.Sprintf("%s %d", kind, want), is)
	}
}

func (c *comparer) text(f *field, place, name, recorded, fake string, siblings map[string]any) {
	if f == nil {
		return
	}
	switch f.class {
	case classEnum:
		if !volatile[name] && recorded != fake {
			c.report(DiffValue, place, recorded, fake)
		}
	case classCode:
		if recorded != fake && !c.lenient && !strings.Contains(place, "error.") {
			c.report(DiffValue, place, recorded, fake)
		}
	case classField:
		if recorded != fake && !strings.Contains(recorded, "name-") {
			c.report(DiffValue, place, recorded, fake)
		}
	case classText, classRecord:
		c.learnText(recorded, fake)
	case classHex:
		c.texts[recorded] = fake
	default:
		if kind, ok := f.idKind(siblings); ok {
			want, ok1 := number(recorded)
			got, ok2 := number(fake)
			if ok1 && ok2 {
				c.learn(kind, want, got)
			}
		}
	}
}

// list compares two lists.
func (c *comparer) list(f *field, place string, recorded, fake []any, siblings map[string]any) {
	entry := f.child("*")
	if kind, ok := entry.idKind(siblings); ok {
		c.entries(place, kind, entry, recorded, fake)
		return
	}
	if kind, ok := entry.child("id").idKind(nil); ok && kind != "" {
		c.entries(place, kind, entry, recorded, fake)
		return
	}
	if len(recorded) != len(fake) && !c.lenient && !strings.HasSuffix(place, "health_status") {
		c.report(DiffEntries, place, fmt.Sprint(len(recorded)), fmt.Sprint(len(fake)))
	}
	if reordered(recorded, fake) && !c.lenient {
		c.report(DiffOrder, place, "another order", string(encode(fake)))
		return
	}
	for i := range min(len(recorded), len(fake)) {
		c.value(entry, place+".*", "*", recorded[i], fake[i], siblings, nil)
	}
}

// reordered reports whether two lists have the same entries in another order.
func reordered(recorded, fake []any) bool {
	text := func(v any) any { return string(encode(v)) }
	a, b := texts(each(recorded, text)), texts(each(fake, text))
	if slices.Equal(a, b) {
		return false
	}
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// idOf returns the id of an entry: an object, or the id itself.
func idOf(v any) int64 {
	if o, ok := v.(map[string]any); ok {
		v = o["id"]
	}
	id, _ := number(v)
	return id
}

// entries compares two lists of resources.
func (c *comparer) entries(place, kind string, entry *field, recorded, fake []any) {
	// Actions from before the recording, and those that made the resources that existed then, are only on one side.
	older := kind == "action" && c.reads && !c.knows(kind, recorded, fake)
	pairs := c.pair(kind, recorded, fake)
	unmatched, known, taken := 0, false, make([]bool, len(fake))
	last, ordered := -1, true
	for i, j := range pairs {
		if j < 0 {
			unmatched++
			_, without := c.unseeded[resourceID{kind, idOf(recorded[i])}]
			known = known || without
			continue
		}
		taken[j] = true
		ordered = ordered && j > last
		last = j
	}
	more := 0
	for _, t := range taken {
		if !t {
			more++
		}
	}
	if unmatched+more > 0 && !c.lenient && !known && !older {
		c.report(DiffEntries, place, fmt.Sprintf("%d, %d of them not in the simulation", len(recorded), unmatched),
			fmt.Sprintf("%d, %d of them not in the recording", len(fake), more))
	}
	if !ordered && !c.lenient {
		ids := each(fake, func(v any) any { return c.back[resourceID{kind, idOf(v)}].id })
		c.report(DiffOrder, place, "another order", fmt.Sprint("ids of the recording in its order: ", ids))
	}
	defer func(before bool) { c.lenient = before }(c.lenient)
	c.lenient = c.lenient || older
	for i, j := range pairs {
		if j >= 0 {
			c.value(entry, place+".*", "*", recorded[i], fake[j], nil, nil)
		}
	}
}

// knows reports whether earlier answers have shown all entries of two lists.
func (c *comparer) knows(kind string, recorded, fake []any) bool {
	return !slices.ContainsFunc(recorded, func(v any) bool { return c.ids[resourceID{kind, idOf(v)}] == 0 }) &&
		!slices.ContainsFunc(fake, func(v any) bool { return c.back[resourceID{kind, idOf(v)}].id == 0 })
}

// pair returns, for each recorded entry, the index of the same one of the simulation, or -1. Entries that are not known yet are the
// same if their names are, or if there are as many of them on both sides.
func (c *comparer) pair(kind string, recorded, fake []any) []int {
	pairs := make([]int, len(recorded))
	free := make([]bool, len(fake))
	for j, v := range fake {
		_, taken := c.back[resourceID{kind, idOf(v)}]
		free[j] = !taken
	}
	var unknown []int
	for i, v := range recorded {
		id, ok := c.mapping.ids[resourceID{kind, idOf(v)}]
		pairs[i] = -1
		if ok {
			pairs[i] = slices.IndexFunc(fake, func(v any) bool { return idOf(v) == id })
			continue
		}
		for j := range fake {
			if name := nameOf(v); free[j] && name != "" && name == nameOf(fake[j]) {
				pairs[i], free[j] = j, false
				break
			}
		}
		if pairs[i] < 0 {
			unknown = append(unknown, i)
		}
	}
	var rest []int
	for j := range fake {
		if free[j] {
			rest = append(rest, j)
		}
	}
	if len(rest) == len(unknown) {
		for n, i := range unknown {
			pairs[i] = rest[n]
		}
	}
	return pairs
}

// nameOf returns the name of an entry, or the command of an action, or "". Names of server types and the like occur once, those of
// images for each architecture.
func nameOf(v any) string {
	o, _ := v.(map[string]any)
	name, ok := o["name"].(string)
	if !ok {
		name, _ = o["command"].(string)
	}
	if architecture, ok := o["architecture"].(string); ok && name != "" {
		name += " " + architecture
	}
	return name
}
