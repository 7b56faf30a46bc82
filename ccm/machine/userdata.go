package machine

import (
	"context"
	"strings"
	"text/template"

	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/v1alpha1"
)

// UserData returns what the server of a Machine gets as user data: its template, filled in. It is empty if the Machine has
// none. A template that cannot be filled in is a [TerminalError].
func UserData(ctx context.Context, r *Resolver, p Provider, m *v1alpha1.Machine) (string, error) {
	text, err := r.String(ctx, m.Spec.Bootstrap.UserData, "")
	if err != nil || text == "" {
		return "", err
	}
	config, name, err := p.GetCloudConfig(ctx, m.Spec)
	if err != nil {
		return "", err
	}
	t, err := template.New("userData").Option("missingkey=error").Parse(text)
	if err != nil {
		return "", Invalid("cannot read spec.bootstrap.userData: %w", err)
	}
	var out strings.Builder
	if err := t.Execute(&out, struct {
		Name, Version, CloudConfig, CloudProvider string
		Labels                                    map[string]string
		Taints                                    []corev1.Taint
		SSHPublicKeys                             []string
	}{m.Name, m.Spec.Version, config, name, m.Spec.Metadata.Labels, m.Spec.Taints, m.Spec.ProviderSpec.SSHPublicKeys}); err != nil {
		return "", Invalid("cannot fill in spec.bootstrap.userData: %w", err)
	}
	return out.String(), nil
}
