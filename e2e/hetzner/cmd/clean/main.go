// Command clean removes the leftovers of the suite's runs from an existing cluster and from its cloud: make e2e-clean.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cli"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/hetzner/clean"
)

// patience is how long a CCM has to remove the objects of a namespace's Services from the cloud.
const patience = time.Minute

func main() { cli.Main(command()) }

func command() *cobra.Command {
	return &cobra.Command{
		Use: "e2e-clean", Short: "Remove what runs have left in an existing cluster and cloud", Args: cobra.NoArgs,
		Long: `Remove everything with the label of a run of the suite from an existing cluster and cloud. Environment:

  HCLOUD_TOKEN     a token of the cloud's project that may write; it must be set
  HCLOUD_ENDPOINT  another cloud than Hetzner's
  KUBECONFIG       the cluster; without it, only the cloud is cleaned
  RUN              the name of one run; without it, all`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cleanUp(cmd.Context()) },
	}
}

func cleanUp(ctx context.Context) error {
	token, run := os.Getenv("HCLOUD_TOKEN"), os.Getenv("RUN")
	if token == "" {
		return cli.Usage(errors.New("HCLOUD_TOKEN is not set: it must be a token that may write, of the project in which the suite ran"))
	}
	var services []string
	var clusterErr error
	if path := os.Getenv("KUBECONFIG"); path == "" {
		fmt.Println("KUBECONFIG is not set: only the cloud is cleaned")
	} else {
		services, clusterErr = cleanCluster(ctx, path, run)
	}
	client := hcloud.NewClient(hcloud.WithToken(token), hcloud.WithEndpoint(cmp.Or(os.Getenv("HCLOUD_ENDPOINT"), hcloud.Endpoint)),
		hcloud.WithApplication("e2e-clean", "1"))
	if err := errors.Join(clusterErr, clean.Cloud(ctx, client, run, services, os.Stdout)); err != nil {
		return err
	}
	fmt.Printf("nothing is left of %s\n", cmp.Or(run, "any run"))
	return nil
}

func cleanCluster(ctx context.Context, kubeconfig, run string) (services []string, err error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	var kube kubernetes.Interface
	if err == nil {
		kube, err = kubernetes.NewForConfig(config)
	}
	if err != nil {
		return nil, fmt.Errorf("KUBECONFIG=%s: %w", kubeconfig, err)
	}
	return clean.Cluster(ctx, kube, run, patience, os.Stdout)
}
