package cloud

import (
	"strconv"
	"testing"
	"time"
)

func TestAPlacementGroupHasAtMostTenServers(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	g := did(p.CreatePlacementGroup(CreatePlacementGroup{Name: "g", Type: "spread"}))(t)
	last := offServer(t, p, clk, smallServer("last")).ID
	lost := did(p.AddServerToPlacementGroup(last, g.ID))(t)
	for i := range MaxServersPerPlacementGroup {
		in := smallServer("n" + strconv.Itoa(i))
		in.PlacementGroup = g.ID
		mustCreate(t, p, in)
	}
	if server(t, p, last).PlacementGroup != 0 {
		t.Error("in the group before the action has ended")
	}
	clk.Step(time.Minute)
	_, _, err := p.AddServerToPlacementGroup(last, g.ID)
	wantCode(t, "add an eleventh server", err, "placement_group_member_limit_reached")
	if a, _ := p.View().Actions.Get(lost); a.Status != ActionFailed || a.ErrorCode != "placement_group_member_limit_reached" {
		t.Errorf("action that came too late: %+v", a)
	}
	check(t, p.DeletePlacementGroup(g.ID))
	checkInvariants(t, p.View(), p.cloud)
}
