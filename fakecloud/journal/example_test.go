package journal_test

import (
	"context"
	"fmt"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// A test asks for the requests since a moment, and finds those that failed.
func ExampleFilter() {
	ctx := context.Background()
	cloud := fakecloud.New(fakecloud.Options{})
	defer cloud.Close()
	client := cloud.Client()
	_, _, _ = client.Server.GetByID(ctx, 1) // set-up

	since, err := cloud.Journal().Last(ctx)
	if err != nil {
		panic(err)
	}
	_, _ = client.Network.Delete(ctx, &hcloud.Network{ID: 7})
	failed, err := cloud.Journal().Entries(ctx, journal.Filter{Since: since, Errors: true})
	for _, e := range failed {
		fmt.Println(e.Operation, e.ResourceID, e.Status, e.ErrorCode)
	}
	fmt.Println(err)
	// Output:
	// delete_network 7 404 not_found
	// <nil>
}
