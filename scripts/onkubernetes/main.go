// Command onkubernetes has a Kubernetes cluster do the work of many machines. Run it by make, in a checkout:
//
//	make sim SEEDS=1000000 ON=kubernetes                    the simulation
//	make e2e E2E_CLUSTER=embedded ON=kubernetes SHARDS=20   the specs, with the CCM that CCM=file describes
//	make mutate ON=kubernetes                               drawn mutants of the CCM
//
// It builds an image with the compiled tests, and creates the Job of e2e/k8s/job.yaml by kubectl, in the current context. Each pod does a
// piece and prints the result, and the results go to the folder out. The Job is deleted at the end, even after Ctrl-C. e2e/SCALING.md
// says how long that takes, and how many processors are of use. Environment, each a variable of make:
//
//	IMAGE        a name that this machine can push and the cluster can pull; not for a kind cluster of this machine
//	SHARDS       so many pieces (default: sim: one for 500 seeds, e2e: 10, mutate: 20)
//	PARALLELISM  so many pieces at a time, if there is room (default 100)
//	CPU, MEMORY  the requests of each piece (default: 1 and 1Gi, e2e 1 and 3Gi)
//	SEEDS, FIRST, LABELS, FOCUS, CCM, PROCS, SAMPLE, SEED, LEAST   as on this machine
//
// Not done: the mutants of scripts/mutate/named.txt. One machine tries them in minutes.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// template is the file with the Job.
const template = "e2e/k8s/job.yaml"

// failedCode is the exit code of a pod with a result that is a failure. The template has it, too.
const failedCode = 3

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "onkubernetes:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	inPod := len(args) == 2 && args[0] == "pod"
	if len(args) != 1 && !inPod {
		return errors.New("usage: onkubernetes sim|e2e|mutate, by make: make sim ON=kubernetes")
	}
	w, err := newWork(args[len(args)-1], os.Getenv)
	if err != nil {
		return err
	}
	if inPod {
		return w.pod(ctx, os.Getenv("JOB_COMPLETION_INDEX"))
	}
	job, err := newJob(w, template, os.Getenv)
	if err != nil {
		return err
	}
	begin := time.Now()
	image, remove, err := makeImage(ctx, w, os.Getenv("IMAGE"))
	if err != nil {
		return fmt.Errorf("the image: %w", err)
	}
	defer remove()
	fmt.Printf("%s: the image %s is there, after %v\n", w.name, image, time.Since(begin).Round(time.Second))
	job.Spec.Template.Spec.Containers[0].Image = image
	f := &follower{work: w, job: job, out: os.Stdout, kubectl: kubectl, results: map[int]result{}, looked: map[string]bool{}}
	err = f.run(ctx)
	if ctx.Err() == nil {
		err = errors.Join(err, w.merge(ctx, f.results, os.Stdout), w.verdict(f.results))
	}
	return err
}

// newJob reads the Job of a file and sets everything except the image.
func newJob(w work, file string, getenv func(string) string) (*batchv1.Job, error) {
	job := &batchv1.Job{}
	text, err := os.ReadFile(file)
	if err = errors.Join(err, yaml.UnmarshalStrict(text, job)); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	job.Name = fmt.Sprintf("ccm-%s-%s", w.name, time.Now().UTC().Format("20060102-150405"))
	job.Spec.Completions, job.Spec.Parallelism = new(int32(w.pieces)), new(int32(min(w.parallelism, w.pieces)))
	c := &job.Spec.Template.Spec.Containers[0]
	c.Command[len(c.Command)-1] = w.name
	for name, amount := range map[corev1.ResourceName]string{
		corev1.ResourceCPU: cmp.Or(getenv("CPU"), "1"), corev1.ResourceMemory: cmp.Or(getenv("MEMORY"), w.memory),
	} {
		if c.Resources.Requests[name], err = resource.ParseQuantity(amount); err != nil {
			return nil, fmt.Errorf("CPU or MEMORY: %s: must be such as 1 or 2Gi: %w", amount, err)
		}
	}
	if w.name != "e2e" { // as many seeds or mutants at a time as it has processors, instead of those of the node
		w.env["GOMAXPROCS"] = strconv.FormatInt(max(1, c.Resources.Requests.Cpu().Value()), 10)
	}
	c.Env = nil
	for _, key := range slices.Sorted(maps.Keys(w.env)) {
		c.Env = append(c.Env, corev1.EnvVar{Name: key, Value: w.env[key]})
	}
	return job, nil
}
