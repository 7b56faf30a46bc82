package fakecloud_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// incident is a cloud with a server and a load balancer, and a client over a connection.
type incident struct {
	*fakecloud.Cloud
	*hcloud.Client
	server   *hcloud.Server
	balancer *hcloud.LoadBalancer
	// certified counts the certificates: each needs another domain.
	certified int
}

func startIncident(t *testing.T, o fakecloud.Options) *incident {
	t.Helper()
	c := newCloud(t, o)
	check(t, c.SetSpeed(t.Context(), 0))
	endpoint := must(c.Start(t.Context(), ""))(t)
	in := &incident{Cloud: c, Client: hcloud.NewClient(hcloud.WithEndpoint(endpoint), hcloud.WithToken(c.Token()),
		hcloud.WithRetryOpts(hcloud.RetryOpts{MaxRetries: 0}))}
	created := must(in.order(t.Context(), "web-1"))(t)
	in.server = created.Server
	balancer := must(in.balance(t.Context(), "web"))(t)
	in.balancer = balancer.LoadBalancer
	return in
}

func (in *incident) order(ctx context.Context, name string) (hcloud.ServerCreateResult, error) {
	created, _, err := in.Server.Create(ctx, hcloud.ServerCreateOpts{
		Name: name, ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-13"},
		Location: &hcloud.Location{Name: "fsn1"},
	})
	return created, err
}

func (in *incident) balance(ctx context.Context, name string) (hcloud.LoadBalancerCreateResult, error) {
	created, _, err := in.LoadBalancer.Create(ctx, hcloud.LoadBalancerCreateOpts{
		Name: name, LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: &hcloud.Location{Name: "fsn1"},
	})
	return created, err
}

// ordered tries to order a server, and deletes it again.
func (in *incident) ordered(ctx context.Context) error {
	created, err := in.order(ctx, "probe")
	if err == nil {
		_, _, err = in.Server.DeleteWithResult(ctx, created.Server)
	}
	return err
}

// relabelled tries a write.
func (in *incident) relabelled(ctx context.Context) error {
	_, _, err := in.Server.Update(ctx, in.server, hcloud.ServerUpdateOpts{Labels: map[string]string{"a": "b"}})
	return err
}

func (in *incident) listed(ctx context.Context) error {
	all, err := in.Server.All(ctx)
	if err == nil && len(all) != 1 {
		err = errors.New("not one server is listed")
	}
	return err
}

// ran starts an action and returns its error, or that it runs.
func (in *incident) ran(ctx context.Context) error {
	_, _, err := in.LoadBalancer.ChangeAlgorithm(ctx, in.balancer, hcloud.LoadBalancerChangeAlgorithmOpts{Type: "round_robin"})
	if err != nil {
		return err
	}
	if err := in.Step(ctx, 15*time.Second); err != nil { // more than it takes
		return err
	}
	actions, _, err := in.LoadBalancer.Action.List(ctx, hcloud.ActionListOpts{Sort: []string{"id:desc"}})
	switch {
	case err != nil:
		return err
	case actions[0].Status == hcloud.ActionStatusRunning:
		return errors.New("the action runs")
	}
	return actions[0].Error()
}

// status returns an error if a server has not the wanted status.
func (in *incident) status(ctx context.Context, s *hcloud.Server, want hcloud.ServerStatus) error {
	if err := in.Step(ctx, 15*time.Second); err != nil { // more than it takes
		return err
	}
	s, _, err := in.Server.GetByID(ctx, s.ID)
	if err == nil && s.Status != want {
		err = fmt.Errorf("the server is %s", s.Status)
	}
	return err
}

// shutDown shuts the server down, and starts it again.
func (in *incident) shutDown(ctx context.Context) error {
	if _, _, err := in.Server.Shutdown(ctx, in.server); err != nil {
		return err
	}
	status, waited := in.status(ctx, in.server, hcloud.ServerStatusOff), in.Step(ctx, time.Minute)
	_, _, err := in.Server.Poweron(ctx, in.server)
	return errors.Join(status, waited, err, in.status(ctx, in.server, hcloud.ServerStatusRunning))
}

// each tries a read some times, and returns the first error.
func each(ctx context.Context, n int, try func(context.Context) error) (first error) {
	for range n {
		if err := try(ctx); err != nil && first == nil {
			first = err
		}
	}
	return first
}
