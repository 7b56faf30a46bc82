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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
)

// EnvCCM is the environment variable with the path of the CCM's file (CCMDescription). Without it, that of Setup is tested.
const EnvCCM = "CCM"

// EnvProbe asks to run every spec, whatever the CCM's file says that it lacks (make e2e-probe).
const EnvProbe = "E2E_PROBE"

// CCMDescription describes the cloud-controller-manager that the specs test: its origin, its identity, and the features that it lacks. The
// zero value is not usable.
type CCMDescription struct {
	// Name is its name in reports.
	Name string `json:"name"`

	// Driver is the name of its cloud's driver. If empty, that of Setup or DefaultDriver. DriverCommand is a program that is the driver,
	// with its arguments (e2e/cloud/program/README.md).
	Driver        string   `json:"driver,omitempty"`
	DriverCommand []string `json:"driverCommand,omitempty"`

	// Binary is the program for the embedded cluster. Source is a folder with the source of its main package. The suite builds Source if it
	// is set.
	Binary string `json:"binary,omitempty"`
	Source string `json:"source,omitempty"`
	// Manifest is a file with everything that deploys it into a cluster. On the embedded cluster, its service account has the CCM's rights;
	// on an existing one, the CCM runs already. If empty, that of Setup is used. On a kind cluster, its container gets HCLOUD_ENDPOINT, Env
	// and Args; it must read the token and the network's name from the keys token and network of the Secret hcloud in its namespace.
	Manifest string `json:"manifest,omitempty"`
	// Image is the name of the container's image. Archive is a file of `docker save` with the image. The suite loads it into the nodes.
	// Without Archive, the nodes pull the image.
	Image   string `json:"image,omitempty"`
	Archive string `json:"archive,omitempty"`
	// Namespace and Workload are where it runs: the name of its Deployment or DaemonSet.
	Namespace string `json:"namespace,omitempty"`
	Workload  string `json:"workload,omitempty"`
	// Env and Args extend the suite's environment and command line, and win over them. The suite passes the flags of any CCM that is built
	// with k8s.io/cloud-provider, and the settings of the cloud's driver, such as the API's endpoint. A name of the driver in braces, such
	// as {location}, is replaced in values of Env.
	Env  map[string]string `json:"env,omitempty"`
	Args []string          `json:"args,omitempty"`
	// CloudProvider is the value of its flag --cloud-provider; "" is ProviderPrefix without "://".
	CloudProvider string `json:"cloudProvider,omitempty"`

	// ProviderPrefix begins the provider IDs of its nodes, such as "hcloud://".
	ProviderPrefix string `json:"providerPrefix"`
	// OwnerLabel is the label of a load balancer that holds the UID of its Service. It may be empty if the cloud has no labels.
	OwnerLabel string `json:"ownerLabel,omitempty"`
	// UserAgent is a part of the User-Agent of its requests. It may be empty if the cloud does not record requests.
	UserAgent string `json:"userAgent,omitempty"`
	// RegionLabel and ZoneLabel are the values of its nodes' labels topology.kubernetes.io/region and zone, with the driver's names in
	// braces. If empty, the driver's values for the server count; if those are empty, specs do not look at the label.
	RegionLabel string `json:"regionLabel,omitempty"`
	ZoneLabel   string `json:"zoneLabel,omitempty"`
	// HostName is the source of a node's address of type Hostname: "node" or "server", for the name of either. If empty, specs ignore that
	// address.
	HostName string `json:"hostName,omitempty"`
	// Quiet is how long the cloud must stay unchanged before specs assume that the CCM is idle, such as 2s. It must be longer than the
	// CCM's period of comparing the cloud with the cluster. If zero, 6s.
	Quiet metav1.Duration `json:"quiet,omitzero"`
	// Lacks are the features that it does not have, each with the reason. Specs that need one are unsupported.
	Lacks map[Feature]string `json:"lacks,omitempty"`
	// KnownGaps are specs that fail although it has the features that they need.
	KnownGaps []Gap `json:"knownGaps,omitempty"`
}

// Gap is a group of specs that fail for one reason. A run reports such a spec as a known gap, and as a gap that is
// closed when it passes; every other failure is a regression.
type Gap struct {
	Reason string `json:"reason"`
	// Specs are the full names of the specs, as specs.json has them.
	Specs []string `json:"specs"`
}

// OurCCM is the name of the CCM of this repository, with which some specs are stricter.
const OurCCM = "ccm-from-scratch"

// LoadCCM returns the description that EnvCCM names, else the one of Setup.
func LoadCCM() (CCMDescription, error) {
	s, err := chosenCCM()
	if err == nil && os.Getenv(EnvProbe) != "" {
		s.Lacks, s.KnownGaps = nil, nil
	}
	return s, err
}

func chosenCCM() (CCMDescription, error) {
	switch path := os.Getenv(EnvCCM); {
	case path != "":
		return readCCM(path, EnvCCM+"="+path)
	case configured.File != "":
		return readCCM(configured.File, configured.File)
	case configured.CCM.Name != "":
		s, err := configured.CCM.complete()
		if err != nil {
			return CCMDescription{}, fmt.Errorf("the description of the CCM: %w", err)
		}
		s.resolve(".")
		return s, nil
	}
	return CCMDescription{}, fmt.Errorf("no cloud-controller-manager is described: write a file such as e2e/ccms/example-ccm.yaml, and "+
		"its path into suite.Config.File or %s", EnvCCM)
}

// readCCM reads a description. Paths in it are relative to its folder. names is the setting that names the file: errors begin with it.
func readCCM(path, names string) (CCMDescription, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return CCMDescription{}, fmt.Errorf("%s: cannot read the description of the CCM: %w; name a file such as "+
			"e2e/ccms/ccm-from-scratch.yaml", names, errors.Unwrap(err)) // which does not name the file again
	}
	s, err := parseCCM(text)
	if err != nil {
		return CCMDescription{}, fmt.Errorf("%s: %w", names, err)
	}
	s.resolve(filepath.Dir(path))
	return s, nil
}

// parseCCM reads a description in YAML.
func parseCCM(text []byte) (CCMDescription, error) {
	var s CCMDescription
	if err := yaml.UnmarshalStrict(text, &s); err != nil {
		return CCMDescription{}, err
	}
	return s.complete()
}

// complete checks a description and derives the missing values. It takes no default from another CCM: one with another's identity would
// fail every spec.
func (s CCMDescription) complete() (CCMDescription, error) {
	if err := s.validate(); err != nil {
		return CCMDescription{}, err
	}
	s.Driver = s.driverName()
	s.Namespace = cmp.Or(s.Namespace, "kube-system")
	s.Workload = cmp.Or(s.Workload, s.Name)
	s.CloudProvider = cmp.Or(s.CloudProvider, strings.TrimSuffix(s.ProviderPrefix, "://"))
	return s, nil
}

// The allowed forms of names in a description.
var (
	ccmName        = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	providerPrefix = regexp.MustCompile(`^[a-z][a-z0-9.-]*://$`)
	variable       = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// validateSource returns the mistakes in the fields that locate the CCM and its cloud's driver.
func (s CCMDescription) validateSource() error {
	var errs []error
	if s.Driver != "" && len(s.DriverCommand) > 0 {
		errs = append(errs, fmt.Errorf("driver: %q: write either driver or driverCommand", s.Driver))
	}
	if s.Binary != "" && s.Source != "" {
		errs = append(errs, fmt.Errorf("binary: %s: write either binary or source", s.Binary))
	}
	if s.Archive != "" && s.Image == "" {
		errs = append(errs, fmt.Errorf("archive: image is missing: write the name that the image has in %s", s.Archive))
	}
	return errors.Join(errs...)
}

// validate returns all mistakes in a description. Each error says how to correct its mistake.
func (s CCMDescription) validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !ccmName.MatchString(s.Name) {
		wrong("name: %q: write what reports call it: letters, digits, dots and dashes, such as my-ccm", s.Name)
	}
	if !providerPrefix.MatchString(s.ProviderPrefix) {
		wrong("providerPrefix: %q: write how its nodes' provider IDs begin, including ://, such as hcloud://", s.ProviderPrefix)
	}
	hetzner := s.driverName() == DefaultDriver
	if problems := validation.IsQualifiedName(s.OwnerLabel); len(problems) > 0 && (hetzner || s.OwnerLabel != "") {
		wrong("ownerLabel: %q: write the label of its load balancers that has the Service's UID, such as example.com/service-uid: %s",
			s.OwnerLabel, problems[0])
	}
	if hetzner && strings.TrimSpace(s.UserAgent) == "" {
		wrong("userAgent: write a part of the User-Agent of its requests, such as my-ccm/")
	}
	errs = append(errs, s.validateSource())
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		if !variable.MatchString(name) {
			wrong("env: %q: write the name of an environment variable, such as HCLOUD_DEBUG", name)
		}
	}
	for _, arg := range s.Args {
		if !strings.HasPrefix(arg, "--") {
			wrong("args: %q: write each flag with its value as one entry, such as --v=4", arg)
		}
	}
	if s.HostName != "" && s.HostName != "node" && s.HostName != "server" {
		wrong("hostName: %q: must be one of node, server", s.HostName)
	}
	if s.Quiet.Duration < 0 {
		wrong("quiet: %s: must be a duration such as 2s", s.Quiet.Duration)
	}
	for _, f := range slices.Sorted(maps.Keys(s.Lacks)) {
		if !slices.Contains(Features(), f) {
			wrong("lacks: %q: must be one of %v", f, Features())
		}
	}
	for i, gap := range s.KnownGaps {
		if strings.TrimSpace(gap.Reason) == "" || len(gap.Specs) == 0 {
			wrong("knownGaps[%d]: reason or specs is missing: write why which specs fail", i)
		}
	}
	return errors.Join(errs...)
}

// resolve makes relative paths relative to the folder of the CCM's file.
func (s *CCMDescription) resolve(folder string) {
	if absolute, err := filepath.Abs(folder); err == nil {
		folder = absolute // the suite runs elsewhere
	}
	paths := []*string{&s.Binary, &s.Source, &s.Manifest, &s.Archive}
	for i, word := range s.DriverCommand { // python3 is a program of the host, ./driver.py a file next to this one
		if strings.HasPrefix(word, "./") || strings.HasPrefix(word, "../") {
			paths = append(paths, &s.DriverCommand[i])
		}
	}
	for _, path := range paths {
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(folder, *path)
		}
	}
}

// periods are the variables for periods and time limits that our CCM has. Specs shorten them to save time.
var periods = []string{"HCLOUD_INSTANCES_CACHE_TTL", "HCLOUD_RESYNC_INTERVAL", "HCLOUD_REQUEST_TIMEOUT", "HCLOUD_ACTION_TIMEOUT"}

// known returns the settings of a spec without the variables that the CCM may not have: it gets the periods only if its
// file sets one of them.
func (s CCMDescription) known(settings map[string]string) map[string]string {
	if slices.ContainsFunc(periods, func(name string) bool { return s.Env[name] != "" }) {
		return settings
	}
	settings = maps.Clone(settings)
	maps.DeleteFunc(settings, func(name, _ string) bool { return slices.Contains(periods, name) })
	return settings
}

// Topology returns the wanted labels topology.kubernetes.io/region and zone of a server's node, or "" if specs do not look at the label.
func (e *Env) Topology(s cloud.Server) (region, zone string) {
	fill := filler(e.Cloud.CCM().Values)
	return cmp.Or(fill(e.suite.CCM.RegionLabel), s.Region), cmp.Or(fill(e.suite.CCM.ZoneLabel), s.Zone)
}

// Environment returns Env with the driver's values instead of their names in braces.
func (s CCMDescription) Environment(values map[string]string) map[string]string {
	env, fill := map[string]string{}, filler(values)
	for name, value := range s.Env {
		env[name] = fill(value)
	}
	return env
}

// filler returns a function that replaces names in braces by their values.
func filler(values map[string]string) func(string) string {
	var pairs []string
	for name, value := range values {
		pairs = append(pairs, "{"+name+"}", value)
	}
	return strings.NewReplacer(pairs...).Replace
}

// HostNames returns the addresses of type Hostname that a node must have; ok is false if specs do not look at them.
func (s CCMDescription) HostNames(node, server string) (names []string, ok bool) {
	switch s.HostName {
	case "node":
		return []string{node}, true
	case "server":
		return []string{server}, true
	}
	return nil, false
}

// checkBinary reports a program for the embedded cluster that cannot be run.
func checkBinary(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return fmt.Errorf("cannot run the cloud-controller-manager: %w; correct binary in its description", err)
	case info.IsDir() || info.Mode()&0o111 == 0:
		return fmt.Errorf("cannot run the cloud-controller-manager: %s is not a program; correct binary in its description", path)
	}
	return nil
}

// missing returns the features that labels ask for and the CCM lacks.
func (s CCMDescription) missing(labels []string) []Feature {
	var missing []Feature
	for _, label := range labels {
		name, ok := strings.CutPrefix(label, needsPrefix)
		if ok && !s.Has(Feature(name)) {
			missing = append(missing, Feature(name))
		}
	}
	return missing
}

// gap returns the reason why a spec is known to fail; ok is false if it is not.
func (s CCMDescription) gap(spec string) (reason string, ok bool) {
	for _, gap := range s.KnownGaps {
		if slices.Contains(gap.Specs, spec) {
			return gap.Reason, true
		}
	}
	return "", false
}
