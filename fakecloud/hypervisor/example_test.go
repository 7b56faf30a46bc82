package hypervisor_test

import (
	"context"
	"fmt"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
)

// A hypervisor does the tasks of each server, and reports a guest that ends by itself: the server is off.
func ExampleSession() {
	ctx := context.Background()
	cloud := fakecloud.New(fakecloud.Options{})
	defer cloud.Close()
	session, err := cloud.AttachHypervisor(ctx, hypervisor.Options{Name: "example"})
	if err != nil {
		panic(err)
	}
	defer session.Close()
	created, _, err := cloud.Client().Server.Create(ctx, hcloud.ServerCreateOpts{
		Name: "web-1", ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-13"},
	})
	if err != nil {
		panic(err)
	}
	for runs := false; !runs; { // makes the guest, then starts it
		task, err := session.Next(ctx)
		if err != nil {
			panic(err)
		}
		runs = task.Command == hypervisor.CommandStart
		if err := session.Complete(ctx, task.Action, nil); err != nil {
			panic(err)
		}
	}
	if err := session.Report(ctx, created.Server.ID, false); err != nil {
		panic(err)
	}
	server, _, err := cloud.Client().Server.GetByID(ctx, created.Server.ID)
	fmt.Println(server.Status, err)
	// Output: off <nil>
}
