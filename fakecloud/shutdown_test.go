package fakecloud_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
)

func TestShutdownEndsStreamsAndWaitsForRequests(t *testing.T) {
	t.Parallel()
	c := startControlled(t, fakecloud.Options{})
	endpoint := must(c.Start(t.Context(), ""))(t)
	s := c.lines(t, "", "")
	nextLine(t, s)
	answers := slowRequest(t, c.Cloud, endpoint)
	ended := make(chan error)
	go func() { ended <- c.Shutdown(t.Context()) }()
	if s.Scan() {
		t.Errorf("the stream did not end: %s", s.Text())
	}
	select {
	case err := <-ended:
		t.Fatalf("did not wait for the request: %v", err)
	default:
	}
	check(t, c.Step(t.Context(), time.Hour))
	if a := <-answers; a.status != 200 {
		t.Errorf("%+v", a)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := c.Start(t.Context(), ""); !errors.Is(err, fakecloud.ErrClosed) {
		t.Errorf("Start after Shutdown: %v", err)
	}
}

// slowRequest sends a request whose answer takes an hour of the cloud's time, which stands still. It returns when the
// request has arrived.
func slowRequest(t *testing.T, c *fakecloud.Cloud, endpoint string) <-chan answer {
	t.Helper()
	check(t, c.SetSpeed(t.Context(), 0))
	must(c.Faults().Add(t.Context(), fault.Rule{Name: "slow", Effect: fault.Latency(time.Hour)}))(t)
	answers := make(chan answer)
	go func() { answers <- (reach{endpoint, &http.Client{}}).do(t.Context(), "GET", "/ssh_keys", "") }()
	must(c.Faults().Await(t.Context(), "slow", 1))(t)
	return answers
}

func TestShutdownCutsConnectionsWhenItsContextIsDone(t *testing.T) {
	t.Parallel()
	c := fakecloud.New(fakecloud.Options{})
	endpoint := must(c.Start(t.Context(), ""))(t)
	answers := slowRequest(t, c, endpoint)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if a := <-answers; a.err == nil {
		t.Errorf("%+v", a)
	}
}
