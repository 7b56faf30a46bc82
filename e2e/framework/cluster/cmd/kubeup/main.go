// Command kubeup runs the embedded control plane of the e2e suite, with simulated
// nodes, until it is interrupted. It is for trying things by hand:
//
//	go run ./e2e/framework/cluster/cmd/kubeup --nodes 3
//	export KUBECONFIG=…        (as it prints)
//	kubectl get nodes
package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cli"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/cluster"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/node"
)

func main() { cli.Main(command()) }

func command() *cobra.Command {
	var options cluster.Options
	var nodes int
	var address string
	cmd := &cobra.Command{
		Use:   "kubeup",
		Short: "Run a Kubernetes control plane with simulated nodes until interrupted",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), options, nodes, address)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&nodes, "nodes", 0, "how many simulated nodes there are")
	flags.StringVar(&address, "address", "127.99.0.1", "loopback address of the first node's ports; each further node has the next one")
	flags.StringVar(&options.LogDir, "log-dir", "", "folder that keeps the programs' output (default: a temporary one)")
	flags.DurationVar(&options.NodeMonitorGracePeriod, "node-monitor-grace-period", 8*time.Second,
		"how long a node may be silent before it is NotReady")
	return cmd
}

func run(ctx context.Context, options cluster.Options, nodes int, address string) (err error) {
	next, err := netip.ParseAddr(address)
	if err != nil {
		return cli.Usage(fmt.Errorf("--address=%s: must be an address such as 127.99.0.1", address))
	}
	options.Programs, err = cluster.FindPrograms()
	if err != nil {
		return err
	}
	c, err := cluster.Start(ctx, options)
	if err != nil {
		return err
	}
	defer func() {
		if stopped := c.Stop(); err == nil {
			err = stopped
		}
	}()
	for i := range nodes {
		n, err := node.Start(ctx, c.Client, node.Spec{
			Name: fmt.Sprintf("node-%d", i+1), Addresses: []netip.Addr{next}, Log: slog.Default(),
		})
		if err != nil {
			return err
		}
		defer n.Stop()
		next = next.Next()
	}
	fmt.Fprintf(os.Stderr, "Kubernetes %s is up, %d nodes; logs are in %s. Ctrl-C ends it.\n", c.Version, nodes, c.LogDir)
	fmt.Printf("export KUBECONFIG=%s\nexport PATH=%s:$PATH\n", c.Kubeconfig, options.Programs)
	<-ctx.Done()
	return nil
}
