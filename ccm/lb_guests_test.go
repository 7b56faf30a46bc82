package ccm

import (
	"slices"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// A copy of a cluster has the same UIDs: its Services are no guests on the original's load balancers.
func TestAGuestOfAnotherClusterIsNone(t *testing.T) {
	t.Parallel()
	lb := &hcloud.LoadBalancer{Labels: withGuest(map[string]string{labelServiceUID: "owner", labelCluster: "original"}, "guest", []int{443})}
	for id, want := range map[string]int{"original": 1, "copy": 0, "": 0} {
		for _, uid := range []string{"owner", "guest"} {
			if got := (ownership{clusterID: id}).ownedBy([]*hcloud.LoadBalancer{lb}, uid); len(got) != want {
				t.Errorf("cluster %q, %s: got %d load balancers, want %d", id, uid, len(got), want)
			}
		}
	}
}

// Two Services want a port at the same time: the second to record it does not get it.
func TestAPortIsRecordedForOneService(t *testing.T) {
	t.Parallel()
	labels := withGuest(withOwnership(map[string]string{labelShared: "true"}, "owner", []int{80}, nil), "guest", []int{443})
	lb := &hcloud.LoadBalancer{Labels: labels}
	for _, op := range []lbOp{{Kind: opRecord, UID: "owner", Ports: []int{80, 443}}, {Kind: opRecord, UID: "guest", Guest: true, Ports: []int{80, 443}}} {
		if got, err := labelsAfter(lb, op); err == nil || !strings.Contains(err.Error(), "belongs to the Service with UID") {
			t.Errorf("%s: got %v, %v", op.UID, got, err)
		}
	}
	got, err := labelsAfter(lb, lbOp{Kind: opRecord, UID: "guest", Guest: true, Ports: []int{443, 8443}})
	now := &hcloud.LoadBalancer{Labels: got}
	if err != nil || !portsOf(now, "guest")[8443] || !portsOf(now, "owner")[80] || !slices.Equal(guestsOf(now), []string{"guest"}) {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := labelsAfter(lb, lbOp{Kind: opRecord, UID: "stranger", Guest: true}); err == nil {
		t.Error("a Service that is no guest has recorded ports")
	}
}
