package provider

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func nodeWith(providerID string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Spec: corev1.NodeSpec{ProviderID: providerID}}
}

func FuzzParseProviderID(f *testing.F) {
	for _, seed := range []string{"", "example://", "example://north-a/vm-1", "example://north-a", "example:///vm-1", "example://a/b/c",
		"hcloud://1", "Example://north-a/vm-1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, err := ParseProviderID(nodeWith(text))
		if err != nil {
			if id != "" || !strings.Contains(err.Error(), "node-1") {
				t.Errorf("%q: %q, %v", text, id, err)
			}
			return
		}
		zone, ok := strings.CutSuffix(strings.TrimPrefix(text, "example://"), "/"+id)
		if !ok || zone == "" || id == "" || MakeProviderID(zone, id) != text {
			t.Errorf("%q: zone %q, ID %q", text, zone, id)
		}
	})
}

func TestSettingsAreCheckedTogether(t *testing.T) {
	t.Parallel()
	env := map[string]string{"EXAMPLE_ENDPOINT": "cloud.example", "EXAMPLE_REQUEST_TIMEOUT": "-1s"}
	_, err := NewClient(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	for _, name := range []string{"EXAMPLE_ENDPOINT=", "EXAMPLE_TOKEN is not set", "EXAMPLE_REQUEST_TIMEOUT="} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not in %v", name, err)
		}
	}
	env = map[string]string{"EXAMPLE_ENDPOINT": "http://127.0.0.1:1/accounts/demo", "EXAMPLE_TOKEN": "secret"}
	if _, err := NewClient(func(name string) (string, bool) { v, ok := env[name]; return v, ok }); err != nil {
		t.Error(err)
	}
}

// FuzzDecode shows that an answer is either the API's, or an error: never an empty object by accident.
func FuzzDecode(f *testing.F) {
	f.Add(200, "application/json", `{"instance": {"ID": "vm-1"}}`)
	f.Add(404, "application/json; charset=utf-8", `{"error": {"code": "instance_not_found", "message": "…"}}`)
	f.Add(404, "application/json", `{"message": "no Route matched with those values"}`)
	f.Add(404, "text/html", `<html>`)
	f.Add(200, "text/html", `{}`)
	f.Add(503, "application/json", `{"error": null}`)
	f.Add(301, "application/json", `{"error": {"code": ""}}`)
	f.Fuzz(func(t *testing.T, status int, contentType, text string) {
		var out struct{ Instance Instance }
		err := decode(status, contentType, []byte(text), &out)
		ok := status >= 200 && status < 300
		isJSON := json.Valid([]byte(text)) && strings.HasPrefix(strings.ToLower(strings.TrimSpace(contentType)), "application/json")
		if err == nil && (!ok || !isJSON) {
			t.Errorf("%d %s %s is taken for the API's", status, contentType, text)
		}
		if hasCode(err, "instance_not_found") && ok {
			t.Errorf("%d %s is taken for a proof: %v", status, text, err)
		}
		if hasCode(err, "") {
			t.Errorf("an error without a code: %v", err)
		}
	})
}
