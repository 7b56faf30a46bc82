// Command mutate measures what the tests of a package notice: it changes the package's code in many small ways,
// runs the tests for each, and reports the mutants that survive. The packages in its folder internal belong to it, except
// helpers of tests.
//
//	go run ./scripts/mutate -package ccm             all mutants, hours
//	go run ./scripts/mutate -package ccm -sample 200  so many, drawn with -seed
//	go run ./scripts/mutate -package ccm -named scripts/mutate/named.txt
//	go run ./scripts/mutate -package ccm -named scripts/mutate/reverted.txt -simulate "$(scripts/sim-runtime.sh)"
//
// All mutants are compiled once and switched on by their number (see instrumenter). Only tests that reach a mutant
// run for it, the quick ones first. A mutant that no test reaches survives. One that never ends counts as noticed.
//
// With -package ccm/internal/plan, only that package is changed, and only its tests judge.
//
// The third form replays mutants that a person has written down; each must make a test fail. In the fourth form, the
// simulation must notice each; the program prints by which rule and after how many seeds.
package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

func main() {
	var m mutation
	flag.StringVar(&m.folder, "package", "ccm", "the folder of the package")
	named := flag.String("named", "", "replay the mutants of this file")
	only := flag.String("only", "", "replay only the named mutants whose names contain this text")
	flag.StringVar(&m.simulate, "simulate", "", "the simulation judges the named mutants: the overlay with which it is compiled")
	flag.IntVar(&m.seeds, "seeds", 300, "so many seeds of the simulation")
	sample := flag.Int("sample", 0, "try so many mutants; 0: all")
	seed := flag.Uint64("seed", 1, "draws the sample")
	least := flag.Float64("least", 0, "fail if less than this percentage is noticed")
	flag.IntVar(&m.jobs, "jobs", 2, "so many processes run tests at the same time")
	flag.Parse()
	run := func(ctx context.Context) error {
		if *named != "" {
			return m.replay(ctx, *named, *only)
		}
		score, err := m.measure(ctx, *sample, *seed)
		if err == nil && score < *least {
			err = fmt.Errorf("the tests notice %.1f %% of the mutants, want at least %.1f %%: write tests for those that survive", score,
				*least)
		}
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// mutation is one run of this program.
type mutation struct {
	folder string // of the package
	jobs   int
	tmp    string
	// simulate is the overlay with which the simulation is compiled, which judges then; "": the package's tests do.
	simulate string
	seeds    int
	tests    []testCost // the quick ones first
}

// slowTest is how long a test takes that runs only for mutants which the quick tests do not notice.
const slowTest = time.Second

// measure tries the mutants and returns the percentage that the tests notice.
func (m *mutation) measure(ctx context.Context, sample int, seed uint64) (score float64, err error) {
	if m.tmp, err = os.MkdirTemp("", "mutate"); err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(m.tmp) }()
	folders, err := m.packages()
	if err != nil {
		return 0, err
	}
	mutants, err := m.build(ctx, folders)
	if err != nil {
		return 0, err
	}
	reached, err := m.reach(ctx, folders)
	if err != nil {
		return 0, err
	}
	if sample > 0 && sample < len(mutants) {
		random := rand.New(rand.NewPCG(seed, 0))
		random.Shuffle(len(mutants), func(i, j int) { mutants[i], mutants[j] = mutants[j], mutants[i] })
		mutants = mutants[:sample]
	}
	fmt.Printf("%d mutants, %d tests\n", len(mutants), len(m.tests))
	var survivors []mutant
	var mu sync.Mutex
	start, tried := time.Now(), 0
	each(m.jobs, mutants, func(one mutant) {
		noticed := m.noticed(ctx, one, reached[one.id])
		mu.Lock()
		defer mu.Unlock()
		if tried++; !noticed && ctx.Err() == nil {
			why := ""
			if len(reached[one.id]) == 0 {
				why = ", and no test gets there"
			}
			survivors = append(survivors, one)
			fmt.Printf("survives: %s: %s%s\n", one.where, one.what, why)
		}
		if tried%50 == 0 {
			fmt.Printf("%d of %d tried, %d survive, %v\n", tried, len(mutants), len(survivors), time.Since(start).Round(time.Second))
		}
	})
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	score = 100 * float64(len(mutants)-len(survivors)) / float64(max(1, len(mutants)))
	fmt.Printf("%d mutants, %d survive: the tests notice %.1f %% (%v)\n", len(mutants), len(survivors), score,
		time.Since(start).Round(time.Second))
	return score, nil
}

// noticed reports whether a test fails with the mutant.
func (m *mutation) noticed(ctx context.Context, one mutant, reachedBy map[test]bool) bool {
	var quick, slow []testCost
	for _, t := range m.tests {
		switch {
		case !reachedBy[t.test]:
		case t.took < slowTest:
			quick = append(quick, t)
		default:
			slow = append(slow, t)
		}
	}
	return !m.pass(ctx, one.id, quick) || !m.pass(ctx, one.id, slow)
}

// packages returns the folders of the package and of those that belong to it.
func (m *mutation) packages() (folders []string, err error) {
	beneath, err := filepath.Glob(filepath.Join(m.folder, "internal", "*"))
	if err != nil {
		return nil, err
	}
	for _, folder := range append([]string{m.folder}, beneath...) {
		if files, _ := filepath.Glob(filepath.Join(folder, "*.go")); len(files) > 0 && !strings.HasSuffix(folder, "test") {
			folders = append(folders, folder)
		}
	}
	return folders, nil
}

// build compiles the tests with all mutants.
func (m *mutation) build(ctx context.Context, folders []string) ([]mutant, error) {
	in := &instrumenter{}
	changed := map[string]string{}
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			source, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			result, err := in.instrument(file, source)
			if err != nil {
				return nil, err
			}
			changed[file] = string(result)
		}
	}
	addSwitches(changed, in.next+1)
	for _, folder := range folders {
		if err := m.compile(ctx, folder, changed); err != nil {
			return nil, err
		}
	}
	return in.mutants, nil
}

// addSwitches adds the file with the switches of the mutants to each folder with a changed file.
func addSwitches(changed map[string]string, mutants int) {
	for _, file := range slices.Collect(maps.Keys(changed)) {
		folder := filepath.Dir(file)
		changed[filepath.Join(folder, "mutant_switch.go")] = fmt.Sprintf(switchSource, filepath.Base(folder), mutants)
	}
}

// each calls do for each item, some at the same time.
func each[T any](jobs int, items []T, do func(T)) {
	var running sync.WaitGroup
	free := make(chan struct{}, max(1, jobs))
	for _, item := range slices.Clone(items) {
		free <- struct{}{}
		running.Go(func() { defer func() { <-free }(); do(item) })
	}
	running.Wait()
}
