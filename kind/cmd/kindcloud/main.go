// Command kindcloud makes a kind cluster that is a Hetzner cluster, as package
// kind/environment describes.
//
//	kindcloud up            make it, or repair what is missing or dead; print how to use it
//	kindcloud env           print that again
//	kindcloud dev           build the CCM and have the cluster run it
//	kindcloud load IMAGE    put an image that Docker has into all nodes, and into later ones
//	kindcloud status        show each part's state, and how to restart a broken one
//	kindcloud hypervisor    run the hypervisor; up starts it in the background
//	kindcloud image         print the name of a node image that Docker has
//	kindcloud down          remove it all
//
// Run it through scripts/up.sh, or scripts/with-docker.sh.
package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cli"
	"github.com/ccm-from-scratch/ccm-from-scratch/kind/cluster"
	"github.com/ccm-from-scratch/ccm-from-scratch/kind/environment"
)

func main() { cli.Main(command()) }

func command() *cobra.Command {
	root := &cobra.Command{Use: "kindcloud", Short: "A kind cluster that is a Hetzner cluster"}
	name := root.PersistentFlags().String("name", cmp.Or(os.Getenv("KIND_NAME"), "fakecloud"), "of the cluster and of its Docker network")
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		if err := cluster.CheckName(*name); err != nil {
			return cli.Usage(err)
		}
		return nil
	}
	root.AddCommand(
		up(name),
		&cobra.Command{
			Use: "env", Short: "Print how to use it", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				e, err := environment.Open(cmd.Context(), *name)
				if err != nil {
					return err
				}
				_, err = fmt.Fprint(cmd.OutOrStdout(), e.Exports())
				return err
			},
		},
		&cobra.Command{
			Use: "dev", Short: "Build the CCM and have the cluster run it", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				begin := time.Now()
				e, err := environment.Open(cmd.Context(), *name)
				if err != nil {
					return err
				}
				e.Progress = cmd.ErrOrStderr()
				if err := e.DeployCCM(cmd.Context(), environment.CCM{}); err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "the CCM of this source runs, after %.1f s\n", time.Since(begin).Seconds())
				return err
			},
		},
		&cobra.Command{
			Use: "load IMAGE...", Short: "Put images that Docker has into all nodes, and into those of servers that are created later",
			Args: cobra.MinimumNArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				e, err := environment.Open(cmd.Context(), *name)
				if err != nil {
					return err
				}
				if err := e.LoadImages(cmd.Context(), args...); err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "all nodes have %s, and so will those of later servers\n", strings.Join(args, ", "))
				return err
			},
		},
		&cobra.Command{
			Use: "status", Short: "Show what works and what does not, and how to restart that", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return environment.Status(cmd.Context(), *name, cmd.OutOrStdout())
			},
		},
		&cobra.Command{
			Use: "hypervisor", Short: "Keep the cloud's servers and containers in step", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				e, err := environment.Open(cmd.Context(), *name)
				if err != nil {
					return err
				}
				return e.RunHypervisor(cmd.Context(), slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
			},
		},
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
			Use: "down", Short: "Remove it all", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return environment.Down(cmd.Context(), *name) },
		},
	)
	return root
}

const builtNote = "note: the nodes' image was built from source and provisions no volumes: a pod with a PersistentVolumeClaim waits " +
	"for a PersistentVolume that you make (kind/README.md, No registry)"

// up returns the command that makes an environment.
func up(name *string) *cobra.Command {
	var o environment.Options
	var image, subnet string
	cmd := &cobra.Command{
		Use: "up", Short: "Make it, or repair what is missing or dead; print how to use it", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Cluster.Name, o.NodeImage, o.Progress = *name, image, cmd.ErrOrStderr()
			var err error
			if subnet != "" {
				if o.Cluster.Subnet, err = cluster.ParseSubnet(subnet); err != nil {
					return cli.Usage(err)
				}
			}
			if err := o.Check(); err != nil {
				return cli.Usage(err)
			}
			program, err := os.Executable()
			if err != nil {
				return err
			}
			o.Hypervisor = []string{program, "hypervisor", "--name=" + *name}
			begin := time.Now()
			e, err := environment.Up(cmd.Context(), o)
			if err != nil {
				return err
			}
			fmt.Fprintf(o.Progress, "ready after %.1f s\n", time.Since(begin).Seconds())
			if cluster.Built(e.Image) {
				fmt.Fprintln(o.Progress, builtNote)
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), e.Exports())
			return err
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Cluster.Workers, "workers", 2, "number of nodes in addition to the control plane's")
	f.StringVar(&image, "image", cmp.Or(os.Getenv("NODE_IMAGE"), cluster.ImageAuto), "of the nodes: auto, pull, build or a name")
	f.StringVar(&subnet, "subnet", os.Getenv("KIND_SUBNET"), "of the Docker network, a /16 (default 172.30.0.0/16)")
	f.DurationVar(&o.Cluster.NodeMonitorGracePeriod, "node-monitor-grace-period", 0,
		"how long a Node may be silent (default Kubernetes' own)")
	f.BoolVar(&o.Cluster.Retain, "retain", false, "keep what there is when it fails")
	f.StringVar(&o.Actions, "actions", "realistic", "how long the cloud's actions take: instant, realistic or a duration")
	f.IntVar(&o.RateLimit, "rate-limit", environment.DefaultRateLimit, "the cloud's, in requests per hour; 0 is none")
	f.Uint16Var(&o.APIPort, "api-port", 0, "port of the cloud's API on 127.0.0.1 (default any free one)")
	f.Uint16Var(&o.ControlPort, "control-port", 0, "port of the cloud's control API on 127.0.0.1 (default any free one)")
	f.BoolVar(&o.WithoutCCM, "without-ccm", false, "leave the nodes uninitialized; dev deploys the CCM")
	f.StringVar(&o.CCMArchive, "ccm-archive", "", "`file` with an image ccm-from-scratch:kind (default it is built)")
	f.DurationVar(&o.Timeout, "timeout", 15*time.Minute, "from when all images are there until all works; 0 means no limit")
	return cmd
}
