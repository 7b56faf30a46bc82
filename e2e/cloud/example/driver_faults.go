package example

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
)

// userAgent is a part of the User-Agent of the CCM under test.
func (d *driven) userAgent() string { return cmp.Or(d.options.UserAgent, "example-ccm") }

// subjects are the resources in the terms of Kubernetes.
var subjects = map[string]cloud.Subject{
	AboutInstances: cloud.AboutServers, AboutLoadBalancers: cloud.AboutLoadBalancers, AboutRoutes: cloud.AboutRoutes,
}

// Requests implements cloud.Recorder.
func (d *driven) Requests(_ context.Context, after uint64) ([]cloud.Request, error) {
	var all []cloud.Request
	for _, r := range d.cloud.Requests(after) {
		if !strings.Contains(r.UserAgent, d.userAgent()) {
			continue
		}
		all = append(all, cloud.Request{
			Seq: r.Seq, Time: r.Time, Write: r.Write(), About: cmp.Or(subjects[r.About], cloud.Other), ID: r.ID, Text: r.String(),
			Kind: r.Kind,
		})
	}
	return all, nil
}

// effectOf are the effects in the cloud's terms.
var effectOf = map[cloud.Effect]string{
	cloud.Unavailable: Unavailable, cloud.Internal: Internal, cloud.Unauthorized: Unauthorized, cloud.Forbidden: Forbidden,
	cloud.RateLimited: RateLimited, cloud.Conflict: Busy, cloud.NothingFound: NothingFound, cloud.EmptyLists: EmptyLists,
	cloud.Garbage: Garbage, cloud.Hang: Hang, cloud.HangAfter: HangAfter, cloud.Drop: Drop,
	cloud.LoseAnswer: LoseAnswer,
}

// AddFault implements cloud.Faulty.
func (d *driven) AddFault(_ context.Context, f cloud.Fault) (string, error) {
	effect, ok := effectOf[f.Effect]
	if !ok {
		return "", fmt.Errorf("the example cloud does not have the fault %q: %w", f.Effect, errors.ErrUnsupported)
	}
	about := ""
	if f.About != "" {
		for resource, subject := range subjects {
			if subject == f.About {
				about = resource
			}
		}
		if about == "" {
			return "", fmt.Errorf("the example cloud does not have requests about %q: %w", f.About, errors.ErrUnsupported)
		}
	}
	return d.cloud.AddFault(Fault{
		UserAgent: d.userAgent(), Reads: f.Calls == cloud.Reads, Writes: f.Calls == cloud.Writes, About: about, Pass: f.Pass,
		First: f.First, Effect: effect,
	})
}

// Met implements cloud.Faulty.
func (d *driven) Met(_ context.Context, name string) (int, error) {
	for _, f := range d.cloud.Faults() {
		if f.Name == name {
			return f.Met, nil
		}
	}
	return 0, fmt.Errorf("there is not a fault %q: %w", name, cloud.ErrNotFound)
}

// RemoveFault implements cloud.Faulty.
func (d *driven) RemoveFault(_ context.Context, name string) error {
	if !d.cloud.RemoveFault(name) {
		return fmt.Errorf("there is not a fault %q: %w", name, cloud.ErrNotFound)
	}
	return nil
}
