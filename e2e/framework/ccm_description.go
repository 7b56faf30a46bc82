package framework

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// EnvCCM names a file that describes the cloud-controller-manager to test; without it, it is ours. See
// CCMDescription.
const EnvCCM = "CCM"

// CCMDescription describes the cloud-controller-manager that the specs test: where it comes from, how it is told
// from others, and what it does not do. The zero value is not usable: see OurCCM.
type CCMDescription struct {
	// Name is how reports call it.
	Name string `json:"name"`

	// Binary is the program for the embedded cluster. "" builds ours.
	Binary string `json:"binary,omitempty"`
	// Manifest is a file with all that deploys it into a cluster; "" is ours, or, on an existing cluster,
	// that it runs already. Its container gets HCLOUD_ENDPOINT and what Env and Args say; it must read the
	// token and the network's name from the Secret hcloud of its namespace, keys token and network.
	Manifest string `json:"manifest,omitempty"`
	// Image is the name of the container's image, and Archive a file with it as `docker save` writes it,
	// which is loaded into the nodes; "" leaves pulling it to the nodes.
	Image   string `json:"image,omitempty"`
	Archive string `json:"archive,omitempty"`
	// Namespace and Workload are where it runs: the name of its Deployment or DaemonSet.
	Namespace string `json:"namespace,omitempty"`
	Workload  string `json:"workload,omitempty"`
	// Env and Args are added to what the suite starts it with, and win over it. The suite gives it the flags of
	// any CCM that is made with k8s.io/cloud-provider, and HCLOUD_ENDPOINT, HCLOUD_TOKEN and HCLOUD_NETWORK.
	Env  map[string]string `json:"env,omitempty"`
	Args []string          `json:"args,omitempty"`
	// CloudProvider is the value of its flag --cloud-provider; "" is ProviderPrefix without "://".
	CloudProvider string `json:"cloudProvider,omitempty"`

	// ProviderPrefix begins the provider IDs of its nodes, as "hcloud://".
	ProviderPrefix string `json:"providerPrefix"`
	// OwnerLabel is the label of a load balancer whose value is the UID of the Service that it is made for.
	OwnerLabel string `json:"ownerLabel"`
	// UserAgent is a part of the User-Agent of its requests.
	UserAgent string `json:"userAgent"`
	// Lacks are the features that it does not have. The specs that need one are unsupported.
	Lacks []Feature `json:"lacks,omitempty"`
}

// OurCCM is the CCM of this repository.
func OurCCM() CCMDescription {
	return CCMDescription{
		Name: "ccm-from-scratch", Namespace: "kube-system", Workload: "ccm-from-scratch",
		ProviderPrefix: "ccm-from-scratch://", OwnerLabel: "ccm-from-scratch/service-uid", UserAgent: "ccm-from-scratch",
		CloudProvider: "ccm-from-scratch",
	}
}

// LoadCCM reads the description that EnvCCM names, or returns OurCCM.
func LoadCCM() (CCMDescription, error) {
	path := os.Getenv(EnvCCM)
	if path == "" {
		return OurCCM(), nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return CCMDescription{}, fmt.Errorf("%s: %w", EnvCCM, err)
	}
	s, err := parseCCM(text)
	if err != nil {
		return CCMDescription{}, fmt.Errorf("%s=%s: %w", EnvCCM, path, err)
	}
	s.resolve(filepath.Dir(path))
	return s, nil
}

// parseCCM reads a description in YAML. Nothing in it is taken from OurCCM: a CCM that is tested by the name
// of another would only look broken.
func parseCCM(text []byte) (CCMDescription, error) {
	var s CCMDescription
	if err := yaml.UnmarshalStrict(text, &s); err != nil {
		return CCMDescription{}, err
	}
	if err := s.validate(); err != nil {
		return CCMDescription{}, err
	}
	s.Namespace = cmp.Or(s.Namespace, "kube-system")
	s.Workload = cmp.Or(s.Workload, s.Name)
	s.CloudProvider = cmp.Or(s.CloudProvider, strings.TrimSuffix(s.ProviderPrefix, "://"))
	return s, nil
}

// The forms of names in a description.
var (
	ccmName        = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	providerPrefix = regexp.MustCompile(`^[a-z][a-z0-9.-]*://$`)
	variable       = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// validate returns all mistakes in a description, with what to write instead.
func (s CCMDescription) validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !ccmName.MatchString(s.Name) {
		wrong("name: %q: write what reports call it: letters, digits, dots and dashes, as my-ccm", s.Name)
	}
	if !providerPrefix.MatchString(s.ProviderPrefix) {
		wrong("providerPrefix: %q: write what its nodes' provider IDs begin with, up to and with ://, as hcloud://", s.ProviderPrefix)
	}
	if problems := validation.IsQualifiedName(s.OwnerLabel); len(problems) > 0 {
		wrong("ownerLabel: %q: write the label of its load balancers that has the Service's UID, as example.com/service-uid: %s", s.OwnerLabel, problems[0])
	}
	if strings.TrimSpace(s.UserAgent) == "" {
		wrong("userAgent: write a part of the User-Agent of its requests, as my-ccm/")
	}
	if s.Archive != "" && s.Image == "" {
		wrong("archive: image is missing: write the name that the image has in %s", s.Archive)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		if !variable.MatchString(name) {
			wrong("env: %q: write the name of an environment variable, as HCLOUD_DEBUG", name)
		}
	}
	for _, arg := range s.Args {
		if !strings.HasPrefix(arg, "--") {
			wrong("args: %q: write each flag with its value as one entry, as --v=4", arg)
		}
	}
	for i, f := range s.Lacks {
		switch {
		case !slices.Contains(Features(), f):
			wrong("lacks: there is no feature %q; there are %v", f, Features())
		case slices.Contains(s.Lacks[:i], f):
			wrong("lacks: %s is there twice: remove one", f)
		}
	}
	return errors.Join(errs...)
}

// resolve makes the description's relative paths those of files beside it.
func (s *CCMDescription) resolve(folder string) {
	if absolute, err := filepath.Abs(folder); err == nil {
		folder = absolute // the suite runs elsewhere
	}
	for _, path := range []*string{&s.Binary, &s.Manifest, &s.Archive} {
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(folder, *path)
		}
	}
}

// missing returns the features that labels ask for and the CCM lacks.
func (s CCMDescription) missing(labels []string) []Feature {
	var missing []Feature
	for _, label := range labels {
		name, ok := strings.CutPrefix(label, needsPrefix)
		if ok && slices.Contains(s.Lacks, Feature(name)) {
			missing = append(missing, Feature(name))
		}
	}
	return missing
}
