// Package clean removes the leftovers of the e2e suite's runs from an existing cluster and cloud.
package clean

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
)

// LabelRun is the label with the run's name on everything that a run creates.
const LabelRun = cloud.LabelRun

// Selector selects the objects of a run, or those of all runs if run is empty.
func Selector(run string) string {
	if run == "" {
		return LabelRun
	}
	return LabelRun + "=" + run
}

// resource is something in the cloud that can be removed.
type resource struct {
	kind, name string
	id         int64
	labels     map[string]string
	remove     func() error
}

// Cloud removes the objects of a run from a cloud, or those of all runs if run is empty. It also removes the objects that a CCM created for
// a Service with one of the given UIDs: these have no label of the run. It prints each resource to out, continues after errors and returns
// them together.
func Cloud(ctx context.Context, client *hcloud.Client, run string, services []string, out io.Writer) error {
	made := map[string]bool{}
	for _, uid := range services {
		made[uid] = true
	}
	ours := func(labels map[string]string) bool {
		if name, ok := labels[LabelRun]; ok && (run == "" || name == run) {
			return true
		}
		for _, value := range labels {
			if made[value] {
				return true
			}
		}
		return false
	}
	var errs []error
	// Load balancers use servers and certificates, and all use networks.
	for _, list := range []func(context.Context, *hcloud.Client) ([]resource, error){loadBalancers, servers, certificates, networks} {
		all, err := list(ctx, client)
		errs = append(errs, err)
		for _, r := range all {
			if !ours(r.labels) {
				continue
			}
			if err := r.remove(); err != nil && !hcloud.IsError(err, hcloud.ErrorCodeNotFound) {
				errs = append(errs, fmt.Errorf("cannot remove the %s %s (%d): %w", r.kind, r.name, r.id, err))
				continue
			}
			_, _ = fmt.Fprintf(out, "removed the %s %s (%d)\n", r.kind, r.name, r.id)
		}
	}
	return errors.Join(errs...)
}

func loadBalancers(ctx context.Context, client *hcloud.Client) (list []resource, err error) {
	all, err := client.LoadBalancer.All(ctx)
	for _, lb := range all {
		list = append(list, resource{"load balancer", lb.Name, lb.ID, lb.Labels, func() error {
			if lb.Protection.Delete {
				off := hcloud.LoadBalancerChangeProtectionOpts{Delete: new(bool)}
				if err := done(ctx, client)(client.LoadBalancer.ChangeProtection(ctx, lb, off)); err != nil {
					return err
				}
			}
			result, response, err := client.LoadBalancer.DeleteWithResult(ctx, lb)
			return done(ctx, client)(result.Action, response, err)
		}})
	}
	return list, err
}

func servers(ctx context.Context, client *hcloud.Client) (list []resource, err error) {
	all, err := client.Server.All(ctx)
	for _, s := range all {
		list = append(list, resource{"server", s.Name, s.ID, s.Labels, func() error {
			if s.Protection.Delete || s.Protection.Rebuild {
				off := hcloud.ServerChangeProtectionOpts{Delete: new(bool), Rebuild: new(bool)}
				if err := done(ctx, client)(client.Server.ChangeProtection(ctx, s, off)); err != nil {
					return err
				}
			}
			result, response, err := client.Server.DeleteWithResult(ctx, s)
			return done(ctx, client)(result.Action, response, err)
		}})
	}
	return list, err
}

func certificates(ctx context.Context, client *hcloud.Client) (list []resource, err error) {
	all, err := client.Certificate.All(ctx)
	for _, c := range all {
		list = append(list, resource{"certificate", c.Name, c.ID, c.Labels, func() error {
			_, err := client.Certificate.Delete(ctx, c)
			return err
		}})
	}
	return list, err
}

func networks(ctx context.Context, client *hcloud.Client) (list []resource, err error) {
	all, err := client.Network.All(ctx)
	for _, n := range all {
		list = append(list, resource{"network", n.Name, n.ID, n.Labels, func() error {
			if n.Protection.Delete {
				off := hcloud.NetworkChangeProtectionOpts{Delete: new(bool)}
				if err := done(ctx, client)(client.Network.ChangeProtection(ctx, n, off)); err != nil {
					return err
				}
			}
			_, err := client.Network.Delete(ctx, n)
			return err
		}})
	}
	return list, err
}

// done waits until the action of a call has succeeded: done(ctx, client)(client.Server.Poweroff(…)).
func done(ctx context.Context, client *hcloud.Client) func(*hcloud.Action, *hcloud.Response, error) error {
	return func(action *hcloud.Action, _ *hcloud.Response, err error) error {
		if err != nil {
			return err
		}
		return client.Action.WaitFor(ctx, action)
	}
}
