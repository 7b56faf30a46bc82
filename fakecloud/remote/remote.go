// Package remote controls a cloud over its control API: a cloud in a container or in another process. A [Client] has
// the same methods as a fakecloud.Cloud for this, so that one interface covers both.
//
//	cloud := remote.New("http://127.0.0.1:4243")
//	_, err := cloud.Faults().Add(ctx, fault.Rule{Route: "/servers", First: 1, Effect: fault.LoseAnswer()})
//	…
//	n, err := cloud.Journal().Count(ctx, journal.Filter{Operation: "create_server"})
//
// To use the cloud's public API, take hcloud-go and the cloud's endpoint.
package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// Client controls one cloud. Its methods may be called from several goroutines. The error of an answer that is not a
// success wraps an [*Error]. Any other error is that of a connection or the context.
type Client struct {
	url  string
	http *http.Client
}

// Option changes what New does.
type Option func(*Client)

// WithHTTPClient sets the HTTP client. Its timeout, if any, must be longer than the 30 s that a request of the methods
// Await… may take.
func WithHTTPClient(c *http.Client) Option { return func(r *Client) { r.http = c } }

// New returns a client of the control API at a URL such as http://127.0.0.1:4243. It sends nothing yet.
func New(controlURL string, opts ...Option) *Client {
	c := &Client{url: strings.TrimRight(controlURL, "/"), http: http.DefaultClient}
	for _, opt := range opts {
		opt(c)
	}
	return c
}

// Error is an answer of the control API that is not a success.
type Error struct {
	Method, URL string
	// Status is the HTTP status: 400 for a wrong request, 404 for something that does not exist, 409 for something that
	// exists already or that the cloud's clock cannot do.
	Status int
	// Message is the control API's, or the beginning of an answer that another program sent.
	Message string
	// Foreign is set if another program answered: its 404 says nothing about the cloud.
	Foreign bool
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("%s %s: %d %s", e.Method, e.URL, e.Status, e.Message)
}

// maxErrorBody is how much of an error's body is read.
const maxErrorBody = 64 << 10

// call sends a request with in as its JSON body, unless in is nil. If in is an io.Reader, the body is what it reads. It decodes the
// answer into out, unless out is nil. If out is a *[]byte, it gets the raw answer.
func (c *Client) call(ctx context.Context, method, path string, q url.Values, in, out any) error {
	body, ready := in.(io.Reader)
	if in != nil && !ready {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	u := c.url + path
	if len(q) > 0 {
		u += "?" + q.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, u, body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, u, err)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err // names the method and the URL
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return errorOf(req, resp)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("%s %s: the answer is cut off: %w", method, u, err)
	}
	if raw, ok := out.(*[]byte); ok {
		*raw = b
		return nil
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("%s %s: this is not an answer of the control API; check the URL: %w", method, u, err)
	}
	return nil
}

// field sends a request as call does. It returns one field of the answer, and the zero value if the answer does not have it.
func field[T any](ctx context.Context, c *Client, name, method, path string, q url.Values, in any) (T, error) {
	out := only[T]{name: name}
	err := c.call(ctx, method, path, q, in, &out)
	return out.value, err
}

// only is one field of a JSON object.
type only[T any] struct {
	name  string
	value T
}

// UnmarshalJSON implements json.Unmarshaler.
func (o *only[T]) UnmarshalJSON(b []byte) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil || all[o.name] == nil {
		return err
	}
	return json.Unmarshal(all[o.name], &o.value)
}

func errorOf(req *http.Request, resp *http.Response) error {
	e := &Error{Method: req.Method, URL: req.URL.String(), Status: resp.StatusCode}
	b, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	var body struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(b, &body) == nil && body.Error != "" {
		e.Message = body.Error
		return e
	}
	e.Message = fmt.Sprintf("%s; this is not an answer of the control API; check the URL: %.200q", http.StatusText(resp.StatusCode), b)
	e.Foreign = true
	return e
}
