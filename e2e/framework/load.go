package framework

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// loadInterval is the time between the beginnings of two requests of a Load.
const loadInterval = 50 * time.Millisecond

// Load is steady traffic from outside of the cluster: requests begin at a fixed rate, each on a new connection. It does not wait for a
// request that hangs.
type Load struct {
	ask   func(context.Context) (node string, err error)
	begin time.Time

	mu       sync.Mutex
	requests []*LoadRequest
}

// LoadRequest is one request of a Load.
type LoadRequest struct {
	// Begin is when it was sent, End when it was answered or lost. End is zero until then.
	Begin, End time.Time
	// Node is the name of the node that answered.
	Node string
	// Err is the reason for a missing answer. It is nil with an answer.
	Err error
}

// LoadResult counts the answered and lost requests of a Load.
type LoadResult struct {
	Answered int
	Lost     []LoadRequest
	since    time.Time
}

// String returns the counts, and when the lost requests began.
func (r LoadResult) String() string {
	text := fmt.Sprintf("%d answered, %d lost", r.Answered, len(r.Lost))
	if len(r.Lost) > 0 {
		text += fmt.Sprintf(", which began %.1f s to %.1f s after the beginning; the last one: %v",
			r.Lost[0].Begin.Sub(r.since).Seconds(), r.Lost[len(r.Lost)-1].Begin.Sub(r.since).Seconds(), r.Lost[len(r.Lost)-1].Err)
	}
	return text
}

// Load begins to send requests to an address, until the spec ends.
func (t Traffic) Load(ctx context.Context, address string, port int) *Load {
	GinkgoHelper()
	l := &Load{begin: time.Now(), ask: func(ctx context.Context) (string, error) {
		answer, err := t.Get(ctx, address, port)
		return answer.Node, err
	}}
	// The last requests end with their answers or with the client's timeout.
	ctx = context.WithoutCancel(ctx)
	stop, done := make(chan struct{}), make(chan struct{})
	DeferCleanup(func() {
		close(stop)
		<-done
	})
	go func() {
		defer close(done)
		ticker := time.NewTicker(loadInterval)
		defer ticker.Stop()
		var underWay sync.WaitGroup
		defer underWay.Wait()
		for {
			select {
			case <-ticker.C:
				underWay.Go(func() { l.send(ctx) })
			case <-stop:
				return
			}
		}
	}()
	return l
}

// send sends one request and records its result.
func (l *Load) send(ctx context.Context) {
	r := &LoadRequest{Begin: time.Now()}
	l.mu.Lock()
	l.requests = append(l.requests, r)
	l.mu.Unlock()
	node, err := l.ask(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	r.End, r.Node, r.Err = time.Now(), node, err
}

// collect returns the result of the requests that began in a period, and how many of them have not ended.
func (l *Load) collect(from, to time.Time) (result LoadResult, underWay int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	result.since = from
	for _, r := range l.requests {
		switch {
		case r.Begin.Before(from) || !r.Begin.Before(to):
		case r.End.IsZero():
			underWay++
		case r.Err != nil:
			result.Lost = append(result.Lost, *r)
		default:
			result.Answered++
		}
	}
	return result, underWay
}

// Since waits for the requests that began between a time and now, returns their result, and adds it to the spec's report. It fails if no
// request began in that time.
func (l *Load) Since(ctx context.Context, from time.Time, what string) LoadResult {
	GinkgoHelper()
	result := l.finished(ctx, from)
	AddReportEntry("requests "+what, result.String())
	return result
}

// finished waits for the requests that began between a time and now, and returns their result.
func (l *Load) finished(ctx context.Context, from time.Time) (result LoadResult) {
	GinkgoHelper()
	to := time.Now()
	Eventually(func() (underWay int) {
		result, underWay = l.collect(from, to)
		return underWay
	}).WithContext(ctx).Should(BeZero(), "some requests have not ended")
	Expect(result.Answered+len(result.Lost)).To(BeNumerically(">", 0), "no request was sent")
	return result
}

// AwaitAnswers waits until n requests have been answered that began after a time.
func (l *Load) AwaitAnswers(ctx context.Context, after time.Time, n int) {
	GinkgoHelper()
	Eventually(func() int {
		result, _ := l.collect(after, time.Now())
		return result.Answered
	}).WithContext(ctx).Should(BeNumerically(">=", n))
}

// ExpectUndisturbed waits for the answer to one more request, and fails if any request was lost so far.
func (l *Load) ExpectUndisturbed(ctx context.Context) {
	GinkgoHelper()
	l.AwaitAnswers(ctx, time.Now(), 1)
	result := l.finished(ctx, l.begin)
	AddReportEntry("requests of the client", ReportEntryVisibilityFailureOrVerbose, result.String())
	Expect(result.Lost).To(BeEmpty())
}
