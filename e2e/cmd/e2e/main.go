// Command e2e does what comes after runs of the suite: it removes what they left, and writes down what they showed.
// Makefile targets and scripts call it; e2e --help lists the commands.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/clean"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/probe"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/upstream"
)

// patience is how long a CCM has to remove what the Services of a namespace have in the cloud.
const patience = time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{Use: "e2e", Short: "Clean up after runs of the e2e suite, and write down what they showed", SilenceUsage: true,
		SilenceErrors: true}
	root.AddCommand(&cobra.Command{
		Use: "clean", Short: "Remove what runs have left in an existing cluster and cloud", Args: cobra.NoArgs,
		Long: `Remove everything with the label of a run of the suite from an existing cluster and cloud. Environment:

  HCLOUD_TOKEN     a token of the cloud's project that may write; it must be set
  HCLOUD_ENDPOINT  another cloud than Hetzner's
  KUBECONFIG       the cluster; without it, only the cloud is cleaned
  RUN              the name of one run; without it, all`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cleanUp(cmd.Context()) },
	}, &cobra.Command{
		Use: "conformance REPORT UNSUPPORTED PAGE", Short: "Write the page of what Kubernetes' own specs have shown",
		Args: cobra.ExactArgs(3),
		Long: `Write the page of what Kubernetes' own specs have shown, and fail if something has become worse than on the page before. REPORT
is Ginkgo's JSON report, UNSUPPORTED the list of what cannot pass, with reasons, and PAGE the Markdown page.`,
		RunE: func(_ *cobra.Command, args []string) error {
			return upstream.Update(os.Stdout, args[0], args[1], args[2])
		},
	}, &cobra.Command{
		Use: "probe FILE FOLDER", Short: "Write what a run of all specs has found out about a CCM into its file", Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error { return updateCCM(args[0], args[1]) },
	}, reportCommand(), mergeCommand(), durationsCommand(), consoleCommand())
	return root
}

func cleanUp(ctx context.Context) error {
	token, run := os.Getenv("HCLOUD_TOKEN"), os.Getenv("RUN")
	if token == "" {
		return errors.New("HCLOUD_TOKEN is not set: it must be a token that may write, of the project in which the suite ran")
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

func updateCCM(path, folder string) error {
	file, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	results := filepath.Join(folder, speclist.File)
	text, err := os.ReadFile(results)
	if err != nil {
		return fmt.Errorf("the run has no results: %w", err)
	}
	var r speclist.Run
	if err := json.Unmarshal(text, &r); err != nil {
		return fmt.Errorf("%s: %w", results, err)
	}
	updated, found, err := probe.Update(file, r)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := os.WriteFile(path, updated, 0o644); err != nil {
		return err
	}
	specs := 0
	for _, gap := range found.KnownGaps {
		specs += len(gap.Specs)
	}
	fmt.Printf("%s: lacks %d features; %d other specs fail. Write the reasons instead of %q.\n", path, len(found.Lacks), specs,
		probe.Unexplained)
	return nil
}
