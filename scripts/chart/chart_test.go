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

	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
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

// decoder decodes as an API server with strict validation does.
var decoder = serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()

// objects renders a chart and returns its objects by kind.
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
		if _, _, err := decoder.Decode([]byte(document), nil, nil); err != nil && kind != "PodMonitor" { // which is no part of Kubernetes
			t.Fatalf("%v\n%s", err, document)
		}
		for all[kind] != nil {
			kind += "+"
		}
		all[kind] = object
		if slices.Contains([]string{"Deployment", "DaemonSet", "StatefulSet"}, kind) {
			all[""] = object
		}
	}
	return all
}

// look returns the text at a path of an object, such as "PodMonitor .spec.selector"; "" if nothing is there. Without a kind, it is the
// object that has the pods. In a path, P stands for the pod, C for its container, and $NAME for an environment variable of it.
func look(t *testing.T, all map[string]any, at string) string {
	t.Helper()
	kind, path, ok := strings.Cut(at, " ")
	if !ok {
		kind, path = "", at
	}
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

// rendered lists the texts at paths of a chart with values: those of a flag --set, or of a file. After "~" comes a part of the text, ""
// says that nothing is there, and "none" lists kinds of which there is no object.
var rendered = []struct {
	promise, chart, values string
	want                   map[string]string
}{
	{"by default, a token in a file, the node's network, loopback, and nothing that was not asked for", ccm, "", map[string]string{
		".metadata.name": "test-ccm-from-scratch", "$HCLOUD_TOKEN.name": "", "$HCLOUD_TOKEN_FILE.value": "/etc/hcloud/token",
		"C.volumeMounts[*].mountPath": "/etc/hcloud", "P.volumes[*].secret.secretName": "hcloud",
		"P.volumes[*].secret.items[*].path": "token", "P.hostNetwork": "true", "$HCLOUD_METRICS_ADDRESS.value": "127.0.0.1:8233",
		"C.args": "~--bind-address=127.0.0.1", "C.livenessProbe.httpGet.host": "127.0.0.1",
		"$NODE_NAME.valueFrom.fieldRef.fieldPath": "spec.nodeName",
		"none":   "PodDisruptionBudget PodMonitor ConfigMap Secret",
		required: "", preferred: "~node-role.kubernetes.io/control-plane",
	}},
	{"a token as a variable", ccm, "token.as=env,token.secretName=s,token.secretKey=k", map[string]string{
		"$HCLOUD_TOKEN.valueFrom.secretKeyRef.name": "s", "$HCLOUD_TOKEN.valueFrom.secretKeyRef.key": "k",
		"$HCLOUD_TOKEN_FILE.name": "", "P.volumes": "", "C.volumeMounts": "",
	}},
	{"a token as a value", ccm, "token.value=abc", map[string]string{"Secret .metadata.name": "hcloud", "Secret .stringData.token": "abc"}},
	{"numbers and booleans of a file are the texts of variables", ccm,
		"clusterCIDR: 10.0.0.0/8\nenv: {HCLOUD_NETWORK: 12345678, HCLOUD_RESYNC_INTERVAL: 0, HCLOUD_DEBUG: false}\n", map[string]string{
			"C.env[*].value": "/etc/hcloud/token 127.0.0.1:8233 false 12345678 0", "C.args": "~--cluster-cidr=10.0.0.0/8",
			"C.env[*].name": "NODE_NAME HCLOUD_TOKEN_FILE HCLOUD_METRICS_ADDRESS HCLOUD_DEBUG HCLOUD_NETWORK HCLOUD_RESYNC_INTERVAL",
		}},
	{"and those of flags", ccm, "clusterCIDR=10.0.0.0/8,env.HCLOUD_NETWORK=12345678,env.HCLOUD_RESYNC_INTERVAL=0,env.HCLOUD_DEBUG=false",
		map[string]string{"C.env[*].value": "/etc/hcloud/token 127.0.0.1:8233 false 12345678 0"}},
	{"on the pods' network, it listens everywhere", ccm, "hostNetwork=false,podMonitor.enabled=true", map[string]string{
		"$HCLOUD_METRICS_ADDRESS.value": ":8233", "C.args": "~--bind-address=0.0.0.0", "C.livenessProbe.httpGet.host": "",
	}},
	{"no metrics", ccm, "env.HCLOUD_METRICS_ENABLED=false", map[string]string{
		"C.ports[*].name": "secure", "$HCLOUD_METRICS_ADDRESS.name": "",
	}},
	{"Prometheus reaches the metrics at an address", ccm, "podMonitor.enabled=true,env.HCLOUD_METRICS_ADDRESS=10.0.0.2:9000",
		map[string]string{"C.ports[*].containerPort": "10258 9000", "$HCLOUD_METRICS_ADDRESS.value": "10.0.0.2:9000"}},
	// Kubernetes replaces $(NAME) only by a variable that comes before, and in no probe.
	{"Prometheus reaches the metrics at the node's address", ccm, "podMonitor.enabled=true,podMonitor.interval=15s," +
		"podMonitor.labels.release=prometheus,env.HCLOUD_METRICS_ADDRESS=$(HOST_IP):8233", map[string]string{
		"PodMonitor .metadata.labels.release": "prometheus", "PodMonitor .spec.podMetricsEndpoints[*].interval": "15s",
		"PodMonitor .spec.podMetricsEndpoints[*].port": "metrics", `C.ports[?(@.name=="metrics")].containerPort`: "8233",
		"$HCLOUD_METRICS_ADDRESS.value": "$(HOST_IP):8233", "C.readinessProbe.httpGet.host": "",
		"C.env[*].name": "~HOST_IP HCLOUD_METRICS_ADDRESS",
	}},
	{"two replicas, of which one may be evicted", ccm, "replicaCount=2", map[string]string{
		".spec.replicas": "2", "P.topologySpreadConstraints[*].topologyKey": "kubernetes.io/hostname",
		"PodDisruptionBudget .spec.unhealthyPodEvictionPolicy": "AlwaysAllow", "PodDisruptionBudget .spec.maxUnavailable": "1",
	}},
	// The disruption controller cannot compute maxUnavailable for a DaemonSet, and two pods cannot listen on the same ports of a node.
	{"a DaemonSet on each control plane node", ccm, "kind=DaemonSet", map[string]string{
		"DaemonSet " + required: "~node-role.kubernetes.io/control-plane", ".spec.updateStrategy.rollingUpdate.maxSurge": "0",
		".spec.updateStrategy.rollingUpdate.maxUnavailable": "1", "none": "PodDisruptionBudget Deployment",
	}},
	{"a DaemonSet on all nodes", ccm, "kind=DaemonSet,affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution=null",
		map[string]string{
			required: "", "$HCLOUD_TOKEN_FILE.value": "/etc/hcloud/token", "C.args": "~--bind-address=127.0.0.1",
			"C.ports[*].containerPort": "10258 8233",
		}},
	{"a dashboard", ccm, "dashboard.enabled=true,dashboard.namespace=monitoring,dashboard.annotations.folder=Clusters", map[string]string{
		"ConfigMap .metadata.name": "test-ccm-from-scratch-dashboard", "ConfigMap .metadata.namespace": "monitoring",
		"ConfigMap .metadata.labels.grafana_dashboard": "1", "ConfigMap .metadata.annotations.folder": "Clusters",
		`ConfigMap .data['ccm-from-scratch\.json']`: dashboard(),
	}},
	{"no rights", ccm, "rbac.create=false,serviceAccount.create=false,serviceAccount.name=theirs", map[string]string{
		"P.serviceAccountName": "theirs", "none": "ServiceAccount ClusterRole ClusterRoleBinding Role RoleBinding",
	}},
	{"rights of another account", ccm, "serviceAccount.create=false,serviceAccount.name=theirs,leaderElection.enabled=false",
		map[string]string{
			"ClusterRoleBinding .subjects[*].name": "theirs", "ClusterRoleBinding .subjects[*].namespace": "cloud", "none": "Role",
			"RoleBinding .subjects[*].name": "theirs", "RoleBinding .subjects[*].namespace": "cloud",
		}},
	{"a network without routes needs no range of pods", ccm, "env.HCLOUD_NETWORK=internal,env.HCLOUD_NETWORK_ROUTES_ENABLED=false",
		map[string]string{"$HCLOUD_NETWORK.value": "internal"}},

	{"a shared cloud keeps its state on a volume", fakecloud, "persistence.size=2Gi,persistence.storageClass=fast,persistence.sync=true",
		map[string]string{
			"StatefulSet .metadata.name": "test-fakecloud", ".spec.replicas": "1",
			".spec.volumeClaimTemplates[*].metadata.name":                   "state",
			".spec.volumeClaimTemplates[*].spec.resources.requests.storage": "2Gi",
			".spec.volumeClaimTemplates[*].spec.storageClassName":           "fast",
			"C.volumeMounts[*].name":                                        "state", "C.volumeMounts[*].mountPath": "/state",
			"$FAKECLOUD_STATE.value":      "/state",
			"$FAKECLOUD_STATE_SYNC.value": "true", "$FAKECLOUD_PROJECTS.value": "auto", "$FAKECLOUD_LISTEN.value": ":4242",
			"PodDisruptionBudget .spec.maxUnavailable": "1", // the next pod continues
		}},
	{"a cloud of one run has no volume and is not evicted", fakecloud,
		"persistence.enabled=false,projects=fixed,actions=instant,rateLimit=0", map[string]string{
			".spec.volumeClaimTemplates": "", "C.volumeMounts": "", "$FAKECLOUD_STATE.name": "", "$FAKECLOUD_PROJECTS.value": "fixed",
			"$FAKECLOUD_ACTIONS.value": "instant", "$FAKECLOUD_RATE_LIMIT.value": "0", "PodDisruptionBudget .spec.maxUnavailable": "0",
			"PodDisruptionBudget .spec.unhealthyPodEvictionPolicy": "AlwaysAllow",
		}},
	{"settings of a file", fakecloud, "rateLimit: 12345678\nprojectTTL: 24h\nimage: {tag: v9}\n" +
		"env: {FAKECLOUD_SPEED: 0.5, FAKECLOUD_KEEP_ACTIONS: 1h, FAKECLOUD_DATA_PLANE: true}\ntokens: {secretName: team}\n",
		map[string]string{
			"$FAKECLOUD_RATE_LIMIT.value": "12345678", "$FAKECLOUD_PROJECT_TTL.value": "24h", "$FAKECLOUD_SPEED.value": "0.5",
			"$FAKECLOUD_KEEP_ACTIONS.value": "1h", "$FAKECLOUD_DATA_PLANE.value": "true", "C.image": "fakecloud:v9",
			"$FAKECLOUD_TOKEN.valueFrom.secretKeyRef.name": "team", "$FAKECLOUD_TOKEN.valueFrom.secretKeyRef.key": "tokens",
		}},
	{"a budget that was asked for", fakecloud, "persistence.enabled=false,podDisruptionBudget.maxUnavailable=1",
		map[string]string{"PodDisruptionBudget .spec.maxUnavailable": "1"}},
	{"no budget and no policy", fakecloud, "podDisruptionBudget.enabled=false,networkPolicy.enabled=false",
		map[string]string{"none": "PodDisruptionBudget NetworkPolicy", ".spec.replicas": "1"}},
	// The restricted profile of the Pod Security Standards.
	{"by default, a restricted pod, a hidden control API, and a network that leads to the API alone", fakecloud, "", map[string]string{
		"P.securityContext.runAsNonRoot": "true", "P.securityContext.seccompProfile.type": "RuntimeDefault",
		"P.securityContext.fsGroup": "65532", "P.securityContext.runAsUser": "65532", "P.automountServiceAccountToken": "false",
		"C.securityContext.allowPrivilegeEscalation": "false", "C.securityContext.readOnlyRootFilesystem": "true",
		"C.securityContext.capabilities.drop": `["ALL"]`, "P.enableServiceLinks": "false",
		"C.startupProbe.exec.command": `["/fakecloud","health"]`, "C.livenessProbe.exec.command": `["/fakecloud","health"]`,
		"C.readinessProbe.exec.command": `["/fakecloud","health"]`, "$FAKECLOUD_CONTROL.value": "127.0.0.1:4243",
		"C.ports[*].name": "api", "Service .spec.ports[*].name": "api", "none": "PodMonitor",
		"NetworkPolicy .spec.ingress[*].ports[*].port": "api", "NetworkPolicy .spec.ingress[*].from": `[{"namespaceSelector":{}}]`,
		"NetworkPolicy .spec.policyTypes": `["Ingress","Egress"]`, "NetworkPolicy .spec.egress": "[]",
	}},
	// A browser and curl call the Service by its names.
	{"an exposed control API", fakecloud, "control.expose=true,networkPolicy.control[0].podSelector.matchLabels.role=admin," +
		"service.controlPort=80,podMonitor.enabled=true,podMonitor.interval=15s,podMonitor.labels.release=prometheus", map[string]string{
		"$FAKECLOUD_CONTROL.value": ":4243", "C.ports[1].containerPort": "4243", "C.ports[1].name": "control",
		"$FAKECLOUD_ALLOWED_HOSTS.value": "~test-fakecloud,test-fakecloud.cloud,test-fakecloud.cloud.svc,test-fakecloud.cloud.svc.cluster",
		"Service .spec.ports[1].port":    "80", "Service .spec.ports[1].targetPort": "control",
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
			flag := "--set=" + c.values
			if strings.Contains(c.values, ": ") {
				flag = "--values=" + filepath.Join(t.TempDir(), "values.yaml")
				if err := os.WriteFile(strings.TrimPrefix(flag, "--values="), []byte(c.values), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			all := objects(t, c.chart, flag)
			for kind := range strings.FieldsSeq(c.want["none"]) {
				if all[kind] != nil {
					t.Errorf("there is a %s", kind)
				}
			}
			delete(c.want, "none")
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
	labels := look(t, all, ".spec.template.metadata.labels")
	for _, at := range []string{" .spec.selector.matchLabels", "PodDisruptionBudget .spec.selector.matchLabels",
		"PodMonitor .spec.selector.matchLabels", "NetworkPolicy .spec.podSelector.matchLabels", "Service .spec.selector"} {
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

// The program knows all variables that the chart sets.
func TestFakecloudKnowsItsVariables(t *testing.T) {
	t.Parallel()
	help, err := exec.CommandContext(t.Context(), "go", "run", "-C", "../../fakecloud", "./cmd/fakecloud", "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, help)
	}
	names := look(t, objects(t, fakecloud, "--set=tokens.secretName=team"), "StatefulSet C.env[*].name")
	for name := range strings.FieldsSeq(names) {
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
			image, label := look(t, all, "C.image"), look(t, all, `.metadata.labels.helm\.sh/chart`)
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
