package doorstest_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/doors/doorstest"
)

// api is the address that all of these programs have.
const api = "https://api.hetzner.cloud/v1/servers"

// refusedBy is in the status line that refuses a host.
const refusedBy = "fakecloud: example.com:443 is refused"

// programs are run with the environment of a proxy, without an endpoint. Each lists the servers of the cloud, and most then ask
// example.com.
var programs = []struct{ name, run, have, list, refused string }{
	{"curl", `curl -sS -H "Authorization: Bearer $HCLOUD_TOKEN" ` + api + `; curl -sS https://example.com`, "curl -V", `"web-1"`, "403"},
	{"hcloud", "hcloud server list", "hcloud version", "web-1", ""},
	{"python3-hcloud", "/usr/bin/python3 testdata/with_hcloud.py", `/usr/bin/python3 -c "import hcloud"`, "['web-1']", refusedBy},
	{"httpx", "/usr/bin/python3 testdata/with_httpx.py", `/usr/bin/python3 -c "import httpx"`, `"web-1"`, refusedBy},
	{"urllib", "python3 testdata/with_urllib.py", "python3 -V", `"web-1"`, refusedBy},
	{"LWP", "perl testdata/lwp.pl", "perl -MLWP::Protocol::https -e1", `"web-1"`, refusedBy},
	{"Ruby", "ruby testdata/http.rb", "ruby -v", `"web-1"`, refusedBy},
	{"Java", "java testdata/Main.java", "java --list-modules | grep jdk.compiler", `"web-1"`, refusedBy},
	{"Go", `d=$(mktemp -d) && cp testdata/main.go.txt $d/main.go && go run $d/main.go; rm -r $d`, "go version", `"web-1"`, refusedBy},
	{"Node", "node testdata/fetch.mjs", `node -e 'const [major, minor] = process.versions.node.split(".").map(Number);
		process.exit(major > 24 || major == 24 && minor >= 5 || major == 22 && minor >= 21 ? 0 : 1)'`, `"web-1"`, "example.com:443"},
	{"git", "git ls-remote https://example.com/x.git", "git --version", "", "403"},
}

// TestRealPrograms skips those that the machine lacks.
func TestRealPrograms(t *testing.T) {
	t.Parallel()
	cloud := fakecloud.New(fakecloud.Options{})
	defer cloud.Close()
	_, _, err := cloud.Client().Server.Create(t.Context(), hcloud.ServerCreateOpts{
		Name: "web-1", ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-13"},
	})
	if err != nil {
		t.Fatal(err)
	}
	env := doorstest.Environ(t, cloud)
	page := read(t, "../../PROGRAMS.md")
	for _, p := range programs {
		if !strings.Contains(strings.ToLower(page), "\n| "+strings.ToLower(p.name)) && p.name != "Node" { // never run
			t.Errorf("PROGRAMS.md lacks a row for %s", p.name)
		}
		t.Run(p.name, func(t *testing.T) {
			need(t, p.name, exec.Command("sh", "-c", p.have).Run())
			cmd := exec.CommandContext(t.Context(), "sh", "-c", p.run)
			cmd.Env = env
			out, _ := cmd.CombinedOutput()
			if !strings.Contains(string(out), p.list) || !strings.Contains(string(out), p.refused) {
				t.Errorf("no %q, or no %q in\n%s", p.list, p.refused, out)
			}
		})
	}
}
