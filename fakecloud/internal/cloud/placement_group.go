package cloud

import "slices"

// PlacementGroup keeps servers on different hosts. The only type is "spread".
type PlacementGroup struct {
	Meta
	Type    string
	Servers []int64 // by ascending id
}

// Clone implements Object.
func (g *PlacementGroup) Clone() *PlacementGroup {
	c := *g
	c.Servers = slices.Clone(g.Servers)
	return &c
}
