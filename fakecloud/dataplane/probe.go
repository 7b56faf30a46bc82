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

// maxProbeBody is the size of the part of an answer that is searched for the expected text. HAProxy searches
// one buffer, 16 KiB by default; the value of the real load balancer is not published.
const maxProbeBody = 16 << 10

// probeResult is the result of one probe. Without detail the probe succeeded.
type probeResult struct {
	detail HealthDetail
	code   int
	err    error
}

func (r probeResult) ok() bool { return r.detail == "" }

// probe checks one target once, within the health check's timeout. It calls dropped if it can only time out.
func (e *Engine) probe(ctx context.Context, loadBalancer int64, t Target, conf *serviceConf, dropped func()) probeResult {
	hc := conf.HealthCheck
	ctx, cancel := withTimeout(ctx, e.clock, hc.Timeout)
	defer cancel()

	c, err := e.dialTarget(ctx, loadBalancer, t, hc.Port, dropped)
	if err != nil {
		return probeResult{detail: timeoutOr(ctx, DetailConnectTimeout, DetailNoConnection), err: err}
	}
	defer closeQuietly(c)
	// The timeout uses the engine's clock; socket deadlines cannot, so close the connection instead.
	defer context.AfterFunc(ctx, func() { closeQuietly(c) })()

	r := e.probeOver(ctx, c, conf)
	if !r.ok() && ctx.Err() != nil {
		r = probeResult{detail: timeoutOr(ctx, DetailResponseTimeout, DetailUnspecified), err: r.err}
	}
	return r
}

// probeOver runs a probe on an open connection.
func (e *Engine) probeOver(ctx context.Context, c net.Conn, conf *serviceConf) probeResult {
	hc := conf.HealthCheck
	// HAProxy sends the PROXY header with probes too if the service sends it and the probe uses the same
	// port (its documentation of check-send-proxy): otherwise a target that requires the header would be
	// unhealthy. For the real load balancer this is an inference.
	if conf.ProxyProtocol && hc.Port == conf.DestinationPort {
		if err := writeLocalHeader(c, e.opts.ProxyProtocolVersion); err != nil {
			return probeResult{detail: DetailUnspecified, err: err}
		}
	}
	if hc.Protocol == TCP {
		// Like HAProxy's probe, this one ends with a reset. Many servers do not log those (a trace of a real
		// probe is in terraform-hcloud-kube-hetzner pull request 897).
		abort(c)
		return probeResult{}
	}
	if hc.HTTP.TLS {
		// Certificates are not verified: API servers with a cluster's own CA are healthy behind the real
		// load balancer (terraform-hcloud-kube-hetzner pull request 2200).
		tc := tls.Client(c, &tls.Config{InsecureSkipVerify: true, ServerName: hc.HTTP.Domain}) //nolint:gosec // see above
		if err := tc.HandshakeContext(ctx); err != nil {
			return probeResult{detail: DetailUnspecified, err: err}
		}
		c = tc
	}
	return probeHTTP(c, hc.HTTP)
}

// probeHTTP sends the request of a health check and checks the answer.
func probeHTTP(c net.Conn, hc HTTPCheck) probeResult {
	if _, err := io.WriteString(c, probeRequest(hc)); err != nil {
		return probeResult{detail: DetailUnspecified, err: err}
	}
	// The limit keeps a target from making a probe large.
	in := bufio.NewReader(io.LimitReader(c, maxProbeBody+maxHeaderBytes))
	resp, err := http.ReadResponse(in, &http.Request{Method: http.MethodGet})
	if err != nil {
		return probeResult{detail: DetailUnspecified, err: err}
	}
	defer closeQuietly(resp.Body)
	if resp.StatusCode < 100 {
		return probeResult{detail: DetailUnspecified, err: fmt.Errorf("%q is not an HTTP status", resp.Status)}
	}
	if !matchStatus(hc.StatusCodes, resp.StatusCode) {
		return probeResult{detail: DetailHTTPStatus, code: resp.StatusCode, err: errors.New(resp.Status)}
	}
	if hc.Response == "" {
		return probeResult{}
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxProbeBody))
	if bytes.Contains(body, []byte(hc.Response)) {
		return probeResult{} // an error after the text does not matter
	}
	return probeResult{detail: DetailHTTPContent, err: fmt.Errorf("%d bytes without the expected text: %w", len(body), errors.Join(err))}
}

// probeRequest returns the request of a health check. Without a domain, the request has no Host header (API
// document). net/http cannot omit it. HTTP/1.1 requires the header, so the request uses 1.0: behind the real
// load balancer such probes get Traefik's 404, not the 400 of HTTP/1.1 without Host.
func probeRequest(hc HTTPCheck) string {
	if hc.Domain == "" {
		return "GET " + hc.Path + " HTTP/1.0\r\n\r\n"
	}
	return "GET " + hc.Path + " HTTP/1.1\r\nHost: " + hc.Domain + "\r\nConnection: close\r\n\r\n"
}

// timeoutOr returns timeout if ctx ended by its timeout, and other otherwise.
func timeoutOr(ctx context.Context, timeout, other HealthDetail) HealthDetail {
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return timeout
	}
	return other
}
