// Package devenv tests the script that makes and removes a cluster on the real cloud. CI asks Terraform about main.tf.
package devenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// down runs scripts/dev-env.sh down with programs that write down how they are called, and returns their calls and the output.
func down(t *testing.T, kubectl string, env ...string) (calls []string, said string, err error) {
	t.Helper()
	programs, state := t.TempDir(), t.TempDir()
	log := filepath.Join(t.TempDir(), "calls")
	for name, script := range map[string]string{"terraform": "", "kubectl": kubectl} {
		text := "#!/bin/sh\necho \"" + name + " $*\" >>'" + log + "'\n" + script
		if err := os.WriteFile(filepath.Join(programs, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	folder := filepath.Join(state, "ccm-from-scratch", "dev-env")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "kubeconfig"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "../dev-env.sh", "down", "-var=workers=3")
	cmd.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "HCLOUD_TOKEN=x", "XDG_STATE_HOME="+state, "SERVICES=")
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	text, _ := os.ReadFile(log)
	for line := range strings.Lines(string(text)) {
		calls = append(calls, strings.ReplaceAll(strings.TrimSpace(line), state, ""))
	}
	return calls, string(out), err
}

const twoServices = `case "$*" in *" get services "*) printf 'default/web\nshop/api\n' ;; esac`

func TestServicesGoBeforeTheCluster(t *testing.T) {
	calls, said, err := down(t, twoServices)
	all := strings.Join(calls, "\n")
	web, api := strings.Index(all, "delete service web --namespace=default"), strings.Index(all, "delete service api --namespace=shop")
	if destroy := strings.Index(all, "terraform destroy"); err != nil || web < 0 || api < 0 || destroy < web || destroy < api ||
		!strings.Contains(all, "-var=workers=3") {
		t.Errorf("%v\n%s\n%s", err, all, said)
	}
}

func TestTheClusterStaysWhileItsServicesCannotBeDeleted(t *testing.T) {
	for script, want := range map[string]string{
		"echo 'no route to host' >&2; exit 1":                                         "SERVICES=keep make dev-env-down",
		twoServices + "\ncase \"$*\" in *delete*) echo timed out >&2; exit 1 ;; esac": "default/web still has its load balancer",
	} {
		calls, said, err := down(t, script)
		if err == nil || strings.Contains(strings.Join(calls, "\n"), "terraform destroy") || !strings.Contains(said, want) {
			t.Errorf("%v\n%q\n%s", err, calls, said)
		}
	}
	calls, said, err := down(t, "exit 1", "SERVICES=keep")
	all := strings.Join(calls, "\n")
	if err != nil || !strings.Contains(all, "terraform destroy") || strings.Contains(all, "kubectl") {
		t.Errorf("%v\n%q\n%s", err, calls, said)
	}
}
