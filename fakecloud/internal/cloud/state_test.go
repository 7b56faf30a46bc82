package cloud

import (
	"reflect"
	"slices"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/longtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

func TestCloudWithoutTheRaceDetector(t *testing.T) {
	t.Parallel()
	longtest.Unraced(t)
}

// TestEveryTableIsInTheListOfResources fails if a table of State is not in the list. Resets and transactions
// would silently skip such a table.
func TestEveryTableIsInTheListOfResources(t *testing.T) {
	t.Parallel()
	st := newState(&Catalogue{}, nil)
	listed := st.tables()
	fields := reflect.ValueOf(st).Elem()
	tables := 0
	for i, field := range reflect.VisibleFields(fields.Type()) {
		if field.Name == "Catalogue" || field.Name == "Limits" || !field.IsExported() {
			continue
		}
		tables++
		own, ok := reflect.TypeAssert[table](fields.Field(i).Addr())
		if !ok || !slices.Contains(listed[:], own) {
			t.Errorf("State.%s is not in the list of resources", field.Name)
		}
	}
	kinds := Kinds()
	slices.Sort(kinds)
	if kinds = slices.Compact(kinds); len(kinds) != tables || slices.Contains(kinds, "") {
		t.Errorf("%d tables have the kinds %q", tables, kinds)
	}
}

// TestLocksAndResetsReachEveryKind checks that a lock makes a new version of a resource of any kind, and that
// a reset deletes all kinds.
func TestLocksAndResetsReachEveryKind(t *testing.T) {
	t.Parallel()
	p, _ := clockedCloud(t)
	var refs []Ref
	must(t, p, func(tx *Tx) {
		m := func() store.Meta { return tx.NewMeta("", nil) }
		image, certificate, ip, group := &Image{Meta: m()}, &Certificate{Meta: m()}, &PrimaryIP{Meta: m()}, &PlacementGroup{Meta: m()}
		tx.Images.Put(image)
		tx.Certificates.Put(certificate)
		tx.PrimaryIPs.Put(ip)
		tx.PlacementGroups.Put(group)
		refs = []Ref{image.Ref(), certificate.Ref(), ip.Ref(), {KindPlacementGroup, group.ID}}
	})
	sub, _ := p.cloud.Subscribe()
	defer sub.Close()
	must(t, p, func(tx *Tx) { tx.Start(ActionSpec{Command: "x", Resources: refs, Locks: refs}) })
	p.cloud.Reset()
	type change struct {
		Type EventType
		Kind store.Kind
	}
	want := map[change]int{}
	for _, r := range append(refs, Ref{Kind: KindAction}) {
		want[change{EventUpdated, r.Kind}]++
		want[change{EventDeleted, r.Kind}]++
	}
	want[change{EventCreated, KindAction}]++
	delete(want, change{EventUpdated, KindAction})
	for range len(want) {
		e, err := sub.Next(t.Context())
		check(t, err)
		key := change{e.Type, e.Kind}
		if want[key]--; want[key] < 0 {
			t.Errorf("unexpected: %s %s", e.Kind, e.Type)
		}
	}
}
