package disk_test

import (
	"fmt"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/disk"
)

// TestWhatBecameDueWhileOffIsDoneAtTheStart shows that the first answer after a restart omits a server that became due for deletion
// meanwhile.
func TestWhatBecameDueWhileOffIsDoneAtTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := func() *fakecloud.Cloud {
		d, err := disk.Open(dir, disk.Options{})
		check(t, err)
		cloud, err := fakecloud.Open(fakecloud.Options{Disk: d, Actions: "1ns"})
		check(t, err)
		return cloud
	}
	for i := range 100 {
		cloud := open()
		created, _, err := cloud.Client().Server.Create(t.Context(), hcloud.ServerCreateOpts{
			Name: fmt.Sprint("s", i), ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-13"},
		})
		check(t, err)
		check(t, cloud.AwaitIdle(t.Context()))
		if _, _, err := cloud.Client().Server.DeleteWithResult(t.Context(), created.Server); err != nil {
			t.Fatal(err)
		}
		cloud.Close()
		cloud = open()
		if s, _, err := cloud.Client().Server.GetByID(t.Context(), created.Server.ID); err != nil || s != nil {
			t.Fatalf("the first answer after restart %d shows a deleted server %v, %v", i, s, err)
		}
		cloud.Close()
	}
}
