package contract

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// This file checks rules in the document's prose about values that depend on each other.

// pagingViolations checks a list by the chapter "Pagination". Clients rely on next_page: a wrong one loses data silently.
func pagingViolations(header http.Header, instance any) []Violation {
	pagination, ok := at(instance, []string{"meta", "pagination"}).(map[string]any)
	if !ok {
		return nil
	}
	var violations []Violation
	check := func(name string, want *int64) {
		if got, ok := int64At(pagination, name); (want == nil) == ok || ok && got != *want {
			violations = append(violations, Violation{
				Pointer: "/meta/pagination/" + name, Want: optional(want) + " (by the other values)", Got: excerpt(pagination[name]),
			})
		}
	}
	page, _ := int64At(pagination, "page")
	perPage, _ := int64At(pagination, "per_page")
	total, countable := int64At(pagination, "total_entries")
	if page < 1 || perPage < 1 {
		return []Violation{{Pointer: "/meta/pagination", Want: "page and per_page of at least 1", Got: excerpt(pagination)}}
	}
	if countable {
		last := max(1, (total+perPage-1)/perPage)
		if pagination["last_page"] != nil || page < last { // "can be null if the current page is the last one"
			check("last_page", &last)
		}
		check("next_page", when(page < last, page+1))
		if page <= last { // not documented for a page after the last one
			check("previous_page", when(page > 1, page-1))
		}
		if entries, ok := entriesOf(instance); ok {
			if want := max(0, min(perPage, total-(page-1)*perPage)); int64(entries) != want {
				violations = append(violations, Violation{Pointer: "the list", Want: fmt.Sprintf("%d entries on page %d", want, page),
					Got: strconv.Itoa(entries)})
			}
		}
	}
	return append(violations, linkViolations(header, pagination)...)
}

// entriesOf returns the number of entries of the list in an answer.
func entriesOf(instance any) (int, bool) {
	for name, value := range instance.(map[string]any) {
		if entries, ok := value.([]any); ok && name != "meta" {
			return len(entries), true
		}
	}
	return 0, false
}

// linkViolations checks that the Link header has the pages of the body. next and prev must be present exactly if there is
// such a page. The server may leave out the other relations ("may only contain some of the above rel values").
func linkViolations(header http.Header, pagination map[string]any) []Violation {
	links := parseLink(header)
	var violations []Violation
	for _, relation := range []struct {
		rel, property string
		always        bool
	}{{"next", "next_page", true}, {"prev", "previous_page", true}, {"last", "last_page", false}} {
		want, exists := int64At(pagination, relation.property)
		got, linked := links[relation.rel]
		if !linked && (!relation.always || !exists) {
			continue
		}
		if !exists || got != strconv.FormatInt(want, 10) {
			violations = append(violations, Violation{
				Pointer: fmt.Sprintf("header Link, rel %q", relation.rel),
				Want:    "page " + excerpt(pagination[relation.property]),
				Got:     strconv.Quote(got),
			})
		}
	}
	return violations
}

// parseLink returns the page parameter of each relation in the Link header.
func parseLink(header http.Header) map[string]string {
	links := make(map[string]string)
	for link := range strings.SplitSeq(strings.Join(header.Values("Link"), ","), ",") {
		target, attributes, _ := strings.Cut(strings.TrimSpace(link), ";")
		parsed, err := url.Parse(strings.Trim(strings.TrimSpace(target), "<>"))
		_, rel, ok := strings.Cut(attributes, "rel=")
		if err == nil && ok {
			links[strings.Trim(strings.TrimSpace(rel), `"`)] = parsed.Query().Get("page")
		}
	}
	return links
}

// consistencyViolations walks an answer and checks each action and each Primary IP in it.
func (d *Document) consistencyViolations(instance any) []Violation {
	var violations []Violation
	var walk func(place string, value any)
	walk = func(place string, value any) {
		switch value := value.(type) {
		case map[string]any:
			violations = append(violations, actionViolations(place, value)...)
			violations = append(violations, addressViolations(place, value)...)
			if d.knowsUnassigned {
				violations = append(violations, assigneeViolations(place, value)...)
			}
			for _, name := range sortedKeys(value) {
				walk(place+"/"+escape(name), value[name])
			}
		case []any:
			for i, item := range value {
				walk(place+"/"+strconv.Itoa(i), item)
			}
		}
	}
	walk("", instance)
	return violations
}

// actionViolations checks that an action has a finished time exactly if it does not run ("Only set if the Action is
// finished otherwise null"), and an error exactly if it failed ("if an error occurred, otherwise null").
func actionViolations(place string, value map[string]any) []Violation {
	_, hasCommand := value["command"]
	_, hasProgress := value["progress"]
	status, isAction := value["status"].(string)
	if !hasCommand || !hasProgress || !isAction {
		return nil
	}
	var violations []Violation
	check := func(name string, set bool) {
		if (value[name] != nil) != set {
			want := "null"
			if set {
				want = "a value"
			}
			violations = append(violations, Violation{
				Pointer: place + "/" + name, Want: want + " in an action with status " + status, Got: excerpt(value[name]),
			})
		}
	}
	check("finished", status != "running")
	check("error", status == "error")
	if progress, _ := int64At(value, "progress"); progress < 0 || progress > 100 || status == "success" && progress != 100 {
		violations = append(violations, Violation{Pointer: place + "/progress", Want: "percent, 100 on success",
			Got: excerpt(value["progress"])})
	}
	return violations
}

// addressViolations checks that addresses are valid. The document types them as plain strings, but clients parse them.
func addressViolations(place string, value map[string]any) []Violation {
	var violations []Violation
	for _, name := range []string{"ip", "gateway", "ip_range", "destination", "subnet"} {
		text, ok := value[name].(string)
		if !ok {
			continue
		}
		_, addressErr := netip.ParseAddr(text)
		network, networkErr := netip.ParsePrefix(text)
		want := "an IP address"
		switch {
		case name == "gateway" && addressErr == nil, name == "ip" && (addressErr == nil || networkErr == nil):
			continue
		case name != "ip" && name != "gateway":
			if want = "a network in CIDR notation without host bits"; networkErr == nil && network == network.Masked() {
				continue
			}
		}
		violations = append(violations, Violation{Pointer: place + "/" + name, Want: want, Got: excerpt(text)})
	}
	return violations
}

// commandViolations checks that the started action has the command of the document's examples. It skips GET: lists of
// actions have examples of all commands.
func (o *Operation) commandViolations(instance any) []Violation {
	got, isAction := at(instance, []string{"action", "command"}).(string)
	commands := o.commands()
	if !isAction || len(commands) == 0 || slices.Contains(commands, got) {
		return nil
	}
	return []Violation{{Pointer: "/action/command", Want: strings.Join(commands, " or ") + " (as in the example)", Got: strconv.Quote(got)}}
}

// commands returns the commands of the started action in the operation's examples.
func (o *Operation) commands() []string {
	var commands []string
	for _, example := range o.responseExamples {
		if command, ok := at(example, []string{"action", "command"}).(string); ok && o.Method != http.MethodGet {
			commands = append(commands, command)
		}
	}
	return commands
}

// assigneeViolations checks that a Primary IP is "unassigned" exactly if it has no assignee.
func assigneeViolations(place string, value map[string]any) []Violation {
	kind, isIP := value["assignee_type"].(string)
	if !isIP || (kind == "unassigned") == (value["assignee_id"] == nil) {
		return nil
	}
	return []Violation{{
		Pointer: place + "/assignee_type", Want: "unassigned exactly if assignee_id is null",
		Got: fmt.Sprintf("%q with assignee_id %s", kind, excerpt(value["assignee_id"])),
	}}
}

func int64At(object map[string]any, name string) (int64, bool) {
	number, ok := object[name].(json.Number)
	if !ok {
		return 0, false
	}
	value, err := number.Int64()
	return value, err == nil
}

func when(condition bool, value int64) *int64 {
	if !condition {
		return nil
	}
	return &value
}

func optional(value *int64) string {
	if value == nil {
		return "null"
	}
	return strconv.FormatInt(*value, 10)
}
