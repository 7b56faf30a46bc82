package api

import (
	"net/http"
	"net/url"

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
	sort: map[string]func(a, b *cloud.PlacementGroup) int{
		"id": compareID[*cloud.PlacementGroup], "name": compareName[*cloud.PlacementGroup],
		"created": compareCreated[*cloud.PlacementGroup],
	},
	filter: func(q url.Values) (func(*cloud.State, *cloud.PlacementGroup) bool, error) {
		types, err := oneOf(q, "type", "spread")
		if err != nil || len(q["type"]) == 0 {
			return nil, err
		}
		return func(_ *cloud.State, g *cloud.PlacementGroup) bool { return types(g.Type) }, nil
	},
}

func placementGroupRoutes() []Route {
	return []Route{
		{http.MethodGet, "/placement_groups", "list_placement_groups", placementGroups.list},
		{http.MethodPost, "/placement_groups", "create_placement_group", withBody(createPlacementGroup)},
		{http.MethodGet, "/placement_groups/{id}", "get_placement_group", placementGroups.get},
		{http.MethodPut, "/placement_groups/{id}", "update_placement_group", placementGroups.update(cloud.Project.UpdatePlacementGroup)},
		{http.MethodDelete, "/placement_groups/{id}", "delete_placement_group", placementGroups.remove(cloud.Project.DeletePlacementGroup)},
	}
}

func createPlacementGroup(r *Request, body struct {
	Name   string            `json:"name" check:"required,notblank"`
	Type   string            `json:"type" check:"required,oneof=spread"`
	Labels map[string]string `json:"labels"`
}) (Response, error) {
	g, st, err := r.Project.CreatePlacementGroup(cloud.CreatePlacementGroup{Name: body.Name, Type: body.Type, Labels: body.Labels})
	if err != nil {
		return Response{}, err
	}
	// The group exists at once, without an action.
	return created(g.ID, placementGroups.part(r, st, g.ID, g), Part{Key: "action", JSON: []byte("null")}), nil
}
