package speclist

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ParseShard reads a text such as 2/5: the second of five parts of the specs.
func ParseShard(text string) (number, of int, err error) {
	var rest string
	if n, _ := fmt.Sscanf(text, "%d/%d%s", &number, &of, &rest); n != 2 || number < 1 || number > of {
		return 0, 0, fmt.Errorf("%q: must be such as 2/5: the second of five parts", text)
	}
	return number, of, nil
}

// ReadShards returns the run that the shards in folders make together. If one is missing, the run is marked as incomplete.
func ReadShards(folders []string) (Run, error) {
	if len(folders) == 0 {
		return Run{}, errors.New("there are no shards to merge: name their folders, such as out/e2e-embedded-1-of-5")
	}
	var shards []Run
	var parts int
	there := map[int]bool{}
	for _, folder := range folders {
		text, err := os.ReadFile(filepath.Join(folder, File))
		if err != nil {
			return Run{}, err
		}
		runs, err := Parse(text)
		if err != nil || len(runs) != 1 {
			return Run{}, fmt.Errorf("%s: has %d runs, want that of one shard: %w", folder, len(runs), err)
		}
		number, of, err := ParseShard(runs[0].Shard)
		if err != nil {
			return Run{}, fmt.Errorf("%s: it is not the folder of a shard: shard %w", folder, err)
		}
		shards, parts = append(shards, runs[0]), cmp.Or(parts, of)
		there[number] = true
		if r, first := runs[0], shards[0]; of != parts || r.CCM != first.CCM || r.Cluster != first.Cluster {
			return Run{}, fmt.Errorf("%s: is a shard of another run than %s: name the shards of one run", folder, folders[0])
		}
	}
	merged := mergeShards(shards)
	var missing []string
	for number := 1; number <= parts; number++ {
		if !there[number] {
			missing = append(missing, fmt.Sprintf("shard %d/%d is missing", number, parts))
		}
	}
	merged.Incomplete = cmp.Or(merged.Incomplete, strings.Join(missing, ", "))
	return merged, nil
}

// order ranks the results of one spec in several shards. The merged run has the last one: the shard that ran the spec knows the most.
var order = []Result{NotHere, Unsupported, Skipped, NotExercised, GapClosed, Passed, KnownGap, Failed}

func mergeShards(shards []Run) Run {
	merged := shards[0]
	merged.Shard, merged.Specs, merged.Outside = "", nil, nil
	at := map[[2]string]int{}
	for _, s := range shards {
		merged.Seconds, merged.Incomplete = max(merged.Seconds, s.Seconds), cmp.Or(merged.Incomplete, s.Incomplete)
		merged.Outside = append(merged.Outside, s.Outside...)
		if s.Time.Before(merged.Time) {
			merged.Time = s.Time
		}
		for _, spec := range s.Specs {
			key := [2]string{spec.Name, spec.Source}
			if i, ok := at[key]; !ok {
				at[key] = len(merged.Specs)
				merged.Specs = append(merged.Specs, spec)
			} else if slices.Index(order, spec.Result) > slices.Index(order, merged.Specs[i].Result) {
				merged.Specs[i] = spec
			}
		}
	}
	// Each shard leaves out the specs of the others.
	merged.LeftOut = shards[0].LeftOut + len(shards[0].Specs) - len(merged.Specs)
	Sort(merged.Specs)
	return merged
}
