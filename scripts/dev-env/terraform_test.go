// Package devenv checks that the Terraform configuration is formatted and complete, without Terraform and its providers. Whether each
// resource has these arguments, CI asks Terraform (terraform validate).
package devenv

import (
	"os"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
)

// reference returns the name that an expression refers to, as declared does, such as var.name. It is "" for others, such as each.key.
func reference(t hcl.Traversal) string {
	length := map[string]int{"data": 3, "each": 0, "rule": 0}
	parts := []string{t.RootName()}
	for _, step := range t[1:] {
		if attribute, ok := step.(hcl.TraverseAttr); ok {
			parts = append(parts, attribute.Name)
		}
	}
	n, special := length[parts[0]]
	if isVariable := parts[0] == "var" || parts[0] == "local"; !special && (isVariable || strings.Contains(parts[0], "_")) {
		n = 2
	}
	return strings.Join(parts[:min(n, len(parts))], ".")
}

// declared returns what the blocks of a file declare, by the names with which expressions refer to it.
func declared(body *hclsyntax.Body) map[string]*hclsyntax.Block {
	all := map[string]*hclsyntax.Block{}
	for _, b := range body.Blocks {
		name := strings.Join(b.Labels, ".")
		switch b.Type {
		case "variable":
			name = "var." + name
		case "data":
			name = "data." + name
		case "locals":
			for local := range b.Body.Attributes {
				all["local."+local] = b
			}
		}
		all[name] = b
	}
	return all
}

func TestNamesAreDeclaredAndVariablesDescribedTypedAndUsed(t *testing.T) {
	text, err := os.ReadFile("main.tf")
	if err != nil {
		t.Fatal(err)
	}
	if string(hclwrite.Format(text)) != string(text) {
		t.Error("main.tf is not formatted: run terraform fmt in its folder")
	}
	file, diags := hclsyntax.ParseConfig(text, "main.tf", hcl.InitialPos)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	body := file.Body.(*hclsyntax.Body)
	known, used := declared(body), map[string]bool{}
	_ = hclsyntax.VisitAll(body, func(n hclsyntax.Node) hcl.Diagnostics { // it returns what this function does
		if e, ok := n.(*hclsyntax.ScopeTraversalExpr); ok {
			used[reference(e.Traversal)] = true
		}
		return nil
	})
	delete(used, "")
	for name := range used {
		if known[name] == nil {
			t.Errorf("%s is used and not declared", name)
		}
	}
	for name, b := range known {
		for _, argument := range []string{"description", "type", "default"} {
			if b.Type == "variable" && b.Body.Attributes[argument] == nil {
				t.Errorf("%s has no %s", name, argument)
			}
		}
		if b.Type == "variable" && (strings.Contains(name, "token") || strings.Contains(name, "secret")) {
			t.Errorf("%s: a secret comes from the environment", name)
		}
		if (b.Type == "variable" || b.Type == "locals") && name != "" && !used[name] {
			t.Errorf("%s is not used", name)
		}
	}
	if len(used) < 20 {
		t.Errorf("only %d names are used", len(used))
	}
}
