// Command hypervisor makes the servers of a fakecloud nodes of a kind cluster, as package
// kind/hypervisor describes, until it is told to stop.
//
//	eval "$(kindup up)"
//	hypervisor --cluster fakecloud --control http://127.0.0.1:4243 --adopt
//
// With --adopt the nodes that there are become servers, whenever it attaches to the cloud; HCLOUD_ENDPOINT
// and HCLOUD_TOKEN say where.
// Run it through scripts/with-docker.sh.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/spf13/cobra"

	cloud "github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
	"github.com/ccm-from-scratch/ccm-from-scratch/kind/cluster"
	"github.com/ccm-from-scratch/ccm-from-scratch/kind/hypervisor"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "hypervisor:", err)
		os.Exit(1)
	}
}

type settings struct {
	cluster, control, network string
	adopt                     bool
	room                      int
	project                   int64
}

func command() *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use: "hypervisor", Short: "Make servers of a fakecloud nodes of a kind cluster", Args: cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			return s.run(cmd.Context(), log)
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.cluster, "cluster", "fakecloud", "name of the kind cluster")
	f.StringVar(&s.control, "control", "http://127.0.0.1:4243", "URL of fakecloud's control API")
	f.Int64Var(&s.project, "project", 0, "id of the project whose servers become nodes (default all)")
	f.IntVar(&s.room, "room", 0, "how many nodes there may be (default any number)")
	f.BoolVar(&s.adopt, "adopt", false, "make servers of the nodes that there are (HCLOUD_ENDPOINT, HCLOUD_TOKEN)")
	f.StringVar(&s.network, "network", "kubernetes", "name of the cloud's network that the cluster's Docker network plays, for --adopt")
	return cmd
}

func (s *settings) run(ctx context.Context, log *slog.Logger) error {
	c, err := cluster.Open(ctx, s.cluster)
	if err != nil {
		return err
	}
	machines := &hypervisor.Docker{Cluster: c, Room: s.room, Logger: log}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var adopting sync.WaitGroup
	defer adopting.Wait()
	var one sync.Mutex
	err = hypervisor.New(hypervisor.Options{
		Machines: machines, Logger: log,
		Attach: func(ctx context.Context) (cloud.Session, error) {
			r, err := cloud.Dial(ctx, s.control, cloud.Options{Name: "kind-" + s.cluster, Project: s.project, Selector: hypervisor.Selector})
			if err != nil {
				return nil, err // not a nil *Remote in an interface
			}
			// Attached first, so that the actions of the adoption take no longer than they must. And each
			// time: a cloud that was started anew knows no servers.
			adopting.Go(func() {
				one.Lock()
				defer one.Unlock()
				if err := s.adoptAll(ctx, c, machines, log); err != nil && ctx.Err() == nil {
					stop(fmt.Errorf("--adopt: %w", err))
				}
			})
			return r, nil
		},
	}).Run(ctx)
	if cause := context.Cause(ctx); err == nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return err
}

func (s *settings) adoptAll(ctx context.Context, c *cluster.Cluster, machines hypervisor.Machines, log *slog.Logger) error {
	if !s.adopt {
		return nil
	}
	endpoint, token := os.Getenv("HCLOUD_ENDPOINT"), os.Getenv("HCLOUD_TOKEN")
	if endpoint == "" || token == "" {
		return errors.New("set HCLOUD_ENDPOINT and HCLOUD_TOKEN, as fakecloud prints them when it starts")
	}
	containers, err := machines.List(ctx)
	if err != nil {
		return err
	}
	got, err := hypervisor.Adopt(ctx, hypervisor.Adoption{
		Client:  hcloud.NewClient(hcloud.WithEndpoint(endpoint), hcloud.WithToken(token)),
		Network: s.network, IPRange: c.Subnet, Subnet: c.Servers(),
	}, containers)
	if err != nil {
		return err
	}
	for name, server := range got.Servers {
		log.Info("a node is a server", "node", name, "server", server.ID)
	}
	return nil
}
