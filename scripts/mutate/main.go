// Command mutate measures what the tests of a package notice: it changes the package's code in many small ways,
// runs the tests for each, and reports the mutants that survive. The packages in its folder internal belong to it, except
// helpers of tests.
//
//	go run ./scripts/mutate -package ccm             all mutants, hours
//	go run ./scripts/mutate -package ccm -sample 200  so many, drawn with -seed
//	go run ./scripts/mutate -package ccm -piece 2/20  a twentieth of them
//	go run ./scripts/mutate -package ccm -sample 200 -simulate "$(scripts/sim-runtime.sh)"
//	go run ./scripts/mutate -package ccm -named scripts/mutate/named.txt
//	go run ./scripts/mutate -package ccm -named scripts/mutate/reverted.txt -simulate "$(scripts/sim-runtime.sh)"
//
// All mutants are compiled once and switched on by their number (see instrumenter). Only tests that reach a mutant
// run for it, the quick ones first. A mutant that no test reaches survives. One that never ends counts as noticed. With -simulate, the
// simulation's regressions and seeds judge those that would survive.
//
// With -prepare, it leaves all that is needed to try the mutants in a folder, and ends. With -prepared, it tries those of such a folder,
// which may be on another machine: it needs the checkout, but not Go.
//
// With -package ccm/internal/plan, only that package is changed, and only its tests judge.
//
// With -named, it replays mutants that a person has written down; each must make a test fail. With -simulate in addition, the
// simulation must notice each; the program prints by which rule and after how many seeds.
package main

import (
	"context"
	"encoding/json"
	"errors"
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
	flag.StringVar(&m.simulate, "simulate", "",
		"the simulation judges the named mutants, and those that no test notices: the overlay with which it is compiled")
	flag.IntVar(&m.seeds, "seeds", 300, "so many seeds of the simulation")
	flag.IntVar(&m.sample, "sample", 0, "try so many mutants; 0: all")
	flag.Uint64Var(&m.seed, "seed", 1, "draws the sample")
	piece := flag.String("piece", "1/1", "try this part of them, such as 2/20")
	prepare := flag.String("prepare", "", "write what is needed to try the mutants into this folder, and end")
	prepared := flag.String("prepared", "", "the folder of an earlier -prepare, with the same -package")
	least := flag.Float64("least", 0, "fail if less than this percentage is noticed")
	flag.IntVar(&m.jobs, "jobs", 2, "so many processes run tests at the same time")
	flag.Parse()
	run := func(ctx context.Context) error {
		if *named != "" {
			return m.replay(ctx, *named, *only)
		}
		if *prepare != "" {
			m.tmp = *prepare
			return m.prepare(ctx)
		}
		score, err := m.measure(ctx, *prepared, *piece)
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
	sample   int // so many mutants are drawn, with seed; 0: all
	seed     uint64
}

// slowTest is how long a test takes that runs only for mutants which the quick tests do not notice.
const slowTest = time.Second

// measure tries the mutants of a piece, and returns the percentage that the tests notice. The folder is one of prepare, or "".
func (m *mutation) measure(ctx context.Context, prepared, piece string) (score float64, err error) {
	if m.tmp = prepared; prepared == "" {
		if m.tmp, err = os.MkdirTemp("", "mutate"); err != nil {
			return 0, err
		}
		defer func() { _ = os.RemoveAll(m.tmp) }()
		if err := m.prepare(ctx); err != nil {
			return 0, err
		}
	}
	p, err := m.read()
	if err != nil {
		return 0, err
	}
	part, of := 0, 0
	if _, err := fmt.Sscanf(piece, "%d/%d", &part, &of); err != nil || part < 1 || part > of {
		return 0, fmt.Errorf("-piece %s: must be such as 2/20", piece)
	}
	mutants := p.Mutants[len(p.Mutants)*(part-1)/of : len(p.Mutants)*part/of]
	if prepared != "" && !m.pass(ctx, 0, p.Tests) {
		return 0, errors.New("the tests fail here without a mutant: run them to see which one, such as by make test")
	}
	survivors := m.tryAll(ctx, mutants, p.Tests)
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return percent(len(mutants), survivors), nil
}

// percent returns how many of the mutants the tests notice.
func percent(mutants, survivors int) float64 {
	return 100 * float64(mutants-survivors) / float64(max(1, mutants))
}

// tryAll reports each mutant that survives, and returns how many do.
func (m *mutation) tryAll(ctx context.Context, mutants []mutant, tests []testCost) (survivors int) {
	fmt.Printf("%d mutants, %d tests\n", len(mutants), len(tests))
	var mu sync.Mutex
	start, tried := time.Now(), 0
	each(m.jobs, mutants, func(one mutant) {
		noticed := m.noticed(ctx, one, tests)
		mu.Lock()
		defer mu.Unlock()
		if tried++; !noticed && ctx.Err() == nil {
			why := ""
			if len(one.Tests) == 0 {
				why = ", and no test gets there"
			}
			survivors++
			fmt.Printf("survives: %s: %s%s\n", one.Where, one.What, why)
		}
		if tried%50 == 0 {
			fmt.Printf("%d of %d tried, %d survive, %v\n", tried, len(mutants), survivors, time.Since(start).Round(time.Second))
		}
	})
	fmt.Printf("%d mutants, %d survive: the tests notice %.1f %% (%v)\n", len(mutants), survivors,
		percent(len(mutants), survivors), time.Since(start).Round(time.Second))
	return survivors
}

// noticed reports whether a test, or else the simulation, fails with the mutant.
func (m *mutation) noticed(ctx context.Context, one mutant, tests []testCost) bool {
	var quick, slow []testCost
	for _, i := range one.Tests {
		if tests[i].Took < slowTest {
			quick = append(quick, tests[i])
		} else {
			slow = append(slow, tests[i])
		}
	}
	return !m.pass(ctx, one.ID, quick) || !m.pass(ctx, one.ID, slow) || m.simulate != "" && !m.passSimulation(ctx, one.ID)
}

// prepared is what prepare has found out. The compiled tests are in the same folder.
type prepared struct {
	Tests   []testCost // the quick ones first
	Mutants []mutant
}

const preparedFile = "mutants.json"

// prepare compiles the tests with all mutants, finds out which tests reach each, and draws the sample.
func (m *mutation) prepare(ctx context.Context) error {
	folders, err := m.packages()
	if err != nil {
		return err
	}
	var p prepared
	if p.Mutants, err = m.build(ctx, folders); err != nil {
		return err
	}
	if p.Tests, err = m.reach(ctx, folders, p.Mutants); err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(m.seed, 0)) // also if all are tried, so that pieces take about the same time
	random.Shuffle(len(p.Mutants), func(i, j int) { p.Mutants[i], p.Mutants[j] = p.Mutants[j], p.Mutants[i] })
	if m.sample > 0 {
		p.Mutants = p.Mutants[:min(m.sample, len(p.Mutants))]
	}
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(m.tmp, preparedFile), text, 0o644)
}

func (m *mutation) read() (p prepared, err error) {
	text, err := os.ReadFile(filepath.Join(m.tmp, preparedFile))
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	return p, err
}

// packages returns the folders of the package and of those that belong to it.
func (m *mutation) packages() (folders []string, err error) {
	beneath, err := filepath.Glob(filepath.Join(m.folder, "internal", "*"))
	if err != nil {
		return nil, err
	}
	proofs, err := filepath.Glob(filepath.Join(m.folder, "internal", "proof", "*"))
	if err != nil {
		return nil, err
	}
	for _, folder := range slices.Concat([]string{m.folder}, beneath, proofs) {
		if files, _ := filepath.Glob(filepath.Join(folder, "*.go")); len(files) > 0 && !strings.HasSuffix(folder, "test") &&
			folder != m.simulation() {
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
	if m.simulate != "" {
		folders = append(folders, m.simulation())
	}
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
