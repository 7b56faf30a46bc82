package fault_test

import (
	"context"
	"fmt"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
)

// Every second deletion finds the resource locked, as a busy real cloud says. The rule counts the requests that it refuses.
func ExampleRule() {
	ctx := context.Background()
	cloud := fakecloud.New(fakecloud.Options{})
	defer cloud.Close()
	rule := fault.Rule{Name: "busy", Method: "DELETE", Every: 2, Effect: fault.APIError("locked")}
	if _, err := cloud.Faults().Add(ctx, rule); err != nil {
		panic(err)
	}

	client := cloud.Client(hcloud.WithRetryOpts(hcloud.RetryOpts{MaxRetries: 0}))
	for id := range int64(3) {
		_, err := client.SSHKey.Delete(ctx, &hcloud.SSHKey{ID: id + 1})
		fmt.Println(hcloud.IsError(err, hcloud.ErrorCodeLocked))
	}
	all, err := cloud.Faults().List(ctx)
	fmt.Println(all[0].Name, all[0].Applied, err)
	// Output:
	// false
	// true
	// false
	// busy 1 <nil>
}
