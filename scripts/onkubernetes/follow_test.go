package main

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
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
	pods       map[string]corev1.Pod
	logs       map[string]string
	conditions string // of the Job
	away       error
	job        *batchv1.Job
}

func (c *cluster) kubectl(ctx context.Context, in []byte, args ...string) (string, error) {
	c.Lock()
	defer c.Unlock()
	switch command := strings.Join(args, " "); {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case command == "create --filename=-":
		c.job = &batchv1.Job{}
		return "", yaml.UnmarshalStrict(in, c.job)
	case command == "delete job "+c.job.Name+" --cascade=foreground --ignore-not-found --timeout=1m":
		c.job = nil
		return "", nil
	case c.away != nil:
		return "", c.away
	case strings.HasPrefix(command, "get job "+c.job.Name+" "):
		return c.conditions, nil
	case strings.HasPrefix(command, "get pods --selector=batch.kubernetes.io/job-name="+c.job.Name+" --output=jsonpath="):
		var list any
		text, err := json.Marshal(corev1.PodList{Items: slices.Collect(maps.Values(c.pods))})
		printer := jsonpath.New("pods").AllowMissingKeys(true)
		err = errors.Join(err, json.Unmarshal(text, &list), printer.Parse(strings.TrimPrefix(args[3], "--output=jsonpath=")))
		var out strings.Builder
		err = errors.Join(err, printer.Execute(&out, list))
		return out.String(), err
	case args[0] == "logs" && c.logs[args[1]] != "":
		return c.logs[args[1]], nil
	}
	return "", fmt.Errorf("kubectl %v", args)
}

// pod makes a pod of a piece in a phase. Without a log, its node is gone.
func (c *cluster) pod(name string, piece int, phase corev1.PodPhase, log string, change ...func(*corev1.PodStatus)) {
	c.Lock()
	defer c.Unlock()
	pod := corev1.Pod{Status: corev1.PodStatus{Phase: phase}}
	pod.Name, pod.Annotations = name, map[string]string{batchv1.JobCompletionIndexAnnotation: strconv.Itoa(piece)}
	for _, f := range change {
		f(&pod.Status)
	}
	c.pods[name], c.logs[name] = pod, log
}

// answers changes the answers about the Job.
func (c *cluster) answers(conditions string, away error) {
	c.Lock()
	defer c.Unlock()
	c.conditions, c.away = conditions, away
}

// follow runs the simulation of 30 seeds in three pieces. The script begins between two looks at the cluster. It fails unless the run
// ends with these results, an error that contains a text, and each of the printed texts once, and without a Job.
func follow(t *testing.T, script func(c *cluster, stop func()), want map[int]result, failure string, printed ...string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w, job := simulation(t, "SHARDS", "3")
		c := &cluster{pods: map[string]corev1.Pod{}, logs: map[string]string{}}
		ctx, stop := context.WithCancelCause(t.Context())
		var out strings.Builder
		f := &follower{work: w, job: job, out: &out, kubectl: c.kubectl, results: map[int]result{}, looked: map[string]bool{}}
		ended := make(chan error)
		go func() { ended <- errors.Join(f.run(ctx), w.verdict(f.results)) }()
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
func simulation(t *testing.T, pairs ...string) (work, *batchv1.Job) {
	t.Helper()
	getenv := env(append([]string{"SEEDS", "30"}, pairs...)...)
	w, err := newWork("sim", getenv)
	if err != nil {
		t.Fatal(err)
	}
	job, err := newJob(w, "../../"+template, getenv)
	if err != nil {
		t.Fatal(err)
	}
	return w, job
}

func found(text string, failed bool) result {
	return result{Failed: failed, Files: map[string][]byte{"ccm-sim.txt": []byte(text)}}
}

func logOf(r result) string {
	var b strings.Builder
	_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: []byte("the output of a program")})
	_ = r.print(&b)
	return b.String()
}

func TestEachPieceIsCollectedOnce(t *testing.T) {
	follow(t, func(c *cluster, _ func()) {
		c.pod("a", 0, corev1.PodSucceeded, logOf(found("zero", false)))
		c.pod("b", 1, corev1.PodFailed, "a log without a result", func(s *corev1.PodStatus) {
			terminated := &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 137}
			s.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: terminated}}}
			s.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Message: "evicting"}}
		})
		c.pod("c", 2, corev1.PodRunning, "")
		time.Sleep(4 * poll)
		c.pod("d", 1, corev1.PodSucceeded, logOf(found("one", false)))
		c.pod("c", 2, corev1.PodFailed, logOf(found("two", true)))
	}, map[int]result{0: found("zero", false), 1: found("one", false), 2: found("two", true)},
		"piece 2 failed; alone here: make sim FIRST=21 SEEDS=10",
		"piece 1: the pod b ended without a result: its log has no whole result: Error evicting\n",
		"sim: 1 of 3 done, 1 running, 0 failed, 12s, about 24s left\n", "sim: 3 of 3 done, 0 running, 1 failed, 15s\n")
}

func TestARunEndsAndItsJobGoes(t *testing.T) {
	lost := "piece 1 has no result; alone here: make sim FIRST=11 SEEDS=10"
	for failure, script := range map[string]func(c *cluster, stop func()){
		"Ctrl-C":     func(_ *cluster, stop func()) { stop() },
		"(NotFound)": func(c *cluster, _ func()) { c.answers("", errors.New("Error from server (NotFound): not found")) },
		"(Forbidden)": func(c *cluster, _ func()) {
			c.answers("", errors.New("Error from server (Forbidden): pods is forbidden"))
		},
		"does not start: ImagePullBackOff no such host: correct IMAGE": func(c *cluster, _ func()) {
			waiting := &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such host"}
			c.pod("e", 1, corev1.PodPending, "", func(s *corev1.PodStatus) {
				s.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: waiting}}}
			})
		},
		lost: func(c *cluster, _ func()) {
			c.pod("e", 1, corev1.PodSucceeded, "") // its node is drained before its log is read
			c.answers("SuccessCriteriaMet Complete", nil)
		},
	} {
		follow(t, func(c *cluster, stop func()) {
			c.pod("a", 0, corev1.PodSucceeded, logOf(found("zero", false)))
			time.Sleep(poll)
			script(c, stop)
		}, map[int]result{0: found("zero", false)}, failure)
	}
}

func TestAnAPIServerThatIsAwayIsWaitedFor(t *testing.T) {
	all := found("", false)
	follow(t, func(c *cluster, _ func()) {
		c.answers("", errors.New("etcd is away"))
		time.Sleep(4 * poll)
		c.answers("", nil)
		c.pod("a", 0, corev1.PodPending, "", func(s *corev1.PodStatus) {
			s.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: "False", Message: "too little memory"}}
		})
		time.Sleep(4 * poll)
		for piece, name := range []string{"a", "b", "c"} {
			c.pod(name, piece, corev1.PodSucceeded, logOf(all))
		}
	}, map[int]result{0: all, 1: all, 2: all}, "", "is asked again: etcd is away", "; pods wait: too little memory\n")
}

func TestAResultPassesThroughALog(t *testing.T) {
	t.Parallel()
	noise := make([]byte, 100_000) // that cannot be compressed
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	r := result{Failed: true, Files: map[string][]byte{"a": noise}}
	log := logOf(r)
	if got, err := readResult(log); err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("got %v, %v", got.Failed, err)
	}
	for _, part := range []string{log[len(log)/2:], log[:len(log)/2], log[:len(log)/3] + log[len(log)/2:], "no result\n"} {
		if got, err := readResult(part); err == nil {
			t.Errorf("a part of the log is a result: %d files", len(got.Files))
		}
	}
}

func TestTheJobRetriesAnEvictedPieceAndNoFailedOne(t *testing.T) {
	t.Parallel()
	_, job := simulation(t, "SHARDS", "10", "PARALLELISM", "4", "CPU", "2")
	s, c := job.Spec, job.Spec.Template.Spec.Containers[0]
	rules := s.PodFailurePolicy.Rules
	if *s.CompletionMode != batchv1.IndexedCompletion || *s.Completions != 10 || *s.Parallelism != 4 || *s.BackoffLimitPerIndex != 3 ||
		s.BackoffLimit != nil || *s.TTLSecondsAfterFinished != 3600 || len(rules) != 2 ||
		rules[0].Action != batchv1.PodFailurePolicyActionIgnore || rules[0].OnPodConditions[0].Type != corev1.DisruptionTarget ||
		rules[1].Action != batchv1.PodFailurePolicyActionFailIndex || !slices.Equal(rules[1].OnExitCodes.Values, []int32{failedCode}) {
		t.Errorf("got %+v", s)
	}
	if got := c.Command[2]; got != "sim" || c.Resources.Requests.Cpu().String() != "2" || c.Resources.Requests.Memory().String() != "1Gi" {
		t.Errorf("the container: %+v", c)
	}
	for _, e := range []corev1.EnvVar{{Name: "GOMAXPROCS", Value: "2"}, {Name: "SHARDS", Value: "10"}} {
		if !slices.Contains(c.Env, e) {
			t.Errorf("the environment lacks %v: %v", e, c.Env)
		}
	}
}
