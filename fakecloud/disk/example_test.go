package disk_test

import (
	"context"
	"fmt"
	"os"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/disk"
)

// The next cloud on the directory has what the last one had.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "state")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	open := func() *fakecloud.Cloud {
		d, err := disk.Open(dir, disk.Options{})
		if err != nil {
			panic(err)
		}
		cloud, err := fakecloud.Open(fakecloud.Options{Disk: d})
		if err != nil {
			panic(err)
		}
		return cloud
	}

	cloud := open()
	created, _, err := cloud.Client().PlacementGroup.Create(ctx, hcloud.PlacementGroupCreateOpts{
		Name: "spread", Type: hcloud.PlacementGroupTypeSpread,
	})
	if err != nil {
		panic(err)
	}
	cloud.Close()

	cloud = open()
	defer cloud.Close()
	found, _, err := cloud.Client().PlacementGroup.GetByName(ctx, "spread")
	fmt.Println(found.ID == created.PlacementGroup.ID, err)
	// Output: true <nil>
}
