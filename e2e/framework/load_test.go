package framework

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestLoadCountsWhatBeganInATime(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	fail := false
	hold, held := make(chan struct{}), make(chan struct{})
	wait := false
	l := &Load{ask: func(context.Context) (string, error) {
		if wait {
			close(held)
			<-hold
		}
		if fail {
			return "", refused
		}
		return "node-1", nil
	}}
	l.send(t.Context())
	from := time.Now()
	l.send(t.Context())
	fail = true
	l.send(t.Context())
	l.send(t.Context())
	fail, wait = false, true
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.send(t.Context())
	}()
	<-held
	to := time.Now()
	if r, underWay := l.collect(from, to); r.Answered != 1 || len(r.Lost) != 2 || underWay != 1 {
		t.Errorf("%d answered, %d lost, %d under way; want 1, 2, 1", r.Answered, len(r.Lost), underWay)
	}
	close(hold)
	<-done
	r, underWay := l.collect(from, to)
	if r.Answered != 2 || underWay != 0 {
		t.Errorf("%d answered, %d under way; want 2, 0", r.Answered, underWay)
	}
	if text := r.String(); !strings.Contains(text, "2 answered, 2 lost") || !strings.Contains(text, "refused") {
		t.Errorf("it says %q", text)
	}
	if r, _ := l.collect(time.Time{}, from); r.String() != "1 answered, 0 lost" {
		t.Errorf("before that: %s", r)
	}
}
