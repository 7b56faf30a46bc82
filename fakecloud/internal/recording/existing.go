package recording

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// seedOrder has the kinds of resources that existed before a recording and can be made, each after those that it refers to.
var seedOrder = []string{
	"ssh_key", "network", "placement_group", "firewall", "server", "primary_ip", "volume", "floating_ip", "certificate", "load_balancer",
	"zone",
}

// resourcesOf returns the resources in the answer to a request, even those that the answer shows as a bare id.
func resourcesOf(body json.RawMessage) map[resourceID]bool {
	found := map[resourceID]bool{}
	var walk func(f *field, v any, siblings map[string]any)
	walk = func(f *field, v any, siblings map[string]any) {
		switch v := v.(type) {
		case map[string]any:
			for name, member := range v {
				walk(f.child(name), member, v)
			}
		case []any:
			for _, entry := range v {
				walk(f.child("*"), entry, siblings)
			}
		case json.Number:
			if kind, ok := f.idKind(siblings); ok && !publicKinds[kind] {
				if id, ok := number(v); ok && id > 0 {
					found[resourceID{kind, id}] = true
				}
			}
		}
	}
	for name, member := range membersOf(body) {
		walk(allFields().response.member(name, member), member, nil)
	}
	return found
}

func membersOf(body json.RawMessage) map[string]any {
	v, _ := decode(body)
	members, _ := v.(map[string]any)
	return members
}

// existing returns the resources that a recording shows without a request that creates them. Each is in the form of its first answer.
func existing(rec *Recording) map[resourceID]map[string]any {
	found, created := map[resourceID]map[string]any{}, map[resourceID]bool{}
	for i := range rec.Exchanges {
		e := &rec.Exchanges[i]
		if e.Status >= 300 {
			continue
		}
		if e.Method == http.MethodGet {
			for name, member := range membersOf(e.Response) {
				list, ok := member.([]any)
				if !ok {
					list = []any{member}
				}
				kind := strings.TrimSuffix(name, "s")
				for _, v := range list {
					o, _ := v.(map[string]any)
					id, ok := number(o["id"])
					r := resourceID{kind, id}
					if kind == "image" && o["type"] == "system" || kind == "image" && o["type"] == "app" {
						continue
					}
					if ok && !publicKinds[kind] && kind != "action" && kind != "rrset" && !created[r] && found[r] == nil {
						found[r] = o
					}
				}
			}
			continue
		}
		for r := range resourcesOf(e.Response) {
			if found[r] == nil {
				created[r] = true
			}
		}
	}
	return found
}

// seed makes the resources that existed before the recording, as far as it shows them.
func (p *player) seed(ctx context.Context) error {
	all := existing(p.recording)
	if len(all) == 0 {
		return nil
	}
	if err := p.cloud.SetProfile(ctx, "instant"); err != nil {
		return err
	}
	order := slices.SortedFunc(maps.Keys(all), func(a, b resourceID) int {
		if i, j := slices.Index(seedOrder, a.kind), slices.Index(seedOrder, b.kind); i != j {
			return i - j
		}
		return int(min(max(a.id-b.id, -1), 1))
	})
	for _, r := range order {
		if _, made := p.ids[r]; made { // with a server
			p.seeded[r] = true
			continue
		}
		if err := p.make(ctx, r, all[r]); err != nil {
			p.unseeded[r] = err.Error()
		} else {
			p.seeded[r] = true
		}
	}
	return nil
}

// make makes one resource.
func (p *player) make(ctx context.Context, r resourceID, o map[string]any) error {
	if !slices.Contains(seedOrder, r.kind) {
		return errors.New("resources of this kind cannot be made at will")
	}
	t := &translator{mapping: p.mapping, keys: p.keys, unseeded: p.unseeded, domains: texts(o["domain_names"])}
	body := t.value(allFields().request, "", creation(r.kind, o), nil)
	if t.reason != "" {
		return errors.New(t.reason)
	}
	a, err := p.send(ctx, http.MethodPost, "/"+r.kind+"s", "Bearer "+writeToken, "application/json", encode(body))
	if err != nil {
		return err
	}
	if a.status != http.StatusCreated {
		return fmt.Errorf("the simulation answers %d %s", a.status, errorCode(a.body))
	}
	made, _ := membersOf(a.body)[r.kind].(map[string]any)
	c := &comparer{mapping: p.mapping, report: func(string, string, string, string) {}}
	c.members(allFields().response.child(r.kind), "", o, made)
	return nil
}

// creation returns the body of the request that makes a resource like the one shown. What the API does not take is left out.
func creation(kind string, o map[string]any) map[string]any {
	body := map[string]any{}
	for _, name := range map[string][]string{
		"ssh_key":         {"public_key"},
		"network":         {"ip_range", "routes", "expose_routes_to_vswitch"},
		"placement_group": {"type"},
		"firewall":        {"rules"},
		"primary_ip":      {"type", "auto_delete"},
		"volume":          {"size", "format", "server"},
		"floating_ip":     {"type", "description", "server"},
		"certificate":     {"type"},
		"load_balancer":   {"algorithm"},
		"zone":            {"mode", "ttl"},
	}[kind] {
		if o[name] != nil {
			body[name] = o[name]
		}
	}
	body["name"], body["labels"] = o["name"], o["labels"]
	if o["labels"] == nil {
		delete(body, "labels")
	}
	if place := at(o, "location", "name"); place != nil {
		body["location"] = place
	}
	switch kind {
	case "network":
		body["subnets"] = only(o["subnets"], "type", "network_zone", "ip_range", "vswitch_id")
	case "server":
		serverCreation(body, o)
	case "primary_ip":
		body["assignee_type"] = "server"
	case "floating_ip":
		body["home_location"] = at(o, "home_location", "name")
		if o["server"] != nil {
			delete(body, "home_location")
		}
	case "certificate":
		if o["type"] == "uploaded" {
			body["certificate"], body["private_key"] = "[secret]", "[secret]"
		} else {
			body["domain_names"] = o["domain_names"]
		}
	case "load_balancer":
		body["load_balancer_type"] = at(o, "load_balancer_type", "name")
		body["services"] = only(o["services"], "protocol", "listen_port", "destination_port", "proxyprotocol", "health_check", "http")
		body["targets"] = only(o["targets"], "type", "server", "label_selector", "ip", "use_private_ip")
		if networks, _ := o["private_net"].([]any); len(networks) > 0 {
			body["network"] = at(networks[0], "network")
		}
	}
	return body
}

func serverCreation(body, o map[string]any) {
	body["server_type"], body["start_after_create"] = at(o, "server_type", "name"), o["status"] != "off"
	body["image"] = at(o, "image", "name")
	if body["image"] == nil { // a snapshot, or an image that was deleted
		body["image"] = "debian-13"
	}
	if networks := each(o["private_net"], func(n any) any { return at(n, "network") }); networks != nil {
		body["networks"] = networks
	}
	body["public_net"] = map[string]any{
		"enable_ipv4": at(o, "public_net", "ipv4") != nil, "enable_ipv6": at(o, "public_net", "ipv6") != nil,
	}
	if group := at(o, "placement_group", "id"); group != nil {
		body["placement_group"] = group
	}
	firewall := func(f any) any { return map[string]any{"firewall": at(f, "id")} }
	if applied := each(at(o, "public_net", "firewalls"), firewall); applied != nil {
		body["firewalls"] = applied
	}
}

// at returns a member of a member, or nil.
func at(v any, names ...string) any {
	for _, name := range names {
		o, _ := v.(map[string]any)
		v = o[name]
	}
	return v
}

// each returns a list of what is made of the entries of another one; nil for none.
func each(v any, entry func(any) any) (out []any) {
	for _, e := range list(v) {
		out = append(out, entry(e))
	}
	return out
}

func list(v any) []any {
	all, _ := v.([]any)
	return all
}

// only returns a list of objects with the named members that are not null.
func only(v any, names ...string) []any {
	objects := each(v, func(entry any) any {
		kept := map[string]any{}
		for _, name := range names {
			if member := at(entry, name); member != nil {
				kept[name] = member
			}
		}
		return kept
	})
	return append([]any{}, objects...)
}

func texts(v any) []string {
	var out []string
	for _, entry := range list(v) {
		if s, ok := entry.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// CatalogueNames returns the public names of the simulation's catalogue: of server types, locations, images and so on.
func CatalogueNames() []string {
	c, names := cloud.DefaultCatalogue(), []string{"fsn1", "nbg1", "hel1", "ash", "hil", "sin"}
	for _, l := range c.Locations {
		names = append(names, l.Name, l.NetworkZone, l.Datacenter.Name)
	}
	for _, t := range c.ServerTypes {
		names = append(names, t.Name)
	}
	for _, t := range c.LoadBalancerTypes {
		names = append(names, t.Name)
	}
	for _, i := range c.Images {
		names = append(names, i.Name)
	}
	for _, i := range c.ISOs {
		names = append(names, i.Name)
	}
	return names
}
