package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fakecloudtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// module is the example of a Terraform module that is tested against a simulated cloud.
const module = "../../terraform"

// terraformFolder is a copy of the module, and how Terraform is run in it.
type terraformFolder struct {
	program, path string
	env           []string
}

// terraform returns what Terraform prints.
func (f terraformFolder) terraform(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), f.program, append(args, "-no-color")...)
	cmd.Dir, cmd.Env = f.path, f.env
	out, err := cmd.CombinedOutput()
	t.Logf("terraform %s: %v\n%s", strings.Join(args, " "), err, out)
	return string(out), err
}

// withoutTerraform ends the test because something is missing. With REQUIRE_TERRAFORM it fails.
func withoutTerraform(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("REQUIRE_TERRAFORM") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// prepare copies the module and gets its provider. Other settings of the user are not Terraform's: they would change the test.
func prepare(t *testing.T) terraformFolder {
	t.Helper()
	f := terraformFolder{path: filepath.Join(t.TempDir(), "module")}
	check(t, os.CopyFS(f.path, os.DirFS(module)))
	for _, name := range []string{"terraform", "tofu"} {
		if path, err := exec.LookPath(name); err == nil && f.program == "" {
			f.program = path
		}
	}
	if f.program == "" {
		withoutTerraform(t, "the module is not tested: install terraform: https://developer.hashicorp.com/terraform/install")
	}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "TF_") || strings.HasPrefix(v, "TF_CLI_CONFIG_FILE=") || strings.HasPrefix(v, "TF_PLUGIN_CACHE_DIR=") {
			f.env = append(f.env, v)
		}
	}
	f.env = append(f.env, "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1")
	if out, err := f.terraform(t, "init", "-input=false"); err != nil {
		if !strings.Contains(out, "provider") {
			t.Fatal("the module is not valid")
		}
		withoutTerraform(t, "the module is not tested: its provider cannot be downloaded; terraform init above says why")
	}
	return f
}

func TestTheTerraformModule(t *testing.T) {
	cloud := fakecloudtest.New(t)
	fakecloudtest.Env(t, cloud)
	f := prepare(t)
	must(f.terraform(t, "test"))(t)
	created := func() int {
		n := must(cloud.Journal().Count(t.Context(), journal.Filter{Operation: "create_server"}))(t)
		return n
	}
	if n := created(); n != 3 {
		t.Errorf("the tests of the module have created %d servers in the cloud, want 3", n)
	}
	if left, err := cloud.Client().Server.All(t.Context()); err != nil || len(left) != 0 {
		t.Errorf("%d servers are left, %v", len(left), err)
	}

	// What a mock would not notice: a type that does not exist, and a plan that is not empty after an apply.
	if out, err := f.terraform(t, "test", "-var=server_type=cx99"); err == nil || !strings.Contains(out, "cx99") {
		t.Errorf("the type cx99 is accepted: %v", err)
	}
	must(f.terraform(t, "apply", "-auto-approve", "-input=false"))(t)
	if _, err := f.terraform(t, "plan", "-detailed-exitcode", "-input=false"); err != nil {
		t.Errorf("the second plan is not empty: %v", err)
	}
	if _, err := f.terraform(t, "destroy", "-auto-approve", "-input=false"); err != nil {
		t.Error(err)
	}
}

func TestTheTerraformModuleIsFormatted(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("terraform")
	if err != nil {
		withoutTerraform(t, "the format of the module is not tested here: terraform is not installed")
	}
	out, err := exec.CommandContext(t.Context(), program, "fmt", "-check", "-recursive", "-diff", "-no-color", module).CombinedOutput()
	if err != nil {
		t.Errorf("run terraform fmt -recursive fakecloud/terraform: %v\n%s", err, out)
	}
}

// TestThePageShowsTheTestsOfTheModule compares the block of the page with the file that it shows the beginning of.
func TestThePageShowsTheTestsOfTheModule(t *testing.T) {
	t.Parallel()
	tests := must(os.ReadFile(filepath.Join(module, "tests", "web.tftest.hcl")))(t)
	block := strings.TrimPrefix(page(t, "Terraform", "hcl")[0], "# tests/web.tftest.hcl\n")
	shown, ok := strings.CutSuffix(block, "}\n") // the run has more assertions
	if _, text, found := strings.Cut(string(tests), "\n\n"); !ok || !found || !strings.HasPrefix(text, shown) {
		t.Errorf("web.tftest.hcl does not begin as INSTALL.md shows it:\n%s", block)
	}
}
