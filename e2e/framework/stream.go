package framework

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// Stream is a client that sends requests until it is stopped, to notice disturbed traffic.
type Stream struct {
	end      func() // makes it send one more request, and end
	cancel   context.CancelFunc
	done     chan struct{}
	answered int
	slowest  time.Duration
	failures []error
}

// streamInterval is the pause between two requests of a stream.
const streamInterval = 20 * time.Millisecond

// Stream sends requests to an address, one after the other, until it is stopped or the spec ends. Each request opens a connection.
func (t Traffic) Stream(ctx context.Context, address string, port int) *Stream {
	s := startStream(context.WithoutCancel(ctx), func(ctx context.Context) error {
		_, err := t.Get(ctx, address, port)
		return err
	})
	DeferCleanup(s.cancel)
	return s
}

func startStream(ctx context.Context, get func(context.Context) error) *Stream {
	ctx, cancel := context.WithCancel(ctx)
	ending := make(chan struct{})
	s := &Stream{end: sync.OnceFunc(func() { close(ending) }), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		ticker := time.NewTicker(streamInterval)
		defer ticker.Stop()
		for last := false; ; {
			start := time.Now()
			err := get(ctx)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				s.failures = append(s.failures, fmt.Errorf("%s: %w", time.Now().Format("15:04:05.000"), err))
			default:
				s.answered++
			}
			s.slowest = max(s.slowest, time.Since(start))
			if last {
				return
			}
			select {
			case <-ticker.C:
			case <-ending:
			case <-ctx.Done():
				return
			}
			select {
			case <-ending:
				last = true
			default:
			}
		}
	}()
	return s
}

// finish waits for the current request and sends a last one.
func (s *Stream) finish() {
	s.end()
	<-s.done
}

// Stop ends the stream at once, without checking its requests.
func (s *Stream) Stop() {
	s.cancel()
	<-s.done
}

// ExpectUndisturbed ends the stream with a last request, and fails if one was not answered.
func (s *Stream) ExpectUndisturbed() {
	GinkgoHelper()
	s.finish()
	Expect(s.failures).To(BeEmpty(), "some requests were not answered, %d were", s.answered)
	Expect(s.answered).To(BeNumerically(">", 0))
	AddReportEntry("requests of the stream", ReportEntryVisibilityFailureOrVerbose, fmt.Sprintf("%d answered, each within %s", s.answered,
		s.slowest.Round(time.Millisecond)))
}
