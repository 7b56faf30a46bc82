// Package chart tests what Helm makes of ccm/chart and of fakecloud/chart.
package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"
)

const (
	chartFolder     = "../../ccm/chart"
	fakecloudFolder = "../../fakecloud/chart"
)

// helm runs Helm and returns what it prints, errors included. It reads the chart's files itself, too: go test repeats a result until a
// file changes that the test has read.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	for _, folder := range []string{chartFolder, fakecloudFolder} {
		if err := os.CopyFS(t.TempDir(), os.DirFS(folder)); err != nil {
			t.Fatal(err)
		}
	}
	path, err := exec.CommandContext(t.Context(), "../tool.sh", "helm").Output()
	if err != nil {
		t.Fatalf("compiling Helm: %v", err)
	}
	text, err := exec.CommandContext(t.Context(), strings.TrimSpace(string(path)), args...).CombinedOutput()
	return string(text), err
}

// template renders a chart, with values as --set and -f take them.
func template(t *testing.T, chart string, values ...string) (string, error) {
	t.Helper()
	return helm(t, append([]string{"template", "test", chart, "--namespace", "cloud"}, values...)...)
}

// set returns the arguments that set values.
func set(values ...string) (args []string) {
	for _, v := range values {
		args = append(args, "--set", v)
	}
	return args
}

// objects renders the CCM's chart.
func objects(t *testing.T, values ...string) map[string]any {
	t.Helper()
	return objectsOf(t, chartFolder, values...)
}

// objectsOf renders a chart and reads the objects as an API server with strict validation does: a field that does not exist is an error.
func objectsOf(t *testing.T, chart string, values ...string) map[string]any {
	t.Helper()
	text, err := template(t, chart, values...)
	if err != nil {
		t.Fatal(err, text)
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
			"DaemonSet": &appsv1.DaemonSet{}, "ConfigMap": &corev1.ConfigMap{}, "PodMonitor": &podMonitor{},
			"StatefulSet": &appsv1.StatefulSet{}, "Service": &corev1.Service{}, "NetworkPolicy": &networkingv1.NetworkPolicy{},
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

// podMonitor has the fields of the Prometheus operator's PodMonitor that the chart uses.
type podMonitor struct {
	APIVersion string `json:"apiVersion"`
	Kind       string
	Metadata   struct {
		Name, Namespace string
		Labels          map[string]string
	}
	Spec struct {
		Selector struct {
			MatchLabels map[string]string `json:"matchLabels"`
		}
		PodMetricsEndpoints []struct{ Port, Path, Interval string } `json:"podMetricsEndpoints"`
	}
}

// pod returns the pod of the Deployment, with its one container.
func pod(t *testing.T, values ...string) (corev1.PodSpec, corev1.Container) {
	t.Helper()
	d, ok := objects(t, values...)["Deployment test-ccm-from-scratch"].(*appsv1.Deployment)
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

func TestHelmHasNothingToSayAgainstTheCharts(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{chartFolder, fakecloudFolder} {
		if text, err := helm(t, "lint", "--strict", folder); err != nil || strings.Contains(text, "[WARNING]") {
			t.Errorf("%s: %v: %s", folder, err, text)
		}
	}
}

func TestSettingsArriveAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "values.yaml")
	text := "clusterCIDR: 10.0.0.0/8\nenv:\n  HCLOUD_NETWORK: 12345678\n  HCLOUD_RESYNC_INTERVAL: 0\n  HCLOUD_DEBUG: false\n  " +
		"HCLOUD_REQUEST_TIMEOUT: 5s\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"HCLOUD_NETWORK": "12345678", "HCLOUD_RESYNC_INTERVAL": "0", "HCLOUD_DEBUG": "false", "HCLOUD_REQUEST_TIMEOUT": "5s",
		"HCLOUD_TOKEN_FILE": "/etc/hcloud/token", "HCLOUD_METRICS_ADDRESS": "127.0.0.1:8233", "NODE_NAME": "spec.nodeName",
	}
	for name, values := range map[string][]string{
		"from a file": {"-f", file},
		"by --set": set("clusterCIDR=10.0.0.0/8", "env.HCLOUD_NETWORK=12345678",
			"env.HCLOUD_RESYNC_INTERVAL=0", "env.HCLOUD_DEBUG=false", "env.HCLOUD_REQUEST_TIMEOUT=5s"),
	} {
		_, c := pod(t, values...)
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
	spec, c := pod(t)
	if _, ok := env(c)["HCLOUD_TOKEN"]; ok || env(c)["HCLOUD_TOKEN_FILE"] == "" || len(spec.Volumes) != 1 ||
		spec.Volumes[0].Secret.SecretName != "hcloud" {
		t.Errorf("as a file: %v, %+v", env(c), spec.Volumes)
	}
	if c.VolumeMounts[0].MountPath+"/"+spec.Volumes[0].Secret.Items[0].Path != env(c)["HCLOUD_TOKEN_FILE"] {
		t.Errorf("the file is elsewhere: %+v, %+v", c.VolumeMounts, spec.Volumes)
	}
	spec, c = pod(t, set("token.as=env", "token.secretName=s", "token.secretKey=k")...)
	if env(c)["HCLOUD_TOKEN"] != "s/k" || env(c)["HCLOUD_TOKEN_FILE"] != "" || len(spec.Volumes) != 0 || len(c.VolumeMounts) != 0 {
		t.Errorf("as a variable: %v, %+v", env(c), spec.Volumes)
	}
	secret, ok := objects(t, set("token.value=abc")...)["Secret hcloud"].(*corev1.Secret)
	if !ok || secret.StringData["token"] != "abc" {
		t.Errorf("with a value: %+v", secret)
	}
}

func TestNothingListensOnTheNodesAddressesUnlessTold(t *testing.T) {
	t.Parallel()
	spec, c := pod(t)
	if !spec.HostNetwork || env(c)["HCLOUD_METRICS_ADDRESS"] != "127.0.0.1:8233" ||
		!slices.Contains(c.Args, "--bind-address=127.0.0.1") || c.LivenessProbe.HTTPGet.Host != "127.0.0.1" {
		t.Errorf("on the node's network: %v, %v, %+v", c.Args, env(c), c.LivenessProbe)
	}
	_, c = pod(t, set("hostNetwork=false")...)
	if env(c)["HCLOUD_METRICS_ADDRESS"] != ":8233" || !slices.Contains(c.Args, "--bind-address=0.0.0.0") ||
		c.LivenessProbe.HTTPGet.Host != "" {
		t.Errorf("on the pods' network: %v, %v, %+v", c.Args, env(c), c.LivenessProbe)
	}
	_, c = pod(t, set("env.HCLOUD_METRICS_ADDRESS=10.0.0.2:9000")...)
	if len(c.Ports) != 2 || c.Ports[1].ContainerPort != 9000 {
		t.Errorf("with an address: %+v", c.Ports)
	}
	_, c = pod(t, set("env.HCLOUD_METRICS_ENABLED=false")...)
	if len(c.Ports) != 1 || env(c)["HCLOUD_METRICS_ADDRESS"] != "" {
		t.Errorf("switched off: %+v, %v", c.Ports, env(c))
	}
}

func TestSeveralReplicas(t *testing.T) {
	t.Parallel()
	two := objects(t, set("replicaCount=2")...)
	d := two["Deployment test-ccm-from-scratch"].(*appsv1.Deployment)
	if *d.Spec.Replicas != 2 || len(d.Spec.Template.Spec.TopologySpreadConstraints) != 1 {
		t.Errorf("%+v", two)
	}
	budget, ok := two["PodDisruptionBudget test-ccm-from-scratch"].(*policyv1.PodDisruptionBudget)
	if !ok || *budget.Spec.UnhealthyPodEvictionPolicy != policyv1.AlwaysAllow || budget.Spec.MaxUnavailable.IntValue() != 1 {
		t.Errorf("%+v", budget)
	}
	if one := objects(t); one["PodDisruptionBudget test-ccm-from-scratch"] != nil {
		t.Error("a budget for one replica, which could never be evicted")
	}
}

func TestADaemonSetRunsOnEachControlPlaneNode(t *testing.T) {
	t.Parallel()
	all := objects(t, set("kind=DaemonSet")...)
	d, ok := all["DaemonSet test-ccm-from-scratch"].(*appsv1.DaemonSet)
	if !ok || all["Deployment test-ccm-from-scratch"] != nil {
		t.Fatalf("%v", all)
	}
	required := d.Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil || required.NodeSelectorTerms[0].MatchExpressions[0].Key != "node-role.kubernetes.io/control-plane" {
		t.Errorf("it would run on all nodes: %+v", required)
	}
	if u := d.Spec.UpdateStrategy.RollingUpdate; u == nil || u.MaxSurge.IntValue() != 0 || u.MaxUnavailable.IntValue() != 1 {
		t.Errorf("two pods would listen on the same ports of a node: %+v", u)
	}
	// The disruption controller cannot compute maxUnavailable for a DaemonSet.
	if all["PodDisruptionBudget test-ccm-from-scratch"] != nil {
		t.Error("a budget for a DaemonSet")
	}
	deployment, _ := pod(t)
	if !equality.Semantic.DeepEqual(deployment.Containers, d.Spec.Template.Spec.Containers) {
		t.Error("the container differs from the Deployment's")
	}
	if a := deployment.Affinity.NodeAffinity; a.RequiredDuringSchedulingIgnoredDuringExecution != nil ||
		len(a.PreferredDuringSchedulingIgnoredDuringExecution) != 1 {
		t.Errorf("a Deployment needs control plane nodes: %+v", a)
	}
	all = objects(t, set("kind=DaemonSet", "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution=null")...)
	everywhere := all["DaemonSet test-ccm-from-scratch"].(*appsv1.DaemonSet)
	if a := everywhere.Spec.Template.Spec.Affinity.NodeAffinity; a != nil && a.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		t.Errorf("the value of affinity does not win: %+v", a)
	}
}

func TestPrometheusReachesTheMetrics(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{ // the value of HCLOUD_METRICS_ADDRESS in the container
		"env.HCLOUD_METRICS_ADDRESS=:8233":           ":8233",
		"env.HCLOUD_METRICS_ADDRESS=$(HOST_IP):8233": "$(HOST_IP):8233",
		"env.HCLOUD_METRICS_ADDRESS=10.0.0.2:9000":   "10.0.0.2:9000",
		"hostNetwork=false":                          ":8233",
	} {
		all := objects(t, set("podMonitor.enabled=true", "podMonitor.interval=15s", "podMonitor.labels.release=prometheus", address)...)
		m, ok := all["PodMonitor test-ccm-from-scratch"].(*podMonitor)
		if !ok || len(m.Spec.PodMetricsEndpoints) != 1 || m.Metadata.Labels["release"] != "prometheus" ||
			m.Spec.PodMetricsEndpoints[0].Interval != "15s" {
			t.Fatalf("%s: %+v", address, m)
		}
		d := all["Deployment test-ccm-from-scratch"].(*appsv1.Deployment)
		for k, v := range m.Spec.Selector.MatchLabels {
			if d.Spec.Template.Labels[k] != v {
				t.Errorf("%s: the PodMonitor selects %s=%s, which the pods do not have: %v", address, k, v, d.Spec.Template.Labels)
			}
		}
		c := d.Spec.Template.Spec.Containers[0]
		port := slices.IndexFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == m.Spec.PodMetricsEndpoints[0].Port })
		if port < 0 || !strings.HasSuffix(want, ":"+strconv.Itoa(int(c.Ports[port].ContainerPort))) ||
			env(c)["HCLOUD_METRICS_ADDRESS"] != want {
			t.Errorf("%s: %+v, %v", address, c.Ports, env(c))
		}
		if host := c.ReadinessProbe.HTTPGet.Host; strings.Contains(host, "$") {
			t.Errorf("%s: Kubernetes replaces no variable in a probe: %s", address, host)
		}
		// Kubernetes replaces $(NAME) only by a variable that comes before.
		index := func(name string) int {
			return slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name })
		}
		if strings.Contains(want, "HOST_IP") != (index("HOST_IP") >= 0) || index("HOST_IP") > index("HCLOUD_METRICS_ADDRESS") {
			t.Errorf("%s: %+v", address, c.Env)
		}
	}
	if all := objects(t); all["PodMonitor test-ccm-from-scratch"] != nil {
		t.Error("a PodMonitor for clusters that may not have its definition")
	}
}

func TestTheDashboardIsInAConfigMap(t *testing.T) {
	t.Parallel()
	all := objects(t, set("dashboard.enabled=true", "dashboard.namespace=monitoring", "dashboard.annotations.folder=Clusters")...)
	m, ok := all["ConfigMap test-ccm-from-scratch-dashboard"].(*corev1.ConfigMap)
	if !ok || m.Namespace != "monitoring" || m.Labels["grafana_dashboard"] != "1" || m.Annotations["folder"] != "Clusters" {
		t.Fatalf("%+v", m)
	}
	// A test of the program compares this file with its metrics.
	want, err := os.ReadFile(filepath.Join(chartFolder, "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Data["ccm-from-scratch.json"]; got != strings.TrimSpace(string(want)) {
		t.Errorf("the dashboard is not the chart's file: %.200s", got)
	}
	if all := objects(t); all["ConfigMap test-ccm-from-scratch-dashboard"] != nil {
		t.Error("a dashboard that was not asked for")
	}
}

func TestRBACAndItsAccountCanBeManagedElsewhere(t *testing.T) {
	t.Parallel()
	none := objects(t, set("rbac.create=false", "serviceAccount.create=false", "serviceAccount.name=theirs")...)
	if len(none) != 1 || none["Deployment test-ccm-from-scratch"].(*appsv1.Deployment).Spec.Template.Spec.ServiceAccountName != "theirs" {
		t.Errorf("%v", none)
	}
	theirs := objects(t, set("serviceAccount.create=false", "serviceAccount.name=theirs", "leaderElection.enabled=false")...)
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
	for value, want := range map[string]string{
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
		"kind=StatefulSet":                            "kind",
		"kind=DaemonSet,replicaCount=2":               "replicaCount",
		"kind=DaemonSet,leaderElection.enabled=false": "leaderElection.enabled",
		"podMonitor.enabled=true":                     "127.0.0.1:8233",
		"podMonitor.enabled=true,hostNetwork=false,env.HCLOUD_METRICS_ENABLED=false": "HCLOUD_METRICS_ENABLED",
		"podMonitor.enabled=true,env.HCLOUD_METRICS_ADDRESS=localhost:1":             "localhost:1",
		"podMonitor.interval=often": "interval",
	} {
		if text, err := template(t, chartFolder, set(value)...); err == nil || !strings.Contains(text, want) {
			t.Errorf("--set %s: %v: %s", value, err, text)
		}
	}
	// Without routes a network needs no range of pods.
	pod(t, set("env.HCLOUD_NETWORK=internal", "env.HCLOUD_NETWORK_ROUTES_ENABLED=false")...)
}

func TestAReleasesChartHasItsVersionAndTheSameBytesTwice(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	checkArchive(t, chartFolder, "ccm-from-scratch", "hcloud_api_requests_total", "dashboard.enabled=true")
	checkArchive(t, fakecloudFolder, "fakecloud", "kind: StatefulSet")
}

// checkArchive packages a chart twice, and looks for a text in what it renders to with some values.
func checkArchive(t *testing.T, chart, chartName, want string, values ...string) {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "chart") // with other times of the files
	if err := os.CopyFS(copied, os.DirFS(chart)); err != nil {
		t.Fatal(err)
	}
	var archives []string
	for _, folder := range []string{chart, copied} {
		out := t.TempDir()
		if text, err := helm(t, "package", folder, "--version", "1.2.3-rc.1", "--app-version", "v1.2.3-rc.1", "--destination",
			out); err != nil {
			t.Fatal(err, text)
		}
		name := filepath.Join(out, chartName+"-1.2.3-rc.1.tgz")
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		archives = append(archives, string(text))
		manifest, err := template(t, name, set(values...)...)
		if err != nil || !strings.Contains(manifest, `image: "`+chartName+`:v1.2.3-rc.1"`) ||
			!strings.Contains(manifest, "helm.sh/chart: "+chartName+"-1.2.3-rc.1") || !strings.Contains(manifest, want) {
			t.Errorf("%v: the archive renders to\n%.300s", err, manifest)
		}
	}
	if archives[0] != archives[1] {
		t.Errorf("the same chart %s gives other bytes", chartName)
	}
}
