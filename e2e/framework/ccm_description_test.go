package framework

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2/types"
	"sigs.k8s.io/yaml"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
)

// otherCCM is the least that a description says.
const otherCCM = "name: other\nproviderPrefix: other://\nownerLabel: example.com/uid\nuserAgent: other/\n"

func TestADescriptionIsCompletedFromItself(t *testing.T) {
	t.Parallel()
	got, err := parseCCM([]byte(otherCCM + "lacks: {routes: no network}\n"))
	want := CCMDescription{Name: "other", Namespace: "kube-system", Workload: "other", ProviderPrefix: "other://",
		OwnerLabel: "example.com/uid", Driver: DefaultDriver,
		UserAgent: "other/", CloudProvider: "other", Lacks: map[Feature]string{NodeRoutes: "no network"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
}

func TestAWrongDescriptionSaysWhatToWrite(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"nothing":                  {"", []string{"name:", "providerPrefix:", "ownerLabel:", "userAgent:", "as hcloud://"}},
		"an unknown field":         {otherCCM + "lack: [routes]\n", []string{`unknown field "lack"`}},
		"a field twice":            {otherCCM + "name: again\n", []string{`"name" already set`}},
		"no YAML":                  {"\tname", []string{"yaml"}},
		"a prefix without slashes": {strings.Replace(otherCCM, "other://", "other", 1), []string{`providerPrefix: "other"`, "://"}},
		"a provider ID as prefix":  {strings.Replace(otherCCM, "other://", "other://1", 1), []string{`providerPrefix: "other://1"`}},
		"a label that is none":     {strings.Replace(otherCCM, "example.com/uid", "a/b/c", 1), []string{`ownerLabel: "a/b/c"`}},
		"a name with spaces":       {strings.Replace(otherCCM, "name: other", "name: my own", 1), []string{`name: "my own"`}},
		"an unknown feature":       {otherCCM + "lacks: {root: none}\n", []string{`lacks: "root": must be one of`, string(NodeRoutes)}},
		"a feature twice":          {otherCCM + "lacks: {routes: a, routes: b}\n", []string{`"routes" already set`}},
		"a gap without a reason":   {otherCCM + "knownGaps: [{specs: [Service works]}]\n", []string{"knownGaps[0]", "reason"}},
		"an unknown host name":     {otherCCM + "hostName: pod\n", []string{`hostName: "pod": must be one of node, server`}},
		"a negative time":          {otherCCM + "quiet: -1s\n", []string{"quiet: -1s"}},
		"two drivers":              {otherCCM + "driver: a\ndriverCommand: [b]\n", []string{"either driver or driverCommand"}},
		"two programs":             {otherCCM + "binary: a\nsource: b\n", []string{"either binary or source"}},
		"an archive alone":         {otherCCM + "archive: ccm.tar\n", []string{"image is missing"}},
		"a flag with a space":      {otherCCM + "args: [v, \"4\"]\n", []string{`args: "v"`, `args: "4"`, "--v=4"}},
		"a variable with a sign":   {otherCCM + "env: {A=B: c}\n", []string{`env: "A=B"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := parseCCM([]byte(c.text))
			if err == nil {
				t.Fatal("it was accepted")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in: %v", want, err)
				}
			}
		})
	}
}

func TestTheExamplesAreDescriptions(t *testing.T) {
	files, err := filepath.Glob("../ccms/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("examples: %v, %v", files, err)
	}
	for _, file := range files {
		t.Setenv(EnvCCM, file)
		s, err := LoadCCM()
		if err != nil {
			t.Error(err)
		}
		if want := strings.TrimSuffix(filepath.Base(file), ".yaml"); s.Name != want {
			t.Errorf("%s describes %s", file, s.Name)
		}
		if s.Binary != "" && !filepath.IsAbs(s.Binary) {
			t.Errorf("%s: the binary %s is not next to it", file, s.Binary)
		}
	}
}

// ourCCM returns the description of the CCM of this repository.
func ourCCM(t *testing.T) CCMDescription {
	t.Helper()
	s, err := readCCM("../ccms/ccm-from-scratch.yaml", "ours")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestOurCCMIsDescribed(t *testing.T) {
	t.Parallel()
	if s := ourCCM(t); s.Name != OurCCM || len(s.Lacks)+len(s.KnownGaps) > 0 {
		t.Errorf("got %+v", s)
	}
}

func TestAMissingDescriptionIsNamed(t *testing.T) {
	t.Setenv(EnvCCM, "none.yaml")
	want := "CCM=none.yaml: cannot read the description of the CCM: no such file or directory; " +
		"name a file such as e2e/ccms/ccm-from-scratch.yaml"
	if _, err := LoadCCM(); err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

func TestSpecsNeedFeatures(t *testing.T) {
	t.Parallel()
	s := CCMDescription{Lacks: map[Feature]string{NodeRoutes: "", Repair: ""}}
	labels := append([]string{"service", "routes"}, Needs(NodeSelector, Repair)...)
	if got := s.missing(labels); !reflect.DeepEqual(got, []Feature{Repair}) {
		t.Errorf("got %v", got)
	}
	if got := ourCCM(t).missing(labels); got != nil {
		t.Errorf("ours lacks %v", got)
	}
	if s.Has(NodeRoutes) || !s.Has(NodeSelector) {
		t.Error("Has does not say what Lacks says")
	}
}

func TestWhereASpecCanRun(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		label     string
		kind      ClusterKind
		simulated bool
		want      string
	}{
		{"service", Existing, false, ""},
		{OwnCloud, Embedded, true, ""},
		{OwnCloud, KindCluster, true, "E2E_CLUSTER=embedded"},
		{RealNodes, KindCluster, true, ""},
		{RealNodes, Embedded, true, "E2E_CLUSTER=kind"},
		{FakeOnly, Existing, true, ""},
		{FakeOnly, Existing, false, "simulated"},
	} {
		got := notHere([]string{"x", c.label}, c.kind, c.simulated)
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s on %s, simulated %t: got %q, want %q", c.label, c.kind, c.simulated, got, c.want)
		}
	}
}

func TestUnsupportedIsNotJustSkipped(t *testing.T) {
	t.Parallel()
	lacksRoutes := CCMDescription{Lacks: map[Feature]string{NodeRoutes: ""}}
	unsupported := func(state types.SpecState, message string, labels ...string) bool {
		result, _ := outcome(types.SpecReport{State: state, Failure: types.Failure{Message: message}, LeafNodeLabels: labels}, lacksRoutes,
			Embedded)
		return result == speclist.Unsupported
	}
	if !unsupported(types.SpecStateSkipped, unsupportedPrefix+"[routes]", Needs(NodeRoutes)...) ||
		!unsupported(types.SpecStateSkipped, otherCloud+"hetzner") || !unsupported(types.SpecStateSkipped, "", Needs(Machines)...) {
		t.Error("a spec that lacks a feature, or is about another cloud or the machine controller, is unsupported")
	}
	if unsupported(types.SpecStateSkipped, "needs real nodes", RealNodes) || unsupported(types.SpecStateFailed, unsupportedPrefix+
		"[routes]", Needs(NodeRoutes)...) {
		t.Error("only a spec that was skipped for a feature is unsupported")
	}
}

func FuzzADescriptionThatIsAcceptedIsComplete(f *testing.F) {
	f.Add([]byte(otherCCM))
	f.Add([]byte(otherCCM + "lacks: {routes: no}\nknownGaps: [{reason: a, specs: [b]}]\nquiet: 3s\nargs: [--v=4]\nenv: {A: b}\n"))
	f.Add([]byte("name: ["))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parseCCM(text)
		if err != nil {
			return
		}
		if err := s.validate(); err != nil {
			t.Errorf("accepted, but %v", err)
		}
		if s.Namespace == "" || s.Workload == "" || s.CloudProvider == "" {
			t.Errorf("not complete: %+v", s)
		}
		written, err := yaml.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseCCM(written)
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Errorf("written and read again: %+v, %v\nwant %+v", again, err, s)
		}
	})
}

func TestAForeignCCMGetsOnlyWhatItsFileAsksFor(t *testing.T) {
	t.Parallel()
	settings := map[string]string{"HCLOUD_RESYNC_INTERVAL": "1s", "HCLOUD_NETWORK": ""}
	other, err := parseCCM([]byte(otherCCM + "env: {HCLOUD_LOAD_BALANCERS_LOCATION: \"{location}\"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := other.known(settings); len(got) != 1 || len(settings) != 2 {
		t.Errorf("of %v it got %v", settings, got)
	}
	if got := ourCCM(t).known(settings); len(got) != 2 {
		t.Errorf("ours got %v", got)
	}
	if got := other.Environment(map[string]string{"location": "here"}); len(got) != 1 || got["HCLOUD_LOAD_BALANCERS_LOCATION"] != "here" {
		t.Errorf("its environment is %v", got)
	}
}

func TestAWrongBinaryFailsTheRunBeforeAnySpec(t *testing.T) {
	Register(DefaultDriver, nil)
	t.Cleanup(func() { delete(drivers, DefaultDriver) })
	file := filepath.Join(t.TempDir(), "other.yaml")
	for binary, want := range map[string]string{
		"none":   "no such file",
		".":      "is not a program",
		"README": "is not a program",
	} {
		if err := os.WriteFile(filepath.Join(filepath.Dir(file), "README"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(otherCCM+"binary: "+binary+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv(EnvCCM, file)
		t.Setenv(EnvBinary, "")
		t.Setenv(EnvCluster, string(Embedded))
		if err := Prepare(t.Context()); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "correct binary") {
			t.Errorf("%s: %v", binary, err)
		}
	}
}

func TestAProbeRunsEverything(t *testing.T) {
	file := filepath.Join(t.TempDir(), "other.yaml")
	if err := os.WriteFile(file, []byte(otherCCM+"lacks: {routes: none}\nknownGaps: [{reason: a, specs: [b]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(EnvCCM, file)
	t.Setenv(EnvProbe, "1")
	if s, err := LoadCCM(); err != nil || s.Lacks != nil || s.KnownGaps != nil {
		t.Errorf("got %+v, %v", s, err)
	}
}
