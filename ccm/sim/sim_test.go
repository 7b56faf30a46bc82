//go:build sim

package sim

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
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
	seedsFlag  = flag.Uint64("seeds", 300, "run so many seeds, from 1 on")
	sameFlag   = flag.Uint64("same", 0, "play so many seeds twice, and count those whose requests differ")
	shrinkFlag = flag.Int64("shrink", 3, "shrink so many failures")
	firstFlag  = flag.Uint64("first", 1, "the first seed")
)

func TestMain(m *testing.M) {
	flag.Parse()
	runtime.GOMAXPROCS(1) // then the scheduler decides less: see doc.go
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(4 << 30)
	klog.SetLogger(logr.Discard())
	utilruntime.ErrorHandlers = nil // they remember the time of the last error, of whatever bubble
	// As k8s.io/cloud-provider/app and the program do.
	if err := features.SetupCurrentKubernetesSpecificFeatureGates(utilfeature.DefaultMutableFeatureGate); err != nil {
		panic(err)
	}
	if err := utilfeature.DefaultMutableFeatureGate.OverrideDefault(features.CloudControllerManagerWatchBasedRoutesReconciliation, true); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// play runs a history in a bubble of its own. Memory is collected only before: the collector would interrupt the CCM
// at times that no seed decides.
func play(t *testing.T, h history) (w *world) {
	t.Helper()
	folder := t.TempDir()
	runtime.GC()
	synctest.Test(t, func(*testing.T) { w = h.run(folder) })
	return w
}

// TestSim runs the histories of many seeds. A failing one is shrunk.
func TestSim(t *testing.T) {
	if *seedFlag != 0 {
		report(t, newHistory(*seedFlag), nil, true)
		return
	}
	var requests, writes, failures int64
	start := time.Now()
	shown := start
	for n := range *seedsFlag {
		h := newHistory(*firstFlag + n)
		w := play(t, h)
		requests, writes = requests+int64(w.requests), writes+w.writes.Load()
		if w.guard.failed != nil {
			failures++
			report(t, h, w, failures > *shrinkFlag)
		}
		if last := n+1 == *seedsFlag; last || time.Since(shown) > 15*time.Second {
			shown = time.Now()
			fmt.Fprintf(os.Stderr, "sim: seeds %d to %d: %d done, %d failed, %d requests, %d of them writes, %v\n", *firstFlag,
				*firstFlag+*seedsFlag-1, n+1, failures, requests, writes, time.Since(start).Round(time.Second))
		}
	}
}

// TestTheSameSeedGivesTheSameHistory compares the steps of each seed, and with -same also the requests of the CCM
// with their times. The latter differ for some seeds: see doc.go.
func TestTheSameSeedGivesTheSameHistory(t *testing.T) {
	t.Parallel()
	for seed := uint64(1); seed <= 300; seed++ {
		if first, second := newHistory(seed), newHistory(seed); !slices.Equal(first.steps, second.steps) || first.nodes != second.nodes {
			t.Errorf("seed %d: %v and %v", seed, first, second)
		}
	}
	different := 0
	for seed := *firstFlag; seed < *firstFlag+*sameFlag; seed++ {
		first, second := play(t, newHistory(seed)).log, play(t, newHistory(seed)).log
		if at := slices.IndexFunc(first, func(line string) bool {
			return len(second) == 0 || line != second[0] || func() bool { second = second[1:]; return false }()
		}); at >= 0 {
			different++
			t.Logf("seed %d differs:\n%s\nsecond:\n%s", seed, strings.Join(first[max(0, at-4):min(len(first), at+4)], "\n"), strings.Join(second[:min(4, len(second))], "\n"))
		}
	}
	if *sameFlag > 0 {
		t.Logf("the requests of %d of %d seeds differ between two runs", different, *sameFlag)
	}
}

// report prints a history that has failed in the world was, and its shortest form. If was is nil, it plays the
// history and prints all that happens.
func report(t *testing.T, h history, was *world, brief bool) {
	t.Helper()
	w := was
	if w == nil {
		w = play(t, h)
		t.Log(strings.Join(w.log, "\n"))
	}
	if w.guard.failed == nil {
		return
	}
	record := w.record(h.seed)
	if brief {
		t.Errorf("seed %d: %v (not shrunk: make sim SEED=%d; all that happened: %s)", h.seed, w.guard.failed, h.seed, record)
		return
	}
	short := h
	if again(t, h, w.guard.failed.rule) != nil {
		short = shrink(t, h, w.guard.failed.rule)
		if shorter := again(t, short, w.guard.failed.rule); shorter != nil {
			w = shorter
		}
	} else {
		t.Errorf("seed %d failed once, and not in four more runs: this is its record", h.seed)
	}
	var steps []string
	for _, s := range short.steps {
		steps = append(steps, "    "+s.String())
	}
	log := w.log[max(0, len(w.log)-60):]
	t.Errorf("seed %d: %v\n%d nodes, and these steps (make sim SEED=%d; all that happened: %s):\n%s\nthe end of what happened:\n%s",
		h.seed, w.guard.failed, short.nodes, h.seed, record, strings.Join(steps, "\n"), strings.Join(log, "\n"))
}

// record writes all that happened into a file, and returns its name.
func (w *world) record(seed uint64) string {
	file := filepath.Join(os.TempDir(), fmt.Sprintf("ccm-sim-%d.log", seed))
	if err := os.WriteFile(file, []byte(strings.Join(w.log, "\n")+"\n"+w.guard.failed.Error()+"\n"), 0o600); err != nil {
		return err.Error()
	}
	return file
}

// again plays a history until it breaks the same promise, at most four times. It returns nil if it does not.
func again(t *testing.T, h history, rule string) *world {
	t.Helper()
	for range 4 { // a few orders are the scheduler's
		if w := play(t, h); w.guard.failed != nil && w.guard.failed.rule == rule {
			return w
		}
	}
	return nil
}

// shrink leaves out steps as long as the same promise is broken.
func shrink(t *testing.T, h history, rule string) history {
	t.Helper()
	fails := func(steps []step) bool {
		for range 2 {
			if f := play(t, history{h.seed, h.nodes, steps}).guard.failed; f != nil && f.rule == rule {
				return true
			}
		}
		return false
	}
	for size := len(h.steps) / 2; size > 0; {
		shorter := false
		for i := 0; i+size <= len(h.steps); {
			without := slices.Delete(slices.Clone(h.steps), i, i+size)
			if fails(without) {
				h.steps, shorter = without, true
				continue
			}
			i++
		}
		if !shorter || size > 1 {
			size /= 2
		}
	}
	return h
}
