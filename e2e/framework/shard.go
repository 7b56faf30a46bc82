package framework

import (
	"fmt"
	"os"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
)

// SHARD=2/5 runs about every fifth spec, so that five machines run all of them. Each spec has the label part-N then, and each ordered
// container, whose specs need each other, whole-N: scripts/e2e.sh chooses by these. It takes them in turns, in the order of the
// files, where specs that are next to each other take about as long. Not done: it does not measure how long they take.
func init() {
	text := os.Getenv("SHARD")
	if text == "" {
		return
	}
	var number, of int
	if _, err := fmt.Sscanf(text, "%d/%d", &number, &of); err != nil || of < 1 || number < 1 || number > of {
		panic(fmt.Sprintf("SHARD=%q: must be such as 2/5: the second of five parts", text))
	}
	AddTreeConstructionNodeArgsTransformer(labelByTurns(of))
}

// labelByTurns returns what gives specs and ordered containers their labels.
func labelByTurns(of int) NodeArgsTransformer {
	turn := 0
	return func(node types.NodeType, _ Offset, text string, args []any) (string, []any, []error) {
		kind := "part"
		switch {
		case node.Is(types.NodeTypeContainer) && slices.Contains(args, any(Ordered)):
			kind = "whole"
		case !node.Is(types.NodeTypeIt):
			return text, args, nil
		}
		turn++
		return text, append(args, Label(fmt.Sprintf("%s-%d", kind, (turn-1)%of+1))), nil
	}
}
