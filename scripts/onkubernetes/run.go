package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

const (
	poll      = 2 * time.Second
	showEvery = 10 * time.Second
	// removal is how long the end of the pods is waited for.
	removal = time.Minute
)

// envPieces maps the indexes of a Job to the pieces of the whole.
const envPieces = "PIECES"

// runner has a cluster do the pieces of a work.
type runner struct {
	kube kubernetes.Interface
	work work
	job  *batchv1.Job // that of all pieces
	out  io.Writer
	// logs opens the log of a pod.
	logs func(ctx context.Context, pod string) (io.ReadCloser, error)
}

// run returns the result of each piece. Pieces with a lost result, such as with their node, are done once more. The Jobs and
// their pods are removed in any case.
func (r *runner) run(ctx context.Context) (map[int]result, error) {
	results := map[int]result{}
	job := r.job
	for attempt := range 2 {
		var missing []string
		for piece := range r.work.pieces {
			if _, ok := results[piece]; !ok {
				missing = append(missing, strconv.Itoa(piece))
			}
		}
		if len(missing) == 0 {
			break
		}
		if attempt > 0 {
			fmt.Fprintf(r.out, "%d pieces have no result: %s; once more\n", len(missing), strings.Join(missing, ","))
			job = r.again(missing)
		}
		f := follower{runner: r, job: job, results: results, looked: map[string]bool{}, pieces: len(missing), had: len(results),
			shown: time.Now(), begin: time.Now()}
		if attempt > 0 {
			f.which = strings.Join(missing, ",")
		}
		if err := f.run(ctx); err != nil {
			return results, err
		}
	}
	return results, nil
}

// again returns a Job of these pieces.
func (r *runner) again(pieces []string) *batchv1.Job {
	job := r.job.DeepCopy()
	job.Name += "-again"
	job.Spec.Completions, job.Spec.Parallelism = new(int32(len(pieces))), new(min(*job.Spec.Parallelism, int32(len(pieces))))
	c := &job.Spec.Template.Spec.Containers[0]
	c.Env = append(c.Env, corev1.EnvVar{Name: envPieces, Value: strings.Join(pieces, ",")})
	return job
}

// pieceOf returns the piece of an index of a Job, which may name its pieces.
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

// verdict says which pieces failed, or have no result, and how each is run alone.
func (w work) verdict(results map[int]result) error {
	var errs []error
	for piece := range w.pieces {
		r, ok := results[piece]
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("piece %d has no result; alone here: %s", piece, w.alone(piece)))
		case r.Failed:
			errs = append(errs, fmt.Errorf("piece %d failed; alone here: %s", piece, w.alone(piece)))
		}
	}
	return errors.Join(errs...)
}

// follower follows one Job.
type follower struct {
	*runner
	job     *batchv1.Job
	results map[int]result
	looked  map[string]bool // the pods that have ended, with a log that was read
	pieces  int
	which   string // as pieceOf reads it
	shown   time.Time
	begin   time.Time
	had     int // results of earlier Jobs
}

func (f *follower) run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, f.remove(context.WithoutCancel(ctx))) }()
	if _, err := f.kube.BatchV1().Jobs(f.job.Namespace).Create(ctx, f.job, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("cannot create the Job %s in the namespace %s: %w", f.job.Name, f.job.Namespace, err)
	}
	fmt.Fprintf(f.out, "the Job %s in the namespace %s has %d pieces, %d at a time\n", f.job.Name, f.job.Namespace, *f.job.Spec.Completions,
		*f.job.Spec.Parallelism)
	err = wait.PollUntilContextCancel(ctx, poll, true, f.look)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// look collects what there is and reports whether the Job has ended. The Job comes first: then its pods have ended when it has.
func (f *follower) look(ctx context.Context) (ended bool, err error) {
	job, err := f.kube.BatchV1().Jobs(f.job.Namespace).Get(ctx, f.job.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, fmt.Errorf("the Job %s was deleted: run this again", f.job.Name)
	}
	if err != nil {
		return false, f.patient(ctx, err)
	}
	pods, err := f.kube.CoreV1().Pods(f.job.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: batchv1.JobNameLabel + "=" + f.job.Name, ResourceVersion: "0",
	})
	if err != nil {
		return false, f.patient(ctx, err)
	}
	running, waits := 0, ""
	for i := range pods.Items {
		pod := &pods.Items[i]
		switch pod.Status.Phase {
		case corev1.PodRunning:
			running++
		case corev1.PodSucceeded, corev1.PodFailed:
			f.collect(ctx, pod)
		default:
			reason, fatal := waiting(pod)
			if fatal {
				return false, fmt.Errorf("the pod %s does not start: %s: correct IMAGE, from which the cluster must be able to pull",
					pod.Name, reason)
			}
			waits = reason
		}
	}
	if ended = f.finished(job); ended || time.Since(f.shown) >= showEvery {
		f.show(running, waits)
	}
	return ended, nil
}

// patient lets an API server that does not answer come back.
func (f *follower) patient(ctx context.Context, err error) error {
	if ctx.Err() != nil || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return err
	}
	if time.Since(f.shown) >= showEvery {
		f.shown = time.Now()
		fmt.Fprintf(f.out, "%s: the cluster does not answer, and is asked again: %v\n", f.work.name, err)
	}
	return nil
}

func (f *follower) finished(job *batchv1.Job) bool {
	return len(f.results)-f.had == f.pieces || slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed)
	})
}

// collect reads the result of a pod that has ended.
func (f *follower) collect(ctx context.Context, pod *corev1.Pod) {
	index, err := pieceOf(pod.Annotations[batchv1.JobCompletionIndexAnnotation], f.which)
	if err != nil || f.looked[string(pod.UID)] {
		return
	}
	log, err := f.logs(ctx, pod.Name)
	if err != nil {
		return // the next look tries again
	}
	found, err := readResult(log)
	_ = log.Close()
	f.looked[string(pod.UID)] = true
	if err != nil {
		fmt.Fprintf(f.out, "piece %d: the pod %s ended without a result, and is replaced: %s\n", index, pod.Name, ended(pod, err))
		return
	}
	f.results[index] = found
	if found.Failed {
		fmt.Fprintf(f.out, "piece %d failed; alone here: %s\n", index, f.work.alone(index))
	}
}

// ended says how a pod ended that has no result.
func ended(pod *corev1.Pod, err error) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return c.Reason + ": " + c.Message
		}
	}
	for _, c := range pod.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil {
			return fmt.Sprintf("%s, exit code %d", t.Reason, t.ExitCode)
		}
	}
	return strings.TrimSpace(pod.Status.Reason + " " + err.Error())
}

// waiting says why a pod does not run yet, and whether it never will.
func waiting(pod *corev1.Pod) (reason string, fatal bool) {
	for _, c := range pod.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && slices.Contains([]string{"ImagePullBackOff", "InvalidImageName"}, w.Reason) {
			return w.Reason + " " + w.Message, true
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Message, false
		}
	}
	return "", false
}

// show prints how far the work is.
func (f *follower) show(running int, waits string) {
	f.shown = time.Now()
	done, failed := len(f.results), 0
	for _, r := range f.results {
		if r.Failed {
			failed++
		}
	}
	var left time.Duration
	text := ""
	if now := done - f.had; now > 0 && now < f.pieces {
		left = time.Since(f.begin) / time.Duration(now) * time.Duration(f.pieces-now)
		text = fmt.Sprintf(", about %v left", left.Round(time.Second))
	}
	if waits != "" {
		text += "; pods wait: " + waits
	}
	fmt.Fprintf(f.out, "%s: %d of %d done, %d running, %d failed, %v%s\n", f.work.name, done, f.work.pieces, running, failed,
		time.Since(f.begin).Round(time.Second), text)
}

// remove deletes the Job and waits until its pods are gone.
func (f *follower) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, removal)
	defer cancel()
	err := f.kube.BatchV1().Jobs(f.job.Namespace).Delete(ctx, f.job.Name, metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationBackground),
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot delete the Job: %w: kubectl delete job --namespace=%s %s", err, f.job.Namespace, f.job.Name)
	}
	err = wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		selector := metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + f.job.Name}
		pods, err := f.kube.CoreV1().Pods(f.job.Namespace).List(ctx, selector)
		return err == nil && len(pods.Items) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("the pods of the deleted Job %s are still there: look at `kubectl get pods --namespace=%s`", f.job.Name,
			f.job.Namespace)
	}
	return nil
}
