package netdev

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/dataplane"
)

// fakeTable is a routing table in memory that refuses the routes in refuse.
type fakeTable struct {
	routes  map[netip.Prefix]dataplane.Route
	refuse  map[netip.Prefix]error
	writes  int
	opened  error
	closed  int
	listErr error
}

func newFakeTable() *fakeTable {
	return &fakeTable{routes: map[netip.Prefix]dataplane.Route{}, refuse: map[netip.Prefix]error{}}
}

func (t *fakeTable) list() ([]dataplane.Route, error) {
	var out []dataplane.Route
	for _, r := range t.routes {
		out = append(out, r)
	}
	return out, t.listErr
}

func (t *fakeTable) set(r dataplane.Route) error {
	t.writes++
	if err := t.refuse[r.Destination]; err != nil {
		return err
	}
	t.routes[r.Destination] = r
	return nil
}

func (t *fakeTable) remove(r dataplane.Route) error {
	t.writes++
	delete(t.routes, r.Destination)
	return nil
}

func (t *fakeTable) open() error  { return t.opened }
func (t *fakeTable) close() error { t.closed++; return nil }

func TestARouterWritesOnlyDifferencesAndRepairsForeignChanges(t *testing.T) {
	t.Parallel()
	k := newFakeTable()
	k.routes[netip.MustParsePrefix("10.9.0.0/16")] = via("10.9.0.0/16", "10.0.0.9") // added by a killed process
	r, err := newRouter(k)
	if err != nil {
		t.Fatal(err)
	}
	want := []dataplane.Route{to(dataplane.Unreachable, "0.0.0.0/0"), via("10.1.0.0/16", "10.0.0.1")}
	for i, writes := range []int{3, 0} {
		k.writes = 0
		if err := r.Set(want); err != nil || k.writes != writes {
			t.Errorf("call %d: %d writes, %v", i, k.writes, err)
		}
	}
	delete(k.routes, want[1].Destination)
	if err := r.Set(want); err != nil {
		t.Error(err)
	}
	if got, err := r.Routes(); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for range 2 {
		if err := r.Close(); err != nil || len(k.routes) != 0 || k.closed != 1 {
			t.Errorf("%v left, closed %d times, %v", k.routes, k.closed, err)
		}
	}
	if err := r.Set(want); !errors.Is(err, errClosed) || len(k.routes) != 0 {
		t.Errorf("%v, %v", k.routes, err)
	}
}

func TestARefusedRouteDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	k := newFakeTable()
	bad := via("10.1.0.0/16", "10.0.0.1")
	k.refuse[bad.Destination] = errors.New("no such neighbour")
	r, err := newRouter(k)
	if err != nil {
		t.Fatal(err)
	}
	good := via("10.2.0.0/16", "10.0.0.2")
	err = r.Set([]dataplane.Route{
		bad, good, {Destination: netip.MustParsePrefix("10.3.0.1/16"), Kind: dataplane.OnLink},
		{Destination: netip.MustParsePrefix("10.4.0.0/16"), Kind: dataplane.Via},
		{Destination: netip.MustParsePrefix("fd00::/64")}, {}, {Destination: netip.MustParsePrefix("10.5.0.0/16"), Gateway: good.Gateway},
	})
	for _, say := range []string{"10.1.0.0/16 via 10.0.0.1: no such neighbour", "10.3.0.1/16", "10.4.0.0/16", "fd00::/64", "10.5.0.0/16"} {
		if err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%v does not say %s", err, say)
		}
	}
	if got, _ := r.Routes(); !slices.Equal(got, []dataplane.Route{good}) {
		t.Errorf("%v", got)
	}
	k.listErr = errors.New("busy")
	if err := r.Set(nil); !errors.Is(err, k.listErr) || len(k.routes) != 1 {
		t.Errorf("%v, %v", err, k.routes)
	}
}

func TestARouterIsClosedIfOpeningFails(t *testing.T) {
	t.Parallel()
	k := newFakeTable()
	k.opened = errors.New("sysctl")
	if _, err := newRouter(k); !errors.Is(err, k.opened) || k.closed != 1 {
		t.Errorf("%v, closed %d times", err, k.closed)
	}
	for _, table := range []int{-1, 253, 4242} {
		if _, err := NewRouter(RouterOptions{Interface: "lo", Table: table}); err == nil ||
			!strings.Contains(err.Error(), "must be from 1 to 252") {
			t.Errorf("table %d: %v", table, err)
		}
	}
}
