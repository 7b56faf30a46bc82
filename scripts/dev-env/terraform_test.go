// Package devenv checks the Terraform configuration where neither Terraform nor its providers is available: that it is formatted and
// complete, and that each resource has arguments that exist. It checks the arguments of the example fakecloud/terraform, too.
package devenv

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"go.yaml.in/yaml/v3"
)

// meta are the arguments and blocks that each resource may have.
var meta = "count for_each depends_on lifecycle dynamic provider"

// known are the arguments and blocks that we use, of resources and data sources, by the documentation of the providers
// hetznercloud/hcloud 1.62 and hashicorp/tls 4.0. A slash stands before the arguments of a block.
var known = map[string]string{
	"data.hcloud_network":   "name",
	"hcloud_network":        "name ip_range labels delete_protection expose_routes_to_vswitch",
	"hcloud_network_subnet": "network_id type network_zone ip_range vswitch_id",
	"hcloud_firewall": "name labels rule rule/description rule/direction rule/protocol rule/port rule/source_ips " +
		"rule/destination_ips apply_to",
	"hcloud_ssh_key":    "name public_key labels",
	"hcloud_primary_ip": "name type location auto_delete labels delete_protection",
	"hcloud_server": "name server_type image location user_data ssh_keys keep_disk labels backups firewall_ids " +
		"placement_group_id delete_protection rebuild_protection public_net public_net/ipv4_enabled public_net/ipv4 " +
		"public_net/ipv6_enabled public_net/ipv6 network network/network_id network/ip network/alias_ips",
	"hcloud_load_balancer":         "name load_balancer_type location network_zone labels delete_protection algorithm algorithm/type",
	"hcloud_load_balancer_network": "load_balancer_id network_id subnet_id ip enable_public_interface",
	"hcloud_load_balancer_service": "load_balancer_id protocol listen_port destination_port proxyprotocol http health_check " +
		"health_check/protocol health_check/port health_check/interval health_check/timeout health_check/retries " +
		"health_check/http health_check/http/domain health_check/http/path health_check/http/response health_check/http/tls " +
		"health_check/http/status_codes",
	"hcloud_load_balancer_target": "load_balancer_id type server_id label_selector ip use_private_ip",
	"tls_private_key":             "algorithm ecdsa_curve rsa_bits",
	"tls_self_signed_cert": "private_key_pem is_ca_certificate validity_period_hours allowed_uses early_renewal_hours subject " +
		"subject/common_name subject/organization dns_names ip_addresses",
	"tls_cert_request": "private_key_pem subject subject/common_name subject/organization dns_names ip_addresses",
	"tls_locally_signed_cert": "cert_request_pem ca_private_key_pem ca_cert_pem validity_period_hours allowed_uses is_ca_certificate " +
		"early_renewal_hours",
}

func files(t *testing.T) map[string]*hclsyntax.Body {
	t.Helper()
	return filesOf(t, ".")
}

func filesOf(t *testing.T, folder string) map[string]*hclsyntax.Body {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(folder, "*.tf"))
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

// each calls do for all blocks of a type.
func each(t *testing.T, kind string, do func(*hclsyntax.Block)) {
	t.Helper()
	eachOf(files(t), kind, do)
}

func eachOf(files map[string]*hclsyntax.Body, kind string, do func(*hclsyntax.Block)) {
	for _, body := range files {
		for _, b := range body.Blocks {
			if b.Type == kind {
				do(b)
			}
		}
	}
}

func TestResourcesHaveKnownArguments(t *testing.T) {
	checkArguments(t, files(t))
	checkArguments(t, filesOf(t, "../../fakecloud/terraform"))
}

func checkArguments(t *testing.T, files map[string]*hclsyntax.Body) {
	t.Helper()
	declared := map[string]bool{}
	check := func(prefix string) func(*hclsyntax.Block) {
		return func(b *hclsyntax.Block) {
			name := prefix + b.Labels[0]
			declared[name+"."+b.Labels[1]] = true
			list, is := known[name]
			if !is {
				t.Errorf("%s: unknown type", name)
			}
			arguments := strings.Fields(list + " " + meta)
			for _, path := range paths(b.Body, "") {
				if !slices.Contains(arguments, path) {
					t.Errorf("%s.%s has no argument %s", name, b.Labels[1], path)
				}
			}
		}
	}
	eachOf(files, "resource", check(""))
	eachOf(files, "data", check("data."))
	for name, body := range files {
		for _, reference := range references(body) {
			parts := strings.Split(reference, ".")
			if strings.HasPrefix(parts[0], "hcloud_") || strings.HasPrefix(parts[0], "tls_") {
				if !declared[strings.Join(parts[:2], ".")] {
					t.Errorf("%s refers to %s, which is not declared", name, reference)
				}
			}
		}
	}
}

// paths returns the names of the arguments and blocks of a body, as they stand in known.
func paths(body *hclsyntax.Body, prefix string) (all []string) {
	for name := range body.Attributes {
		all = append(all, prefix+name)
	}
	for _, b := range body.Blocks {
		switch {
		case b.Type == "dynamic":
			for _, content := range b.Body.Blocks {
				all = append(append(all, prefix+b.Labels[0]), paths(content.Body, prefix+b.Labels[0]+"/")...)
			}
		case b.Type == "lifecycle":
		default:
			all = append(append(all, prefix+b.Type), paths(b.Body, prefix+b.Type+"/")...)
		}
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

func TestVariablesAreDescribedTypedAndUsed(t *testing.T) {
	used := map[string]bool{}
	for _, body := range files(t) {
		for _, r := range references(body) {
			used[r] = true
		}
	}
	n := 0
	each(t, "variable", func(b *hclsyntax.Block) {
		n++
		for _, argument := range []string{"description", "type", "default"} {
			if b.Body.Attributes[argument] == nil {
				t.Errorf("variable %s has no %s", b.Labels[0], argument)
			}
		}
		if !used["var."+b.Labels[0]] {
			t.Errorf("variable %s is not used", b.Labels[0])
		}
		delete(used, "var."+b.Labels[0])
		if strings.Contains(b.Labels[0], "token") || strings.Contains(b.Labels[0], "secret") {
			t.Errorf("variable %s: a secret comes from the environment", b.Labels[0])
		}
	})
	for r := range used {
		if strings.HasPrefix(r, "var.") {
			t.Errorf("%s is used and not declared", r)
		}
	}
	if n == 0 {
		t.Error("there are no variables")
	}
}

// TestTemplatesAreYAML fills in each template with what its call passes.
func TestTemplatesAreYAML(t *testing.T) {
	text := func(name string) function.Function {
		return function.New(&function.Spec{VarParam: &function.Parameter{Type: cty.DynamicPseudoType},
			Type: function.StaticReturnType(cty.String),
			Impl: func([]cty.Value, cty.Type) (cty.Value, error) { return cty.StringVal("from-" + name), nil }})
	}
	templates, err := filepath.Glob("*/*.tftpl")
	if err != nil {
		t.Fatal(err)
	}
	templates = append(templates, "kubeconfig.yaml.tftpl")
	passed := arguments(t)
	for _, name := range templates {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		e, diags := hclsyntax.ParseTemplate(source, name, hcl.InitialPos)
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		values := map[string]cty.Value{}
		for _, v := range passed[name] {
			values[v] = cty.StringVal("10.1.0.10")
		}
		needed := map[string]bool{}
		for _, v := range e.Variables() {
			needed[v.RootName()] = true
		}
		if got, want := slices.Sorted(maps.Keys(values)), slices.Sorted(maps.Keys(needed)); !slices.Equal(got, want) {
			t.Errorf("%s gets %v and needs %v", name, got, want)
		}
		out, diags := e.Value(&hcl.EvalContext{Variables: values,
			Functions: map[string]function.Function{"base64encode": text("base64encode"), "cidrhost": text("cidrhost")}})
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

// arguments returns the names of the values that calls of templatefile pass, by template.
func arguments(t *testing.T) map[string][]string {
	t.Helper()
	passed := map[string][]string{}
	for _, body := range files(t) {
		diags := hclsyntax.VisitAll(body, func(n hclsyntax.Node) hcl.Diagnostics {
			call, is := n.(*hclsyntax.FunctionCallExpr)
			if !is || call.Name != "templatefile" {
				return nil
			}
			path := call.Args[0].(*hclsyntax.TemplateExpr).Parts[1].(*hclsyntax.LiteralValueExpr).Val.AsString()
			for _, item := range call.Args[1].(*hclsyntax.ObjectConsExpr).Items {
				passed[strings.TrimPrefix(path, "/")] = append(passed[strings.TrimPrefix(path, "/")],
					hcl.ExprAsKeyword(item.KeyExpr.(*hclsyntax.ObjectConsKeyExpr).Wrapped))
			}
			return nil
		})
		if diags.HasErrors() {
			t.Fatal(diags)
		}
	}
	return passed
}
