// Command onkubernetes has a Kubernetes cluster do what is too much for one machine. Run it by make, in a checkout:
//
//	make sim SEEDS=1000000 ON=kubernetes                    the simulation
//	make e2e E2E_CLUSTER=embedded ON=kubernetes SHARDS=20   the specs
//	make mutate ON=kubernetes                               drawn mutants of the CCM
//
// It builds an image with the compiled tests, and makes an Indexed Job in the namespace of the current context, each of whose pods does a
// piece. It collects the results from the pods' logs, merges them into the folder out, and removes what it made, also after Ctrl-C.
// e2e/SCALING.md says what it costs, and how many processors are of use. Environment, each a variable of make:
//
//	IMAGE        a name that this machine can push and the cluster can pull; not for a kind cluster of this machine
//	SHARDS       so many pieces (default: sim: one for 500 seeds, e2e: 10, mutate: 20)
//	PARALLELISM  so many pieces at a time, if there is room (default 100)
//	CPU, MEMORY  what each piece requests (default: 1 and 1Gi, e2e 1 and 3Gi)
//	SEEDS, FIRST, LABELS, FOCUS, PROCS, SAMPLE, SEED, LEAST   as on this machine
//
// Not done: other CCMs than ours, and the mutants of scripts/mutate/named.txt, each of which needs a compiler.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

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

// errFailed says that a result is a failure.
var errFailed = errors.New("a piece failed")

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
	o, err := newOptions(w, os.Getenv)
	if err != nil {
		return err
	}
	return onKubernetes(ctx, w, o)
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
	fmt.Printf("piece %d, as by: %s\n", piece, w.alone(piece))
	r, err := w.do(ctx, piece)
	if err = errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	if err := r.print(os.Stdout); err != nil {
		return err
	}
	if r.Failed {
		return errFailed
	}
	return nil
}

func newOptions(w work, getenv func(string) string) (o options, err error) {
	o = options{image: getenv("IMAGE"), env: w.settings()}
	if text := getenv("PARALLELISM"); text != "" {
		if o.parallelism, err = strconv.Atoi(text); err != nil || o.parallelism < 1 {
			return o, fmt.Errorf("PARALLELISM=%s: must be a number, at least 1", text)
		}
	}
	cpu, memory := "1", "1Gi"
	if w.name() == "e2e" {
		memory = "3Gi"
	}
	for _, q := range []struct {
		name, otherwise string
		to              *resource.Quantity
	}{{"CPU", cpu, &o.cpu}, {"MEMORY", memory, &o.memory}} {
		text := getenv(q.name)
		if text == "" {
			text = q.otherwise
		}
		if *q.to, err = resource.ParseQuantity(text); err != nil {
			return o, fmt.Errorf("%s=%s: must be such as %s: %w", q.name, text, q.otherwise, err)
		}
	}
	if w.name() != "e2e" { // as many seeds or mutants at a time as it has processors, and not as the node has
		o.env["GOMAXPROCS"] = strconv.FormatInt(max(1, o.cpu.Value()), 10)
	}
	return o, nil
}

func onKubernetes(ctx context.Context, w work, o options) error {
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
	image, removeImage, err := build(ctx, w, o, raw.CurrentContext, kube)
	if err != nil {
		return err
	}
	defer removeImage()
	fmt.Printf("%s on the context %s: the image %s is there, after %v\n", w.name(), raw.CurrentContext, image,
		time.Since(begin).Round(time.Second))
	r := runner{kube: kube, namespace: namespace, image: image, work: w, options: o, out: os.Stdout}
	r.logs = func(ctx context.Context, pod string) (io.ReadCloser, error) {
		return kube.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{}).Stream(ctx)
	}
	results, err := r.run(ctx, fmt.Sprintf("ccm-%s-%s", w.name(), strings.ToLower(time.Now().UTC().Format("20060102-150405"))))
	if ctx.Err() == nil {
		err = errors.Join(err, w.merge(ctx, results, os.Stdout), verdict(w, results))
	}
	return err
}

// verdict says which pieces failed, or have no result, and how each is run alone.
func verdict(w work, results map[int]result) error {
	var errs []error
	for piece := range w.pieces() {
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

// build makes the image and puts it where the cluster finds it.
func build(ctx context.Context, w work, o options, kubeContext string, kube kubernetes.Interface) (string, func(), error) {
	folder, err := os.MkdirTemp("", "onkubernetes-")
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	l, err := newLayer(folder)
	if err != nil {
		return "", nil, err
	}
	if _, err := exec.LookPath("go"); err != nil {
		return "", nil, err
	}
	l.compile(ctx, programs+"/onkubernetes", "build", "-v", "./scripts/onkubernetes")
	w.fill(ctx, l)
	img, err := l.image()
	if err != nil {
		return "", nil, fmt.Errorf("building the image: %w", err)
	}
	return publish(ctx, img, o.image, kubeContext, kube)
}
