package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

const chartFolder = "../../ccm/chart"

// objects renders the chart and reads the objects as an API server with strict validation does: a
// field that does not exist is an error.
func objects(t *testing.T, o options) map[string]any {
	t.Helper()
	o.chart, o.release, o.namespace = chartFolder, "test", "cloud"
	text, err := render(o)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]any{}
	for document := range strings.SplitSeq(text, "---\n") {
		var meta struct {
			Kind     string
			Metadata struct{ Name string }
		}
		if err := yaml.Unmarshal([]byte(document), &meta); err != nil {
			t.Fatal(err)
		}
		kinds := map[string]any{
			"": nil, "ServiceAccount": &corev1.ServiceAccount{}, "Secret": &corev1.Secret{}, "Deployment": &appsv1.Deployment{},
			"ClusterRole": &rbacv1.ClusterRole{}, "ClusterRoleBinding": &rbacv1.ClusterRoleBinding{},
			"Role": &rbacv1.Role{}, "RoleBinding": &rbacv1.RoleBinding{}, "PodDisruptionBudget": &policyv1.PodDisruptionBudget{},
		}
		object, ok := kinds[meta.Kind]
		if !ok {
			t.Fatalf("an object of the kind %q", meta.Kind)
		}
		if object == nil {
			continue
		}
		if err := yaml.UnmarshalStrict([]byte(document), object); err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		all[meta.Kind+" "+meta.Metadata.Name] = object
	}
	return all
}

// pod returns the pod of the Deployment, with its one container.
func pod(t *testing.T, o options) (corev1.PodSpec, corev1.Container) {
	t.Helper()
	d, ok := objects(t, o)["Deployment test-ccm-from-scratch"].(*appsv1.Deployment)
	if !ok || len(d.Spec.Template.Spec.Containers) != 1 {
		t.Fatalf("%+v", d)
	}
	return d.Spec.Template.Spec, d.Spec.Template.Spec.Containers[0]
}

func env(c corev1.Container) map[string]string {
	values := map[string]string{}
	for _, e := range c.Env {
		values[e.Name] = e.Value
		if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil {
			values[e.Name] = e.ValueFrom.FieldRef.FieldPath
		} else if e.ValueFrom != nil {
			values[e.Name] = e.ValueFrom.SecretKeyRef.Name + "/" + e.ValueFrom.SecretKeyRef.Key
		}
	}
	return values
}

func TestTheCommittedManifestIsCurrent(t *testing.T) {
	t.Parallel()
	want, err := render(options{
		chart: chartFolder, release: "ccm-from-scratch", namespace: "kube-system",
		files: list{"../../ccm/deploy/values.yaml"},
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../ccm/deploy/ccm-from-scratch.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(got), "\n") // the first line says where it comes from
	if body != want {
		t.Error("ccm/deploy/ccm-from-scratch.yaml is not what the chart renders to; run scripts/manifests.sh")
	}
}

func TestHelmHasNothingToSayAgainstTheChart(t *testing.T) {
	t.Parallel()
	for _, m := range lint.RunAll(chartFolder, map[string]any{}, "kube-system").Messages {
		if m.Severity >= support.WarningSev {
			t.Error(m)
		}
	}
}

func TestSettingsArriveAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "values.yaml")
	text := "clusterCIDR: 10.0.0.0/8\nenv:\n  HCLOUD_NETWORK: 12345678\n  HCLOUD_RESYNC_INTERVAL: 0\n  HCLOUD_DEBUG: false\n  HCLOUD_REQUEST_TIMEOUT: 5s\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"HCLOUD_NETWORK": "12345678", "HCLOUD_RESYNC_INTERVAL": "0", "HCLOUD_DEBUG": "false", "HCLOUD_REQUEST_TIMEOUT": "5s",
		"HCLOUD_TOKEN_FILE": "/etc/hcloud/token", "HCLOUD_METRICS_ADDRESS": "127.0.0.1:8233", "NODE_NAME": "spec.nodeName",
	}
	for name, o := range map[string]options{
		"from a file": {files: list{file}},
		"by --set": {set: list{"clusterCIDR=10.0.0.0/8", "env.HCLOUD_NETWORK=12345678",
			"env.HCLOUD_RESYNC_INTERVAL=0", "env.HCLOUD_DEBUG=false", "env.HCLOUD_REQUEST_TIMEOUT=5s"}},
	} {
		_, c := pod(t, o)
		got := env(c)
		if len(got) != len(want) {
			t.Errorf("%s: %v", name, got)
		}
		for k, v := range want {
			if got[k] != v {
				t.Errorf("%s: %s=%q, want %q", name, k, got[k], v)
			}
		}
		if !slices.Contains(c.Args, "--cluster-cidr=10.0.0.0/8") {
			t.Errorf("%s: %v", name, c.Args)
		}
	}
}

func TestTheTokenIsAFileOrAVariable(t *testing.T) {
	t.Parallel()
	spec, c := pod(t, options{})
	if _, ok := env(c)["HCLOUD_TOKEN"]; ok || env(c)["HCLOUD_TOKEN_FILE"] == "" || len(spec.Volumes) != 1 || spec.Volumes[0].Secret.SecretName != "hcloud" {
		t.Errorf("as a file: %v, %+v", env(c), spec.Volumes)
	}
	if c.VolumeMounts[0].MountPath+"/"+spec.Volumes[0].Secret.Items[0].Path != env(c)["HCLOUD_TOKEN_FILE"] {
		t.Errorf("the file is elsewhere: %+v, %+v", c.VolumeMounts, spec.Volumes)
	}
	spec, c = pod(t, options{set: list{"token.as=env", "token.secretName=s", "token.secretKey=k"}})
	if env(c)["HCLOUD_TOKEN"] != "s/k" || env(c)["HCLOUD_TOKEN_FILE"] != "" || len(spec.Volumes) != 0 || len(c.VolumeMounts) != 0 {
		t.Errorf("as a variable: %v, %+v", env(c), spec.Volumes)
	}
	secret, ok := objects(t, options{set: list{"token.value=abc"}})["Secret hcloud"].(*corev1.Secret)
	if !ok || secret.StringData["token"] != "abc" {
		t.Errorf("with a value: %+v", secret)
	}
}

func TestNothingListensOnTheNodesAddressesUnlessTold(t *testing.T) {
	t.Parallel()
	spec, c := pod(t, options{})
	if !spec.HostNetwork || env(c)["HCLOUD_METRICS_ADDRESS"] != "127.0.0.1:8233" ||
		!slices.Contains(c.Args, "--bind-address=127.0.0.1") || c.LivenessProbe.HTTPGet.Host != "127.0.0.1" {
		t.Errorf("on the node's network: %v, %v, %+v", c.Args, env(c), c.LivenessProbe)
	}
	_, c = pod(t, options{set: list{"hostNetwork=false"}})
	if env(c)["HCLOUD_METRICS_ADDRESS"] != ":8233" || !slices.Contains(c.Args, "--bind-address=0.0.0.0") || c.LivenessProbe.HTTPGet.Host != "" {
		t.Errorf("on the pods' network: %v, %v, %+v", c.Args, env(c), c.LivenessProbe)
	}
	_, c = pod(t, options{set: list{"env.HCLOUD_METRICS_ADDRESS=10.0.0.2:9000"}})
	if len(c.Ports) != 2 || c.Ports[1].ContainerPort != 9000 {
		t.Errorf("with an address: %+v", c.Ports)
	}
	_, c = pod(t, options{set: list{"env.HCLOUD_METRICS_ENABLED=false"}})
	if len(c.Ports) != 1 || env(c)["HCLOUD_METRICS_ADDRESS"] != "" {
		t.Errorf("switched off: %+v, %v", c.Ports, env(c))
	}
}

func TestSeveralReplicas(t *testing.T) {
	t.Parallel()
	two := objects(t, options{set: list{"replicaCount=2"}})
	d := two["Deployment test-ccm-from-scratch"].(*appsv1.Deployment)
	if *d.Spec.Replicas != 2 || len(d.Spec.Template.Spec.TopologySpreadConstraints) != 1 || two["PodDisruptionBudget test-ccm-from-scratch"] == nil {
		t.Errorf("%+v", two)
	}
	if one := objects(t, options{}); one["PodDisruptionBudget test-ccm-from-scratch"] != nil {
		t.Error("a budget for one replica, which could never be evicted")
	}
}

func TestRBACAndItsAccountCanBeManagedElsewhere(t *testing.T) {
	t.Parallel()
	none := objects(t, options{set: list{"rbac.create=false", "serviceAccount.create=false", "serviceAccount.name=theirs"}})
	if len(none) != 1 || none["Deployment test-ccm-from-scratch"].(*appsv1.Deployment).Spec.Template.Spec.ServiceAccountName != "theirs" {
		t.Errorf("%v", none)
	}
	theirs := objects(t, options{set: list{"serviceAccount.create=false", "serviceAccount.name=theirs", "leaderElection.enabled=false"}})
	for name, o := range theirs {
		var subjects []rbacv1.Subject
		switch o := o.(type) {
		case *rbacv1.ClusterRoleBinding:
			subjects = o.Subjects
		case *rbacv1.RoleBinding:
			subjects = o.Subjects
		case *rbacv1.Role:
			t.Errorf("%s, without leader election", name)
		}
		for _, s := range subjects {
			if s.Name != "theirs" || s.Namespace != "cloud" {
				t.Errorf("%s: %+v", name, s)
			}
		}
	}
}

// The message has to name what is wrong.
func TestValuesThatCannotWorkAreRefused(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]string{
		"env.HCLOUD_NET=internal":                     "HCLOUD_NET",
		"env.HCLOUD_NETWORK=internal":                 "clusterCIDR",
		"env.HCLOUD_NETWORK_ROUTES_ENABLED=maybe":     "HCLOUD_NETWORK_ROUTES_ENABLED",
		"env.HCLOUD_ENDPOINT=api.hetzner.cloud":       "HCLOUD_ENDPOINT",
		"env.HCLOUD_TOKEN=abc":                        "HCLOUD_TOKEN",
		"token.as=argument":                           "token",
		"replicas=2":                                  "replicas",
		"replicaCount=2,leaderElection.enabled=false": "leaderElection.enabled",
		"secureServing.port=0":                        "port",
		"image.digest=latest":                         "digest",
	} {
		_, err := render(options{chart: chartFolder, release: "test", namespace: "cloud", set: list{set}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--set %s: %v", set, err)
		}
	}
	// Without routes a network needs no range of pods.
	pod(t, options{set: list{"env.HCLOUD_NETWORK=internal", "env.HCLOUD_NETWORK_ROUTES_ENABLED=false"}})
}
