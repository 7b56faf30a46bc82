package hetzner

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"

	"sigs.k8s.io/yaml"
)

// Dump implements cloud.Dumper: the state as the control API shows it, without the actions.
func (a *account) Dump(ctx context.Context) string {
	w := httptest.NewRecorder()
	a.fake.ControlHandler().ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/state", nil))
	var state any
	if err := json.Unmarshal(w.Body.Bytes(), &state); err != nil {
		return w.Body.String()
	}
	prune(state)
	text, err := yaml.Marshal(state)
	if err != nil {
		return err.Error()
	}
	return string(text)
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
