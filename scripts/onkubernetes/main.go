// Command onkubernetes has a Kubernetes cluster do the work of many machines. Run it by make, in a checkout:
//
//	make sim SEEDS=1000000 ON=kubernetes                    the simulation
//	make e2e E2E_CLUSTER=embedded ON=kubernetes SHARDS=20   the specs, with the CCM that CCM=file describes
//	make mutate ON=kubernetes                               drawn mutants of the CCM
//
// It builds an image with the compiled tests, and creates the Job of e2e/k8s/job.yaml by kubectl, in the current context. Each pod does a
// piece and prints the result, and the results go to the folder out. e2e/SCALING.md describes the variables of make.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// failedCode is the exit code of a pod with a result that is a failure. The Job has it, too.
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
	template, err := os.ReadFile("e2e/k8s/job.yaml")
	if err != nil {
		return err
	}
	w.env["NAME"] = fmt.Sprintf("ccm-%s-%s", w.name, time.Now().UTC().Format("20060102-150405"))
	w.env["IMAGE"] = "not-yet-made" // first, the cluster says whether it takes such a Job
	if _, err := kubectl(ctx, w.job(string(template)), "create", "--dry-run=server", "--filename=-"); err != nil {
		return err
	}
	begin := time.Now()
	image, remove, err := makeImage(ctx, w, os.Getenv("IMAGE"))
	if err != nil {
		return fmt.Errorf("the image: %w", err)
	}
	defer remove()
	fmt.Printf("%s: the image %s is there, after %v\n", w.name, image, time.Since(begin).Round(time.Second))
	w.env["IMAGE"] = image
	f := &follower{work: w, out: os.Stdout, kubectl: kubectl, results: map[int]result{}, looked: map[string]bool{}}
	err = f.run(ctx, w.job(string(template)))
	if ctx.Err() == nil {
		err = errors.Join(err, w.merge(ctx, f.results, os.Stdout), w.verdict(f.results))
	}
	return err
}

// job returns the Job of a template, with the settings of the work.
func (w work) job(template string) string {
	return os.Expand(template, func(key string) string {
		text, _ := json.Marshal(w.env[key]) // YAML has the same escapes
		return string(text[1 : len(text)-1])
	})
}
