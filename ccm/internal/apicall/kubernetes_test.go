package apicall

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// mute answers with a body that says nothing until the request ends.
type mute struct{ headers bool }

func (s mute) RoundTrip(r *http.Request) (*http.Response, error) {
	if !s.headers {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	body, w := io.Pipe()
	context.AfterFunc(r.Context(), func() { w.CloseWithError(r.Context().Err()) })
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: r}, nil
}

func TestARequestToKubernetesEndsAndAWatchStays(t *testing.T) {
	for _, headers := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			cfg := &rest.Config{Host: "https://kubernetes.invalid", Transport: mute{headers}}
			LimitRequests(cfg)
			kube, err := kubernetes.NewForConfig(cfg)
			if err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			if _, err := kube.CoreV1().Services("").List(t.Context(), metav1.ListOptions{}); !errors.Is(err, context.DeadlineExceeded) ||
				time.Since(begun) != kubernetesTimeout {
				t.Errorf("a list ends after %v: %v", time.Since(begun), err)
			}
			if !headers {
				return
			}
			watch, err := kube.CoreV1().Services("").Watch(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			fence := NewLeaderFence(kubernetes.NewForConfigOrDie(&rest.Config{Transport: mute{}}).CoordinationV1().Leases(""), "ccm")
			fence.Raise("host", clock.RealClock{})
			if err := fence.Check(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the check of the leader ends with %v", err)
			}
			select {
			case <-watch.ResultChan():
				t.Errorf("the watch ends after %v", time.Since(begun))
			case <-time.After(time.Hour):
			}
			watch.Stop()
		})
	}
}
