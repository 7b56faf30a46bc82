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
		if err != nil {
			t.Fatal(err)
		}
		cloud, err := fakecloud.Open(fakecloud.Options{Disk: d, Actions: "1ns"})
		if err != nil {
			t.Fatal(err)
		}
		return cloud
	}
	for i := range 100 {
		cloud := open()
		created, _, err := cloud.Client().Server.Create(t.Context(), hcloud.ServerCreateOpts{
			Name: fmt.Sprint("s", i), ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-13"},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := cloud.AwaitIdle(t.Context()); err != nil {
			t.Fatal(err)
		}
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
