package cloud

import (
	"fmt"
	"slices"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// KindPlacementGroup is the kind of placement groups.
const KindPlacementGroup store.Kind = "placement_group"

// PlacementGroup keeps servers on different hosts. The only type is "spread".
//
// Reproduced: at most ten servers per group, one group per server, a server must be off to join. Left
// out: hosts, so a group never lacks one.
type PlacementGroup struct {
	store.Meta
	Type    string  `json:"type,omitzero"`
	Servers []int64 `json:"servers,omitzero"` // by ascending id
}

// Clone implements Object.
func (g *PlacementGroup) Clone() *PlacementGroup {
	c := *g
	c.Servers = slices.Clone(g.Servers)
	return &c
}

// checkRoom returns an error if the group is full. terraform-provider-hcloud issue 1170 shows it for the creation of a server. Joining
// a group answers the same here.
func (g *PlacementGroup) checkRoom() error {
	if len(g.Servers) < MaxServersPerPlacementGroup {
		return nil
	}
	return ErrOperation("placement_group_member_limit_reached",
		fmt.Sprintf("placement group with ID %d contains already %d servers", g.ID, len(g.Servers)))
}

// CreatePlacementGroup is the input of POST /placement_groups.
type CreatePlacementGroup struct {
	Name   string
	Type   string
	Labels map[string]string
}

// CreatePlacementGroup creates an empty group.
// Errors: invalid_input, uniqueness_error, resource_limit_exceeded.
func (p Project) CreatePlacementGroup(in CreatePlacementGroup) (*PlacementGroup, *State, error) {
	var g *PlacementGroup
	st, err := p.update(func(tx *Tx) error {
		if err := checkNew(tx, &tx.PlacementGroups, in.Name, in.Labels); err != nil {
			return err
		}
		g = &PlacementGroup{Meta: tx.NewMeta(in.Name, in.Labels), Type: in.Type}
		tx.PlacementGroups.Put(g)
		return nil
	})
	return g, st, err
}

// UpdatePlacementGroup changes name and labels. Errors: not_found, invalid_input, uniqueness_error.
func (p Project) UpdatePlacementGroup(id int64, in UpdateResource) (*State, error) {
	return p.update(func(tx *Tx) error {
		if err := setMeta(&tx.PlacementGroups, id, in); err != nil {
			return err
		}
		tx.touchServersOf(id)
		return nil
	})
}

// DeletePlacementGroup deletes a group; its servers stay. Errors: not_found.
func (p Project) DeletePlacementGroup(id int64) error {
	_, err := onFree(p, inPlacementGroups, id, func(tx *Tx, g *PlacementGroup) error {
		for _, s := range g.Servers {
			tx.Servers.Update(s, func(s *Server) { s.PlacementGroup = 0 })
		}
		tx.PlacementGroups.Delete(id)
		return nil
	})
	return err
}

// touchServersOf touches the servers of a group, because they show the group.
func (tx *Tx) touchServersOf(group int64) {
	if g, ok := tx.PlacementGroups.Get(group); ok {
		for _, s := range g.Servers {
			tx.Servers.Touch(s)
		}
	}
}

// joinPlacementGroup puts a server into a group that has room.
func (tx *Tx) joinPlacementGroup(server, group int64) {
	tx.PlacementGroups.Update(group, func(g *PlacementGroup) {
		if i, found := slices.BinarySearch(g.Servers, server); !found {
			g.Servers = slices.Insert(g.Servers, i, server)
		}
	})
	tx.Servers.Update(server, func(s *Server) { s.PlacementGroup = group })
	tx.touchServersOf(group)
}

// leavePlacementGroup removes a server from its group, if it has one.
func (tx *Tx) leavePlacementGroup(server int64) {
	s, ok := tx.Servers.Get(server)
	if !ok || s.PlacementGroup == 0 {
		return
	}
	group := s.PlacementGroup
	tx.Servers.Update(server, func(s *Server) { s.PlacementGroup = 0 })
	tx.PlacementGroups.Update(group, func(g *PlacementGroup) {
		g.Servers = slices.DeleteFunc(g.Servers, func(id int64) bool { return id == server })
	})
	tx.touchServersOf(group)
}

// AddServerToPlacementGroup puts a stopped server into a group. As clients of the real API have observed,
// this starts the server.
// Errors: not_found, locked, invalid_input, server_not_stopped, already_in_placement_group,
// placement_group_member_limit_reached.
func (p Project) AddServerToPlacementGroup(id, group int64) (int64, *State, error) {
	return act(p, inServers, id, func(tx *Tx, s *Server) (ActionSpec, error) {
		g, ok := tx.PlacementGroups.Get(group)
		if !ok {
			return ActionSpec{}, ErrField("placement_group", fmt.Sprintf("placement group with ID %d not found", group))
		}
		if s.PlacementGroup != 0 {
			return ActionSpec{}, ErrOperation("already_in_placement_group",
				fmt.Sprintf("server is already part of placement group %d", s.PlacementGroup))
		}
		if err := requireStopped(s, "server must be offline for adding it to a placement group"); err != nil {
			return ActionSpec{}, err
		}
		return ActionSpec{
			Command: "add_to_placement_group", Guest: &GuestWork{Server: id, Runs: s.hasInterface()}, Does: placement{id, group},
		}, g.checkRoom()
	})
}

type placement struct{ Server, Group int64 }

func (e placement) try(tx *Tx) error {
	// In the meantime, other servers may have joined, or the group may have been deleted.
	g, err := Find(&tx.PlacementGroups, e.Group)
	if err != nil {
		return err
	}
	if err := g.checkRoom(); err != nil {
		return err
	}
	tx.joinPlacementGroup(e.Server, e.Group)
	tx.startIfPossible(e.Server)
	return nil
}

// RemoveServerFromPlacementGroup removes a server from its group, if it has one.
// Errors: not_found, locked.
func (p Project) RemoveServerFromPlacementGroup(id int64) (int64, *State, error) {
	return act(p, inServers, id, func(*Tx, *Server) (ActionSpec, error) {
		return ActionSpec{Command: "remove_from_placement_group", Does: placementEnd{id}}, nil
	})
}

type placementEnd struct{ Server int64 }

func (e placementEnd) end(tx *Tx) { tx.leavePlacementGroup(e.Server) }
