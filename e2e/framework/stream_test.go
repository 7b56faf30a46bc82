package framework

import (
	"context"
	"errors"
	"testing"
)

func TestAStreamThatFinishesWaitsForTheRequestUnderWayAndSendsOneMore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers          []error
		answered, failed int
	}{
		"all is well":       {[]error{nil, nil}, 2, 0},
		"the first is lost": {[]error{errors.New("lost"), nil}, 1, 1},
		"the last is lost":  {[]error{nil, errors.New("lost")}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			underWay, goOn := make(chan struct{}, 2), make(chan struct{})
			sent := 0
			s := startStream(t.Context(), func(context.Context) error {
				underWay <- struct{}{}
				<-goOn
				sent++
				return c.answers[sent-1]
			})
			<-underWay
			s.end() // before anything was answered
			close(goOn)
			s.finish()
			if s.answered != c.answered || len(s.failures) != c.failed || sent != 2 {
				t.Errorf("%d sent, %d answered, failed: %v; want 2, %d and %d", sent, s.answered, s.failures, c.answered, c.failed)
			}
		})
	}
}

func TestAStreamThatIsStoppedSaysNothingAboutTheRequestUnderWay(t *testing.T) {
	t.Parallel()
	underWay := make(chan struct{})
	s := startStream(t.Context(), func(ctx context.Context) error {
		close(underWay)
		<-ctx.Done()
		return ctx.Err()
	})
	<-underWay
	s.Stop()
	if s.answered != 0 || len(s.failures) > 0 {
		t.Errorf("%d answered, failed: %v", s.answered, s.failures)
	}
}
