package plan

import (
	"maps"
	"testing"
)

// What the annotation labels has not set, it does not remove.
func TestUserLabelsLeaveTheLabelsOfOthers(t *testing.T) {
	t.Parallel()
	owner := map[string]string{LabelServiceUID: "uid", "managed-by": "terraform"}
	with := withUserLabels(owner, map[string]string{"team": "web", "managed-by": "terraform"})
	if with["team"] != "web" || with[LabelServiceUID] != "uid" {
		t.Errorf("got %v", with)
	}
	if got := withUserLabels(with, map[string]string{}); !maps.Equal(got, owner) {
		t.Errorf("without the annotation: %v, want %v", got, owner)
	}

	// Records of 32 bits, which an earlier version wrote, are read. A crafted key may share such a record with our own.
	earlier := map[string]string{LabelServiceUID: "uid", "team": "web", labelUserLabels: earlierHashOf("team") + "." +
		earlierHashOf(LabelServiceUID)}
	if got := withUserLabels(earlier, map[string]string{}); !maps.Equal(got, map[string]string{LabelServiceUID: "uid"}) {
		t.Errorf("records of an earlier version: %v", got)
	}
}

// Each of the 40 labels is recorded, and forgotten with the annotation.
func TestManyUserLabels(t *testing.T) {
	t.Parallel()
	want := map[string]string{}
	for i := range 40 {
		want[string(rune('a'+i%26))+string(rune('a'+i/26))] = "x"
	}
	with := withUserLabels(nil, want)
	for k, v := range with {
		if len(k) > 63 || len(v) > maxLabelValue {
			t.Errorf("label %s=%s is too long", k, v)
		}
	}
	if got := withUserLabels(with, nil); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}
