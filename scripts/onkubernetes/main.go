// Command onkubernetes has a Kubernetes cluster do what is too much for one machine. Run it by make, in a checkout:
//
//	make sim SEEDS=1000000 ON=kubernetes                    the simulation
//	make e2e E2E_CLUSTER=embedded ON=kubernetes SHARDS=20   the specs, with the CCM that CCM=file describes
//	make mutate ON=kubernetes                               drawn mutants of the CCM
//
// It builds an image with the compiled tests, and makes the Job of e2e/k8s/job.yaml in the namespace of the current context. Each of its
// pods does a piece. It collects the results from the pods' logs, merges them into the folder out, and removes what it made, even after
// Ctrl-C. e2e/SCALING.md says what it costs, and how many processors are of use. Environment, each a variable of make:
//
//	IMAGE        a name that this machine can push and the cluster can pull; not for a kind cluster of this machine
//	SHARDS       so many pieces (default: sim: one for 500 seeds, e2e: 10, mutate: 20)
//	PARALLELISM  so many pieces at a time, if there is room (default 100)
//	CPU, MEMORY  what each piece requests (default: 1 and 1Gi, e2e 1 and 3Gi)
//	SEEDS, FIRST, LABELS, FOCUS, CCM, PROCS, SAMPLE, SEED, LEAST   as on this machine
//
// Not done: the mutants of scripts/mutate/named.txt, which one machine tries in minutes.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// template is the file with the Job.
const template = "e2e/k8s/job.yaml"

// failedCode is the exit code of a pod with a result that is a failure. The template has it, too.
const failedCode = 3

// errFailed says that a result is a failure.
var errFailed = errors.New("a piece failed")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:])
	stop()
	if errors.Is(err, errFailed) {
		os.Exit(failedCode)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "onkubernetes:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 2 && args[0] == "pod" {
		return pod(ctx, args[1])
	}
	if len(args) != 1 {
		return errors.New("usage: onkubernetes sim|e2e|mutate, by make: make sim ON=kubernetes")
	}
	w, err := newWork(args[0], os.Getenv)
	if err != nil {
		return err
	}
	job, err := newJob(w, template, os.Getenv)
	if err != nil {
		return err
	}
	return onKubernetes(ctx, w, job)
}

// pod does a piece, and prints the result.
func pod(ctx context.Context, name string) error {
	w, err := newWork(name, os.Getenv)
	if err != nil {
		return err
	}
	piece, err := pieceOf(os.Getenv("JOB_COMPLETION_INDEX"), os.Getenv(envPieces))
	if err != nil {
		return fmt.Errorf("the index of the pod: %w", err)
	}
	r, err := w.do(ctx, piece)
	if err == nil {
		err = r.print(os.Stdout)
	}
	if err == nil && r.Failed {
		err = errFailed
	}
	return err
}

// newJob reads the Job of the file, and sets what is chosen. The image is not known yet.
func newJob(w work, file string, getenv func(string) string) (*batchv1.Job, error) {
	job := &batchv1.Job{}
	text, err := os.ReadFile(file)
	if err = errors.Join(err, yaml.UnmarshalStrict(text, job)); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	parallelism, err := strconv.Atoi(cmp.Or(getenv("PARALLELISM"), "100"))
	if err != nil || parallelism < 1 {
		return nil, fmt.Errorf("PARALLELISM=%s: must be a number, at least 1", getenv("PARALLELISM"))
	}
	job.Name = fmt.Sprintf("ccm-%s-%s", w.name, time.Now().UTC().Format("20060102-150405"))
	job.Spec.Completions, job.Spec.Parallelism = new(int32(w.pieces)), new(int32(min(parallelism, w.pieces)))
	c := &job.Spec.Template.Spec.Containers[0]
	c.Command[len(c.Command)-1] = w.name
	memory := "1Gi"
	if w.name == "e2e" {
		memory = "3Gi"
	}
	for _, q := range []struct {
		name      corev1.ResourceName
		variable  string
		otherwise string
	}{{corev1.ResourceCPU, "CPU", "1"}, {corev1.ResourceMemory, "MEMORY", memory}} {
		amount, err := resource.ParseQuantity(cmp.Or(getenv(q.variable), q.otherwise))
		if err != nil {
			return nil, fmt.Errorf("%s=%s: must be such as %s: %w", q.variable, getenv(q.variable), q.otherwise, err)
		}
		c.Resources.Requests[q.name] = amount
	}
	if w.name != "e2e" { // as many seeds or mutants at a time as it has processors, and not as the node has
		w.env["GOMAXPROCS"] = strconv.FormatInt(max(1, c.Resources.Requests.Cpu().Value()), 10)
	}
	c.Env = nil
	for _, key := range slices.Sorted(maps.Keys(w.env)) {
		c.Env = append(c.Env, corev1.EnvVar{Name: key, Value: w.env[key]})
	}
	return job, nil
}

func onKubernetes(ctx context.Context, w work, job *batchv1.Job) error {
	config := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil)
	raw, err := config.RawConfig()
	if err != nil {
		return err
	}
	namespace, _, err := config.Namespace()
	if err != nil {
		return err
	}
	rest, err := config.ClientConfig()
	if err != nil {
		return fmt.Errorf("there is no cluster: %w: set KUBECONFIG, or choose a context by kubectl config use-context", err)
	}
	rest.QPS, rest.Burst = 50, 100
	kube, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return err
	}
	begin := time.Now()
	folder, err := os.MkdirTemp("", "onkubernetes-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	img, err := build(ctx, w, folder)
	if err != nil {
		return fmt.Errorf("building the image: %w", err)
	}
	image, removeImage, err := publish(ctx, img, os.Getenv("IMAGE"), raw.CurrentContext, kube)
	if err != nil {
		return err
	}
	defer removeImage()
	fmt.Printf("%s on the context %s: the image %s is there, after %v\n", w.name, raw.CurrentContext, image,
		time.Since(begin).Round(time.Second))
	job.Namespace, job.Spec.Template.Spec.Containers[0].Image = namespace, image
	r := runner{kube: kube, work: w, job: job, out: os.Stdout}
	r.logs = func(ctx context.Context, pod string) (io.ReadCloser, error) {
		return kube.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{}).Stream(ctx)
	}
	results, err := r.run(ctx)
	if ctx.Err() == nil {
		err = errors.Join(err, w.merge(ctx, results, os.Stdout), w.verdict(results))
	}
	return err
}
