package apicall

import (
	"context"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

// kubernetesTimeout is the API server's own limit for a request (kube-apiserver --request-timeout).
const kubernetesTimeout = time.Minute

// LimitRequests makes clients of a Kubernetes API end each request after a minute, but for watches: a proxy between them may stay silent,
// and a controller that waits still has its Lease. rest.Config.Timeout would end watches, too.
func LimitRequests(cfg *rest.Config) {
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return limited{next} })
}

type limited struct{ http.RoundTripper }

func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("watch") != "" {
		return l.RoundTripper.RoundTrip(r)
	}
	ctx, cancel := context.WithTimeout(r.Context(), kubernetesTimeout)
	answer, err := l.RoundTripper.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	answer.Body = limitedBody{answer.Body, cancel}
	return answer, nil
}

// limitedBody ends the limit when the body is closed.
type limitedBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b limitedBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
