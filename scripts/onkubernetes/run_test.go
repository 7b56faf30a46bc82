package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// cluster is an API server without controllers. The test makes and ends the pods of Jobs.
type cluster struct {
	*fake.Clientset
	t    *testing.T
	logs sync.Map
	made int // pods

	// The run of a simulation of 30 seeds in three pieces: what ends it, and how it ended.
	cancel  context.CancelCauseFunc
	out     bytes.Buffer
	results map[int]result
	err     error
}

const namespace = "tests"

func newCluster(t *testing.T) *cluster {
	c := &cluster{Clientset: fake.NewClientset(), t: t}
	// As the garbage collector does.
	c.PrependReactor("delete", "jobs", func(a clienttesting.Action) (bool, kruntime.Object, error) {
		if p := a.(clienttesting.DeleteAction).GetDeleteOptions().PropagationPolicy; p == nil || *p != metav1.DeletePropagationBackground {
			t.Errorf("the Job is deleted with %v: its pods would stay", p)
		}
		pods := corev1.SchemeGroupVersion.WithResource("pods")
		list, err := c.Tracker().List(pods, corev1.SchemeGroupVersion.WithKind("Pod"), namespace)
		if err != nil {
			t.Error(err)
		}
		go func() {
			time.Sleep(3 * poll) // the programs get time to end
			for _, pod := range list.(*corev1.PodList).Items {
				if pod.Labels[batchv1.JobNameLabel] != a.(clienttesting.DeleteAction).GetName() {
					continue
				}
				if err := c.Tracker().Delete(pods, namespace, pod.Name); err != nil {
					t.Error(err)
				}
			}
		}()
		return false, nil, nil
	})
	return c
}

// follow has a cluster do the simulation. The script begins between two looks at the cluster, and the run must end soon after it.
func follow(t *testing.T, script func(c *cluster)) (c *cluster) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c = newCluster(t)
		w, job := simulation(t, "SHARDS", "3")
		job.Name, job.Namespace = "job", namespace
		r := &runner{kube: c, work: w, job: job, out: &c.out,
			logs: func(_ context.Context, pod string) (io.ReadCloser, error) {
				text, ok := c.logs.Load(pod)
				if !ok {
					return nil, errors.New("the node is gone")
				}
				return io.NopCloser(strings.NewReader(text.(string))), nil
			}}
		ctx, cancel := context.WithCancelCause(t.Context())
		c.cancel = cancel
		go func() {
			if c.results, c.err = r.run(ctx); c.err == nil {
				c.err = w.verdict(c.results)
			}
		}()
		time.Sleep(poll / 2)
		script(c)
		time.Sleep(10 * poll)
		synctest.Wait()
		c.empty()
	})
	return c
}

// wants fails unless the run ended with these results and an error that contains a text, and printed each of these texts once.
func (c *cluster) wants(t *testing.T, results map[int]result, failure string, printed ...string) {
	t.Helper()
	if !maps.EqualFunc(c.results, results, func(a, b result) bool { return reflect.DeepEqual(a, b) }) ||
		(c.err == nil) != (failure == "") || c.err != nil && !strings.Contains(c.err.Error(), failure) {
		t.Errorf("got %v, %v\n%s", c.results, c.err, &c.out)
	}
	for _, text := range printed {
		if strings.Count(c.out.String(), text) != 1 {
			t.Errorf("it does not print once %q:\n%s", text, &c.out)
		}
	}
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

// pod makes a pod of an index of a Job, which has ended with this log, unless that is "-".
func (c *cluster) pod(job string, index int, phase corev1.PodPhase, log string, change ...func(*corev1.Pod)) {
	c.t.Helper()
	c.made++
	name := fmt.Sprintf("%s-%d-%d", job, index, c.made)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: namespace, UID: types.UID(name), Labels: map[string]string{batchv1.JobNameLabel: job},
			Annotations: map[string]string{batchv1.JobCompletionIndexAnnotation: strconv.Itoa(index)},
		},
		Status: corev1.PodStatus{Phase: phase},
	}
	for _, f := range change {
		f(pod)
	}
	if log != "-" {
		c.logs.Store(name, log)
	}
	if _, err := c.CoreV1().Pods(namespace).Create(context.Background(), pod, metav1.CreateOptions{}); err != nil {
		c.t.Error(err)
	}
}

func (c *cluster) condition(job string, kind batchv1.JobConditionType) {
	c.t.Helper()
	j, err := c.BatchV1().Jobs(namespace).Get(context.Background(), job, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue})
	if _, err := c.BatchV1().Jobs(namespace).UpdateStatus(context.Background(), j, metav1.UpdateOptions{}); err != nil {
		c.t.Error(err)
	}
}

// empty fails unless nothing is left.
func (c *cluster) empty() {
	c.t.Helper()
	jobs, err := c.BatchV1().Jobs(namespace).List(context.Background(), metav1.ListOptions{})
	pods, err2 := c.CoreV1().Pods(namespace).List(context.Background(), metav1.ListOptions{})
	if err := errors.Join(err, err2); err != nil || len(jobs.Items)+len(pods.Items) > 0 {
		c.t.Errorf("%d Jobs and %d pods are left, %v", len(jobs.Items), len(pods.Items), err)
	}
}

func logOf(t *testing.T, r result) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("what the program printed\n")
	if err := r.print(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func found(text string, failed bool) result {
	return result{Failed: failed, Files: map[string][]byte{"ccm-sim.txt": []byte(text)}}
}

func evicted(pod *corev1.Pod) {
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
		Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting"})
}

func TestTheJobRetriesWhatWasEvictedAndNotWhatFailed(t *testing.T) {
	t.Parallel()
	w, job := simulation(t, "SHARDS", "10", "PARALLELISM", "4", "CPU", "2")
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
	values := map[string]string{}
	for _, e := range c.Env {
		values[e.Name] = e.Value
	}
	if want := map[string]string{"FIRST": "1", "GOMAXPROCS": "2", "SEEDS": "30", "SHARDS": "10"}; !maps.Equal(values, want) {
		t.Errorf("the environment is %v, want %v", values, want)
	}
	again := (&runner{work: w, job: job}).again([]string{"3", "7"}).Spec
	env := again.Template.Spec.Containers[0].Env
	if last := env[len(env)-1]; last.Name != envPieces || last.Value != "3,7" || *again.Completions != 2 || *again.Parallelism != 2 {
		t.Errorf("a Job of some pieces: %v", env)
	}
	for _, want := range []struct {
		index, pieces string
		piece         int
		fails         bool
	}{{"12", "", 12, false}, {"0", "3,7", 3, false}, {"1", "3,7", 7, false}, {"2", "3,7", 0, true}} {
		if got, err := pieceOf(want.index, want.pieces); got != want.piece || (err != nil) != want.fails {
			t.Errorf("index %s of %q is piece %d, %v", want.index, want.pieces, got, err)
		}
	}
}

func TestEachPieceIsCollectedOnce(t *testing.T) {
	c := follow(t, func(c *cluster) {
		c.pod("job", 0, corev1.PodSucceeded, logOf(t, found("zero", false)))
		c.pod("job", 1, corev1.PodFailed, "a log without a result", evicted)
		c.pod("job", 2, corev1.PodRunning, "-")
		time.Sleep(showEvery)
		c.pod("job", 1, corev1.PodSucceeded, logOf(t, found("one", false)))
		if err := c.CoreV1().Pods(namespace).Delete(t.Context(), "job-2-3", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		c.pod("job", 2, corev1.PodFailed, logOf(t, found("two", true)))
	})
	c.wants(t, map[int]result{0: found("zero", false), 1: found("one", false), 2: found("two", true)},
		"piece 2 failed; alone here: make sim FIRST=21 SEEDS=10",
		"piece 1: the pod job-1-2 ended without a result, and is replaced: EvictionByEvictionAPI: Eviction API: evicting\n",
		"piece 2 failed; alone here: make sim FIRST=21 SEEDS=10\n",
		"sim: 1 of 3 done, 1 running, 0 failed, 10s, about 20s left\n", "sim: 3 of 3 done, 0 running, 1 failed, 12s\n")
}

func TestAResultThatWasLostWithItsNodeIsMadeOnceMore(t *testing.T) {
	c := follow(t, func(c *cluster) {
		c.pod("job", 0, corev1.PodSucceeded, logOf(t, found("zero", false)))
		c.pod("job", 1, corev1.PodSucceeded, "-") // its node is drained before its log is read
		whole := logOf(t, found(strings.Repeat(fmt.Sprint(time.Now()), 1000), false))
		c.pod("job", 2, corev1.PodSucceeded, strings.Replace(whole, mark, "", 1))
		c.condition("job", batchv1.JobComplete)
		time.Sleep(10 * poll)
		again, err := c.BatchV1().Jobs(namespace).Get(context.Background(), "job-again", metav1.GetOptions{})
		if err != nil || *again.Spec.Completions != 2 {
			t.Errorf("the second Job: %v, %v\n%s", again, err, &c.out)
			return
		}
		c.pod("job-again", 0, corev1.PodSucceeded, logOf(t, found("one", false)))
		c.condition("job-again", batchv1.JobFailed)
	})
	c.wants(t, map[int]result{0: found("zero", false), 1: found("one", false)},
		"piece 2 has no result; alone here: make sim FIRST=21 SEEDS=10")
}

func TestACancelledRunRemovesEverything(t *testing.T) {
	follow(t, func(c *cluster) {
		c.pod("job", 0, corev1.PodRunning, "-")
		time.Sleep(poll)
		c.cancel(errors.New("Ctrl-C"))
	}).wants(t, nil, "Ctrl-C")
}

func TestAnImageThatCannotBePulledEndsTheRun(t *testing.T) {
	follow(t, func(c *cluster) {
		c.pod("job", 0, corev1.PodPending, "-", func(pod *corev1.Pod) {
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
				Reason: "ImagePullBackOff", Message: "no such host"}}}}
		})
	}).wants(t, nil, "does not start: ImagePullBackOff no such host: correct IMAGE")
}

func TestAnAPIServerThatIsAwayIsWaitedFor(t *testing.T) {
	c := follow(t, func(c *cluster) {
		var back atomic.Bool
		c.PrependReactor("list", "pods", func(clienttesting.Action) (bool, kruntime.Object, error) {
			return !back.Load(), nil, apierrors.NewInternalError(errors.New("etcd is away"))
		})
		time.Sleep(showEvery + poll)
		back.Store(true)
		c.pod("job", 0, corev1.PodPending, "-", func(pod *corev1.Pod) {
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled,
				Status: corev1.ConditionFalse, Message: "too little memory"})
		})
		time.Sleep(showEvery)
		for piece := range 3 {
			c.pod("job", piece, corev1.PodSucceeded, logOf(t, found("", false)))
		}
	})
	all := found("", false)
	c.wants(t, map[int]result{0: all, 1: all, 2: all}, "", "is asked again", "20s; pods wait: too little memory\n")
}

func TestAResultPassesThroughALog(t *testing.T) {
	t.Parallel()
	noise := make([]byte, 100_000) // which cannot be compressed
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	r := result{Failed: true, Files: map[string][]byte{"a": noise, "b": nil}}
	log := logOf(t, r)
	for line := range strings.Lines(log) {
		if len(line) > 16*1024 {
			t.Errorf("a line has %d bytes: a container's runtime divides it", len(line))
		}
	}
	got, err := readResult(strings.NewReader(log))
	if err != nil || !got.Failed || !bytes.Equal(got.Files["a"], r.Files["a"]) {
		t.Errorf("got %v, %v", got.Failed, err)
	}
	_, without, _ := strings.Cut(log, mark)
	for _, part := range []string{without, log[:len(log)/2], "no line of a result\n"} {
		if _, err := readResult(strings.NewReader(part)); err == nil || !strings.Contains(err.Error(), "has no whole result") {
			t.Errorf("of a part of the log: %v", err)
		}
	}
}
