package main

import (
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

func TestARestartedCloudGivesOutNewIDs(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	id := func(at time.Time) int64 {
		cloud := fakecloud.New(fakecloud.Options{FirstID: firstID(at)})
		defer cloud.Close()
		s, _, err := cloud.Client().PlacementGroup.Create(t.Context(),
			hcloud.PlacementGroupCreateOpts{Name: "x", Type: hcloud.PlacementGroupTypeSpread})
		check(t, err)
		return s.PlacementGroup.ID
	}
	before, after := id(start), id(start.Add(time.Second))
	if after < before+100 {
		t.Errorf("first id %d, a second later %d: want at least 100 ids between them", before, after)
	}
	if old := id(time.Time{}); old != 1_000_001 {
		t.Errorf("first id of a machine whose clock is wrong: %d, want the default", old)
	}
}
