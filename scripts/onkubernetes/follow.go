package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
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

// podLines has kubectl print a line for each pod: its name, index, phase, the reason of its container's state, and messages.
const podLines = `--output=jsonpath={range .items[*]}{.metadata.name}{"\t"}` +
	`{.metadata.annotations['batch\.kubernetes\.io/job-completion-index']}{"\t"}{.status.phase}{"\t"}` +
	`{.status.containerStatuses[*].state.*.reason}{"\t"}{.status.containerStatuses[*].state.waiting.message}` +
	`{.status.conditions[?(@.type=="PodScheduled")].message}{.status.conditions[?(@.type=="DisruptionTarget")].message}{"\n"}{end}`

// look collects results and reports whether the Job has ended. It asks for the Job before its pods: all pods of an ended Job have ended.
func (f *follower) look(ctx context.Context) (ended bool, err error) {
	conditions, err := f.kubectl(ctx, nil, "get", "job", f.job.Name, `--output=jsonpath={.status.conditions[?(@.status=="True")].type}`)
	var pods string
	if err == nil {
		pods, err = f.kubectl(ctx, nil, "get", "pods", "--selector="+batchv1.JobNameLabel+"="+f.job.Name, podLines)
	}
	if err != nil {
		if ctx.Err() != nil || strings.Contains(err.Error(), "(NotFound)") || strings.Contains(err.Error(), "(Forbidden)") {
			return false, err
		}
		f.show(false, fmt.Sprintf("the cluster does not answer, and is asked again: %v", err))
		return false, nil
	}
	running, waits := 0, ""
	for line := range strings.Lines(pods) {
		pod := strings.SplitN(strings.TrimSpace(line)+"\t\t", "\t", 5)
		if len(pod) < 5 {
			continue // the rest of a message
		}
		says := strings.TrimSpace(pod[3] + " " + pod[4])
		switch phase, reason := pod[2], pod[3]; {
		case phase == "Running":
			running++
		case phase == "Succeeded" || phase == "Failed":
			f.collect(ctx, pod[0], pod[1], says)
		case reason == "ImagePullBackOff" || reason == "InvalidImageName":
			return false, fmt.Errorf("the pod %s does not start: %s: correct IMAGE: the cluster must be able to pull it", pod[0], says)
		default:
			waits = says
		}
	}
	ended = len(f.results) == f.work.pieces || strings.Contains(conditions, "Complete") || strings.Contains(conditions, "Failed")
	f.show(ended, f.progress(running, waits))
	return ended, nil
}

// collect reads the result of an ended pod.
func (f *follower) collect(ctx context.Context, pod, index, says string) {
	piece, err := strconv.Atoi(index)
	if err != nil || f.looked[pod] {
		return
	}
	log, err := f.kubectl(ctx, nil, "logs", pod)
	if err != nil {
		return // the next look tries again
	}
	f.looked[pod] = true
	if found, err := readResult(log); err == nil {
		f.results[piece] = found
	} else {
		fmt.Fprintf(f.out, "piece %d: the pod %s ended without a result: %v: %s\n", piece, pod, err, says)
	}
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
