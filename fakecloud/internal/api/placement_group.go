package api

import (
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

type placementGroupJSON struct {
	ID      int64             `json:"id"`
	Name    string            `json:"name"`
	Labels  map[string]string `json:"labels"`
	Type    string            `json:"type"`
	Created timeJSON          `json:"created"`
	Servers []int64           `json:"servers"`
}

func encodePlacementGroup(g *cloud.PlacementGroup) placementGroupJSON {
	return placementGroupJSON{g.ID, g.Name, g.Labels, g.Type, timeJSON(g.Created), nonNil(g.Servers)}
}

var placementGroups = &resource[*cloud.PlacementGroup]{
	singular: "placement_group", plural: "placement_groups", kind: cloud.KindPlacementGroup,
	table:  func(st *cloud.State) *store.Table[*cloud.PlacementGroup] { return &st.PlacementGroups },
	encode: func(_ Date, _ *cloud.State, g *cloud.PlacementGroup) any { return encodePlacementGroup(g) },
	sort:   orders[*cloud.PlacementGroup]("id", "name", "created"),
	filter: filterBy("type", func(g *cloud.PlacementGroup) string { return g.Type }, "spread"),
}

func placementGroupRoutes() []Route {
	return placementGroups.routes(withBody(createPlacementGroup), placementGroups.update(cloud.Project.UpdatePlacementGroup),
		placementGroups.remove(cloud.Project.DeletePlacementGroup))
}

func createPlacementGroup(r *Request, body struct {
	Name   string            `json:"name" check:"required,notblank"`
	Type   string            `json:"type" check:"required,oneof=spread"`
	Labels map[string]string `json:"labels"`
}) (Response, error) {
	g, st, err := r.Project.CreatePlacementGroup(cloud.CreatePlacementGroup{Name: body.Name, Type: body.Type, Labels: body.Labels})
	// The group exists at once, without an action.
	return placementGroups.created(r, g, st, err, Part{Key: "action", JSON: []byte("null")})
}
