package main

import (
	"strings"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cli"
)

func TestAWrongSettingEndsUpWith2BeforeDockerIsAsked(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("PATH", t.TempDir()) // neither docker nor go: nothing can be built
	for _, c := range []struct{ name, subnet, args, want string }{
		{"x", "foo", "up", "KIND_SUBNET=foo: must be an IPv4 /16, such as 172.30.0.0/16"},
		{"x", "172.30.0.0/24", "up", "KIND_SUBNET=172.30.0.0/24: must be an IPv4 /16, such as 172.30.0.0/16"},
		{"No_Good", "", "up", `KIND_NAME="No_Good": must be at most 40 lower-case letters, digits and hyphens, such as team-2`},
		{"..", "", "down", `KIND_NAME="..": must be at most 40 lower-case letters, digits and hyphens, such as team-2`},
		{"x", "", "up --workers=-1", "--workers=-1: must be from 0 to 252"},
		{"x", "", "up --worker=1", "--worker: is not a flag, but --workers is; kindcloud up --help lists them"},
	} {
		t.Setenv("KIND_NAME", c.name)
		t.Setenv("KIND_SUBNET", c.subnet)
		root := command()
		root.SetArgs(strings.Fields(c.args))
		if code, err := cli.Run(t.Context(), root); code != 2 || err == nil || err.Error() != c.want {
			t.Errorf("%s: %d, %v, want %s", c.args, code, err, c.want)
		}
	}
}
