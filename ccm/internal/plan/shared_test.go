package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// A copy of a cluster has the same UIDs: its Services are not guests on the original's load balancers.
func TestAGuestOfAnotherClusterIsNone(t *testing.T) {
	t.Parallel()
	lb := &hcloud.LoadBalancer{Labels: recorded(map[string]string{LabelServiceUID: "owner", LabelCluster: "original"}, joins("guest", 443))}
	for id, want := range map[string]int{"original": 1, "copy": 0, "": 0} {
		for _, uid := range []string{"owner", "guest"} {
			if got := (Ownership{ClusterID: id}).OwnedBy([]*hcloud.LoadBalancer{lb}, uid); len(got) != want {
				t.Errorf("cluster %q, %s: got %d load balancers, want %d", id, uid, len(got), want)
			}
		}
	}
}

// Two Services want a port at the same time: the second to record it does not get it.
func TestAPortIsRecordedForOneService(t *testing.T) {
	t.Parallel()
	lb := &hcloud.LoadBalancer{Labels: recorded(nil, owns("owner", 80), joins("guest", 443), joins("other", 9080))}
	ownerless := &hcloud.LoadBalancer{Labels: recorded(nil, joins("guest", 443), joins("other", 9080))} // a person removed its label
	for _, test := range []struct {
		lb *hcloud.LoadBalancer
		op Op
	}{
		{lb, Op{Kind: OpRecord, UID: "owner", Ports: []int{80, 443}}},
		{lb, Op{Kind: OpRecord, UID: "guest", Guest: true, Ports: []int{80, 443}}},
		{ownerless, Op{Kind: OpRecord, UID: "guest", Guest: true, Ports: []int{443, 9080}}},
	} {
		lb, op := test.lb, test.op
		if got, err := RecordAfter(lb, op); err == nil || !strings.Contains(err.Error(), "belongs to the Service with UID") {
			t.Errorf("%s: got %v, %v", op.UID, got, err)
		}
	}
	got, err := RecordAfter(lb, Op{Kind: OpRecord, UID: "guest", Guest: true, Ports: []int{443, 8443}})
	if err != nil {
		t.Fatal(err)
	}
	now := &hcloud.LoadBalancer{Labels: got.Encode()}
	if !PortsOf(now, "guest")[8443] || !PortsOf(now, "owner")[80] || !slices.Equal(GuestsOf(now), []string{"guest", "other"}) {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := RecordAfter(lb, Op{Kind: OpRecord, UID: "stranger", Guest: true}); err == nil {
		t.Error("a Service that is not a guest has recorded ports")
	}
}

// A process dies while a request of it is on its way. The next one has read the load balancer without the new port, and writes when it
// is there.
func TestAPortThatIsThereStaysRecorded(t *testing.T) {
	t.Parallel()
	for uid, record := range map[string]func(*Record){"owner": owns("owner", 80, 9080), "guest": joins("guest", 80, 9080)} {
		now := &hcloud.LoadBalancer{Labels: recorded(map[string]string{LabelServiceUID: "owner"}, record),
			Services: []hcloud.LoadBalancerService{{ListenPort: 80}, {ListenPort: 9080}, {ListenPort: 19000}}}
		got, err := RecordAfter(now, Op{Kind: OpRecord, UID: uid, Guest: uid == "guest", Ports: []int{80}})
		if err != nil {
			t.Fatal(err)
		}
		if ports := PortsOf(&hcloud.LoadBalancer{Labels: got.Encode()}, uid); !ports[80] || !ports[9080] || ports[19000] {
			t.Errorf("%s: got %v", uid, ports)
		}
	}
}
