package api

import (
	"reflect"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

func TestADumpShowsEveryKindThatAProjectOwns(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	shown := map[cloud.Kind]bool{}
	for _, s := range f.ShownResources() {
		shown[s.Kind()] = true
	}
	p, _ := f.cloud.Project(1)
	st := reflect.ValueOf(p.View()).Elem()
	for i := range st.NumField() {
		if table, ok := reflect.TypeAssert[interface{ Kind() cloud.Kind }](st.Field(i).Addr()); ok && !shown[table.Kind()] {
			t.Errorf("State.%s is not in ShownResources", st.Type().Field(i).Name)
		}
	}
	if len(shown) < 9 {
		t.Errorf("only %d kinds", len(shown))
	}
}
