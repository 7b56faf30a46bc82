package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestAWaitOutlastsErrorsAndReturnsTheLast(t *testing.T) {
	t.Parallel()
	tries := 0
	if err := await(t.Context(), "x", func(context.Context) error {
		if tries++; tries < 3 {
			return errors.New("not yet")
		}
		return nil
	}); err != nil || tries != 3 {
		t.Errorf("%v after %d tries", err, tries)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := await(ctx, "the sun is up", func(context.Context) error {
		defer cancel()
		return errors.New("it is night")
	})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "the sun is up") ||
		!strings.Contains(err.Error(), "it is night") {
		t.Errorf("got %v", err)
	}
	ended := errors.New("ended")
	tries = 0
	err = await(t.Context(), "x", func(context.Context) error {
		tries++
		return errors.Join(errors.New("refused"), hopeless{ended})
	})
	if !errors.Is(err, ended) || tries != 1 {
		t.Errorf("%v after %d tries", err, tries)
	}
}
