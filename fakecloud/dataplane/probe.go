package dataplane

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
)

// maxProbeBody is how much of an answer is searched for the expected text. HAProxy looks at one
// buffer, 16 KiB by default; the real load balancer's figure is not published.
const maxProbeBody = 16 << 10

// probeResult is what one probe found out; without detail it succeeded.
type probeResult struct {
	detail HealthDetail
	code   int
	err    error
}

func (r probeResult) ok() bool { return r.detail == "" }

// probe checks one target once, within the health check's timeout.
func (e *Engine) probe(ctx context.Context, t Target, conf *serviceConf) probeResult {
	hc := conf.HealthCheck
	ctx, cancel := withTimeout(ctx, e.clock, hc.Timeout)
	defer cancel()

	address, err := e.opts.Resolver(t, hc.Port)
	if err != nil {
		return probeResult{detail: DetailNoConnection, err: err}
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return probeResult{detail: timeoutOr(ctx, DetailConnectTimeout, DetailNoConnection), err: err}
	}
	defer closeQuietly(c)
	// The timeout is on the engine's clock, deadlines of sockets are not: cut the connection instead.
	defer context.AfterFunc(ctx, func() { closeQuietly(c) })()

	r := e.probeOver(ctx, c, conf)
	if !r.ok() && ctx.Err() != nil {
		r = probeResult{detail: timeoutOr(ctx, DetailResponseTimeout, DetailUnspecified), err: r.err}
	}
	return r
}

// probeOver does what a probe does on a connection that was made.
func (e *Engine) probeOver(ctx context.Context, c net.Conn, conf *serviceConf) probeResult {
	hc := conf.HealthCheck
	// HAProxy sends the PROXY header with probes too if the service has one and the probe goes to
	// the same port (its documentation of check-send-proxy): a target that insists on the header
	// would be unhealthy otherwise. That the real load balancer does so is an inference.
	if conf.ProxyProtocol && hc.Port == conf.DestinationPort {
		if err := writeLocalHeader(c, e.opts.ProxyProtocolVersion); err != nil {
			return probeResult{detail: DetailUnspecified, err: err}
		}
	}
	if hc.Protocol == TCP {
		// Like HAProxy's, the probe ends with a reset, which many servers do not even log
		// (a trace of the real one is in terraform-hcloud-kube-hetzner pull request 897).
		abort(c)
		return probeResult{}
	}
	if hc.HTTP.TLS {
		// Certificates are not verified: API servers with a cluster's own CA turn healthy behind the
		// real one (terraform-hcloud-kube-hetzner pull request 2200).
		tc := tls.Client(c, &tls.Config{InsecureSkipVerify: true, ServerName: hc.HTTP.Domain}) //nolint:gosec // see above
		if err := tc.HandshakeContext(ctx); err != nil {
			return probeResult{detail: DetailUnspecified, err: err}
		}
		c = tc
	}
	return probeHTTP(c, hc.HTTP)
}

// probeHTTP sends the request of a health check and judges the answer.
func probeHTTP(c net.Conn, hc HTTPCheck) probeResult {
	if _, err := io.WriteString(c, probeRequest(hc)); err != nil {
		return probeResult{detail: DetailUnspecified, err: err}
	}
	// Everything is read through a limit, so that a target cannot make a probe last or grow.
	in := bufio.NewReader(io.LimitReader(c, maxProbeBody+maxHeaderBytes))
	resp, err := http.ReadResponse(in, &http.Request{Method: http.MethodGet})
	if err != nil {
		return probeResult{detail: DetailUnspecified, err: err}
	}
	defer closeQuietly(resp.Body)
	if resp.StatusCode < 100 {
		return probeResult{detail: DetailUnspecified, err: fmt.Errorf("%q is no HTTP status", resp.Status)}
	}
	if !matchStatus(hc.StatusCodes, resp.StatusCode) {
		return probeResult{detail: DetailHTTPStatus, code: resp.StatusCode, err: errors.New(resp.Status)}
	}
	if hc.Response == "" {
		return probeResult{}
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxProbeBody))
	if bytes.Contains(body, []byte(hc.Response)) {
		return probeResult{} // whatever came after it
	}
	return probeResult{detail: DetailHTTPContent, err: fmt.Errorf("%d bytes without the expected text: %w", len(body), errors.Join(err))}
}

// probeRequest is written by hand because net/http cannot leave out the Host header, which the API
// document says happens without a domain. HTTP/1.1 forbids that, hence 1.0: behind the real load
// balancer such probes get Traefik's 404, where an HTTP/1.1 request without Host would get a 400.
func probeRequest(hc HTTPCheck) string {
	if hc.Domain == "" {
		return "GET " + hc.Path + " HTTP/1.0\r\n\r\n"
	}
	return "GET " + hc.Path + " HTTP/1.1\r\nHost: " + hc.Domain + "\r\nConnection: close\r\n\r\n"
}

// timeoutOr returns timeout if ctx ended because its time was over, other if not.
func timeoutOr(ctx context.Context, timeout, other HealthDetail) HealthDetail {
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return timeout
	}
	return other
}
