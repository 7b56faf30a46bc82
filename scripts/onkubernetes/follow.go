package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const (
	poll      = 3 * time.Second
	showEvery = 10 * time.Second
)

// kubectl runs kubectl with an input and returns its output.
func kubectl(ctx context.Context, in []byte, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "kubectl", args...)
	cmd.Stdin = bytes.NewReader(in)
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("kubectl %s: %w: %s", args[0], err, bytes.TrimSpace(exit.Stderr))
	}
	return string(out), err
}

// follower creates a Job, collects the results of its pods, and deletes it.
type follower struct {
	work    work
	job     *batchv1.Job
	out     io.Writer
	kubectl func(ctx context.Context, in []byte, args ...string) (string, error)

	results      map[int]result
	looked       map[string]bool // pods that have ended, by name
	begin, shown time.Time
}

func (f *follower) run(ctx context.Context) (err error) {
	text, err := yaml.Marshal(f.job)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.remove(context.WithoutCancel(ctx))) }()
	if _, err := f.kubectl(ctx, text, "create", "--filename=-"); err != nil {
		return err
	}
	fmt.Fprintf(f.out, "the Job %s has %d pieces, %d at a time\n", f.job.Name, *f.job.Spec.Completions, *f.job.Spec.Parallelism)
	f.begin, f.shown = time.Now(), time.Now()
	ticks := time.NewTicker(poll)
	defer ticks.Stop()
	for {
		if ended, err := f.look(ctx); ended || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticks.C:
		}
	}
}

// look collects results and reports whether the Job has ended. It asks for the Job before its pods: those of an ended Job have ended.
func (f *follower) look(ctx context.Context) (ended bool, err error) {
	conditions, err := f.kubectl(ctx, nil, "get", "job", f.job.Name, `--output=jsonpath={.status.conditions[?(@.status=="True")].type}`)
	var text string
	if err == nil {
		text, err = f.kubectl(ctx, nil, "get", "pods", "--selector="+batchv1.JobNameLabel+"="+f.job.Name, "--output=json")
	}
	var pods corev1.PodList
	if err == nil {
		err = json.Unmarshal([]byte(text), &pods)
	}
	if err != nil {
		if ctx.Err() != nil || strings.Contains(err.Error(), "(NotFound)") || strings.Contains(err.Error(), "(Forbidden)") {
			return false, err
		}
		f.show(false, fmt.Sprintf("the cluster does not answer, and is asked again: %v", err))
		return false, nil
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
	ended = len(f.results) == f.work.pieces || strings.Contains(conditions, "Complete") || strings.Contains(conditions, "Failed")
	f.show(ended, f.progress(running, waits))
	return ended, nil
}

// collect reads the result of an ended pod.
func (f *follower) collect(ctx context.Context, pod *corev1.Pod) {
	piece, err := strconv.Atoi(pod.Annotations[batchv1.JobCompletionIndexAnnotation])
	if err != nil || f.looked[pod.Name] {
		return
	}
	log, err := f.kubectl(ctx, nil, "logs", pod.Name)
	if err != nil {
		return // the next look tries again
	}
	f.looked[pod.Name] = true
	found, err := readResult(log)
	if err != nil {
		fmt.Fprintf(f.out, "piece %d: the pod %s ended without a result: %s\n", piece, pod.Name, lastWords(pod, err))
		return
	}
	f.results[piece] = found
}

// lastWords says how a pod without a result ended.
func lastWords(pod *corev1.Pod, err error) string {
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
	return err.Error()
}

// waiting says why a pod does not run yet, and whether it never will.
func waiting(pod *corev1.Pod) (reason string, fatal bool) {
	for _, c := range pod.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && (w.Reason == "ImagePullBackOff" || w.Reason == "InvalidImageName") {
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

// progress says how many pieces are done.
func (f *follower) progress(running int, waits string) string {
	done, failed := len(f.results), 0
	for _, r := range f.results {
		if r.Failed {
			failed++
		}
	}
	took := time.Since(f.begin)
	text := fmt.Sprintf("%d of %d done, %d running, %d failed, %v", done, f.work.pieces, running, failed, took.Round(time.Second))
	if left := took / time.Duration(max(1, done)) * time.Duration(f.work.pieces-done); done > 0 && left > 0 {
		text += fmt.Sprintf(", about %v left", left.Round(time.Second))
	}
	if waits != "" {
		text += "; pods wait: " + waits
	}
	return text
}

// show prints a line, at most one every few seconds.
func (f *follower) show(now bool, text string) {
	if now || time.Since(f.shown) >= showEvery {
		f.shown = time.Now()
		fmt.Fprintf(f.out, "%s: %s\n", f.work.name, text)
	}
}

// remove deletes the Job and waits until its pods are gone.
func (f *follower) remove(ctx context.Context) error {
	_, err := f.kubectl(ctx, nil, "delete", "job", f.job.Name, "--cascade=foreground", "--ignore-not-found", "--timeout=1m")
	if err != nil {
		return fmt.Errorf("%w: delete it by kubectl delete job %s", err, f.job.Name)
	}
	return nil
}
