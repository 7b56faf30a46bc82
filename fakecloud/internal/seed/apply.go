package seed

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// references has the fields of each body that are ids of other resources. The keys are sections, or "section/action" for
// bodies of actions. The values map the path of a field, with * for every element, to the section of the other resource.
var references = map[string]map[string]string{
	"servers": {
		"networks.*": "networks", "placement_group": "placement_groups", "ssh_keys.*": "ssh_keys", "volumes.*": "volumes",
		"public_net.ipv4": "primary_ips", "public_net.ipv6": "primary_ips", "firewalls.*.firewall": "firewalls",
	},
	"servers/attach_to_network":      {"network": "networks"},
	"servers/detach_from_network":    {"network": "networks"},
	"servers/change_alias_ips":       {"network": "networks"},
	"servers/add_to_placement_group": {"placement_group": "placement_groups"},
	"load_balancers": {
		"network": "networks", "targets.*.server.id": "servers", "services.*.http.certificates.*": "certificates",
		"public_net.ipv4": "primary_ips", "public_net.ipv6": "primary_ips",
	},
	"load_balancers/attach_to_network": {"network": "networks"},
	"load_balancers/add_target":        {"server.id": "servers"},
	"load_balancers/remove_target":     {"server.id": "servers"},
	"load_balancers/add_service":       {"http.certificates.*": "certificates"},
	"primary_ips":                      {"assignee_id": "servers"},
	"primary_ips/assign":               {"assignee_id": "servers"},
	"firewalls":                        {"apply_to.*.server.id": "servers"},
	"firewalls/apply_to_resources":     {"apply_to.*.server.id": "servers"},
	"volumes":                          {"server": "servers"},
	"volumes/attach":                   {"server": "servers"},
	"floating_ips":                     {"server": "servers"},
	"floating_ips/assign":              {"server": "servers"},
}

// create sends the requests of one item.
func (it *item) create(ctx context.Context, t Target) error {
	answer, err := it.post(ctx, t, it.node, it.section, "/"+it.section, it.body)
	if err != nil {
		return err
	}
	id, ok := createdID(answer)
	if !ok && len(it.actions) > 0 {
		return it.errorf(it.node, "cannot run its actions: the API's answer has no id; remove the actions")
	}
	for _, a := range it.actions {
		path := "/" + it.section + "/" + strconv.FormatInt(id, 10) + "/actions/" + url.PathEscape(a.name)
		it.during = a.name
		if _, err := it.post(ctx, t, Child(a.node, a.name), it.section+"/"+a.name, path, a.body); err != nil {
			return err
		}
	}
	return nil
}

// post resolves the names in a body, sends it, and waits for the actions that it started.
func (it *item) post(ctx context.Context, t Target, node *yaml.Node, refs, path string, body map[string]any) (map[string]json.RawMessage,
	error) {
	for field, section := range references[refs] {
		if _, err := it.resolveNames(ctx, t, node, body, strings.Split(field, "."), nil, section); err != nil {
			return nil, err
		}
	}
	data, err := json.Marshal(body)
	if err != nil {
		return nil, it.errorf(node, "%w", err)
	}
	status, answer, err := t.Do(ctx, http.MethodPost, path, data)
	if err != nil {
		return nil, it.errorf(node, "%w", err)
	}
	if status >= 300 {
		return nil, it.apiError(node, status, answer)
	}
	var out map[string]json.RawMessage
	if err := json.Unmarshal(answer, &out); err != nil {
		return nil, it.errorf(node, "cannot read the API's answer: %w", err)
	}
	if err := t.Await(ctx, running(answer)); err != nil {
		return nil, it.errorf(node, "%w", err)
	}
	return out, nil
}

// resolveNames returns v with ids in place of the names at a path below it.
func (it *item) resolveNames(ctx context.Context, t Target, node *yaml.Node, v any, path, done []string, section string) (
	out any, err error,
) {
	if len(path) == 0 {
		if name, ok := v.(string); ok {
			return it.lookup(ctx, t, node, name, done, section)
		}
		return v, nil
	}
	switch x := v.(type) {
	case map[string]any:
		if next, ok := x[path[0]]; ok {
			x[path[0]], err = it.resolveNames(ctx, t, node, next, path[1:], slices.Concat(done, path[:1]), section)
		}
	case []any: // with another path than *, the API returns an error
		for i := 0; i < len(x) && path[0] == "*" && err == nil; i++ {
			x[i], err = it.resolveNames(ctx, t, node, x[i], path[1:], slices.Concat(done, []string{strconv.Itoa(i)}), section)
		}
	}
	return v, err
}

// lookup returns the id of the resource with a name.
func (it *item) lookup(ctx context.Context, t Target, node *yaml.Node, name string, path []string, section string) (int64, error) {
	field := strings.Join(path, ".")
	where := Locate(node, field)
	status, answer, err := t.Do(ctx, http.MethodGet, "/"+section+"?name="+url.QueryEscape(name), nil)
	if err != nil {
		return 0, it.errorf(where, "%s: %w", field, err)
	}
	if status >= 300 {
		return 0, it.apiError(where, status, answer)
	}
	var list map[string]json.RawMessage
	var found []struct {
		ID int64 `json:"id"`
	}
	if err := json.Unmarshal(answer, &list); err != nil {
		return 0, it.errorf(where, "%s: cannot read the API's answer: %w", field, err)
	}
	if err := json.Unmarshal(list[section], &found); err != nil {
		return 0, it.errorf(where, "%s: cannot read the API's answer: %w", field, err)
	}
	if len(found) == 0 {
		return 0, it.errorf(where, "%s: %.64q is not the name of one of the %s; add it or use an id", field, name, section)
	}
	return found[0].ID, nil
}

// apiError returns the API's error, with one line for each field.
func (it *item) apiError(node *yaml.Node, status int, answer []byte) error {
	var body struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
			Details struct {
				Fields []struct {
					Name     string   `json:"name"`
					Messages []string `json:"messages"`
				} `json:"fields"`
			} `json:"details"`
		} `json:"error"`
	}
	if err := json.Unmarshal(answer, &body); err != nil || body.Error.Code == "" {
		return it.errorf(node, "the API answered %d: %.200s", status, answer)
	}
	e := body.Error
	var errs []error
	for _, f := range e.Details.Fields {
		say := strings.Join(f.Messages, ", ")
		if say == "" {
			say = e.Message
		}
		errs = append(errs, it.errorf(Locate(node, f.Name), "%s: %s (%s)", f.Name, say, e.Code))
	}
	if len(errs) == 0 {
		return it.errorf(node, "%s (%s)", e.Message, e.Code)
	}
	return errors.Join(errs...)
}

// createdID returns the id of the resource in an answer to a POST: the only object that is not an action.
func createdID(answer map[string]json.RawMessage) (int64, bool) {
	for key, raw := range answer {
		var v struct {
			ID int64 `json:"id"`
		}
		if key != "action" && json.Unmarshal(raw, &v) == nil && v.ID != 0 {
			return v.ID, true
		}
	}
	return 0, false
}

// running returns the ids of the actions in an answer.
func running(answer []byte) (ids []int64) {
	type action struct {
		ID int64 `json:"id"`
	}
	var all struct {
		Action      action   `json:"action"`
		Actions     []action `json:"actions"`
		NextActions []action `json:"next_actions"`
	}
	_ = json.Unmarshal(answer, &all) // post has read it
	for _, a := range slices.Concat([]action{all.Action}, all.Actions, all.NextActions) {
		if a.ID != 0 {
			ids = append(ids, a.ID)
		}
	}
	return ids
}
