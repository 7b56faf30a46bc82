package cloud

import (
	"slices"
	"strconv"
	"testing"
	"time"
)

func TestPlacementGroups(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	g, _, err := p.CreatePlacementGroup(CreatePlacementGroup{Name: "g", Type: "spread"})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = p.CreatePlacementGroup(CreatePlacementGroup{Name: "g", Type: "spread"})
	wantCode(t, "name in use", err, "uniqueness_error")
	_, _, err = p.CreatePlacementGroup(CreatePlacementGroup{Name: "h", Type: "pack"})
	wantCode(t, "other type", err, "type")

	running := runningServer(t, p, clk, smallServer("running")).ID
	_, _, err = p.AddServerToPlacementGroup(running, g.ID)
	wantCode(t, "running server", err, "server_not_stopped")
	first := offServer(t, p, clk, smallServer("first")).ID
	_, _, err = p.AddServerToPlacementGroup(first, 1)
	wantCode(t, "no such group", err, "placement_group")
	if _, _, err := p.AddServerToPlacementGroup(first, g.ID); err != nil {
		t.Fatal(err)
	}
	if server(t, p, first).PlacementGroup != 0 {
		t.Error("in the group before the action has ended")
	}
	clk.Step(time.Second)
	if server(t, p, first).PlacementGroup != g.ID {
		t.Error("not in the group")
	}
	_, _, err = p.AddServerToPlacementGroup(first, g.ID)
	wantCode(t, "already in it", err, "already_in_placement_group")

	// Nine other servers fill the group. An eleventh is refused by the request, or by the end of its action.
	last := offServer(t, p, clk, smallServer("last")).ID
	lost, _, err := p.AddServerToPlacementGroup(last, g.ID)
	if err != nil {
		t.Fatal(err)
	}
	for i := range MaxServersPerPlacementGroup - 1 {
		in := smallServer("n" + strconv.Itoa(i))
		in.PlacementGroup = g.ID
		mustCreate(t, p, in)
	}
	full := smallServer("full")
	full.PlacementGroup = g.ID
	_, _, err = p.CreateServer(full)
	wantCode(t, "eleventh server", err, "placement_error")
	clk.Step(time.Minute)
	_, _, err = p.AddServerToPlacementGroup(last, g.ID)
	wantCode(t, "add an eleventh server", err, "resource_limit_exceeded")
	if a, _ := p.View().Actions.Get(lost); a.Status != ActionFailed || a.ErrorCode != "resource_limit_exceeded" {
		t.Errorf("action that came too late: %+v", a)
	}

	if _, _, err := p.RemoveServerFromPlacementGroup(first); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second)
	if group, _ := p.View().PlacementGroups.Get(g.ID); slices.Contains(group.Servers, first) || len(group.Servers) != 9 {
		t.Errorf("group: %v", group.Servers)
	}
	if err := p.DeletePlacementGroup(g.ID); err != nil {
		t.Fatal(err)
	}
	for s := range p.View().Servers.All() {
		if s.PlacementGroup != 0 {
			t.Errorf("server %d is still in the deleted group", s.ID)
		}
	}
	checkInvariants(t, p.View(), p.cloud)
}
