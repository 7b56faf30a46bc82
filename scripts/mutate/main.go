// Command mutate measures how much the tests of a package notice: it changes the package's code in many small ways,
// runs the tests for each, and reports the mutants that survive. The packages in its folder internal belong to it, except
// helpers of tests.
//
//	go run ./scripts/mutate -package ccm -sample 200 -simulate "$(scripts/sim-runtime.sh)"
//	go run ./scripts/mutate -package ccm -piece 2/20  a twentieth of them
//	go run ./scripts/mutate -package ccm -named scripts/mutate/named.txt
//	go run ./scripts/mutate -package fakecloud/internal/cloud -judges fakecloud/internal/cloud,fakecloud/internal/contract
//
// All mutants are compiled once and switched on by their number. Only tests that reach a mutant run for it, the quick ones first. A
// mutant that no test reaches survives. One that never ends counts as noticed. With -simulate, the simulation's regressions and seeds
// judge those that would survive. With -judges, the tests of these packages judge, and no others.
//
// With -prepare, it leaves all that is needed to try the mutants in a folder, and ends. With -prepared, it tries those of such a folder,
// which may be on another machine: it needs the checkout, but not Go.
//
// With -named, it tries the mutants of a list (see namedMutant): each must be noticed by all of its judges.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	var m mutation
	flag.StringVar(&m.folder, "package", "ccm", "the folder of the package")
	flag.StringVar(&m.judges, "judges", "", "the folders of the packages whose tests judge, with commas; none: those that are changed")
	named := flag.String("named", "", "replay the mutants of this file")
	only := flag.String("only", "", "replay only the named mutants whose names contain this text")
	flag.StringVar(&m.simulate, "simulate", "",
		"the simulation judges the named mutants, and those that no test notices: the overlay with which it is compiled")
	flag.IntVar(&m.sample, "sample", 0, "try so many mutants; 0: all")
	flag.Uint64Var(&m.seed, "seed", 1, "draws the sample")
	piece := flag.String("piece", "1/1", "try this part of them, such as 2/20")
	prepare := flag.String("prepare", "", "write what is needed to try the mutants into this folder, and end")
	prepared := flag.String("prepared", "", "the folder of an earlier -prepare, with the same -package")
	least := flag.Float64("least", 0, "fail if less than this percentage is noticed")
	flag.IntVar(&m.jobs, "jobs", 2, "so many processes run tests at the same time")
	flag.Parse()
	run := func(ctx context.Context) (err error) {
		if m.tmp = cmp.Or(*prepare, *prepared); m.tmp == "" {
			if m.tmp, err = os.MkdirTemp("", "mutate"); err != nil {
				return err
			}
			defer func() { _ = os.RemoveAll(m.tmp) }()
		}
		if *prepare != "" {
			return m.prepare(ctx)
		}
		var trials []trial
		if *named != "" {
			*least = 100
			trials, err = m.namedTrials(ctx, *named, *only)
		} else {
			trials, err = m.drawnTrials(ctx, *prepared != "", *piece)
		}
		if err != nil {
			return err
		}
		if score := m.score(ctx, trials); ctx.Err() == nil && score < *least {
			err = fmt.Errorf("the tests notice %.1f %% of the mutants, want at least %.1f %%: write tests for those that survive", score,
				*least)
		}
		return cmp.Or(ctx.Err(), err)
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
	judges string // folders of the packages whose tests judge; "": those of packages
	jobs   int
	tmp    string
	// simulate is the overlay with which the simulation is compiled; "": the simulation does not judge.
	simulate string
	sample   int // so many mutants are drawn, with seed; 0: all
	seed     uint64
}

// slowTest is the duration of a test that runs only for mutants that survive the quick tests.
const slowTest = time.Second

// trial is a mutant. try returns its judges, in words if they should be printed. It fails if the mutant survives.
type trial struct {
	name string
	try  func() (by string, err error)
}

// score tries all mutants, prints those that survive, and returns the percentage that is noticed.
func (m *mutation) score(ctx context.Context, trials []trial) float64 {
	start, tried, survivors := time.Now(), 0, 0
	var mu sync.Mutex
	_ = m.each(len(trials), func(i int) error {
		by, err := trials[i].try()
		mu.Lock()
		defer mu.Unlock()
		tried++
		switch {
		case ctx.Err() != nil:
		case err != nil:
			survivors++
			fmt.Printf("survives: %s: %v\n", trials[i].name, err)
		case by != "":
			fmt.Printf("noticed: %s (%s)\n", trials[i].name, by)
		}
		if tried%50 == 0 {
			fmt.Printf("%d of %d tried, %d survive, %v\n", tried, len(trials), survivors, time.Since(start).Round(time.Second))
		}
		return nil
	})
	score := 100 * float64(len(trials)-survivors) / float64(max(1, len(trials)))
	fmt.Printf("%d mutants, %d survive: the tests notice %.1f %% (%v)\n", len(trials), survivors, score,
		time.Since(start).Round(time.Second))
	return score
}

// drawnTrials returns those of a piece, such as 2/20. Unless they are prepared, it prepares them.
func (m *mutation) drawnTrials(ctx context.Context, isPrepared bool, piece string) (trials []trial, err error) {
	part, of := 0, 0
	if _, err := fmt.Sscanf(piece, "%d/%d", &part, &of); err != nil || part < 1 || part > of {
		return nil, fmt.Errorf("-piece %s: must be such as 2/20", piece)
	}
	if !isPrepared {
		if err := m.prepare(ctx); err != nil {
			return nil, err
		}
	}
	var p prepared
	text, err := os.ReadFile(filepath.Join(m.tmp, preparedFile))
	if err = errors.Join(err, json.Unmarshal(text, &p)); err != nil {
		return nil, err
	}
	if isPrepared && !m.pass(ctx, 0, p.Tests) {
		return nil, errors.New("the tests fail here without a mutant: run them to see which one, such as by make test")
	}
	for _, one := range p.Mutants[len(p.Mutants)*(part-1)/of : len(p.Mutants)*part/of] {
		trials = append(trials, trial{one.Where, func() (string, error) { return "", m.notice(ctx, one, p.Tests) }})
	}
	fmt.Printf("%d mutants, %d tests\n", len(trials), len(p.Tests))
	return trials, nil
}

// notice fails unless a test, or else the simulation, fails with the mutant.
func (m *mutation) notice(ctx context.Context, one mutant, tests []testCost) error {
	for _, slow := range []bool{false, true} {
		var some []testCost
		for _, i := range one.Tests {
			if slow == (tests[i].Took >= slowTest) {
				some = append(some, tests[i])
			}
		}
		if !m.pass(ctx, one.ID, some) {
			return nil
		}
	}
	if m.simulate != "" {
		if _, err := m.runSeeds(ctx, one.ID, "^(TestRegressions|TestSim)$"); err != nil {
			return nil //nolint:nilerr // the simulation notices it
		}
	}
	if len(one.Tests) == 0 {
		return fmt.Errorf("%s, and no test gets there", one.What)
	}
	return errors.New(one.What)
}

// prepared is the result of prepare. The compiled tests are in the same folder.
type prepared struct {
	Tests   []testCost // the quick ones first
	Mutants []mutant
}

const preparedFile = "mutants.json"

// prepare compiles the tests with all mutants, finds out which tests reach each, and draws the sample.
func (m *mutation) prepare(ctx context.Context) error {
	all, err := m.sources()
	if err != nil {
		return err
	}
	in, changed := &instrumenter{}, map[string]string{}
	for _, s := range all {
		if strings.HasSuffix(s.file, "_test.go") {
			continue
		}
		if changed[s.file], err = in.instrument(s.file, s.text); err != nil {
			return err
		}
	}
	if m.judges != "" {
		if all, err = read(strings.Split(m.judges, ",")...); err != nil {
			return err
		}
	}
	p := prepared{Tests: tests(all), Mutants: in.mutants}
	var folders []string
	for _, t := range p.Tests {
		folders = append(folders, t.Folder)
	}
	if m.simulate != "" {
		folders = append(folders, m.simulation())
	}
	if err := m.compile(ctx, folders, changed, len(in.mutants)); err != nil {
		return err
	}
	if err := m.reach(ctx, p); err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(m.seed, 0)) // even if all are tried, so that pieces take about the same time
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

// source is a Go file.
type source struct{ file, text string }

// sources returns the files of the package and of those that belong to it, with their tests.
func (m *mutation) sources() ([]source, error) {
	all, err := read(m.folder, m.folder+"/internal/*", m.folder+"/internal/proof/*")
	return slices.DeleteFunc(all, func(s source) bool {
		folder := filepath.Dir(s.file)
		return strings.HasSuffix(folder, "test") || folder == m.simulation()
	}), err
}

// read returns the Go files in the folders that patterns match.
func read(folders ...string) (all []source, err error) {
	for _, folder := range folders {
		files, wrong := filepath.Glob(folder + "/*.go")
		err = errors.Join(err, wrong)
		for _, file := range files {
			text, unread := os.ReadFile(file)
			all, err = append(all, source{file, string(text)}), errors.Join(err, unread)
		}
	}
	return all, err
}

// each calls do with the numbers from 0 to before n, some at the same time.
func (m *mutation) each(n int, do func(i int) error) error {
	var running errgroup.Group
	running.SetLimit(max(1, m.jobs))
	for i := range n {
		running.Go(func() error { return do(i) })
	}
	return running.Wait()
}
