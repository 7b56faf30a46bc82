package environment

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/kind/cluster"
)

func TestASecondUpRepairsAndAHalfMadeClusterIsMadeAnew(t *testing.T) {
	for name, c := range map[string]struct {
		docker string // what there is
		there  bool
		want   string // what a person is told
		asked  string // of Docker
	}{
		"nothing": {docker: `*) ;;`},
		"a whole cluster": {
			docker: `"network ls"*) echo n ;; "ps --all --quiet --filter name=^x-control-plane"*) echo c ;; *) ;;`,
			there:  true, want: "repaired",
		},
		"no control plane": {docker: `"network ls"*) echo n ;; *) ;;`, want: "half-made", asked: "network rm n"},
		"a control plane without a pod network": {
			docker: `"network ls"*) echo n ;; "ps --all --quiet --filter name=^x-control-plane"*) echo c ;; "cp "*) exit 1 ;; *) ;;`,
			want:   "half-made", asked: "network rm n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "log")
			fakeDocker(t, `echo "$*" >>`+log+`; case "$*" in `+c.docker+` esac`)
			var out bytes.Buffer
			o := Options{Cluster: cluster.Options{Name: "x"}}
			there, err := o.there(t.Context(), &steps{out: &out})
			if err != nil || there != c.there || !strings.Contains(out.String(), c.want) {
				t.Errorf("%t, %v; %s", there, err, out.String())
			}
			if asked, _ := os.ReadFile(log); !strings.Contains(string(asked), c.asked) || c.there && strings.Contains(string(asked), "rm") {
				t.Errorf("Docker was asked\n%s", asked)
			}
		})
	}
}

func TestAnUpThatFailsBeforeTheClusterLeavesNoArchive(t *testing.T) {
	fakeDocker(t, `case "$*" in "image inspect"*) echo "no such image" >&2; exit 1 ;; esac`)
	folder, err := Folder("x")
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(folder, "fakecloud.tar")
	if err := os.WriteFile(archive, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o := Options{Cluster: cluster.Options{Name: "x", Image: "node:1"}, CloudArchive: archive, ProbeArchive: archive, WithoutCCM: true}
	if _, err := Up(t.Context(), o); err == nil || !strings.Contains(err.Error(), "no such image") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", folder, err)
	}
}

func TestTheCloudKeepsItsPortsAndItsState(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	fakeDocker(t, `echo "$*" >>`+log)
	if err := (Options{CloudArchive: "a"}).startCloud(t.Context(), sample().Cluster); err != nil {
		t.Fatal(err)
	}
	asked, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	// Docker gives another port at each start to a container that asked for any.
	for _, port := range []string{apiPort, controlPort} {
		if !regexp.MustCompile(`--publish=127\.0\.0\.1:[1-9][0-9]*:` + port + ` `).Match(asked) {
			t.Errorf("port %s is not published at a number:\n%s", port, asked)
		}
	}
	if !strings.Contains(string(asked), " --volume=x-cloud:/state ") || !strings.Contains(string(asked), " --state=/state ") {
		t.Errorf("a cloud that starts again is empty:\n%s", asked)
	}
}

func TestTheOutsideReachesFloatingIPsAlsoAfterARestart(t *testing.T) {
	for _, state := range []string{"", "exited"} {
		log := filepath.Join(t.TempDir(), "log")
		fakeDocker(t, `echo "$*" >>`+log+`; case "$1" in ps) echo '`+state+`' ;; port) echo 127.0.0.1:3333 ;; esac`)
		e := sample()
		e.Image = "node:1"
		e.Client = fake.NewClientset()
		if err := (Options{ProbeArchive: writeFile(t, "")}).outside(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		asked, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(`(?s)x-outside\s.*container:x-outside .* node:1 route replace 198\.18\.0\.0/15 via 172\.30\.0\.10\n`).
			Match(asked) {
			t.Errorf("a container that was %q gets no route:\n%s", state, asked)
		}
	}
}

// node is a Node that was a server.
func node(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: "ccm-from-scratch://1"}}
}

// connected returns an environment with a cloud of this process, and a cluster with nodes.
func connected(t *testing.T, nodes ...*corev1.Node) *Environment {
	t.Helper()
	cloud := fakecloud.New(fakecloud.Options{})
	t.Cleanup(cloud.Close)
	control := httptest.NewServer(cloud.ControlHandler())
	t.Cleanup(control.Close)
	e := sample()
	e.Cloud, e.Control = cloud.Client(), control.URL
	client := fake.NewClientset()
	for _, n := range nodes {
		if _, err := client.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	e.Client = client
	return e
}

func TestStatusSaysWhatIsDeadAndHowToRestartIt(t *testing.T) {
	fakeDocker(t, "exit 0")
	e := connected(t, node("n"))
	for name, c := range map[string]struct {
		part part
		want []string
	}{
		"API":                {e.clusterPart(nil, http.ErrServerClosed), []string{"does not answer", "make up"}},
		"cloud":              {e.cloudPart(http.ErrServerClosed, nil), []string{"x-cloud", "docker logs", "make up"}},
		"hypervisor":         {e.hypervisorPart(t.Context()), []string{"no server gets", "make up", "hypervisor.log"}},
		"CCM":                {e.ccmPart(t.Context()), []string{"not found", "make dev"}},
		"the cloud, at work": {e.cloudPart(nil, []*hcloud.Server{{}}), nil},
	} {
		for _, want := range c.want {
			if !strings.Contains(c.part.dead, want) {
				t.Errorf("%s: %q does not say %q", name, c.part.dead, want)
			}
		}
		if c.want == nil && c.part.dead != "" {
			t.Errorf("%s: %s", name, c.part.dead)
		}
	}
	var out bytes.Buffer
	servers := []*hcloud.Server{{ID: 7, Name: "n", Status: "running"}, {ID: 8, Name: "waits", Status: "initializing"}}
	showNodes(&out, []corev1.Node{*node("n")}, servers)
	for _, want := range []string{"n\tno\tyes\tn (7)\trunning", "-\t-\t-\twaits (8)\tinitializing"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestAnImageToLoadMustBeThere(t *testing.T) {
	fakeDocker(t, `case "$*" in "image inspect"*) exit 1 ;; esac`)
	if err := sample().LoadImages(context.Background(), "mine:1"); err == nil || !strings.Contains(err.Error(), "build or pull it first") {
		t.Error(err)
	}
}
