package cloud_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud/example"
)

// A spec uses a cloud by its driver, here that of the example cloud, and asks for the abilities that only some clouds have.
func Example() {
	ctx := context.Background()
	c, err := example.Driver{}.Start(ctx, cloud.Options{
		ProviderPrefix: example.ProviderPrefix,
		Servers:        netip.MustParsePrefix("127.101.0.0/24"), LoadBalancers: netip.MustParsePrefix("127.101.1.0/24"),
	})
	if err != nil {
		panic(err)
	}
	defer func() { _ = c.Close() }()

	server, err := c.CreateServer(ctx, "node-1")
	fmt.Println(server.Name, err)
	if routes, ok := cloud.As[cloud.Router](c); ok {
		all, err := routes.Routes(ctx)
		fmt.Println(len(all), err)
	}
	fmt.Println(errors.Is(c.DeleteServer(ctx, "vm-7"), cloud.ErrNotFound))
	// Output:
	// node-1 <nil>
	// 0 <nil>
	// true
}
