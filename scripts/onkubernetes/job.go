package main

import (
	"cmp"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// failedCode is the exit code of a pod that has a result, which is a failure. It would be the same in another pod.
	failedCode = 3
	// attempts are how often a piece is tried whose pods end without a result. A pod that was evicted does not count.
	attempts = 4
	// kept is for how long a finished Job stays if it is not removed, since the runner was killed.
	kept = 60 * 60
	// envPieces maps the indexes of a Job to the pieces of the whole.
	envPieces = "PIECES"
)

// options are what a person chooses.
type options struct {
	image       string // where the cluster pulls from; "": it is loaded into the nodes of kind
	parallelism int
	cpu, memory resource.Quantity
	env         map[string]string // of the pods
}

// newJob returns a Job with an index for each of these pieces.
func newJob(name, namespace, image string, w work, pieces []int, o options) *batchv1.Job {
	var env []corev1.EnvVar
	for _, name := range sortedKeys(o.env) {
		env = append(env, corev1.EnvVar{Name: name, Value: o.env[name]})
	}
	if len(pieces) < w.pieces() {
		env = append(env, corev1.EnvVar{Name: envPieces, Value: list(pieces)})
	}
	labels := map[string]string{"app.kubernetes.io/name": "ccm-from-scratch-tests", "app.kubernetes.io/component": w.name()}
	requests := corev1.ResourceList{corev1.ResourceCPU: o.cpu, corev1.ResourceMemory: o.memory}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: labels},
		Spec: batchv1.JobSpec{
			CompletionMode: new(batchv1.IndexedCompletion), Completions: new(int32(len(pieces))),
			Parallelism:             new(int32(min(len(pieces), cmp.Or(o.parallelism, 100)))),
			BackoffLimitPerIndex:    new(int32(attempts - 1)),
			TTLSecondsAfterFinished: new(int32(kept)),
			PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
				{Action: batchv1.PodFailurePolicyActionIgnore, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{
					{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue},
				}},
				{Action: batchv1.PodFailurePolicyActionFailIndex, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
					Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{failedCode},
				}},
			}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
					SecurityContext: &corev1.PodSecurityContext{
						RunAsNonRoot: new(true), RunAsUser: new(int64(user)), RunAsGroup: new(int64(user)),
						SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
						// Load balancers of the specs listen on port 80 of loopback addresses.
						Sysctls: []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "0"}},
					},
					Containers: []corev1.Container{{
						Name: "piece", Image: image, Command: []string{programs + "/onkubernetes", "pod", w.name()}, Env: env,
						ImagePullPolicy: corev1.PullIfNotPresent, Resources: corev1.ResourceRequirements{Requests: requests},
						SecurityContext: &corev1.SecurityContext{
							AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
						},
						VolumeMounts: []corev1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}},
					}},
					Volumes: []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
				},
			},
		},
	}
}

// list writes pieces as one text, which pieceOf reads.
func list(pieces []int) string {
	var texts []string
	for _, p := range pieces {
		texts = append(texts, strconv.Itoa(p))
	}
	return strings.Join(texts, ",")
}

// pieceOf returns the piece of an index of a Job.
func pieceOf(index, pieces string) (int, error) {
	i, err := strconv.Atoi(index)
	if err != nil || pieces == "" {
		return i, err
	}
	all := strings.Split(pieces, ",")
	if i < 0 || i >= len(all) {
		return 0, strconv.ErrRange
	}
	return strconv.Atoi(all[i])
}
