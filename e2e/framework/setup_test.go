package framework

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
)

// configure sets up the program for one test.
func configure(t *testing.T, s Setup) {
	t.Helper()
	for _, name := range []string{EnvCCM, EnvProbe, EnvCluster, EnvBinary, EnvManifest, "KUBECONFIG"} {
		t.Setenv(name, "")
	}
	if err := Configure(s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { configured = Setup{} })
}

// aDriver is a driver that starts no cloud.
type aDriver struct{ cloud.Driver }

// mine describes a CCM of another cloud in Go.
func mine() CCMDescription {
	return CCMDescription{Name: "mine", ProviderPrefix: "mine://", Binary: "bin/mine"}
}

func TestACCMCanBeDescribedInGo(t *testing.T) {
	configure(t, Setup{CCM: mine(), Driver: aDriver{}})
	s, err := LoadCCM()
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if s.Binary != filepath.Join(here, "bin/mine") || s.CloudProvider != "mine" || s.Workload != "mine" {
		t.Errorf("got %+v", s)
	}
	if d, err := s.driver(); err != nil || d != (aDriver{}) {
		t.Errorf("the driver is %v, %v", d, err)
	}
	if configured.CCM.Lacks = map[Feature]string{"flight": "a"}; true {
		if _, err := LoadCCM(); err == nil || !strings.Contains(err.Error(), `"flight"`) {
			t.Errorf("an unknown feature: %v", err)
		}
	}
}

func TestTheEnvironmentNamesAnotherCCM(t *testing.T) {
	configure(t, Setup{File: "../ccms/ccm-from-scratch.yaml"})
	if s, err := LoadCCM(); err != nil || s.Name != OurCCM {
		t.Errorf("got %s, %v", s.Name, err)
	}
	t.Setenv(EnvCCM, "../ccms/example-ccm.yaml")
	if s, err := LoadCCM(); err != nil || s.Name != "example-ccm" || s.Driver != "example" {
		t.Errorf("got %s, %v", s.Name, err)
	}
}

func TestAKubeconfigIsAnExistingCluster(t *testing.T) {
	configure(t, Setup{})
	if k := CurrentKind(); k != Embedded {
		t.Errorf("without: %s", k)
	}
	configured.Kubeconfig = "admin.kubeconfig"
	if k := CurrentKind(); k != Existing {
		t.Errorf("with: %s", k)
	}
	t.Setenv(EnvCluster, string(Embedded))
	if k := CurrentKind(); k != Embedded {
		t.Errorf("E2E_CLUSTER loses: %s", k)
	}
}

func TestWhatIsMissingIsNamedBeforeAnySpec(t *testing.T) {
	program := filepath.Join(t.TempDir(), "ccm")
	if err := os.WriteFile(program, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	built := mine()
	built.Binary = program
	deployed := built
	deployed.Manifest = program
	empty := mine()
	empty.Binary = ""
	for want, s := range map[string]Setup{
		"no cloud-controller-manager is described": {Driver: aDriver{}},
		`driver: "hetzner": must be one of []`:     {File: "../ccms/ccm-from-scratch.yaml"},
		`driver: "example": must be one of []`:     {File: "../ccms/example-ccm.yaml", Driver: aDriver{}},
		"without a program":                        {CCM: empty, Driver: aDriver{}},
		"correct binary":                           {CCM: mine(), Driver: aDriver{}},
		"has no manifest":                          {CCM: built, Driver: aDriver{}},
		"has no etcd":                              {CCM: deployed, Driver: aDriver{}},
	} {
		configure(t, s)
		t.Setenv("KUBEBUILDER_ASSETS", t.TempDir())
		if err := Prepare(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
