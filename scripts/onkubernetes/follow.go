package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

const poll = 3 * time.Second

// kubectl runs kubectl with an input and returns its output.
func kubectl(ctx context.Context, in string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "kubectl", args...)
	cmd.Stdin = strings.NewReader(in)
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("kubectl %s: %w: %s", args[0], err, strings.TrimSpace(string(exit.Stderr)))
	}
	return string(out), err
}

// follower creates a Job, collects the results of its pods, and deletes it.
type follower struct {
	work    work
	out     io.Writer
	kubectl func(ctx context.Context, in string, args ...string) (string, error)

	results map[int]result
	looked  map[string]bool // pods that have ended, by name
	begin   time.Time
	shown   string
}

func (f *follower) run(ctx context.Context, job string) (err error) {
	name := f.work.env["NAME"]
	defer func() {
		_, failed := f.kubectl(context.WithoutCancel(ctx), "", "delete", "job", name, "--cascade=foreground", "--ignore-not-found",
			"--timeout=1m")
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("%w: delete it by kubectl delete job %s", failed, name))
		}
	}()
	if _, err := f.kubectl(ctx, job, "create", "--filename=-"); err != nil {
		return err
	}
	fmt.Fprintf(f.out, "the Job %s has %d pieces, %s at a time\n", name, f.work.pieces, f.work.env["PARALLELISM"])
	f.begin = time.Now()
	for ticks := time.NewTicker(poll); ; {
		if ended, err := f.look(ctx, name); ended || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticks.C:
		}
	}
}

// podLines has kubectl print a line for the Job and each pod: its name, index, phase, the reason of its container's state, and messages.
const podLines = `--output=jsonpath={range .items[*]}{.metadata.name}{"\t"}` +
	`{.metadata.annotations['batch\.kubernetes\.io/job-completion-index']}{"\t"}{.status.phase}{"\t"}` +
	`{.status.containerStatuses[*].state.*.reason}{"\t"}{.status.containerStatuses[*].state.waiting.message}` +
	`{.status.conditions[?(@.type=="PodScheduled")].message}{.status.conditions[?(@.type=="DisruptionTarget")].message}` +
	`{.status.conditions[?(@.type=="Complete")].type}{.status.conditions[?(@.type=="Failed")].type}{"\n"}{end}`

// look collects results and reports whether the Job has ended.
func (f *follower) look(ctx context.Context, name string) (ended bool, err error) {
	// kubectl asks for the Job before its pods: all pods of an ended Job have ended.
	text, err := f.kubectl(ctx, "", "get", "jobs,pods", "--selector=app.kubernetes.io/instance="+name, podLines)
	if err != nil {
		if ctx.Err() != nil || strings.Contains(err.Error(), "(Forbidden)") {
			return false, err
		}
		f.show(fmt.Sprintf("the cluster does not answer, and is asked again: %v", err))
		return false, nil
	}
	running, waits, gone := 0, "", true
	for line := range strings.Lines(text) {
		pod := strings.SplitN(strings.TrimSpace(line)+"\t\t\t\t", "\t", 5)
		says := strings.Join(strings.Fields(pod[3]+" "+pod[4]), " ")
		switch phase := pod[2]; {
		case pod[0] == name:
			gone, ended = false, says != ""
		case phase == "Running":
			running++
		case phase == "Succeeded" || phase == "Failed":
			f.collect(ctx, pod[0], pod[1], says)
		case pod[3] == "ImagePullBackOff" || pod[3] == "InvalidImageName":
			return false, fmt.Errorf("the pod %s does not start: %s: correct IMAGE: the cluster must be able to pull it", pod[0], says)
		case phase == "Pending":
			waits = says
		}
	}
	if gone {
		return false, fmt.Errorf("the Job %s is gone: somebody else has deleted it: start again", name)
	}
	ended = ended || len(f.results) == f.work.pieces
	f.show(f.progress(running, waits))
	return ended, nil
}

// collect reads the result of an ended pod.
func (f *follower) collect(ctx context.Context, pod, index, says string) {
	piece, err := strconv.Atoi(index)
	if err != nil || f.looked[pod] {
		return
	}
	log, err := f.kubectl(ctx, "", "logs", pod)
	if err != nil {
		return // the next look tries again
	}
	f.looked[pod] = true
	if r, err := readResult(log); err == nil {
		f.results[piece] = r
	} else {
		fmt.Fprintf(f.out, "piece %d: the pod %s ended without a result: %v: %s\n", piece, pod, err, says)
	}
}

// progress says how many pieces are done.
func (f *follower) progress(running int, waits string) string {
	failed := 0
	for _, r := range f.results {
		if r.Failed {
			failed++
		}
	}
	text := fmt.Sprintf("%d of %d done, %d running, %d failed after %v", len(f.results), f.work.pieces, running, failed,
		time.Since(f.begin).Round(time.Minute))
	if waits != "" {
		text += "; pods wait: " + waits
	}
	return text
}

// show prints a line unless it is the one before.
func (f *follower) show(text string) {
	if text != f.shown {
		f.shown = text
		fmt.Fprintf(f.out, "%s: %s\n", f.work.name, text)
	}
}
