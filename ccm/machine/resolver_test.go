package machine_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine"
	_ "github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/hetzner"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/v1alpha1"
)

func resolver() *machine.Resolver {
	objects := fake.NewClientBuilder().WithObjects(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "hcloud"},
			Data: map[string][]byte{"token": []byte("from-secret")}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "config"}, Data: map[string]string{"image": "from-config",
			"data": "{{ .Nothing }}"}},
	).Build()
	return &machine.Resolver{Client: objects, Namespace: "kube-system", Getenv: func(name string) string { return "from-" + name }}
}

func TestConfigurationValues(t *testing.T) {
	r := resolver()
	for text, want := range map[string]string{
		`"inline"`:            "inline",
		`{"value": "inline"}`: "inline",
		`""`:                  "from-VARIABLE",
		`{}`:                  "from-VARIABLE",
		`{"secretKeyRef": {"name": "hcloud", "key": "token"}}`:                         "from-secret",
		`{"value": "inline", "secretKeyRef": {"name": "hcloud", "key": "token"}}`:      "from-secret",
		`{"configMapKeyRef": {"namespace": "team", "name": "config", "key": "image"}}`: "from-config",
		`{"secretKeyRef": {"name": "hcloud", "key": "other"}}`:                         `error: the Secret kube-system/hcloud has no key "other"`,
		`{"secretKeyRef": {"name": "other", "key": "token"}}`:                          "error: cannot read the Secret kube-system/other",
		`{"configMapKeyRef": {"name": "config", "key": "image"}}`: "error: cannot read the ConfigMap " +
			"kube-system/config",
		`7`: "error: 7 must be a text",
		`{"secretKeyref": {"name": "hcloud", "key": "token"}, "other": 1}`: `error: {"secretKeyref": {"name": "hcloud", "key": "token"}, "other": 1} must be a text`,
	} {
		var v v1alpha1.ConfigValue
		err := json.Unmarshal([]byte(text), &v)
		has := ""
		if err == nil {
			has, err = r.String(t.Context(), v, "VARIABLE")
		}
		if err != nil {
			has = "error: " + err.Error()
		}
		if has != want && (!strings.HasPrefix(want, "error: ") || !strings.HasPrefix(has, want)) {
			t.Errorf("%s: %q, want %q", text, has, want)
		}
		back, err := json.Marshal(v)
		var again v1alpha1.ConfigValue
		if err != nil || json.Unmarshal(back, &again) != nil || again.Value != v.Value ||
			again.Wrong != strings.ReplaceAll(v.Wrong, " ", "") {
			t.Errorf("%s: written as %s, %v", text, back, err)
		}
	}
}

func TestUserDataIsFilledIn(t *testing.T) {
	r := resolver()
	p, err := machine.ForProvider("hetzner", r)
	if err != nil {
		t.Fatal(err)
	}
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}
	m.Spec.Version = "v1.37.1"
	m.Spec.ProviderSpec.SSHPublicKeys = []string{"ssh-ed25519 AAAA"}
	m.Spec.Bootstrap.UserData.Value = "{{ .Name }} {{ .Version }} {{ .CloudProvider }}{{ .CloudConfig }}{{ range .SSHPublicKeys }} {{ . " +
		"}}{{ end }}"
	if text, err := machine.UserData(t.Context(), r, p, m); err != nil || text != "worker-1 v1.37.1 external ssh-ed25519 AAAA" {
		t.Errorf("%q, %v", text, err)
	}
	m.Spec.Bootstrap.UserData = v1alpha1.ConfigValue{}
	if text, err := machine.UserData(t.Context(), r, p, m); err != nil || text != "" {
		t.Errorf("without user data: %q, %v", text, err)
	}
	for _, wrong := range []v1alpha1.ConfigValue{{Value: "{{ .Name"},
		{ConfigMapKeyRef: &v1alpha1.KeyReference{Namespace: "team", Name: "config", Key: "data"}}} {
		m.Spec.Bootstrap.UserData = wrong
		if text, err := machine.UserData(t.Context(), r, p, m); !errors.As(err, new(*machine.TerminalError)) {
			t.Errorf("%+v: %q, %v, want a terminal error", wrong, text, err)
		}
	}
}

func TestAnUnknownProviderIsNamed(t *testing.T) {
	_, err := machine.ForProvider("aws", resolver())
	if !errors.Is(err, machine.ErrProviderNotFound) || !strings.Contains(err.Error(), "must be one of hetzner") {
		t.Error(err)
	}
}
