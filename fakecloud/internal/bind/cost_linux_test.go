package bind

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// costly are bodies with n mistakes, or with n of something.
var costly = map[string]func(n int) string{
	"items of a wrong type": func(n int) string { return `{"ids": [` + list(n, func(int) string { return `"x"` }) + `]}` },
	"items without a field": func(n int) string { return `{"list": [` + list(n, func(int) string { return `{}` }) + `]}` },
	"labels of a wrong type": func(n int) string {
		return `{"labels": {` + list(n, func(i int) string { return fmt.Sprintf(`"k%d": 1`, i) }) + `}}`
	},
	"unknown fields": func(n int) string {
		return `{` + list(n, func(i int) string { return fmt.Sprintf(`"k%d": 1`, i) }) + `}`
	},
	"unknown fields in items": func(n int) string {
		return `{"list": [` + list(n, func(int) string { return `{"port": 1, "other": 1}` }) + `]}`
	},
	"valid items": func(n int) string { return `{"list": [` + list(n, func(int) string { return `{"port": 1}` }) + `]}` },
	"valid labels": func(n int) string {
		return `{"labels": {` + list(n, func(i int) string { return fmt.Sprintf(`"k%d": "v"`, i) }) + `}}`
	},
}

func list(n int, item func(int) string) string {
	items := make([]string, n)
	for i := range items {
		items[i] = item(i)
	}
	return strings.Join(items, ",")
}

// cpu returns the CPU time of f on this thread: other tests and programs do not add to it.
func cpu(f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	used := func() time.Duration {
		var now unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now)
		return time.Duration(now.Nano())
	}
	before := used()
	f()
	return used() - before
}

// TestTheCostOfABodyFollowsItsSize doubles a body three times. The CPU time may grow by at most 3 per doubling: it doubles, first
// touches of memory on a busy machine have added up to 30 percent, and a cost with the square of the size is 4. Of several rounds,
// the least time of each size counts. The garbage collector is off, because its work depends on other tests.
func TestTheCostOfABodyFollowsItsSize(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	const n = 500
	for name, body := range costly {
		t.Run(name, func(t *testing.T) {
			costs := make(map[int]time.Duration)
			for range 5 {
				for size := n; size <= 8*n; size *= 2 {
					text := []byte(body(size))
					cost := cpu(func() {
						_ = read(t.Context(), text, new(request), "")
						_ = Unknown(t.Context(), text, new(request), "")
					})
					costs[size] = min(cost, cmp.Or(costs[size], cost))
				}
				runtime.GC()
			}
			if growth := float64(costs[8*n]) / float64(costs[n]); growth > 3*3*3 {
				t.Errorf("CPU time by number: %v: it grows faster than the body", costs)
			}
			t.Log(costs)
		})
	}
}

func TestAnAnswerHasAtMostAHundredMistakes(t *testing.T) {
	t.Parallel()
	for name, body := range costly {
		text := []byte(body(500))
		for _, err := range []error{read(t.Context(), text, new(request), ""), Unknown(t.Context(), text, new(request), "")} {
			var e *cloud.Error
			if !errors.As(err, &e) {
				continue // nothing is wrong, or nothing is unknown
			}
			mistakes := len(e.Fields)
			// A valid list in costly lacks the required name and type, and of labels the first mistake counts.
			if many := mistakes > 3; many && (mistakes != 100 || !strings.HasSuffix(e.Message, "; only the first 100 fields are named")) {
				t.Errorf("%s: %d mistakes, message %.40q…%q", name, mistakes, e.Message, e.Message[max(0, len(e.Message)-40):])
			}
		}
	}
}
