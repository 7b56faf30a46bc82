package scenario_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/scenario"
)

// A server type is sold out until the scenario ends. It ends once.
func ExampleScenarios() {
	ctx := context.Background()
	cloud := fakecloud.New(fakecloud.Options{})
	defer cloud.Close()
	order := func() error {
		_, _, err := cloud.Client().Server.Create(ctx, hcloud.ServerCreateOpts{Name: "web-1", Location: &hcloud.Location{Name: "fsn1"},
			ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-13"}})
		return err
	}
	running, err := cloud.Scenarios().Start(ctx, "sold-out=cx23@fsn1")
	if err != nil {
		panic(err)
	}
	fmt.Println(running.Description, hcloud.IsError(order(), hcloud.ErrorCodeResourceUnavailable))
	if err := cloud.Scenarios().End(ctx, running.ID); err != nil {
		panic(err)
	}
	fmt.Println(order(), errors.Is(cloud.Scenarios().End(ctx, running.ID), scenario.ErrNotFound))
	// Output:
	// Server type cx23 is sold out in fsn1. true
	// <nil> true
}
