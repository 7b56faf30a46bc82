//go:build sim

package sim

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/controller-manager/pkg/features"
	"k8s.io/klog/v2"
)

var (
	seedFlag   = flag.Uint64("seed", 0, "run only this seed, and print what happens")
	keepFlag   = flag.String("keep", "", "make only these steps of the seed, such as 0,3,4")
	seedsFlag  = flag.Uint64("seeds", 300, "run so many seeds")
	firstFlag  = flag.Uint64("first", 1, "the first seed")
	sameFlag   = flag.Uint64("same", 0, "play so many seeds twice, and count those that differ")
	shrinkFlag = flag.Int("shrink", 3, "shrink so many failures")
	untilFlag  = flag.Bool("until", false, "run no more seeds once one has failed")
	outFlag    = flag.String("out", "", "play the seed in this process, and write the outcome to this file")
)

func TestMain(m *testing.M) {
	flag.Parse()
	klog.SetLogger(logr.Discard())
	utilruntime.ErrorHandlers = nil // they remember the time of the last error, of whatever bubble
	// As k8s.io/cloud-provider/app and the program do.
	if err := features.SetupCurrentKubernetesSpecificFeatureGates(utilfeature.DefaultMutableFeatureGate); err != nil {
		panic(err)
	}
	if err := utilfeature.DefaultMutableFeatureGate.OverrideDefault(features.CloudControllerManagerWatchBasedRoutesReconciliation,
		true); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// play runs a history in a bubble of its own.
func play(t *testing.T, h history) (w *world) {
	t.Helper()
	folder := t.TempDir()
	synctest.Test(t, func(*testing.T) { w = h.run(folder) })
	return w
}

// outcome is what became of a history.
type outcome struct {
	Rule, Text string // the broken promise; empty: none
	Nodes      int
	Steps      []string
	Requests   int
	Writes     int64
	Log        []string
}

// TestPlay plays one history for another process: see playAlone.
func TestPlay(t *testing.T) {
	if *outFlag == "" {
		return
	}
	h := newHistory(*seedFlag)
	if *keepFlag != "" {
		var steps []step
		for text := range strings.SplitSeq(*keepFlag, ",") {
			i, err := strconv.Atoi(text)
			must(err)
			steps = append(steps, h.steps[i])
		}
		h.steps = steps
	}
	w := play(t, h)
	o := outcome{Nodes: h.nodes, Requests: w.requests, Writes: w.writes.Load(), Log: w.log}
	for _, s := range h.steps {
		o.Steps = append(o.Steps, s.String())
	}
	if f := w.guard.failed; f != nil {
		o.Rule, o.Text = f.rule, f.text
	}
	text, err := json.Marshal(o)
	must(err)
	must(os.WriteFile(*outFlag, text, 0o600))
}

// playAlone plays a seed, or the steps of it that are kept, in a process of its own with one processor. In one that has
// played others before, or has collected memory, addresses differ, and with them the order of maps whose keys are pointers.
func playAlone(t *testing.T, seed uint64, keep []int) (o outcome) {
	t.Helper()
	folder := t.TempDir()
	file := filepath.Join(folder, "outcome.json")
	args := []string{"-test.run", "^TestPlay$", "-test.timeout", "10m", "-seed", fmt.Sprint(seed), "-out", file}
	if keep != nil {
		args = append(args, "-keep", strings.Trim(strings.ReplaceAll(fmt.Sprint(keep), " ", ","), "[]"))
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = []string{"GOMAXPROCS=1", "GOGC=off", "GOMEMLIMIT=4GiB", "GODEBUG=asyncpreemptoff=1", "TMPDIR=" + folder, "MUTANT=" +
		os.Getenv("MUTANT")}
	if out, err := cmd.CombinedOutput(); err != nil {
		return outcome{Rule: "crash", Text: fmt.Sprintf("the process of seed %d ended: %v\n%s", seed, err, out)}
	}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	if err != nil {
		t.Error(err)
	}
	_ = os.RemoveAll(folder)
	return o
}

// TestSim runs the histories of many seeds, as many at the same time as there are processors. A failing one is shrunk.
func TestSim(t *testing.T) {
	if *seedFlag != 0 {
		keep := []int(nil)
		for text := range strings.SplitSeq(*keepFlag, ",") {
			if i, err := strconv.Atoi(text); err == nil {
				keep = append(keep, i)
			}
		}
		o := playAlone(t, *seedFlag, keep)
		t.Log(strings.Join(o.Log, "\n"))
		if o.Rule != "" {
			t.Errorf("seed %d: %s: %s", *seedFlag, o.Rule, o.Text)
		}
		return
	}
	var mu sync.Mutex
	var requests, done, failures int
	var writes int64
	start := time.Now()
	shown := start
	each(*firstFlag, *seedsFlag, func(seed uint64) {
		mu.Lock()
		enough := *untilFlag && failures > 0
		mu.Unlock()
		if enough {
			return
		}
		o := playAlone(t, seed, nil)
		mu.Lock()
		done, requests, writes = done+1, requests+o.Requests, writes+o.Writes
		if o.Rule != "" {
			failures++
			fmt.Fprintf(os.Stderr, "sim: seed %d has failed: %s\n", seed, o.Rule)
		}
		brief := failures > *shrinkFlag
		if done == int(*seedsFlag) || time.Since(shown) > 15*time.Second {
			shown = time.Now()
			fmt.Fprintf(os.Stderr, "sim: %d of %d seeds have run, %d failed, %d requests, %d of them writes, %v\n",
				done, *seedsFlag, failures, requests, writes, time.Since(start).Round(time.Second))
		}
		mu.Unlock()
		if o.Rule != "" {
			report(t, seed, o, brief)
		}
	})
}

// each calls do for n seeds, as many at the same time as there are processors, or as GOMAXPROCS says.
func each(first, n uint64, do func(seed uint64)) {
	var running sync.WaitGroup
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	for seed := first; seed < first+n; seed++ {
		free <- struct{}{}
		running.Go(func() { defer func() { <-free }(); do(seed) })
	}
	running.Wait()
}

// TestTheSameSeedGivesTheSameHistory compares the steps of each seed. With -same it plays seeds twice and compares all that
// happens.
func TestTheSameSeedGivesTheSameHistory(t *testing.T) {
	for seed := uint64(1); seed <= 300; seed++ {
		if first, second := newHistory(seed), newHistory(seed); !slices.Equal(first.steps, second.steps) || first.nodes != second.nodes {
			t.Errorf("seed %d: %v and %v", seed, first, second)
		}
	}
	each(*firstFlag, *sameFlag, func(seed uint64) {
		first, second := playAlone(t, seed, nil).Log, playAlone(t, seed, nil).Log
		for i, line := range first {
			if i >= len(second) || line != second[i] {
				t.Errorf("seed %d differs at line %d:\n%s\nand:\n%s", seed, i, line,
					strings.Join(second[min(i, len(second)):min(i+1, len(second))], ""))
				break
			}
		}
	})
}

// report prints a seed that has failed, and its shortest history.
func report(t *testing.T, seed uint64, o outcome, brief bool) {
	t.Helper()
	if brief || o.Rule == "crash" {
		t.Errorf("seed %d: %s: %s (not shrunk: make sim SEED=%d)", seed, o.Rule, o.Text, seed)
		return
	}
	keep := shrink(t, seed, len(o.Steps), o.Rule)
	if short := playAlone(t, seed, keep); short.Rule != "" {
		o = short
	}
	list := strings.Trim(strings.ReplaceAll(fmt.Sprint(keep), " ", ","), "[]")
	t.Errorf("seed %d: %s: %s\n%d nodes, and these steps (make sim SEED=%d KEEP=%s):\n    %s\nthe end of what happened:\n%s",
		seed, o.Rule, o.Text, o.Nodes, seed, list, strings.Join(o.Steps, "\n    "), strings.Join(o.Log[max(0, len(o.Log)-60):], "\n"))
}

// shrink leaves out steps as long as the same promise is broken. It returns the steps that remain.
func shrink(t *testing.T, seed uint64, steps int, rule string) (keep []int) {
	t.Helper()
	for i := range steps {
		keep = append(keep, i)
	}
	for size := len(keep) / 2; size > 0; {
		shorter := false
		for i := 0; i+size <= len(keep) && len(keep) > size; {
			without := slices.Delete(slices.Clone(keep), i, i+size)
			if playAlone(t, seed, without).Rule == rule {
				keep, shorter = without, true
				continue
			}
			i++
		}
		if !shorter || size > 1 {
			size /= 2
		}
	}
	return keep
}
