package v1alpha1

import (
	"bytes"
	"encoding/json"
)

// ConfigValue is a text that is written inline, or that is in a Secret or a ConfigMap.
// An inline text may be written without the field value. If nothing is set, the provider looks for the text in its
// environment where it says so.
type ConfigValue struct {
	// Value is the text itself.
	Value string `json:"value,omitempty"`
	// SecretKeyRef names a key of a Secret. It comes before Value.
	SecretKeyRef *KeyReference `json:"secretKeyRef,omitempty"`
	// ConfigMapKeyRef names a key of a ConfigMap. It comes before Value.
	ConfigMapKeyRef *KeyReference `json:"configMapKeyRef,omitempty"`
	// Wrong is any other JSON. A schema cannot refuse it, and an error while it is read would make all
	// lists of Machines fail: who wants the text gets an error instead.
	Wrong string `json:"-"`
}

// KeyReference names a key of a Secret or of a ConfigMap.
type KeyReference struct {
	// Namespace defaults to the namespace of the machine controller, which may read no other unless it gets a Role there.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Key       string `json:"key"`
}

// IsZero reports whether nothing is set.
func (v ConfigValue) IsZero() bool {
	return v == ConfigValue{}
}

// configValue has the fields of a ConfigValue without its methods.
type configValue ConfigValue

// UnmarshalJSON reads a text, or an object with one of the fields. It never returns an error for JSON.
func (v *ConfigValue) UnmarshalJSON(b []byte) error {
	*v = ConfigValue{}
	var err error
	if len(b) > 0 && b[0] == '"' {
		err = json.Unmarshal(b, &v.Value)
	} else {
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		err = d.Decode((*configValue)(v))
	}
	if err != nil {
		*v = ConfigValue{Wrong: string(b)}
	}
	return nil
}

// MarshalJSON writes an inline text as a text.
func (v ConfigValue) MarshalJSON() ([]byte, error) {
	switch {
	case v.Wrong != "":
		return []byte(v.Wrong), nil
	case v.SecretKeyRef == nil && v.ConfigMapKeyRef == nil:
		return json.Marshal(v.Value)
	}
	return json.Marshal(configValue(v))
}
