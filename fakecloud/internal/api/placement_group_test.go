package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

func TestPlacementGroupsOverTheWire(t *testing.T) {
	t.Parallel()
	client, w := newWireClient(t, fakecloud.Options{})
	ctx := t.Context()
	for _, name := range []string{"b", "a"} {
		out := must(client.PlacementGroup.Create(ctx, hcloud.PlacementGroupCreateOpts{
			Name: name, Type: hcloud.PlacementGroupTypeSpread, Labels: map[string]string{"is": name},
		}))(t)
		if out.Action != nil || out.PlacementGroup.Name != name {
			t.Errorf("created: %+v", out)
		}
	}
	for query, want := range map[string]string{
		"": "b a", "?sort=name": "a b", "?type=spread": "b a", "?name=a": "a", "?label_selector=is=b": "b",
		"?sort=created:desc&sort=id": "b a",
	} {
		if got := strings.Join(names(w.get("/placement_groups"+query), "placement_groups"), " "); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	w.refused(http.MethodGet, "/placement_groups?type=pack", nil, http.StatusUnprocessableEntity)
	g := must(client.PlacementGroup.GetByName(ctx, "a"))(t)
	opts := serverOpts("s")
	opts.PlacementGroup = g
	s := must(client.Server.Create(ctx, opts))(t).Server
	g = must(client.PlacementGroup.Update(ctx, g, hcloud.PlacementGroupUpdateOpts{Name: "c", Labels: map[string]string{}}))(t)
	if g.Name != "c" || len(g.Labels) != 0 || !slices.Equal(g.Servers, []int64{s.ID}) {
		t.Errorf("updated: %+v", g)
	}
	if got := getServer(t, client, s.ID).PlacementGroup; got == nil || got.Name != "c" {
		t.Errorf("the server shows %+v", got)
	}
	_, _, err := client.PlacementGroup.Update(ctx, g, hcloud.PlacementGroupUpdateOpts{Name: "b"})
	wantError(t, "name in use", err, http.StatusConflict, hcloud.ErrorCodeUniquenessError)
	if _, err := client.PlacementGroup.Delete(ctx, g); err != nil {
		t.Fatal(err)
	}
	if got := getServer(t, client, s.ID).PlacementGroup; got != nil {
		t.Errorf("the server shows the deleted group %+v", got)
	}
}
