// Package devenv checks that the Terraform configuration is formatted and complete, without Terraform and its providers. Whether each
// resource has these arguments, and each template gets its values, CI asks Terraform (terraform validate).
package devenv

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"go.yaml.in/yaml/v3"
)

func files(t *testing.T) map[string]*hclsyntax.Body {
	t.Helper()
	names, err := filepath.Glob("*.tf")
	if err != nil || len(names) == 0 {
		t.Fatalf("%d files, %v", len(names), err)
	}
	all := map[string]*hclsyntax.Body{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if formatted := hclwrite.Format(text); string(formatted) != string(text) {
			t.Errorf("%s is not formatted: run terraform fmt in its folder", name)
		}
		file, diags := hclsyntax.ParseConfig(text, name, hcl.InitialPos)
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		all[name] = file.Body.(*hclsyntax.Body)
	}
	return all
}

// references returns all names that expressions refer to, such as var.name.
func references(body *hclsyntax.Body) (all []string) {
	for _, a := range body.Attributes {
		for _, v := range a.Expr.Variables() {
			var parts []string
			for _, step := range v {
				switch step := step.(type) {
				case hcl.TraverseRoot:
					parts = append(parts, step.Name)
				case hcl.TraverseAttr:
					parts = append(parts, step.Name)
				}
			}
			all = append(all, strings.Join(parts, "."))
		}
	}
	for _, b := range body.Blocks {
		all = append(all, references(b.Body)...)
	}
	return all
}

func TestNamesAreDeclaredAndVariablesDescribedTypedAndUsed(t *testing.T) {
	used, declared := map[string]bool{}, map[string]*hclsyntax.Block{}
	for _, body := range files(t) {
		for _, r := range references(body) {
			used[r] = true
		}
		for _, b := range body.Blocks {
			name := strings.Join(b.Labels, ".")
			switch b.Type {
			case "variable":
				name = "var." + name
			case "data":
				name = "data." + name
			}
			declared[name] = b
		}
	}
	for name, b := range declared {
		for _, argument := range []string{"description", "type", "default"} {
			if b.Type == "variable" && b.Body.Attributes[argument] == nil {
				t.Errorf("%s has no %s", name, argument)
			}
		}
		if b.Type == "variable" && (!used[name] || strings.Contains(name, "token") || strings.Contains(name, "secret")) {
			t.Errorf("%s: must be used, and a secret comes from the environment", name)
		}
	}
	for r := range used {
		parts := strings.Split(r, ".")
		name := strings.Join(parts[:min(2, len(parts))], ".")
		if parts[0] == "data" {
			name = strings.Join(parts[:3], ".")
		}
		if resource := strings.Contains(parts[0], "_") || parts[0] == "data" || parts[0] == "var"; resource && declared[name] == nil {
			t.Errorf("%s is used and not declared", r)
		}
	}
	if len(used) < 20 {
		t.Errorf("only %d names are used", len(used))
	}
}

// TestTemplatesAreYAML fills in each template.
func TestTemplatesAreYAML(t *testing.T) {
	text := function.New(&function.Spec{VarParam: &function.Parameter{Type: cty.DynamicPseudoType},
		Type: function.StaticReturnType(cty.String),
		Impl: func([]cty.Value, cty.Type) (cty.Value, error) { return cty.StringVal("text"), nil }})
	templates, err := filepath.Glob("*/*.tftpl")
	if err != nil || len(templates) == 0 {
		t.Fatal(templates, err)
	}
	for _, name := range append(templates, "kubeconfig.yaml.tftpl") {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		e, diags := hclsyntax.ParseTemplate(source, name, hcl.InitialPos)
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		values := map[string]cty.Value{}
		for _, v := range e.Variables() {
			values[v.RootName()] = cty.StringVal("10.1.0.10")
		}
		out, diags := e.Value(&hcl.EvalContext{Variables: values,
			Functions: map[string]function.Function{"base64encode": text, "cidrhost": text}})
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		var document map[string]any
		if err := yaml.Unmarshal([]byte(out.AsString()), &document); err != nil || len(document) == 0 {
			t.Errorf("%s: %v:\n%s", name, err, out.AsString())
		}
		if strings.HasPrefix(name, "cloud-init/") && !strings.Contains(name, "cilium") &&
			!strings.HasPrefix(out.AsString(), "#cloud-config\n") {
			t.Errorf("%s: must be a cloud-config", name)
		}
	}
}
