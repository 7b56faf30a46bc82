package api

import (
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

func TestADumpShowsEveryKindThatAProjectOwns(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	shown := map[store.Kind]bool{}
	for _, s := range f.ShownResources() {
		shown[s.Kind()] = true
	}
	for _, kind := range cloud.Kinds() {
		if !shown[kind] {
			t.Errorf("%s is not in the list of resources", kind)
		}
	}
}
