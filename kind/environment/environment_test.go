package environment

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/deploy"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/kind/cluster"
)

// fakeDocker puts a program named docker first in PATH that runs a script of sh.
func fakeDocker(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	// A process that a parallel test starts meanwhile would hold the file open for writing, so that it could not be run.
	syscall.ForkLock.RLock()
	err := os.WriteFile(filepath.Join(dir, "docker"), []byte("#!/bin/sh\n"+script), 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
}

func sample() *Environment {
	return &Environment{
		Cluster: &cluster.Cluster{Network: cluster.Network{Name: "x", Subnet: cluster.DefaultSubnet,
			PodCIDR: cluster.DefaultPodCIDR}},
		InnerEndpoint: "http://172.30.0.10:4242/v1", Token: "the-token",
	}
}

// deployment returns the one of a manifest, and whether the Secret with the token is there.
func deployment(t *testing.T, manifest []byte) (d appsv1.Deployment, secret bool) {
	t.Helper()
	objects, err := deploy.Objects(manifest)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		switch o.GetKind() {
		case "Deployment":
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &d); err != nil {
				t.Fatal(err)
			}
		case "Secret":
			secret = strings.Contains(string(manifest), "the-token") && strings.Contains(string(manifest), "network: "+NetworkName)
		}
	}
	return d, secret
}

func TestTheCCMIsDeployedForTheCluster(t *testing.T) {
	t.Parallel()
	two := int32(2)
	manifest, err := sample().ccmManifest(CCM{Image: "ccm:1", Env: map[string]string{"HCLOUD_DEBUG": "true"}, Args: []string{"--v=9"},
		Replicas: &two}, "sum")
	if err != nil {
		t.Fatal(err)
	}
	d, secret := deployment(t, manifest)
	c := d.Spec.Template.Spec.Containers[0]
	env := map[string]string{}
	for _, e := range c.Env {
		env[e.Name] = e.Value
	}
	if !secret || c.Image != "ccm:1" || c.ImagePullPolicy != corev1.PullNever || *d.Spec.Replicas != 2 ||
		env["HCLOUD_ENDPOINT"] != "http://172.30.0.10:4242/v1" || env["HCLOUD_DEBUG"] != "true" ||
		d.Spec.Template.Annotations["ccm-from-scratch/image-checksum"] != "sum" {
		t.Errorf("%s", manifest)
	}
	for _, arg := range []string{"--cluster-cidr=10.244.0.0/16", "--cluster-name=x", "--v=9"} {
		if !strings.Contains(strings.Join(c.Args, " "), arg) {
			t.Errorf("no %s in %v", arg, c.Args)
		}
	}
}

func TestAnotherCCMIsDeployedByItsManifest(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "other.yaml")
	text := `apiVersion: apps/v1
kind: Deployment
metadata: {name: other, namespace: cloud}
spec:
  selector: {matchLabels: {app: other}}
  template:
    metadata: {labels: {app: other}}
    spec:
      containers:
      - {name: c, image: "example.com/other:v1", env: [{name: HCLOUD_ENDPOINT, value: elsewhere}]}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	manifest, err := sample().ccmManifest(CCM{Manifest: file}, "")
	if err != nil {
		t.Fatal(err)
	}
	d, _ := deployment(t, manifest)
	c := d.Spec.Template.Spec.Containers[0]
	if c.Image != "example.com/other:v1" || c.ImagePullPolicy != "" || strings.Contains(string(manifest), "elsewhere") {
		t.Errorf("%s", manifest)
	}
	for name, bad := range map[string]CCM{
		"no such file":              {Manifest: file + "x"},
		"has no Deployment":         {Manifest: writeFile(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n")},
		"is not a Kubernetes objec": {Manifest: writeFile(t, "a: 1\n")},
	} {
		if _, err := sample().ccmManifest(bad, ""); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %q", err, name)
		}
	}
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "f.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestOpenFindsWhatDockerHasPublished(t *testing.T) {
	fakeDocker(t, `[ "$1 $2 $3" = "port x-cloud 4242/tcp" ] && echo 127.0.0.1:1111 && echo '[::1]:1112' && exit
[ "$1 $2 $3" = "port x-cloud 4243/tcp" ] && echo 127.0.0.1:2222 && exit
[ "$1 $2 $3" = "port x-outside 3128/tcp" ] && echo 127.0.0.1:3333 && exit
echo "no such container $2" >&2; exit 1`)
	e := sample()
	if err := errors.Join(e.connect(t.Context()), e.connectOutside(t.Context())); err != nil {
		t.Fatal(err)
	}
	if e.Endpoint != "http://127.0.0.1:1111/v1" || e.Control != "http://127.0.0.1:2222" ||
		e.InnerEndpoint != "http://172.30.0.10:4242/v1" ||
		e.OutsideProxy.String() != "http://127.0.0.1:3333" || e.OutsideAddress.String() != "172.30.0.20" {
		t.Errorf("%+v", e)
	}
	if text := e.Exports(); !strings.Contains(text, "HCLOUD_ENDPOINT=http://127.0.0.1:1111/v1 ") ||
		!strings.Contains(text, "HCLOUD_NETWORK=kind ") {
		t.Error(text)
	}
	e.Name = "y"
	if err := e.connect(t.Context()); !errors.Is(err, ErrNoCloud) || !strings.Contains(err.Error(), "no such container y-cloud") {
		t.Error(err)
	}
}

func TestWithoutDockerTheErrorSaysSo(t *testing.T) {
	fakeDocker(t, `echo "Cannot connect to the Docker daemon" >&2; exit 1`)
	o := Options{Cluster: cluster.Options{Name: "x", Image: "node:1"}}
	if _, err := Up(t.Context(), o); err == nil || !strings.Contains(err.Error(), "Cannot connect to the Docker daemon") {
		t.Error(err)
	}
	if _, err := Open(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "start Docker") {
		t.Error(err)
	}
}

func TestAnEnvironmentThatExistsIsFoundBeforeAnythingIsBuilt(t *testing.T) {
	fakeDocker(t, `case "$*" in
"network ls"*) ;;
*io.x-k8s.kind.cluster=mine*) echo id1 id2 ;;
*) echo "docker $*: not expected" >&2; exit 1 ;;
esac`)
	var out bytes.Buffer
	_, err := Up(t.Context(), Options{Cluster: cluster.Options{Name: "mine"}, Progress: &out})
	if err == nil || !strings.Contains(err.Error(), "KIND_NAME=mine make down") || out.Len() > 0 {
		t.Errorf("%v, after: %s", err, out.String())
	}
}

func TestAFailedStepSaysWhichOne(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := &steps{out: &out, begin: time.Now()}
	if err := s.step("one", func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := s.step("two", func() error { return context.Canceled }); !errors.Is(err, context.Canceled) ||
		!strings.HasPrefix(err.Error(), "two: ") {
		t.Error(err)
	}
	if len(s.done) != 1 || !strings.Contains(out.String(), "one: done in") {
		t.Errorf("%v, %s", s.done, out.String())
	}
}

func TestAWaitSaysWhatWasMissingLast(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	err := sample().await(ctx, "all is well", func(context.Context) (string, error) {
		defer cancel()
		return "", errors.New("the server restarts")
	})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "all is well") {
		t.Error(err)
	}
}

func TestDownSucceedsWithoutAnEnvironment(t *testing.T) {
	fakeDocker(t, "exit 0")
	if err := Down(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	if built := BuiltCCM("x"); built != "" {
		t.Error(built)
	}
}

func TestImagesGoWithTheEnvironmentUnlessAnotherUsesThem(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("IMAGES", dir)
	if err := os.WriteFile(filepath.Join(dir, "old"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// Docker has the image "old" under the name, until an archive is loaded; "new" is in use.
	fakeDocker(t, `case "$1 $2" in
"image inspect") [ -e "$IMAGES/new" ] && echo new && exit; [ -e "$IMAGES/old" ] && echo old && exit; exit 1 ;;
"load --input") touch "$IMAGES/new" ;;
"image rm") case $3 in
	old) rm "$IMAGES/old" ;;
	*) echo "$3" >>"$IMAGES/asked"; echo "Error response from daemon: conflict: unable to remove" >&2; exit 1 ;;
	esac ;;
esac`)
	if err := cloudProgram.load(t.Context(), "archive.tar"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "old")); err == nil {
		t.Error("the image that has lost its name is still there")
	}
	if err := removeImages(t.Context()); err != nil {
		t.Error(err)
	}
	if asked, _ := os.ReadFile(filepath.Join(dir, "asked")); string(asked) != "fakecloud:kind\nprobe:kind\n" {
		t.Errorf("asked to remove %q", asked)
	}
}

func TestANodeIsUsableWhenItsStatusShowsItsRoute(t *testing.T) {
	t.Parallel()
	cloud := fakecloud.New(fakecloud.Options{})
	t.Cleanup(cloud.Close)
	ctx := t.Context()
	e := sample()
	e.Cloud = cloud.Client()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Spec: corev1.NodeSpec{PodCIDR: "10.244.1.0/24"}}
	e.Client = fake.NewClientset(node)
	expect := func(want string) {
		t.Helper()
		if missing, err := e.routesMissing(ctx); err != nil || !strings.Contains(missing, want) || (missing == "") != (want == "") {
			t.Errorf("missing %q, %v, want %q", missing, err, want)
		}
	}
	network, _, err := e.Cloud.Network.Create(ctx,
		hcloud.NetworkCreateOpts{Name: NetworkName, IPRange: &net.IPNet{IP: net.IPv4(10, 0, 0, 0), Mask: net.CIDRMask(8, 32)}})
	if err != nil {
		t.Fatal(err)
	}
	expect("no route to 10.244.1.0/24")
	_, pods, _ := net.ParseCIDR(node.Spec.PodCIDR)
	if _, _, err := e.Cloud.Network.AddRoute(ctx, network,
		hcloud.NetworkAddRouteOpts{Route: hcloud.NetworkRoute{Destination: pods, Gateway: net.IPv4(10, 0, 0, 2)}}); err != nil {
		t.Fatal(err)
	}
	expect("node-1 does not show its route")
	for status, want := range map[corev1.ConditionStatus]string{corev1.ConditionTrue: "node-1 does not show its route",
		corev1.ConditionFalse: ""} {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeNetworkUnavailable, Status: status}}
		if _, err := e.Client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		expect(want)
	}
}

func TestTheStatusShowsWhereALoadBalancerIsReached(t *testing.T) {
	t.Parallel()
	public := func(ip string) hcloud.LoadBalancerPublicNet {
		return hcloud.LoadBalancerPublicNet{Enabled: ip != "", IPv4: hcloud.LoadBalancerPublicNetIPv4{IP: net.ParseIP(ip)}}
	}
	private := []hcloud.LoadBalancerPrivateNet{{IP: net.ParseIP("10.0.0.9")}}
	for want, lb := range map[string]*hcloud.LoadBalancer{
		"203.0.113.5:80":          {PublicNet: public("203.0.113.5"), PrivateNet: private},
		"10.0.0.9:80":             {PublicNet: public(""), PrivateNet: private},
		"no address yet, port 80": {PublicNet: hcloud.LoadBalancerPublicNet{Enabled: true}, PrivateNet: private},
	} {
		if got := endpoint(lb, 80); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
