package hetzner

import (
	"context"
	"encoding/json"
	"errors"

	"sigs.k8s.io/yaml"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// Dump implements cloud.Dumper: the state as the control API shows it, without the actions.
func (a *account) Dump(ctx context.Context) string {
	text, err := a.fake.State(ctx, fakecloud.Selection{})
	var state any
	if err = errors.Join(err, json.Unmarshal(text, &state)); err != nil {
		return err.Error()
	}
	prune(state)
	readable, err := yaml.Marshal(state)
	if err != nil {
		return err.Error()
	}
	return string(readable)
}

// prune removes long parts of a state that explain nothing.
func prune(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range []string{"actions", "server_type", "image", "load_balancer_type", "prices"} {
			delete(v, k)
		}
		for _, child := range v {
			prune(child)
		}
	case []any:
		for _, child := range v {
			prune(child)
		}
	}
}
