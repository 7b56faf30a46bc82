package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// simulated is what the chart of fakecloud makes.
type simulated struct {
	set       *appsv1.StatefulSet
	container corev1.Container
	env       map[string]string
	service   *corev1.Service
	policy    *networkingv1.NetworkPolicy
	budget    *policyv1.PodDisruptionBudget
	monitor   *podMonitor
}

func simulate(t *testing.T, values ...string) (s simulated) {
	t.Helper()
	all := objectsOf(t, fakecloudFolder, values...)
	s.set, _ = all["StatefulSet test-fakecloud"].(*appsv1.StatefulSet)
	s.service, _ = all["Service test-fakecloud"].(*corev1.Service)
	s.policy, _ = all["NetworkPolicy test-fakecloud"].(*networkingv1.NetworkPolicy)
	s.budget, _ = all["PodDisruptionBudget test-fakecloud"].(*policyv1.PodDisruptionBudget)
	s.monitor, _ = all["PodMonitor test-fakecloud"].(*podMonitor)
	if s.set == nil || s.service == nil || len(s.set.Spec.Template.Spec.Containers) != 1 {
		t.Fatalf("%v", all)
	}
	s.container = s.set.Spec.Template.Spec.Containers[0]
	s.env = env(s.container)
	return s
}

func TestASharedCloudKeepsItsStateOnAVolume(t *testing.T) {
	t.Parallel()
	s := simulate(t, set("persistence.size=2Gi", "persistence.storageClass=fast", "persistence.sync=true")...)
	if *s.set.Spec.Replicas != 1 || len(s.set.Spec.VolumeClaimTemplates) != 1 || len(s.container.VolumeMounts) != 1 {
		t.Fatalf("%+v", s.set.Spec)
	}
	claim, mount := s.set.Spec.VolumeClaimTemplates[0], s.container.VolumeMounts[0]
	if claim.Name != mount.Name || s.env["FAKECLOUD_STATE"] != mount.MountPath || s.env["FAKECLOUD_STATE_SYNC"] != "true" {
		t.Errorf("the state is elsewhere than the volume: %+v, %v", mount, s.env)
	}
	if size := claim.Spec.Resources.Requests.Storage().String(); size != "2Gi" || *claim.Spec.StorageClassName != "fast" {
		t.Errorf("%s, %v", size, claim.Spec.StorageClassName)
	}
	if s.env["FAKECLOUD_PROJECTS"] != "auto" || s.env["FAKECLOUD_LISTEN"] != ":4242" {
		t.Errorf("%v", s.env)
	}
	if s.budget.Spec.MaxUnavailable.IntValue() != 1 {
		t.Errorf("the drain of a node would wait, although the next pod continues: %+v", s.budget.Spec)
	}
}

func TestACloudOfOneRunHasNoVolumeAndIsNotEvicted(t *testing.T) {
	t.Parallel()
	s := simulate(t, set("persistence.enabled=false", "projects=fixed", "actions=instant", "rateLimit=0")...)
	if len(s.set.Spec.VolumeClaimTemplates) != 0 || len(s.container.VolumeMounts) != 0 || s.env["FAKECLOUD_STATE"] != "" {
		t.Errorf("%+v, %v", s.set.Spec, s.env)
	}
	for name, want := range map[string]string{"PROJECTS": "fixed", "ACTIONS": "instant", "RATE_LIMIT": "0"} {
		if got := s.env["FAKECLOUD_"+name]; got != want {
			t.Errorf("FAKECLOUD_%s=%q, want %q", name, got, want)
		}
	}
	if m := s.budget.Spec.MaxUnavailable; *m != intstr.FromInt32(0) || *s.budget.Spec.UnhealthyPodEvictionPolicy != policyv1.AlwaysAllow {
		t.Errorf("an eviction would end the cloud: %+v", s.budget.Spec)
	}
	s = simulate(t, set("persistence.enabled=false", "podDisruptionBudget.maxUnavailable=1")...)
	if s.budget.Spec.MaxUnavailable.IntValue() != 1 {
		t.Errorf("the value does not win: %+v", s.budget.Spec)
	}
	if s = simulate(t, set("podDisruptionBudget.enabled=false")...); s.budget != nil {
		t.Errorf("a budget that was not asked for: %+v", s.budget)
	}
}

func TestTheControlAPIIsHiddenUnlessTold(t *testing.T) {
	t.Parallel()
	s := simulate(t)
	if s.env["FAKECLOUD_CONTROL"] != "127.0.0.1:4243" || len(s.service.Spec.Ports) != 1 || len(s.container.Ports) != 1 ||
		len(s.policy.Spec.Ingress) != 1 || s.monitor != nil {
		t.Errorf("%v, %+v, %+v", s.env, s.service.Spec.Ports, s.policy.Spec)
	}
	s = simulate(t, set("control.expose=true", "networkPolicy.control[0].podSelector.matchLabels.role=admin", "service.controlPort=80",
		"podMonitor.enabled=true", "podMonitor.interval=15s", "podMonitor.labels.release=prometheus")...)
	if s.env["FAKECLOUD_CONTROL"] != ":4243" || len(s.container.Ports) != 2 || s.container.Ports[1].ContainerPort != 4243 ||
		len(s.service.Spec.Ports) != 2 || s.service.Spec.Ports[1].Port != 80 ||
		s.service.Spec.Ports[1].TargetPort.StrVal != s.container.Ports[1].Name {
		t.Errorf("%v, %+v, %+v", s.env, s.service.Spec.Ports, s.container.Ports)
	}
	if rules := s.policy.Spec.Ingress; len(rules) != 2 || rules[1].Ports[0].Port.StrVal != "control" || len(rules[1].From) != 1 ||
		rules[1].From[0].PodSelector.MatchLabels["role"] != "admin" {
		t.Errorf("%+v", rules)
	}
	if m := s.monitor; m == nil || m.Metadata.Labels["release"] != "prometheus" || m.Spec.PodMetricsEndpoints[0].Interval != "15s" ||
		m.Spec.PodMetricsEndpoints[0].Port != s.container.Ports[1].Name || m.Spec.PodMetricsEndpoints[0].Path != "/metrics" {
		t.Errorf("%+v", m)
	}
	for k, v := range s.monitor.Spec.Selector.MatchLabels {
		if s.set.Spec.Template.Labels[k] != v {
			t.Errorf("the PodMonitor selects %s=%s, which the pod does not have", k, v)
		}
	}
	// A browser and curl call the Service by its names.
	for _, suffix := range []string{"", ".cloud", ".cloud.svc", ".cloud.svc.cluster.local"} {
		host := "test-fakecloud" + suffix
		if !strings.Contains(","+s.env["FAKECLOUD_ALLOWED_HOSTS"]+",", ","+host+",") {
			t.Errorf("the name %s is refused: %s", host, s.env["FAKECLOUD_ALLOWED_HOSTS"])
		}
	}
}

func TestOnlyWhoIsNamedReachesTheCloudAndItReachesNothing(t *testing.T) {
	t.Parallel()
	s := simulate(t)
	spec := s.policy.Spec
	if len(spec.PolicyTypes) != 2 || len(spec.Egress) != 0 || spec.Ingress[0].Ports[0].Port.StrVal != "api" ||
		spec.Ingress[0].From[0].NamespaceSelector == nil {
		t.Errorf("%+v", spec)
	}
	for _, selector := range []map[string]string{spec.PodSelector.MatchLabels, s.service.Spec.Selector, s.set.Spec.Selector.MatchLabels,
		s.budget.Spec.Selector.MatchLabels} {
		for k, v := range selector {
			if s.set.Spec.Template.Labels[k] != v {
				t.Errorf("%s=%s is selected, which the pod does not have", k, v)
			}
		}
		if len(selector) == 0 {
			t.Error("a selector selects all pods")
		}
	}
	s = simulate(t, set("networkPolicy.api[0].podSelector.matchLabels.team=a", "networkPolicy.egress[0].ports[0].port=80")...)
	if from := s.policy.Spec.Ingress[0].From; len(from) != 1 || from[0].PodSelector.MatchLabels["team"] != "a" ||
		len(s.policy.Spec.Egress) != 1 || s.policy.Spec.Egress[0].Ports[0].Port.IntValue() != 80 {
		t.Errorf("%+v", s.policy.Spec)
	}
	if s = simulate(t, set("networkPolicy.enabled=false")...); s.policy != nil {
		t.Errorf("a policy that was not asked for: %+v", s.policy)
	}
}

// The restricted profile of the Pod Security Standards.
func TestThePodOfFakecloudIsRestricted(t *testing.T) {
	t.Parallel()
	s := simulate(t)
	pod, c := s.set.Spec.Template.Spec, s.container.SecurityContext
	if !*pod.SecurityContext.RunAsNonRoot || pod.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault ||
		*pod.SecurityContext.FSGroup != *pod.SecurityContext.RunAsUser || *pod.SecurityContext.RunAsUser == 0 {
		t.Errorf("%+v", pod.SecurityContext)
	}
	if *c.AllowPrivilegeEscalation || !*c.ReadOnlyRootFilesystem || len(c.Capabilities.Drop) != 1 || c.Capabilities.Drop[0] != "ALL" {
		t.Errorf("%+v", c)
	}
	if *pod.AutomountServiceAccountToken || *pod.EnableServiceLinks {
		t.Errorf("%+v", pod)
	}
	for name, probe := range map[string]*corev1.Probe{
		"startup": s.container.StartupProbe, "liveness": s.container.LivenessProbe, "readiness": s.container.ReadinessProbe,
	} {
		if probe == nil || probe.Exec == nil || strings.Join(probe.Exec.Command, " ") != "/fakecloud health" {
			t.Errorf("%s: %+v", name, probe)
		}
	}
}

func TestSettingsOfFakecloudArriveAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "values.yaml")
	text := "rateLimit: 12345678\nprojectTTL: 24h\nenv: {FAKECLOUD_SPEED: 0.5, FAKECLOUD_KEEP_ACTIONS: 1h, FAKECLOUD_DATA_PLANE: true}\n" +
		"tokens: {secretName: team}\nimage: {tag: v9}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := simulate(t, "-f", file)
	for name, want := range map[string]string{
		"RATE_LIMIT": "12345678", "PROJECT_TTL": "24h", "SPEED": "0.5", "KEEP_ACTIONS": "1h", "DATA_PLANE": "true", "TOKEN": "team/tokens",
	} {
		if got := s.env["FAKECLOUD_"+name]; got != want {
			t.Errorf("FAKECLOUD_%s=%q, want %q", name, got, want)
		}
	}
	if s.container.Image != "fakecloud:v9" {
		t.Error(s.container.Image)
	}
	// The program knows all of them.
	help, err := exec.CommandContext(t.Context(), "go", "run", "-C", "../../fakecloud", "./cmd/fakecloud", "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, help)
	}
	for name := range s.env {
		flag := "--" + strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, "FAKECLOUD_")), "_", "-")
		if !strings.Contains(string(help), " "+flag+" ") {
			t.Errorf("%s: the program has no %s", name, flag)
		}
	}
}

// The message has to name what is wrong.
func TestValuesWithWhichFakecloudCannotWorkAreRefused(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
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
	} {
		if text, err := template(t, fakecloudFolder, set(value)...); err == nil || !strings.Contains(text, want) {
			t.Errorf("--set %s: %v: %s", value, err, text)
		}
	}
	simulate(t, set("control.expose=true", "networkPolicy.enabled=false")...)
}
