package seed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/api"
)

// recorder is an API with some existing resources. It accepts every request.
type recorder struct {
	names    map[string]int64 // "servers web-1" → id
	requests []string
	awaited  []int64
	refuse   map[string]string // path → error body
	failed   error             // of the actions
}

func (r *recorder) target() Target {
	return Target{
		Do: func(_ context.Context, method, path string, body []byte) (int, []byte, error) {
			if section, name, ok := strings.Cut(strings.TrimPrefix(path, "/"), "?name="); ok {
				if id := r.names[section+" "+name]; id != 0 {
					return 200, fmt.Appendf(nil, `{%q: [{"id": %d}]}`, section, id), nil
				}
				return 200, fmt.Appendf(nil, `{%q: []}`, section), nil
			}
			r.requests = append(r.requests, method+" "+path+" "+string(body))
			if e, ok := r.refuse[path]; ok {
				return 422, []byte(e), nil
			}
			id := int64(len(r.requests))
			return 201, fmt.Appendf(nil, `{"it": {"id": %d}, "action": {"id": %d}, "next_actions": [{"id": %d}]}`, id, id+100, id+200), nil
		},
		Await: func(_ context.Context, ids []int64) error {
			r.awaited = append(r.awaited, ids...)
			return r.failed
		},
	}
}

func apply(t *testing.T, r *recorder, text string) (int, error) {
	t.Helper()
	docs, err := Parse("seed.yaml", []byte(text))
	if err != nil {
		return 0, err
	}
	created := 0
	for i := range docs {
		n, err := docs[i].Apply(t.Context(), r.target())
		created += n
		if err != nil {
			return created, err
		}
	}
	return created, nil
}

func TestNamesBecomeIDsAndSectionsAreOrdered(t *testing.T) {
	t.Parallel()
	r := &recorder{names: map[string]int64{"networks cluster": 7, "servers web-1": 8, "certificates cert": 9, "placement_groups pg": 5}}
	n, err := apply(t, r, `
load_balancers:
- name: web
  network: cluster
  targets:
  - {type: server, server: {id: web-1}}
  - {type: server, server: {id: 4711}}
  - {type: label_selector, label_selector: {selector: a=b}}
  services:
  - {protocol: https, http: {certificates: [cert, 10]}}
  actions:
  - add_target: {type: server, server: {id: web-1}}
  - disable_public_interface:
servers:
- name: web-1
  networks: [cluster, 3]
  placement_group: pg
  user_data: |
    #cloud-config
  labels: {a: b}
networks:
- {name: cluster, ip_range: 10.0.0.0/8}
`)
	if err != nil || n != 3 {
		t.Fatalf("%d, %v", n, err)
	}
	want := []string{
		`POST /networks {"ip_range":"10.0.0.0/8","name":"cluster"}`,
		`POST /servers {"labels":{"a":"b"},"name":"web-1","networks":[7,3],"placement_group":5,"user_data":"#cloud-config\n"}`,
		`POST /load_balancers {"name":"web","network":7,"services":[{"http":{"certificates":[9,10]},"protocol":"https"}],` +
			`"targets":[{"server":{"id":8},"type":"server"},{"server":{"id":4711},"type":"server"},{"label_selector":{"selector":"a=b"},"type":"label_selector"}]}`,
		`POST /load_balancers/3/actions/add_target {"server":{"id":8},"type":"server"}`,
		`POST /load_balancers/3/actions/disable_public_interface {}`,
	}
	if !slices.Equal(r.requests, want) {
		t.Errorf("sent\n%s\nwant\n%s", strings.Join(r.requests, "\n"), strings.Join(want, "\n"))
	}
	if !slices.Equal(r.awaited, []int64{101, 201, 102, 202, 103, 203, 104, 204, 105, 205}) {
		t.Errorf("waited for the actions %v", r.awaited)
	}
}

func TestAnchorsAndDocumentsWork(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	docs, err := Parse("seed.yaml", []byte(`
ssh_keys:
- &k {name: one, public_key: x}
- {<<: *k, name: two}
- *k
---
project: staging
ssh_keys: []
---
`))
	if err != nil || len(docs) != 3 || docs[0].Project != "default" || docs[1].Project != "staging" {
		t.Fatalf("%+v, %v", docs, err)
	}
	if n, err := docs[0].Apply(t.Context(), r.target()); err != nil || n != 3 ||
		r.requests[1] != `POST /ssh_keys {"name":"two","public_key":"x"}` {
		t.Errorf("%d, %v, %v", n, err, r.requests)
	}
}

func TestErrorsNameFileLineAndPath(t *testing.T) {
	t.Parallel()
	const fields = `{"error": {"code": "invalid_input", "message": "invalid input", "details": {"fields": [
		{"name": "services.0.listen_port", "messages": ["must be a port"]}, {"name": "location", "messages": ["is required"]}]}}}`
	for name, tc := range map[string]struct {
		text string
		r    recorder
		want string
	}{
		"no YAML": {"servers: [", recorder{}, "seed.yaml: yaml: line 1"},
		"a list":  {"\n- a\n", recorder{}, "seed.yaml:2: must have sections"},
		"unknown section": {"servers: []\nserver: []\n", recorder{},
			`seed.yaml:2: unknown section "server": must be one of project, ssh_keys,`},
		"section twice":   {"servers: []\nservers: []\n", recorder{}, `seed.yaml:2: duplicate section "servers"`},
		"no list":         {"servers:\n  name: x\n", recorder{}, "seed.yaml:2: servers: must be a list"},
		"no object":       {"servers:\n- web-1\n", recorder{}, "seed.yaml:2: servers[0]: must be an object with the fields of a resource"},
		"no project":      {"project: []\n", recorder{}, "seed.yaml:1: project: must be a name"},
		"field twice":     {"servers:\n- name: a\n  name: b\n", recorder{}, "seed.yaml:2: servers[0]: yaml:"},
		"no number":       {"servers:\n- {name: a, x: .nan}\n", recorder{}, "NaN: must be a number"},
		"actions no list": {"servers:\n- name: a\n  actions: x\n", recorder{}, `seed.yaml:3: servers[0] "a": actions: must be a list`},
		"two in an action": {"servers:\n- name: a\n  actions:\n  - {x: {}, y: {}}\n", recorder{},
			`seed.yaml:4: servers[0] "a": actions.0: must be one action`},
		"action no body": {"servers:\n- name: a\n  actions:\n  - poweron: now\n", recorder{},
			`seed.yaml:4: servers[0] "a": actions.0.poweron: must be the body`},
		"unknown name": {"load_balancers:\n- name: lb\n  targets:\n  - type: server\n    server:\n      id: web-9\n", recorder{},
			`seed.yaml:6: load_balancers[0] "lb": targets.0.server.id: "web-9" is not the name of one of the servers`},
		"field errors": {
			"load_balancers:\n- name: lb\n  services:\n  - protocol: tcp\n    listen_port: 0\n",
			recorder{refuse: map[string]string{"/load_balancers": fields}},
			"seed.yaml:5: load_balancers[0] \"lb\": services.0.listen_port: must be a port (invalid_input)\nseed.yaml:2: " +
				"load_balancers[0] \"lb\": location: is required (invalid_input)",
		},
		"API error": {
			"ssh_keys:\n\n- name: k\n",
			recorder{refuse: map[string]string{"/ssh_keys": `{"error": {"code": "conflict", "message": "try again", "details": null}}`}},
			`seed.yaml:3: ssh_keys[0] "k": try again (conflict)`,
		},
		"error of an action": {
			"servers:\n- name: a\n  actions:\n  - poweron:\n",
			recorder{refuse: map[string]string{"/servers/1/actions/poweron": `{"error": {"code": "locked", "message": "locked"}}`}},
			`seed.yaml:4: servers[0] "a": poweron: locked (locked)`,
		},
		"no API": {"ssh_keys:\n- name: k\n", recorder{refuse: map[string]string{"/ssh_keys": `<html>`}},
			`seed.yaml:2: ssh_keys[0] "k": the API answered 422: <html>`},
		"failing action": {"servers:\n- name: a\n", recorder{failed: errors.New("action failed: no space")},
			`seed.yaml:2: servers[0] "a": action failed: no space`},
	} {
		_, err := apply(t, &tc.r, tc.text)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v\nwant %s", name, err, tc.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("ssh_keys:\n- {name: a, public_key: b}\n"))
	f.Add([]byte("servers:\n- &a {name: a, networks: [x], actions: [{poweron: {}}]}\n- *a\n---\nproject: p\n"))
	f.Add([]byte("---\n---\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte("load_balancers:\n- {1: 2, targets: [{server: {id: x}}], 2026-01-01: .inf}\n"))
	f.Add([]byte("servers: &s\n- {<<: *s}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		docs, err := Parse("f", data)
		if err != nil {
			return
		}
		r := &recorder{names: map[string]int64{"networks x": 1, "servers x": 2}}
		for i := range docs {
			n, err := docs[i].Apply(t.Context(), r.target())
			if err == nil && n != len(docs[i].items) {
				t.Errorf("created %d of %d", n, len(docs[i].items))
			}
		}
	})
}

// TestASeedFileHasASectionForEachCollection fails if a seed file cannot create a resource that the API can create.
func TestASeedFileHasASectionForEachCollection(t *testing.T) {
	t.Parallel()
	for _, r := range api.Routes() {
		if section := r.Pattern[1:]; r.Method == "POST" && !strings.Contains(section, "/") && !slices.Contains(sections, section) {
			t.Errorf("%s: no section %s", r.OperationID, section)
		}
	}
}
