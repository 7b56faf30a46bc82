// Command e2e-clean removes everything with the label of a run of the e2e suite from an existing cluster and cloud.
// Environment:
//
//	HCLOUD_TOKEN     the cloud's project; without it nothing is done
//	HCLOUD_ENDPOINT  another cloud than Hetzner's
//	KUBECONFIG       the cluster; without it only the cloud is cleaned
//	RUN              the name of one run; without it, all
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/clean"
)

// patience is how long a CCM has to remove what the Services of a namespace have in the cloud.
const patience = time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e-clean:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	token, name := os.Getenv("HCLOUD_TOKEN"), os.Getenv("RUN")
	if token == "" {
		return errors.New("HCLOUD_TOKEN is not set: a token of the project in which the suite ran, that may write")
	}
	var services []string
	var clusterErr error
	if path := os.Getenv("KUBECONFIG"); path == "" {
		fmt.Println("KUBECONFIG is not set: only the cloud is cleaned")
	} else {
		services, clusterErr = cluster(ctx, path, name)
	}
	client := hcloud.NewClient(hcloud.WithToken(token), hcloud.WithEndpoint(cmp.Or(os.Getenv("HCLOUD_ENDPOINT"), hcloud.Endpoint)),
		hcloud.WithApplication("e2e-clean", "1"))
	if err := errors.Join(clusterErr, clean.Cloud(ctx, client, name, services, os.Stdout)); err != nil {
		return err
	}
	fmt.Printf("nothing is left of %s\n", cmp.Or(name, "any run"))
	return nil
}

func cluster(ctx context.Context, kubeconfig, name string) (services []string, err error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("KUBECONFIG=%s: %w", kubeconfig, err)
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("KUBECONFIG=%s: %w", kubeconfig, err)
	}
	return clean.Cluster(ctx, kube, name, patience, os.Stdout)
}
