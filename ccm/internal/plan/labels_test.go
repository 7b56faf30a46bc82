package plan

import (
	"maps"
	"strings"
	"testing"
)

// What the annotation labels has not set, it does not remove.
func TestUserLabelsLeaveTheLabelsOfOthers(t *testing.T) {
	t.Parallel()
	owner := map[string]string{LabelServiceUID: "uid", "managed-by": "terraform"}
	with := recorded(owner, sets(map[string]string{"team": "web", "managed-by": "terraform"}))
	if with["team"] != "web" || with[LabelServiceUID] != "uid" {
		t.Errorf("got %v", with)
	}
	got := recorded(with, sets(nil))
	maps.DeleteFunc(got, func(key, _ string) bool { return strings.HasPrefix(key, labelRecord) })
	if !maps.Equal(got, owner) {
		t.Errorf("without the annotation: %v, want %v", got, owner)
	}
}
