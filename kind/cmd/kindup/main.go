// Command kindup makes, changes and removes kind clusters that look like clusters
// on Hetzner servers, as package kind/cluster describes. It starts no cloud.
//
//	kindup up [--workers N]          make the cluster, print how to use it
//	kindup join NAME [ADDRESS]       one more node
//	kindup remove NAME               take a node's container away
//	kindup load ARCHIVE…             images of `docker save` into all nodes
//	kindup status                    nodes and their addresses
//	kindup image                     print the name of a node image that Docker has
//	kindup down                      remove the cluster and all that belongs to it
//
// Run it through scripts/with-docker.sh.
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cli"
	"github.com/ccm-from-scratch/ccm-from-scratch/kind/cluster"
)

func main() { cli.Main(command()) }

func command() *cobra.Command {
	root := &cobra.Command{
		Use: "kindup", Short: "Kind clusters that look like clusters on Hetzner servers",
	}
	name := root.PersistentFlags().String("name", "fakecloud", "of the cluster and of its Docker network")
	// opened wraps a command that works on an existing cluster.
	opened := func(work func(context.Context, *cluster.Cluster, []string, io.Writer) error) func(*cobra.Command, []string) error {
		return func(cmd *cobra.Command, args []string) error {
			c, err := cluster.Open(cmd.Context(), *name)
			if err != nil {
				return err
			}
			return work(cmd.Context(), c, args, cmd.OutOrStdout())
		}
	}
	root.AddCommand(
		up(name),
		&cobra.Command{Use: "join NAME [ADDRESS]", Short: "Add a node", Args: cobra.RangeArgs(1, 2), RunE: opened(join)},
		&cobra.Command{
			Use: "remove NAME", Short: "Take a node's container away; its Node is left to the CCM", Args: cobra.ExactArgs(1),
			RunE: opened(func(ctx context.Context, c *cluster.Cluster, args []string, _ io.Writer) error {
				return c.Remove(ctx, args[0])
			}),
		},
		&cobra.Command{
			Use: "load ARCHIVE...", Short: "Load images into all nodes", Args: cobra.MinimumNArgs(1),
			RunE: opened(func(ctx context.Context, c *cluster.Cluster, args []string, _ io.Writer) error {
				for _, archive := range args {
					if err := c.LoadImage(ctx, archive); err != nil {
						return err
					}
				}
				return nil
			}),
		},
		&cobra.Command{Use: "status", Short: "Show nodes and their addresses", Args: cobra.NoArgs, RunE: opened(status)},
		&cobra.Command{
			Use: "image", Short: "Print the name of a node image that Docker has, pulled or built", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				image, err := cluster.EnsureImage(cmd.Context(), os.Getenv("NODE_IMAGE"), cmd.ErrOrStderr())
				if err == nil {
					fmt.Fprintln(cmd.OutOrStdout(), image)
				}
				return err
			},
		},
		&cobra.Command{
			Use: "down", Short: "Remove the cluster", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return cluster.Delete(cmd.Context(), *name) },
		},
	)
	return root
}

// up returns the command that makes a cluster.
func up(name *string) *cobra.Command {
	var o cluster.Options
	var image, subnet string
	cmd := &cobra.Command{
		Use: "up", Short: "Make the cluster", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, begin := cmd.Context(), time.Now()
			o.Name, o.Progress = *name, cmd.ErrOrStderr()
			var err error
			if subnet != "" {
				if o.Subnet, err = cluster.ParseSubnet(subnet); err != nil {
					return cli.Usage(err)
				}
			}
			if err := o.Check(); err != nil {
				return cli.Usage(err)
			}
			if o.Image, err = cluster.EnsureImage(ctx, image, o.Progress); err != nil {
				return err
			}
			c, err := cluster.Create(ctx, o)
			if err != nil {
				return err
			}
			fmt.Fprintf(o.Progress, "ready after %s\n", time.Since(begin).Round(time.Second))
			fmt.Fprintf(cmd.OutOrStdout(), "export KUBECONFIG=%s\n", c.Kubeconfig)
			return nil
		},
	}
	cmd.Flags().IntVar(&o.Workers, "workers", 2, "number of nodes in addition to the control plane's")
	cmd.Flags().StringVar(&image, "image", cmp.Or(os.Getenv("NODE_IMAGE"), cluster.ImageAuto), "of the nodes: auto, pull, build or a name")
	cmd.Flags().StringVar(&subnet, "subnet", "", "of the Docker network, a /16 (default "+cluster.DefaultSubnet.String()+")")
	cmd.Flags().DurationVar(&o.NodeMonitorGracePeriod, "node-monitor-grace-period", 0,
		"how long a Node may be silent (default Kubernetes' own)")
	cmd.Flags().BoolVar(&o.Retain, "retain", false, "keep what there is when it fails")
	return cmd
}

// join adds a node, at the first free address unless one is given.
func join(ctx context.Context, c *cluster.Cluster, args []string, out io.Writer) error {
	begin := time.Now()
	var address netip.Addr
	var err error
	if len(args) > 1 {
		address, err = netip.ParseAddr(args[1])
	} else {
		address, err = free(ctx, c)
	}
	if err != nil {
		return err
	}
	if err := c.Join(ctx, args[0], address); err != nil {
		return err
	}
	joined := time.Since(begin)
	if err := c.AwaitReady(ctx, args[0]); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s joined as %s after %.1f s and was Ready after %.1f s\n", args[0], address, joined.Seconds(),
		time.Since(begin).Seconds())
	return nil
}

// free returns the first address for servers that no node has.
func free(ctx context.Context, c *cluster.Cluster) (netip.Addr, error) {
	nodes, err := c.Containers(ctx)
	if err != nil {
		return netip.Addr{}, err
	}
	address := c.Server(0)
	for slices.ContainsFunc(nodes, func(n cluster.NodeContainer) bool { return n.Address == address }) {
		address = address.Next()
	}
	return address, nil
}

// status prints the nodes.
func status(ctx context.Context, c *cluster.Cluster, _ []string, out io.Writer) error {
	nodes, err := c.Containers(ctx)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		state := "running"
		if !n.Running {
			state = "stopped"
		}
		fmt.Fprintf(out, "%-40s %-14s %-15s %s\n", n.Name, n.Role, n.Address, state)
	}
	fmt.Fprintf(out, "router %s, load balancers %s, pods %s\nexport KUBECONFIG=%s\n", c.Router(), c.LoadBalancers(), c.PodCIDR,
		c.Kubeconfig)
	return nil
}
