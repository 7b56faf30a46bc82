// Package chart tests what Helm makes of ccm/chart and of fakecloud/chart.
package chart

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"
)

const (
	ccm       = "../../ccm/chart"
	fakecloud = "../../fakecloud/chart"
)

// helm runs Helm and returns its output, with errors. It reads the charts' files, too: go test repeats a result until a file that the test
// reads changes.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	for _, folder := range []string{ccm, fakecloud} {
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

// template renders a chart, with flags such as --set=a=b and -f.
func template(t *testing.T, chart string, flags ...string) (string, error) {
	t.Helper()
	return helm(t, append([]string{"template", "test", chart, "--namespace", "cloud"}, flags...)...)
}

// objects renders a chart and returns its objects by kind. Each is decoded as by an API server with strict validation, too.
func objects(t *testing.T, chart string, flags ...string) map[string]any {
	t.Helper()
	text, err := template(t, chart, flags...)
	if err != nil {
		t.Fatal(err, text)
	}
	all := map[string]any{}
	for document := range strings.SplitSeq(text, "---\n") {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		if object == nil {
			continue
		}
		kind, _ := object["kind"].(string)
		typed := map[string]any{
			"ServiceAccount": &corev1.ServiceAccount{}, "Secret": &corev1.Secret{}, "Deployment": &appsv1.Deployment{},
			"ClusterRole": &rbacv1.ClusterRole{}, "ClusterRoleBinding": &rbacv1.ClusterRoleBinding{},
			"Role": &rbacv1.Role{}, "RoleBinding": &rbacv1.RoleBinding{}, "PodDisruptionBudget": &policyv1.PodDisruptionBudget{},
			"DaemonSet": &appsv1.DaemonSet{}, "ConfigMap": &corev1.ConfigMap{}, "PodMonitor": &podMonitor{},
			"StatefulSet": &appsv1.StatefulSet{}, "Service": &corev1.Service{}, "NetworkPolicy": &networkingv1.NetworkPolicy{},
		}[kind]
		if err := yaml.UnmarshalStrict([]byte(document), typed); err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		for all[kind] != nil {
			kind += "+"
		}
		all[kind] = object
	}
	return all
}

// podMonitor has the fields of the Prometheus operator's PodMonitor that the charts use.
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

// look returns the text at a path of an object, such as "Deployment .spec.replicas"; "" if nothing is there. In a path, P stands for
// the pod, C for its container, and $NAME for an environment variable of it.
func look(t *testing.T, all map[string]any, at string) string {
	t.Helper()
	kind, path, _ := strings.Cut(at, " ")
	if name, field, ok := strings.Cut(path, "."); ok && strings.HasPrefix(name, "$") {
		path = `C.env[?(@.name=="` + name[1:] + `")].` + field
	}
	if rest, ok := strings.CutPrefix(path, "C."); ok {
		path = "P.containers[0]." + rest
	}
	if rest, ok := strings.CutPrefix(path, "P."); ok {
		path = ".spec.template.spec." + rest
	}
	var out bytes.Buffer
	j := jsonpath.New(at).AllowMissingKeys(true)
	if err := j.Parse("{" + path + "}"); err != nil {
		t.Fatalf("%s: %v", at, err)
	}
	if all[kind] != nil {
		if err := j.Execute(&out, all[kind]); err != nil && !strings.Contains(err.Error(), "out of bounds") {
			t.Fatalf("%s: %v", at, err)
		}
	}
	return out.String()
}

// Paths of the nodes that the CCM requires, and of those that it prefers.
const (
	required  = "P.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
	preferred = "P.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"
)

// rendered lists the texts at paths of a chart with values. After "~" comes a part of the text; "" says that nothing is there.
var rendered = []struct {
	promise, chart, values string
	want                   map[string]string
}{
	{"by default, a token in a file, the node's network, loopback, and nothing that was not asked for", ccm, "", map[string]string{
		"Deployment .metadata.name": "test-ccm-from-scratch", "Deployment $HCLOUD_TOKEN.name": "",
		"Deployment $HCLOUD_TOKEN_FILE.value": "/etc/hcloud/token", "Deployment C.volumeMounts[*].mountPath": "/etc/hcloud",
		"Deployment P.volumes[*].secret.secretName": "hcloud", "Deployment P.volumes[*].secret.items[*].path": "token",
		"Deployment P.hostNetwork": "true", "Deployment $HCLOUD_METRICS_ADDRESS.value": "127.0.0.1:8233",
		"Deployment C.args": "~--bind-address=127.0.0.1", "Deployment C.livenessProbe.httpGet.host": "127.0.0.1",
		"PodDisruptionBudget .metadata": "", "PodMonitor .metadata": "", "ConfigMap .metadata": "", "Secret .metadata": "",
		"Deployment " + required:  "",
		"Deployment " + preferred: "~node-role.kubernetes.io/control-plane",
	}},
	{"a token as a variable", ccm, "token.as=env,token.secretName=s,token.secretKey=k", map[string]string{
		"Deployment $HCLOUD_TOKEN.valueFrom.secretKeyRef.name": "s", "Deployment $HCLOUD_TOKEN.valueFrom.secretKeyRef.key": "k",
		"Deployment $HCLOUD_TOKEN_FILE.name": "", "Deployment P.volumes": "", "Deployment C.volumeMounts": "",
	}},
	{"a token as a value", ccm, "token.value=abc", map[string]string{"Secret .metadata.name": "hcloud", "Secret .stringData.token": "abc"}},
	{"on the pods' network, it listens everywhere", ccm, "hostNetwork=false", map[string]string{
		"Deployment $HCLOUD_METRICS_ADDRESS.value": ":8233", "Deployment C.args": "~--bind-address=0.0.0.0",
		"Deployment C.livenessProbe.httpGet.host": "",
	}},
	{"metrics at an address", ccm, "env.HCLOUD_METRICS_ADDRESS=10.0.0.2:9000", map[string]string{
		"Deployment C.ports[*].containerPort": "10258 9000",
	}},
	{"no metrics", ccm, "env.HCLOUD_METRICS_ENABLED=false", map[string]string{
		"Deployment C.ports[*].name": "secure", "Deployment $HCLOUD_METRICS_ADDRESS.name": "",
	}},
	{"two replicas, of which one may be evicted", ccm, "replicaCount=2", map[string]string{
		"Deployment .spec.replicas": "2", "Deployment P.topologySpreadConstraints[*].topologyKey": "kubernetes.io/hostname",
		"PodDisruptionBudget .spec.unhealthyPodEvictionPolicy": "AlwaysAllow", "PodDisruptionBudget .spec.maxUnavailable": "1",
	}},
	// The disruption controller cannot compute maxUnavailable for a DaemonSet, and two pods cannot listen on the same ports of a node.
	{"a DaemonSet on each control plane node", ccm, "kind=DaemonSet", map[string]string{
		"DaemonSet " + required:                                       "~node-role.kubernetes.io/control-plane",
		"DaemonSet .spec.updateStrategy.rollingUpdate.maxSurge":       "0",
		"DaemonSet .spec.updateStrategy.rollingUpdate.maxUnavailable": "1",
		"PodDisruptionBudget .metadata":                               "", "Deployment .metadata": "",
	}},
	{"a DaemonSet on all nodes", ccm, "kind=DaemonSet,affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution=null",
		map[string]string{
			"DaemonSet " + required: "", "DaemonSet $HCLOUD_TOKEN_FILE.value": "/etc/hcloud/token",
			"DaemonSet C.args": "~--bind-address=127.0.0.1", "DaemonSet C.ports[*].containerPort": "10258 8233",
		}},
	{"a dashboard", ccm, "dashboard.enabled=true,dashboard.namespace=monitoring,dashboard.annotations.folder=Clusters", map[string]string{
		"ConfigMap .metadata.name": "test-ccm-from-scratch-dashboard", "ConfigMap .metadata.namespace": "monitoring",
		"ConfigMap .metadata.labels.grafana_dashboard": "1", "ConfigMap .metadata.annotations.folder": "Clusters",
		`ConfigMap .data['ccm-from-scratch\.json']`: dashboard(),
	}},
	{"no rights", ccm, "rbac.create=false,serviceAccount.create=false,serviceAccount.name=theirs", map[string]string{
		"Deployment P.serviceAccountName": "theirs", "ServiceAccount .metadata": "", "ClusterRole .metadata": "",
		"ClusterRoleBinding .metadata": "", "Role .metadata": "", "RoleBinding .metadata": "",
	}},
	{"rights of another account", ccm, "serviceAccount.create=false,serviceAccount.name=theirs,leaderElection.enabled=false",
		map[string]string{
			"ClusterRoleBinding .subjects[*].name": "theirs", "ClusterRoleBinding .subjects[*].namespace": "cloud", "Role .metadata": "",
			"RoleBinding .subjects[*].name": "theirs", "RoleBinding .subjects[*].namespace": "cloud",
		}},
	{"a network without routes needs no range of pods", ccm, "env.HCLOUD_NETWORK=internal,env.HCLOUD_NETWORK_ROUTES_ENABLED=false",
		map[string]string{"Deployment $HCLOUD_NETWORK.value": "internal"}},

	{"a shared cloud keeps its state on a volume", fakecloud, "persistence.size=2Gi,persistence.storageClass=fast,persistence.sync=true",
		map[string]string{
			"StatefulSet .metadata.name": "test-fakecloud", "StatefulSet .spec.replicas": "1",
			"StatefulSet .spec.volumeClaimTemplates[*].metadata.name":                   "state",
			"StatefulSet .spec.volumeClaimTemplates[*].spec.resources.requests.storage": "2Gi",
			"StatefulSet .spec.volumeClaimTemplates[*].spec.storageClassName":           "fast",
			"StatefulSet C.volumeMounts[*].name":                                        "state",
			"StatefulSet C.volumeMounts[*].mountPath":                                   "/state",
			"StatefulSet $FAKECLOUD_STATE.value":                                        "/state",
			"StatefulSet $FAKECLOUD_STATE_SYNC.value":                                   "true",
			"StatefulSet $FAKECLOUD_PROJECTS.value":                                     "auto",
			"StatefulSet $FAKECLOUD_LISTEN.value":                                       ":4242",
			"PodDisruptionBudget .spec.maxUnavailable":                                  "1", // the next pod continues
		}},
	{"a cloud of one run has no volume and is not evicted", fakecloud,
		"persistence.enabled=false,projects=fixed,actions=instant,rateLimit=0", map[string]string{
			"StatefulSet .spec.volumeClaimTemplates": "", "StatefulSet C.volumeMounts": "", "StatefulSet $FAKECLOUD_STATE.name": "",
			"StatefulSet $FAKECLOUD_PROJECTS.value": "fixed", "StatefulSet $FAKECLOUD_ACTIONS.value": "instant",
			"StatefulSet $FAKECLOUD_RATE_LIMIT.value": "0", "PodDisruptionBudget .spec.maxUnavailable": "0",
			"PodDisruptionBudget .spec.unhealthyPodEvictionPolicy": "AlwaysAllow",
		}},
	{"a budget that was asked for", fakecloud, "persistence.enabled=false,podDisruptionBudget.maxUnavailable=1",
		map[string]string{"PodDisruptionBudget .spec.maxUnavailable": "1"}},
	{"no budget and no policy", fakecloud, "podDisruptionBudget.enabled=false,networkPolicy.enabled=false", map[string]string{
		"PodDisruptionBudget .metadata": "", "NetworkPolicy .metadata": "", "StatefulSet .spec.replicas": "1",
	}},
	// The restricted profile of the Pod Security Standards.
	{"by default, a restricted pod, a hidden control API, and a network that leads to the API alone", fakecloud, "", map[string]string{
		"StatefulSet P.securityContext.runAsNonRoot": "true", "StatefulSet P.securityContext.seccompProfile.type": "RuntimeDefault",
		"StatefulSet P.securityContext.fsGroup": "65532", "StatefulSet P.securityContext.runAsUser": "65532",
		"StatefulSet C.securityContext.allowPrivilegeEscalation": "false", "StatefulSet C.securityContext.readOnlyRootFilesystem": "true",
		"StatefulSet C.securityContext.capabilities.drop": `["ALL"]`, "StatefulSet P.automountServiceAccountToken": "false",
		"StatefulSet P.enableServiceLinks": "false", "StatefulSet C.startupProbe.exec.command": `["/fakecloud","health"]`,
		"StatefulSet C.livenessProbe.exec.command":  `["/fakecloud","health"]`,
		"StatefulSet C.readinessProbe.exec.command": `["/fakecloud","health"]`,
		"StatefulSet $FAKECLOUD_CONTROL.value":      "127.0.0.1:4243", "StatefulSet C.ports[*].name": "api",
		"Service .spec.ports[*].name":                  "api",
		"NetworkPolicy .spec.ingress[*].ports[*].port": "api", "NetworkPolicy .spec.ingress[*].from": `[{"namespaceSelector":{}}]`,
		"NetworkPolicy .spec.policyTypes": `["Ingress","Egress"]`, "NetworkPolicy .spec.egress": "[]", "PodMonitor .metadata": "",
	}},
	{"an exposed control API", fakecloud, "control.expose=true,networkPolicy.control[0].podSelector.matchLabels.role=admin," +
		"service.controlPort=80,podMonitor.enabled=true,podMonitor.interval=15s,podMonitor.labels.release=prometheus", map[string]string{
		"StatefulSet $FAKECLOUD_CONTROL.value": ":4243", "StatefulSet C.ports[1].containerPort": "4243",
		"StatefulSet C.ports[1].name": "control",
		"Service .spec.ports[1].port": "80", "Service .spec.ports[1].targetPort": "control",
		"NetworkPolicy .spec.ingress[1].ports[*].port": "control",
		"NetworkPolicy .spec.ingress[1].from":          `[{"podSelector":{"matchLabels":{"role":"admin"}}}]`,
		"PodMonitor .metadata.labels.release":          "prometheus", "PodMonitor .spec.podMetricsEndpoints[*].interval": "15s",
		"PodMonitor .spec.podMetricsEndpoints[*].port": "control", "PodMonitor .spec.podMetricsEndpoints[*].path": "/metrics",
	}},
	{"clients that are named", fakecloud, "networkPolicy.api[0].podSelector.matchLabels.team=a,networkPolicy.egress[0].ports[0].port=80",
		map[string]string{
			"NetworkPolicy .spec.ingress[0].from":         `[{"podSelector":{"matchLabels":{"team":"a"}}}]`,
			"NetworkPolicy .spec.egress[*].ports[*].port": "80",
		}},
}

// dashboard returns the file with which a test of the program compares its metrics.
func dashboard() string {
	text, _ := os.ReadFile(filepath.Join(ccm, "dashboard.json")) // the test fails without it
	return strings.TrimSpace(string(text))
}

func TestValuesAreRendered(t *testing.T) {
	t.Parallel()
	for _, c := range rendered {
		t.Run(c.promise, func(t *testing.T) {
			t.Parallel()
			all := objects(t, c.chart, "--set="+c.values)
			for at, want := range c.want {
				got := look(t, all, at)
				if part, ok := strings.CutPrefix(want, "~"); got != want && (!ok || !strings.Contains(got, part)) {
					t.Errorf("%s is %q, want %q", at, got, want)
				}
			}
			selectorsSelect(t, all)
		})
	}
}

// selectorsSelect fails unless each selector of the objects selects the pods.
func selectorsSelect(t *testing.T, all map[string]any) {
	t.Helper()
	labels := look(t, all, "Deployment .spec.template.metadata.labels") + look(t, all, "DaemonSet .spec.template.metadata.labels") +
		look(t, all, "StatefulSet .spec.template.metadata.labels")
	for _, at := range []string{
		"Deployment .spec.selector.matchLabels", "PodDisruptionBudget .spec.selector.matchLabels", "PodMonitor .spec.selector.matchLabels",
		"StatefulSet .spec.selector.matchLabels", "NetworkPolicy .spec.podSelector.matchLabels", "Service .spec.selector",
	} {
		selector := look(t, all, at)
		if kind, _, _ := strings.Cut(at, " "); all[kind] != nil && len(selector) < 10 {
			t.Errorf("%s selects all pods: %s", at, selector)
		}
		for pair := range strings.SplitSeq(strings.Trim(selector, "{}"), ",") {
			if !strings.Contains(labels, pair) {
				t.Errorf("%s: the pods do not have %s: %s", at, pair, labels)
			}
		}
	}
}

func TestHelmHasNothingToSayAgainstTheCharts(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{ccm, fakecloud} {
		if text, err := helm(t, "lint", "--strict", folder); err != nil || strings.Contains(text, "[WARNING]") {
			t.Errorf("%s: %v: %s", folder, err, text)
		}
	}
}

// values writes a file of values and returns the flag for it.
func values(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return "--values=" + file
}

func TestSettingsArriveAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{
		values(t, "clusterCIDR: 10.0.0.0/8\nenv: {HCLOUD_NETWORK: 12345678, HCLOUD_RESYNC_INTERVAL: 0, HCLOUD_DEBUG: false, "+
			"HCLOUD_REQUEST_TIMEOUT: 5s}\n"),
		"--set=clusterCIDR=10.0.0.0/8,env.HCLOUD_NETWORK=12345678,env.HCLOUD_RESYNC_INTERVAL=0,env.HCLOUD_DEBUG=false," +
			"env.HCLOUD_REQUEST_TIMEOUT=5s",
	} {
		all := objects(t, ccm, flag)
		names := look(t, all, "Deployment C.env[*].name")
		if got := look(t, all, "Deployment C.env[*].value"); got != "/etc/hcloud/token 127.0.0.1:8233 false 12345678 5s 0" ||
			names != "NODE_NAME HCLOUD_TOKEN_FILE HCLOUD_METRICS_ADDRESS HCLOUD_DEBUG HCLOUD_NETWORK HCLOUD_REQUEST_TIMEOUT "+
				"HCLOUD_RESYNC_INTERVAL" || look(t, all, "Deployment $NODE_NAME.valueFrom.fieldRef.fieldPath") != "spec.nodeName" {
			t.Errorf("%s: %s: %s", flag, names, got)
		}
		if args := look(t, all, "Deployment C.args"); !strings.Contains(args, "--cluster-cidr=10.0.0.0/8") {
			t.Errorf("%s: %s", flag, args)
		}
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
		all := objects(t, ccm, "--set=podMonitor.enabled=true,podMonitor.interval=15s,podMonitor.labels.release=prometheus,"+address)
		if got := look(t, all, "PodMonitor .metadata.labels.release") + look(t, all, "PodMonitor .spec.podMetricsEndpoints[*].interval") +
			look(t, all, "PodMonitor .spec.podMetricsEndpoints[*].port"); got != "prometheus15smetrics" {
			t.Errorf("%s: %s", address, got)
		}
		port := look(t, all, `Deployment C.ports[?(@.name=="metrics")].containerPort`)
		if got := look(t, all, "Deployment $HCLOUD_METRICS_ADDRESS.value"); got != want || !strings.HasSuffix(got, ":"+port) {
			t.Errorf("%s: %s, at the port %s", address, got, port)
		}
		if host := look(t, all, "Deployment C.readinessProbe.httpGet.host"); strings.Contains(host, "$") {
			t.Errorf("%s: Kubernetes replaces no variable in a probe: %s", address, host)
		}
		// Kubernetes replaces $(NAME) only by a variable that comes before.
		names := strings.Fields(look(t, all, "Deployment C.env[*].name"))
		host := slices.Index(names, "HOST_IP")
		if strings.Contains(want, "HOST_IP") != (host >= 0) || host > slices.Index(names, "HCLOUD_METRICS_ADDRESS") {
			t.Errorf("%s: %v", address, names)
		}
		selectorsSelect(t, all)
	}
}

func TestSettingsOfFakecloudArriveAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	all := objects(t, fakecloud, values(t, "rateLimit: 12345678\nprojectTTL: 24h\nimage: {tag: v9}\n"+
		"env: {FAKECLOUD_SPEED: 0.5, FAKECLOUD_KEEP_ACTIONS: 1h, FAKECLOUD_DATA_PLANE: true}\ntokens: {secretName: team}\n"))
	for at, want := range map[string]string{
		"$FAKECLOUD_RATE_LIMIT.value": "12345678", "$FAKECLOUD_PROJECT_TTL.value": "24h", "$FAKECLOUD_SPEED.value": "0.5",
		"$FAKECLOUD_KEEP_ACTIONS.value": "1h", "$FAKECLOUD_DATA_PLANE.value": "true", "C.image": "fakecloud:v9",
		"$FAKECLOUD_TOKEN.valueFrom.secretKeyRef.name": "team", "$FAKECLOUD_TOKEN.valueFrom.secretKeyRef.key": "tokens",
	} {
		if got := look(t, all, "StatefulSet "+at); got != want {
			t.Errorf("%s is %q, want %q", at, got, want)
		}
	}
	// A browser and curl call the Service by its names.
	exposed := objects(t, fakecloud, "--set=control.expose=true,networkPolicy.enabled=false")
	hosts := look(t, exposed, "StatefulSet $FAKECLOUD_ALLOWED_HOSTS.value")
	for _, suffix := range []string{"", ".cloud", ".cloud.svc", ".cloud.svc.cluster.local"} {
		if !strings.Contains(","+hosts+",", ",test-fakecloud"+suffix+",") {
			t.Errorf("the name test-fakecloud%s is refused: %s", suffix, hosts)
		}
	}
	// The program knows all of them.
	help, err := exec.CommandContext(t.Context(), "go", "run", "-C", "../../fakecloud", "./cmd/fakecloud", "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, help)
	}
	for name := range strings.FieldsSeq(look(t, all, "StatefulSet C.env[*].name")) {
		flag := "--" + strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, "FAKECLOUD_")), "_", "-")
		if !strings.Contains(string(help), " "+flag+" ") {
			t.Errorf("%s: the program has no %s", name, flag)
		}
	}
}

// The message has to name the wrong value.
func TestValuesThatCannotWorkAreRefused(t *testing.T) {
	t.Parallel()
	for chart, all := range map[string]map[string]string{ccm: {
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
	}, fakecloud: {
		"replicaCount=2":                        "replicaCount",
		"projects=many":                         "projects",
		"projectTTL=soon":                       "projectTTL",
		"actions=slow":                          "actions",
		"rateLimit=-1":                          "rateLimit",
		"env.RATE_LIMIT=1":                      "RATE_LIMIT",
		"env.FAKECLOUD_STATE=/tmp":              "FAKECLOUD_STATE",
		"env.FAKECLOUD_LISTEN=:80":              "FAKECLOUD_LISTEN",
		"persistence.size=much":                 "size",
		"image.digest=latest":                   "digest",
		"control.expose=true":                   "networkPolicy.control",
		"podMonitor.enabled=true":               "control.expose",
		"podDisruptionBudget.maxUnavailable=50": "maxUnavailable",
	}} {
		for value, want := range all {
			if text, err := template(t, chart, "--set="+value); err == nil || !strings.Contains(text, want) {
				t.Errorf("--set %s: %v: %s", value, err, text)
			}
		}
	}
}

func TestAReleasesChartHasItsVersionAndTheSameBytesTwice(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	for chart, name := range map[string]string{ccm: "ccm-from-scratch", fakecloud: "fakecloud"} {
		set := map[string]string{ccm: "--set=dashboard.enabled=true", fakecloud: "--set=projects=fixed"}[chart]
		copied := filepath.Join(t.TempDir(), "chart") // with other times of the files
		if err := os.CopyFS(copied, os.DirFS(chart)); err != nil {
			t.Fatal(err)
		}
		archives := map[string]bool{}
		for _, folder := range []string{chart, copied} {
			out := t.TempDir()
			if text, err := helm(t, "package", folder, "--version", "1.2.3-rc.1", "--app-version", "v1.2.3-rc.1", "--destination",
				out); err != nil {
				t.Fatal(err, text)
			}
			archive := filepath.Join(out, name+"-1.2.3-rc.1.tgz")
			text, err := os.ReadFile(archive)
			if err != nil {
				t.Fatal(err)
			}
			archives[string(text)] = true
			all := objects(t, archive, set)
			image := look(t, all, "Deployment C.image") + look(t, all, "StatefulSet C.image")
			const path = `.metadata.labels.helm\.sh/chart`
			label := look(t, all, "ServiceAccount "+path) + look(t, all, "Service "+path)
			if image != name+":v1.2.3-rc.1" || label != name+"-1.2.3-rc.1" {
				t.Errorf("the archive has the image %s and the label %s", image, label)
			}
			if shown := look(t, all, "ConfigMap .data"); chart == ccm && !strings.Contains(shown, "hcloud_api_requests_total") {
				t.Errorf("the archive has no dashboard: %s", shown)
			}
		}
		if len(archives) != 1 {
			t.Errorf("the same chart %s gives other bytes", name)
		}
	}
}
