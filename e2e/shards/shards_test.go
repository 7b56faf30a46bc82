package shards

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
)

// split returns the seconds of each shard, and those of the longest unit. It fails unless each spec is in one shard.
func split(t *testing.T, d Durations, units [][]string, shards int) (load []float64, longest float64) {
	t.Helper()
	of := d.Split(units, shards)
	load = make([]float64, shards)
	specs := 0
	for _, unit := range units {
		sum := 0.0
		for _, name := range unit {
			n := of[name]
			if n < 1 || n > shards || n != of[unit[0]] {
				t.Fatalf("%s is in shard %d of %d, and %s in %d", name, n, shards, unit[0], of[unit[0]])
			}
			sum += d.Seconds(name)
			specs++
		}
		load[of[unit[0]]-1] += sum
		longest = max(longest, sum)
	}
	if len(of) != specs {
		t.Fatalf("%d specs are dealt out, want %d", len(of), specs)
	}
	return load, longest
}

func mean(load []float64) (sum float64) {
	for _, l := range load {
		sum += l / float64(len(load))
	}
	return sum
}

func TestNoShardHasMoreThanTheMeanAndTheLongestSpec(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 0))
	for range 200 {
		d, units := Durations{}, [][]string{}
		for i := range 1 + random.IntN(300) {
			name := fmt.Sprint("spec ", i)
			if random.IntN(5) > 0 { // else unknown
				d[name] = random.ExpFloat64() * 10
			}
			if len(units) > 0 && random.IntN(10) == 0 {
				units[len(units)-1] = append(units[len(units)-1], name) // of an ordered container
				continue
			}
			units = append(units, []string{name})
		}
		load, longest := split(t, d, units, 1+random.IntN(20))
		if most := slices.Max(load); most > mean(load)+longest+1e-9 {
			t.Fatalf("one of %d shards takes %.1f s, the mean is %.1f s and the longest unit takes %.1f s", len(load), most, mean(load),
				longest)
		}
	}
}

// The list that is part of the suite must divide its own specs well: on five machines, none has a tenth more than the mean.
func TestTheMeasuredSpecsAreDividedEvenly(t *testing.T) {
	t.Parallel()
	d, err := Measured()
	if err != nil || len(d) < 200 {
		t.Fatalf("%d specs are measured, want at least 200: %v", len(d), err)
	}
	var units [][]string
	for name := range d {
		units = append(units, []string{name})
	}
	load, _ := split(t, d, units, 5)
	if most := slices.Max(load); most > 1.1*mean(load) {
		t.Errorf("the longest of five shards takes %.1f s, the mean is %.1f s", most, mean(load))
	}
}

func TestTheOrderOfTheSpecsChangesNoShard(t *testing.T) {
	t.Parallel()
	d := Durations{"a": 3, "b": 3, "c": 3, "d": 1}
	units := [][]string{{"a"}, {"b"}, {"c"}, {"d"}, {"new 1"}, {"new 2"}}
	first := d.Split(units, 3)
	for range 20 {
		rand.Shuffle(len(units), func(i, j int) { units[i], units[j] = units[j], units[i] })
		if again := d.Split(units, 3); !reflect.DeepEqual(first, again) {
			t.Fatalf("got %v, and in another order %v", first, again)
		}
	}
}

func TestASpecThatIsUnknownTakesTheMedian(t *testing.T) {
	t.Parallel()
	d := Durations{"short": 1, "medium": 5, "long": 100}
	if got := d.Seconds("new"); got != 5 {
		t.Errorf("got %v", got)
	}
	if got := (Durations{}).Seconds("new"); got != 1 {
		t.Errorf("without any: got %v", got)
	}
	// One machine takes the long one, the other all that are new.
	of := d.Split([][]string{{"new 1"}, {"new 2"}, {"long"}, {"new 3"}}, 2)
	if of["long"] == of["new 1"] || of["new 1"] != of["new 2"] || of["new 2"] != of["new 3"] {
		t.Errorf("got %v", of)
	}
}

func TestDurationsAreReadFromARunAndFromAList(t *testing.T) {
	t.Parallel()
	want := Durations{"Node works": 1.5, "Service a b": 20}
	run := `{"ccm": "ours", "specs": [{"name": "Node works", "seconds": 1.5}, {"name": "Route left out", "seconds": 0},
		{"name": "Service a b", "seconds": 20}]}`
	for _, text := range []string{run, "[" + run + "]", want.String()} {
		if got, err := Parse([]byte(text)); err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
	earlier, later := []speclist.Spec{{Name: "a", Seconds: 1}}, []speclist.Spec{{Name: "a", Seconds: 2}}
	if got := Of([]speclist.Run{{Specs: earlier}, {Specs: later}}); got["a"] != 2 {
		t.Errorf("of two runs: %v", got)
	}
	for _, wrong := range []string{"x Node works\n", "1.5\n", "1.5 \n", "-1 Node works\n", "NaN Node works\n", `{"name": "x"}`} {
		if _, err := Parse([]byte(wrong)); err == nil || !strings.Contains(err.Error(), "must be seconds, a space and the name of a spec") {
			t.Errorf("%q: got %v", wrong, err)
		}
	}
}
