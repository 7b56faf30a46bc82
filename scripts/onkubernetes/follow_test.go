package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"
)

// cluster answers as kubectl does. The test makes and ends the pods of the Job.
type cluster struct {
	sync.Mutex
	pods map[string]corev1.Pod
	logs map[string]string
	away error
	job  *batchv1.Job
}

func (c *cluster) kubectl(ctx context.Context, in string, args ...string) (string, error) {
	c.Lock()
	defer c.Unlock()
	switch command := strings.Join(args, " "); {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case command == "create --filename=-":
		c.job = &batchv1.Job{}
		return "", yaml.UnmarshalStrict([]byte(in), c.job)
	case strings.HasPrefix(command, "delete job ccm-sim-1 --cascade=foreground --ignore-not-found"):
		c.job = nil
		return "", nil
	case c.away != nil:
		return "", c.away
	case strings.HasPrefix(command, "get jobs,pods --selector=app.kubernetes.io/instance=ccm-sim-1 "):
		all := []any{}
		if c.job != nil {
			all = append(all, c.job)
		}
		for _, p := range c.pods {
			all = append(all, p)
		}
		var list any
		text, err := json.Marshal(map[string]any{"items": all})
		printer := jsonpath.New("").AllowMissingKeys(true)
		err = errors.Join(err, json.Unmarshal(text, &list), printer.Parse(strings.TrimPrefix(args[3], "--output=jsonpath=")))
		var out strings.Builder
		err = errors.Join(err, printer.Execute(&out, list))
		return out.String(), err
	case args[0] == "logs" && c.logs[args[1]] != "":
		return c.logs[args[1]], nil
	}
	return "", fmt.Errorf("kubectl %v", args)
}

// pod makes a pod of a piece in a phase. Without a log, its node is gone. Without a reason, its container has no state.
func (c *cluster) pod(name string, piece int, phase corev1.PodPhase, log, reason string, conditions ...corev1.PodCondition) {
	c.Lock()
	defer c.Unlock()
	pod := corev1.Pod{Status: corev1.PodStatus{Phase: phase, Conditions: conditions}}
	pod.Name, pod.Annotations = name, map[string]string{batchv1.JobCompletionIndexAnnotation: strconv.Itoa(piece)}
	switch {
	case reason == "":
	case phase == corev1.PodPending:
		waiting := &corev1.ContainerStateWaiting{Reason: reason, Message: "no such host"}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: waiting}}}
	default:
		terminated := &corev1.ContainerStateTerminated{Reason: reason}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: terminated}}}
	}
	c.pods[name], c.logs[name] = pod, log
}

// answers changes the error of all commands.
func (c *cluster) answers(away error) {
	c.Lock()
	defer c.Unlock()
	c.away = away
}

// changes changes the Job.
func (c *cluster) changes(change func(**batchv1.Job)) {
	c.Lock()
	defer c.Unlock()
	change(&c.job)
}

// follow runs the simulation of 30 seeds in three pieces. The script begins between two looks at the cluster. It fails unless the run
// ends with these results, an error that contains a text, and each of the printed texts once, and without a Job.
func follow(t *testing.T, script func(c *cluster, stop func()), want map[int]result, failure string, printed ...string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w, job := simulation(t, "SHARDS", "3")
		c := &cluster{pods: map[string]corev1.Pod{}, logs: map[string]string{}}
		limited, cancel := context.WithTimeout(t.Context(), time.Hour) // of the virtual clock
		defer cancel()
		ctx, stop := context.WithCancelCause(limited)
		var out strings.Builder
		f := &follower{work: w, out: &out, kubectl: c.kubectl, results: map[int]result{}, looked: map[string]bool{}}
		ended := make(chan error)
		go func() { ended <- errors.Join(f.run(ctx, job), w.verdict(f.results)) }()
		time.Sleep(poll / 2)
		script(c, func() { stop(errors.New("Ctrl-C")) })
		err := <-ended
		if !reflect.DeepEqual(f.results, want) || (err == nil) != (failure == "") || !strings.Contains(fmt.Sprint(err), failure) ||
			c.job != nil {
			t.Errorf("got %v, %v, the Job %v\n%s", f.results, err, c.job, &out)
		}
		for _, text := range printed {
			if strings.Count(out.String(), text) != 1 {
				t.Errorf("it does not print once %q:\n%s", text, &out)
			}
		}
	})
}

// simulation returns that of 30 seeds, and its Job.
func simulation(t *testing.T, pairs ...string) (w work, job string) {
	t.Helper()
	w, err := newWork("sim", env(append([]string{"SEEDS", "30"}, pairs...)...))
	template, err2 := os.ReadFile("../../e2e/k8s/job.yaml")
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	w.env["NAME"] = "ccm-sim-1"
	return w, w.job(string(template))
}

func found(text string, failed bool) result {
	return result{Failed: failed, Files: map[string][]byte{"ccm-sim.txt": []byte(text)}}
}

func TestEachPieceIsCollectedOnce(t *testing.T) {
	follow(t, func(c *cluster, _ func()) {
		c.pod("a", 0, corev1.PodSucceeded, found("zero", false).String(), "Completed")
		c.pod("b", 1, corev1.PodFailed, "a log without a result", "Error",
			corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Message: "evicting"})
		c.pod("c", 2, corev1.PodRunning, "", "")
		time.Sleep(40 * poll)
		c.pod("d", 1, corev1.PodSucceeded, found("one", false).String(), "Completed")
		c.pod("c", 2, corev1.PodFailed, "the output of a program"+found("two", true).String(), "Error")
	}, map[int]result{0: found("zero", false), 1: found("one", false), 2: found("two", true)},
		"piece 2 failed; alone here: make sim FIRST=21 SEEDS=10",
		"piece 1: the pod b ended without a result: its log has no whole result: unexpected end of JSON input: Error evicting\n",
		"sim: 1 of 3 done, 1 running, 0 failed after 2m0s\n", "sim: 3 of 3 done, 0 running, 1 failed after 2m0s\n")
}

func TestARunEndsAndItsJobGoes(t *testing.T) {
	for failure, script := range map[string]func(c *cluster, stop func()){
		"Ctrl-C":                    func(_ *cluster, stop func()) { stop() },
		"the Job ccm-sim-1 is gone": func(c *cluster, _ func()) { c.changes(func(job **batchv1.Job) { *job = nil }) },
		"(Forbidden)":               func(c *cluster, _ func()) { c.answers(errors.New("Error (Forbidden): pods is forbidden")) },
		"ImagePullBackOff no such host: correct IMAGE:": func(c *cluster, _ func()) {
			c.pod("e", 1, corev1.PodPending, "", "ImagePullBackOff")
		},
		"piece 1 has no result; alone here: make sim FIRST=11": func(c *cluster, _ func()) {
			c.pod("e", 1, corev1.PodSucceeded, "", "Completed") // its node is drained before its log is read
			c.changes(func(job **batchv1.Job) {
				(*job).Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete}}
			})
		},
	} {
		follow(t, func(c *cluster, stop func()) {
			c.pod("a", 0, corev1.PodSucceeded, found("zero", false).String(), "Completed")
			time.Sleep(poll)
			script(c, stop)
		}, map[int]result{0: found("zero", false)}, failure)
	}
}

func TestAnAPIServerThatIsAwayIsWaitedFor(t *testing.T) {
	all := found("", false)
	follow(t, func(c *cluster, _ func()) {
		c.answers(errors.New("etcd is away"))
		time.Sleep(4 * poll)
		c.answers(nil)
		c.pod("a", 0, corev1.PodPending, "", "", corev1.PodCondition{Type: corev1.PodScheduled, Message: "too little memory"})
		time.Sleep(4 * poll)
		for piece, name := range []string{"a", "b", "c"} {
			c.pod(name, piece, corev1.PodSucceeded, all.String(), "Completed")
		}
	}, map[int]result{0: all, 1: all, 2: all}, "", "is asked again: etcd is away", "; pods wait: too little memory")
}

func TestTheJobRetriesAnEvictedPieceAndNoFailedOne(t *testing.T) {
	t.Parallel()
	_, text := simulation(t, "SHARDS", "10", "PARALLELISM", "4", "CPU", "2")
	var job batchv1.Job
	if err := yaml.UnmarshalStrict([]byte(text), &job); err != nil {
		t.Fatal(err)
	}
	s, c := job.Spec, job.Spec.Template.Spec.Containers[0]
	rules := s.PodFailurePolicy.Rules
	if *s.CompletionMode != batchv1.IndexedCompletion || *s.Completions != 10 || *s.Parallelism != 4 || *s.BackoffLimitPerIndex != 3 ||
		s.BackoffLimit != nil || *s.TTLSecondsAfterFinished != 3600 || len(rules) != 2 ||
		rules[0].Action != batchv1.PodFailurePolicyActionIgnore || rules[0].OnPodConditions[0].Type != corev1.DisruptionTarget ||
		rules[1].Action != batchv1.PodFailurePolicyActionFailIndex || !slices.Equal(rules[1].OnExitCodes.Values, []int32{failedCode}) {
		t.Errorf("got %+v", s)
	}
	if got := c.Command[2]; got != "sim" || c.Resources.Requests.Cpu().String() != "2" || c.Resources.Requests.Memory().String() != "1Gi" ||
		!slices.Contains(c.Env, corev1.EnvVar{Name: "SEEDS", Value: "30"}) {
		t.Errorf("the container: %+v", c)
	}
	if s.Template.Labels["app.kubernetes.io/instance"] != job.Name {
		t.Errorf("its pods are not found: %v", s.Template.Labels)
	}
}
