package framework

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

func TestElectsLeader(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want bool
	}{
		{nil, true},
		{[]string{"--leader-elect"}, true},
		{[]string{"--leader-elect=false"}, false},
		{[]string{"--leader-elect=true", "--leader-elect=0"}, false},
		{[]string{"--leader-elect=false", "--leader-elect"}, true},
		{[]string{"--leader-elect-lease-duration=4s"}, true},
	} {
		if got := ElectsLeader(c.args); got != c.want {
			t.Errorf("%v: got %t", c.args, got)
		}
	}
}

func TestAPodIsTakenOffTheHostNetworkWhateverProbesItHas(t *testing.T) {
	t.Parallel()
	deployment := appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		HostNetwork: true, ServiceAccountName: "ccm",
		Containers: []corev1.Container{
			{Name: "none", Ports: []corev1.ContainerPort{{HostPort: 10258}}},
			{Name: "tcp", LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{}}}},
			{Name: "http",
				ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: "127.0.0.1"}}}},
		},
	}}}}
	pod := PodOf(deployment, "dry-run")
	off := OffHostNetwork(pod, "spec")
	c := off.Spec.Containers
	if off.Spec.HostNetwork || off.Namespace != "spec" || off.Spec.ServiceAccountName != "default" || c[0].Ports[0].HostPort != 0 ||
		c[2].ReadinessProbe.HTTPGet.Host != "" {
		t.Errorf("got %+v", off)
	}
	if !pod.Spec.HostNetwork || deployment.Spec.Template.Spec.Containers[0].Ports[0].HostPort != 10258 {
		t.Error("the original has changed")
	}
}
