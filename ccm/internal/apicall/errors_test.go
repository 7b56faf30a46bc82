package apicall

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	cloudapi "k8s.io/cloud-provider/api"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/ccmtest"
)

func TestWhenASyncIsRepeatedAfterAnError(t *testing.T) {
	t.Parallel()
	locked, limited := hcloud.Error{Code: hcloud.ErrorCodeLocked}, hcloud.Error{Code: hcloud.ErrorCodeRateLimitExceeded}
	invalid := hcloud.Error{Code: hcloud.ErrorCodeInvalidInput}
	pending := func(waited time.Duration) error { return &PendingError{waited: waited} }
	for name, tc := range map[string]struct {
		err  error
		want time.Duration // 0: the delay grows
	}{
		"an invalid request":                 {invalid, 0},
		"a rate limit":                       {limited, 0},
		"a lock":                             {fmt.Errorf("adding a target: %w", locked), 5 * time.Second},
		"a conflict":                         {hcloud.Error{Code: hcloud.ErrorCodeConflict}, 5 * time.Second},
		"an action of ten seconds":           {pending(10 * time.Second), 5 * time.Second},
		"an action of a minute":              {pending(time.Minute), 15 * time.Second},
		"an action of an hour":               {pending(time.Hour), time.Minute},
		"a doubt":                            {&DoubtError{}, 30 * time.Second},
		"a certificate that is being issued": {cloudapi.NewRetryError("issuing", 15*time.Second), 15 * time.Second},
		"a lock and something that needs time": {JoinErrors([]error{cloudapi.NewRetryError("issuing", time.Minute), locked}),
			5 * time.Second},
		"something that needs time, and a lock": {JoinErrors([]error{locked, &DoubtError{}, invalid}), 5 * time.Second},
		"an invalid request and a rate limit":   {JoinErrors([]error{invalid, limited}), 0},
	} {
		got := ToRetryError(tc.err)
		retry, fixed := errors.AsType[*cloudapi.RetryError](got)
		if fixed != (tc.want != 0) || fixed && retry.RetryAfter() != tc.want {
			t.Errorf("%s: %v, want a delay of %v", name, got, tc.want)
		}
	}
	if err := ToRetryError(nil); err != nil {
		t.Errorf("no error: %v", err)
	}
}

// partOf is an error that knows its stable text.
type partOf struct{ error }

func (p partOf) StableText() string { return p.Error() }

func (p partOf) Error() string {
	return `load balancer 5 (web): rename to "edge": ` + StableText(p.error)
}

func (p partOf) Unwrap() error { return p.error }

// Kubernetes merges only events with equal texts, so an error's text never has an ID of its request.
func TestTheTextOfAnErrorIsTheSameEachTime(t *testing.T) {
	t.Parallel()
	api := ccmtest.NewAPI(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Correlation-Id", "different-each-time")
		ccmtest.Reply(w, http.StatusUnprocessableEntity,
			`{"error":{"code":"invalid_input","message":"invalid input","details":{"fields":[{"name":"ip","messages":["is taken"]}]}}}`)
	})
	cloud, _ := clientOf(api, NewTokenSource("secret", ""), nil)
	_, _, err := cloud.client.Server.GetByID(t.Context(), 7)
	if !strings.Contains(fmt.Sprint(err), "different-each-time") {
		t.Fatalf("the test needs an ID in %v", err)
	}
	text := "invalid input (invalid_input); ip: [is taken]"
	part := partOf{err}
	partText := `load balancer 5 (web): rename to "edge": ` + text
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"of the API":      {err, text},
		"with more words": {fmt.Errorf("getting: %w", err), text},
		"of a part":       {part, partText},
		"of two parts":    {JoinErrors([]error{part, part}), partText + "; " + partText},
		"of three parts":  {Errors{part, part, part}, strings.Join([]string{partText, partText, partText}, "; ")},
		"of five parts": {Errors{part, part, part, part, part},
			strings.Join([]string{partText, partText, partText, "and 2 more errors"}, "; ")},
		"of something else": {errors.New("no token"), "no token"},
	} {
		if got := StableText(tc.err); got != tc.want {
			t.Errorf("an error %s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestTheStatusOfAnError(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer func(http.ResponseWriter)
		want   int
	}{
		"with a code":    {ccmtest.Status(http.StatusForbidden, "forbidden"), http.StatusForbidden},
		"without a code": {ccmtest.Bare(http.StatusUnauthorized), http.StatusUnauthorized},
		"no answer":      {ccmtest.Abort, 0},
	} {
		api := ccmtest.NewAPI(t, func(w http.ResponseWriter, _ *http.Request) { tc.answer(w) })
		cloud, _ := clientOf(api, NewTokenSource("secret", ""), nil)
		_, _, err := cloud.client.Server.GetByID(t.Context(), 7)
		if got := StatusOf(err); err == nil || got != tc.want {
			t.Errorf("%s: %d, want %d; %v", name, got, tc.want, err)
		}
	}
}

// The IDs in the text of a refusal are others each time. Another error is returned as it is.
func TestARateLimitIsShownWithoutWhatChanges(t *testing.T) {
	t.Parallel()
	limited := fmt.Errorf("adding a target: %w", hcloud.Error{Code: hcloud.ErrorCodeRateLimitExceeded, Message: "slow down"})
	if got := ToRetryError(limited); got.Error() != StableText(limited) || !errors.Is(got, limited) {
		t.Errorf("got %v", got)
	}
	if _, changed := errors.AsType[*stableTextError](ToRetryError(errors.New("no token"))); changed {
		t.Error("another error has changed")
	}
}
