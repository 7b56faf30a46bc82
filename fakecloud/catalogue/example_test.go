package catalogue_test

import (
	"context"
	"fmt"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/catalogue"
)

// A server type retires in 30 days. A client sees it in time.
func ExampleOffer() {
	ctx := context.Background()
	cloud := fakecloud.New(fakecloud.Options{})
	defer cloud.Close()
	now, err := cloud.Now(ctx)
	if err != nil {
		panic(err)
	}
	retires := catalogue.Deprecation{UnavailableAfter: now.Add(30 * 24 * time.Hour)}
	if err := cloud.OfferServerType(ctx, "cx23", "fsn1", catalogue.Offer{Deprecation: &retires}); err != nil {
		panic(err)
	}
	cx23, _, err := cloud.Client().ServerType.GetByName(ctx, "cx23")
	for _, at := range cx23.Locations {
		if at.IsDeprecated() {
			fmt.Println(at.Location.Name, at.UnavailableAfter().Sub(now).Round(time.Hour), err)
		}
	}
	// Output: fsn1 720h0m0s <nil>
}
