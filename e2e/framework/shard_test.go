package framework

import (
	"fmt"
	"slices"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
)

func TestSpecsAreDealtToShardsInTurns(t *testing.T) {
	t.Parallel()
	label := labelByTurns(3)
	give := func(node types.NodeType, args ...any) Labels {
		text, result, errs := label(node, 0, "a", args)
		if text != "a" || len(errs) > 0 {
			t.Errorf("%s, %v", text, errs)
		}
		for _, a := range result {
			if l, ok := a.(Labels); ok {
				return l
			}
		}
		return nil
	}
	var got []string
	for range 4 {
		got = append(got, give(types.NodeTypeIt)...)
	}
	got = append(got, give(types.NodeTypeContainer, Ordered)...)
	if none := slices.Concat(give(types.NodeTypeContainer), give(types.NodeTypeBeforeEach)); len(none) > 0 {
		t.Errorf("labels of what has no turn: %v", none)
	}
	if want := []string{"part-1", "part-2", "part-3", "part-1", "whole-2"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", fmt.Sprint(got), want)
	}
}
