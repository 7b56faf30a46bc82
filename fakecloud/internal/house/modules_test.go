package house

import (
	"encoding/json"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// importers are the modules that an importer of the public packages compiles, and their purpose. Add one only if the
// library needs it.
var importers = map[string]string{
	module:                                 "",
	"github.com/go-chi/chi/v5":             "the routes of both APIs",
	"github.com/hetznercloud/hcloud-go/v2": "Cloud.Client",
	"github.com/pires/go-proxyproto":       "the data plane's PROXY protocol",
	"github.com/tidwall/btree":             "the tables of the cloud",
	"go.yaml.in/yaml/v3":                   "the catalogue, seed files, metadata",
	"golang.org/x/crypto":                  "fingerprints of SSH keys; the trust store of doors/proxy; doors/guests",
	"golang.org/x/term":                    "doors/guests only",
	"github.com/pkg/sftp":                  "doors/guests only",
	"github.com/kr/fs":                     "of github.com/pkg/sftp",
	"golang.org/x/net":                     "HTTP/2 in the data plane, names of hosts; messages of doors/dns",
	"k8s.io/utils":                         "the interface of a clock",
	"github.com/vishvananda/netlink":       "dataplane/netdev only",
	"github.com/vishvananda/netns":         "dataplane/netdev only",
	"golang.org/x/sys":                     "dataplane/netdev and disk only",
	"go.etcd.io/bbolt":                     "disk only",
	"golang.org/x/text":                    "of golang.org/x/net and hcloud-go",
	"github.com/prometheus/client_golang":  "metrics, here and of hcloud-go",
	"github.com/prometheus/client_model":   "of hcloud-go",
	"github.com/prometheus/common":         "of hcloud-go",
	"github.com/prometheus/procfs":         "of hcloud-go",
	"github.com/beorn7/perks":              "of hcloud-go",
	"github.com/cespare/xxhash/v2":         "of hcloud-go",
	"github.com/munnerz/goautoneg":         "of hcloud-go",
	"google.golang.org/protobuf":           "of hcloud-go",
}

// required are the direct requirements of go.mod that importers do not compile.
var required = map[string]string{
	"github.com/santhosh-tekuri/jsonschema/v6": "the contract tests",
	"github.com/spf13/cobra":                   "the binary",
	"github.com/spf13/pflag":                   "the binary",
}

func TestNoModuleIsAddedByAccident(t *testing.T) {
	t.Parallel()
	compiled := goList(t, append([]string{"-deps", "-f", "{{with .Module}}{{.Path}}{{end}}"}, publicPackages(t)...)...)
	slices.Sort(compiled)
	compiled = slices.DeleteFunc(slices.Compact(compiled), func(m string) bool { return m == "" })
	if want := slices.Sorted(maps.Keys(importers)); !slices.Equal(compiled, want) {
		t.Errorf("importers compile %v\nwant %v", compiled, want)
	}
	edit := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json")
	edit.Dir = filepath.Join("..", "..")
	out, err := edit.Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	for _, r := range mod.Require {
		if _, ok := importers[r.Path]; ok || r.Indirect {
			continue
		}
		if _, ok := required[r.Path]; !ok {
			t.Errorf("go.mod requires %s: remove it, or add it to the list with its purpose", r.Path)
		}
	}
}

// TestNoKubernetesIsInTheGraph looks at all modules of the graph: they influence the versions of an importer.
func TestNoKubernetesIsInTheGraph(t *testing.T) {
	t.Parallel()
	for _, m := range goList(t, "-m", "all") {
		for _, unwanted := range []string{"k8s.io/api", "k8s.io/client-go", "sigs.k8s.io/", "github.com/onsi/"} {
			if strings.HasPrefix(m, unwanted) {
				t.Errorf("the graph has %s; remove it, go mod why -m shows where it comes from", m)
			}
		}
	}
}

// TestTheRootPackageNeedsNoDoor has all public packages outside of doors. The root package needs no network interfaces, either.
func TestTheRootPackageNeedsNoDoor(t *testing.T) {
	t.Parallel()
	others := slices.DeleteFunc(publicPackages(t), func(p string) bool { return strings.HasPrefix(p, module+"/doors/") })
	all, root := goList(t, append([]string{"-deps"}, others...)...), goList(t, "-deps", ".")
	for prefix, compiled := range map[string][]string{"github.com/pkg/sftp": all, "golang.org/x/term": all, module + "/doors/": all,
		"github.com/vishvananda/": root} {
		if i := slices.IndexFunc(compiled, func(p string) bool { return strings.HasPrefix(p, prefix) }); i >= 0 {
			t.Errorf("a public package outside of doors compiles %s", compiled[i])
		}
	}
}
