package machine

import (
	"cmp"
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/v1alpha1"
)

// Resolver reads configuration values. They are inline, in a Secret, in a ConfigMap or in the environment.
type Resolver struct {
	// Client reads Secrets and ConfigMaps. It should have no cache, since a cache watches all Secrets of the cluster. If nil,
	// references are errors.
	Client client.Reader
	// Namespace is the default namespace of Secrets and ConfigMaps.
	Namespace string
	// Getenv returns a variable of the environment. If nil, it is os.Getenv.
	Getenv func(string) string
}

// String returns the value: from the Secret or the ConfigMap that it names, else what is inline, else the variable of the
// environment. If variable is empty, the environment has no say. String returns an error if the Secret, the ConfigMap or the key
// does not exist.
func (r *Resolver) String(ctx context.Context, v v1alpha1.ConfigValue, variable string) (string, error) {
	switch {
	case v.Wrong != "":
		return "", Invalid("%s must be a text, or an object with secretKeyRef or configMapKeyRef", v.Wrong)
	case v.SecretKeyRef != nil:
		var secret corev1.Secret
		if err := r.get(ctx, "Secret", v.SecretKeyRef, &secret); err != nil {
			return "", err
		}
		text, has := secret.Data[v.SecretKeyRef.Key]
		return string(text), r.missing("Secret", v.SecretKeyRef, has)
	case v.ConfigMapKeyRef != nil:
		var config corev1.ConfigMap
		if err := r.get(ctx, "ConfigMap", v.ConfigMapKeyRef, &config); err != nil {
			return "", err
		}
		text, has := config.Data[v.ConfigMapKeyRef.Key]
		return text, r.missing("ConfigMap", v.ConfigMapKeyRef, has)
	case v.Value != "" || variable == "":
		return v.Value, nil
	case r.Getenv != nil:
		return r.Getenv(variable), nil
	}
	return os.Getenv(variable), nil
}

// Strings returns several values, without those that are empty.
func (r *Resolver) Strings(ctx context.Context, all []v1alpha1.ConfigValue) (texts []string, err error) {
	for _, v := range all {
		text, err := r.String(ctx, v, "")
		if err != nil {
			return nil, err
		}
		if text != "" {
			texts = append(texts, text)
		}
	}
	return texts, nil
}

func (r *Resolver) get(ctx context.Context, kind string, ref *v1alpha1.KeyReference, into client.Object) error {
	namespace := cmp.Or(ref.Namespace, r.Namespace)
	if r.Client == nil {
		return fmt.Errorf("cannot read the %s %s/%s: there is no connection to the cluster", kind, namespace, ref.Name)
	}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, into)
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("cannot read the %s %s/%s: give the machine controller a Role for that namespace: %w", kind, namespace, ref.Name,
			err)
	}
	if err != nil {
		return fmt.Errorf("cannot read the %s %s/%s: %w", kind, namespace, ref.Name, err)
	}
	return nil
}

func (r *Resolver) missing(kind string, ref *v1alpha1.KeyReference, has bool) error {
	if has {
		return nil
	}
	return fmt.Errorf("the %s %s/%s has no key %q", kind, cmp.Or(ref.Namespace, r.Namespace), ref.Name, ref.Key)
}
