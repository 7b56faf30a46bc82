// Package shards deals specs out to machines, so that each has work for about as long.
package shards

import (
	"bufio"
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
)

// EnvDurations is the path of a specs.json of an earlier run. Its durations are used instead of those that are part of the suite.
const EnvDurations = "DURATIONS"

// measured has a line for each spec: seconds, a space, the name. `e2e durations` writes it.
//
//go:embed durations.txt
var measured []byte

// Durations are how many seconds specs take, by name.
type Durations map[string]float64

// Measured returns the durations that are part of the suite.
func Measured() (Durations, error) { return Parse(measured) }

// Parse reads durations: lines of a run's list, or the specs.json of one run or of several.
func Parse(text []byte) (Durations, error) {
	if runs, err := speclist.Parse(text); err == nil {
		return Of(runs), nil
	}
	d := Durations{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		number, name, ok := strings.Cut(lines.Text(), " ")
		seconds, err := strconv.ParseFloat(number, 64)
		if err != nil || !ok || name == "" || !(seconds >= 0) {
			return nil, fmt.Errorf("the line %.80q: must be seconds, a space and the name of a spec", lines.Text())
		}
		d[name] = seconds
	}
	return d, lines.Err()
}

// Of returns the durations of the specs that ran. Of several runs, the last one in the list counts.
func Of(runs []speclist.Run) Durations {
	d := Durations{}
	for _, r := range runs {
		for _, s := range r.Specs {
			if s.Seconds > 0 {
				d[s.Name] = s.Seconds
			}
		}
	}
	return d
}

// String returns the lines that Parse reads, by name.
func (d Durations) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(d)) {
		fmt.Fprintf(&b, "%.1f %s\n", d[name], name)
	}
	return b.String()
}

// median stands for the duration of a spec that never ran.
func (d Durations) median() float64 {
	all := slices.Sorted(maps.Values(d))
	if len(all) == 0 {
		return 1
	}
	return all[len(all)/2]
}

// Seconds returns how long a spec takes, or the median of all if that is unknown.
func (d Durations) Seconds(name string) float64 {
	if seconds, ok := d[name]; ok {
		return seconds
	}
	return d.median()
}

// Split deals units of specs out to shards and returns the number of each spec's shard, from 1. The specs of a unit stay together. The
// longest unit comes first, and each goes to the shard that has least to do: no shard has more than the mean and the longest unit.
func (d Durations) Split(units [][]string, shards int) map[string]int {
	type unit struct {
		specs   []string
		seconds float64
	}
	var all []unit
	for _, specs := range units {
		u := unit{specs: slices.Sorted(slices.Values(specs))}
		for _, name := range u.specs {
			u.seconds += d.Seconds(name)
		}
		all = append(all, u)
	}
	slices.SortFunc(all, func(a, b unit) int {
		return cmp.Or(cmp.Compare(b.seconds, a.seconds), slices.Compare(a.specs, b.specs))
	})
	load, shard := make([]float64, shards), map[string]int{}
	for _, u := range all {
		least := slices.Index(load, slices.Min(load))
		load[least] += u.seconds
		for _, name := range u.specs {
			shard[name] = least + 1
		}
	}
	return shard
}
