//go:build sim

package sim

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
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

// play runs a history in a bubble of its own.
func play(t *testing.T, h history, verbose bool) (w *world) {
	t.Helper()
	folder := t.TempDir()
	synctest.Test(t, func(*testing.T) { w = h.run(folder, verbose) })
	return w
}

// TestSim runs the histories of many seeds. A failing one is shrunk.
func TestSim(t *testing.T) {
	t.Parallel()
	if *seedFlag != 0 {
		report(t, newHistory(*seedFlag), nil, true)
		return
	}
	start := time.Now()
	var requests, writes, failures atomic.Int64
	t.Run("seeds", func(t *testing.T) {
		for seed := *firstFlag; seed < *firstFlag+*seedsFlag; seed++ {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				w := play(t, newHistory(seed), false)
				requests.Add(int64(w.requests))
				writes.Add(w.writes.Load())
				if w.guard.failed == nil {
					return
				}
				if failures.Add(1) > *shrinkFlag {
					t.Errorf("seed %d: %v (not shrunk: make sim SEED=%d)", seed, w.guard.failed, seed)
				} else {
					report(t, newHistory(seed), w.guard.failed, false)
				}
			})
		}
	})
	t.Logf("%d seeds in %v: %d requests, %d of them writes", *seedsFlag, time.Since(start).Round(time.Second), requests.Load(), writes.Load())
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
	for seed := uint64(1); seed <= *sameFlag; seed++ {
		if play(t, newHistory(seed), false).trace.Sum64() != play(t, newHistory(seed), false).trace.Sum64() {
			different++
		}
	}
	if *sameFlag > 0 {
		t.Logf("the requests of %d of %d seeds differ between two runs", different, *sameFlag)
	}
}

// report plays a history, shrinks it if it fails, and prints the shortest one.
func report(t *testing.T, h history, first error, verbose bool) {
	t.Helper()
	w := play(t, h, verbose)
	for range 3 { // some orders are the scheduler's
		if w.guard.failed != nil {
			break
		}
		w = play(t, h, verbose)
	}
	if verbose {
		t.Log(strings.Join(w.log, "\n"))
	}
	if w.guard.failed == nil {
		if !verbose {
			t.Errorf("seed %d failed once, and not in four more runs: %v", h.seed, first)
		}
		return
	}
	short := shrink(t, h, w.guard.failed.rule)
	for range 3 {
		if w = play(t, short, true); w.guard.failed != nil {
			break
		}
	}
	var steps []string
	for _, s := range short.steps {
		steps = append(steps, "    "+s.String())
	}
	log := w.log[max(0, len(w.log)-60):]
	t.Errorf("seed %d: %v\n%d nodes, and these steps (make sim SEED=%d):\n%s\nthe end of what happened:\n%s",
		h.seed, w.guard.failed, short.nodes, h.seed, strings.Join(steps, "\n"), strings.Join(log, "\n"))
}

// shrink leaves out steps as long as the same promise is broken.
func shrink(t *testing.T, h history, rule string) history {
	t.Helper()
	fails := func(steps []step) bool {
		for range 2 {
			if f := play(t, history{h.seed, h.nodes, steps}, false).guard.failed; f != nil && f.rule == rule {
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
