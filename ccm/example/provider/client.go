package provider

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"time"
)

// The objects of the API.
type (
	// Instance is a virtual machine.
	Instance struct {
		ID        string
		Name      string
		Size      string
		Region    string
		Zone      string
		State     string
		PrivateIP string `json:"private_ip"`
		PublicIP  string `json:"public_ip"`
	}
	// LoadBalancer has an empty Address while it is pending.
	LoadBalancer struct{ Name, Address string }
	// Listener is a port of a load balancer. Its backends are addresses of instances with a port.
	Listener struct {
		ID           string
		LoadBalancer string `json:"load_balancer"`
		Port         int32
		Backends     []string
	}
	// Route leads what is for a range of addresses to an instance.
	Route struct{ Prefix, Instance string }
)

// Client is the only one that speaks the API, so that each request has a time limit, and each answer is checked.
type Client struct {
	endpoint, token string
	http            *http.Client
}

// NewClient makes a client from environment variables. It reports all mistakes together.
func NewClient(lookup func(string) (string, bool)) (*Client, error) {
	get := func(name string) string { value, _ := lookup(name); return value }
	c := &Client{endpoint: get("EXAMPLE_ENDPOINT"), token: get("EXAMPLE_TOKEN"), http: &http.Client{}}
	var errs []error
	if u, err := url.Parse(c.endpoint); err != nil || u.Host == "" {
		errs = append(errs, fmt.Errorf("EXAMPLE_ENDPOINT=%q: must be the URL of the API, such as https://cloud.example/accounts/demo",
			c.endpoint))
	}
	if c.token == "" {
		errs = append(errs, errors.New("EXAMPLE_TOKEN is not set: create a token for the account, and set it"))
	}
	timeout := cmp.Or(get("EXAMPLE_REQUEST_TIMEOUT"), "10s")
	var err error
	if c.http.Timeout, err = time.ParseDuration(timeout); err != nil || c.http.Timeout <= 0 {
		errs = append(errs, fmt.Errorf("EXAMPLE_REQUEST_TIMEOUT=%q: must be a duration such as 10s", timeout))
	}
	return c, errors.Join(errs...)
}

// apiError is an error that the API has answered.
type apiError struct {
	Code, Message string
}

func (e *apiError) Error() string { return fmt.Sprintf("%s (%s)", e.Message, e.Code) }

// hasCode reports whether an error is the API's with a code. The status alone says little: a proxy answers 404, too.
func hasCode(err error, code string) bool {
	var e *apiError
	return errors.As(err, &e) && e.Code == code
}

// call sends a request and decodes the answer to out. All that is not an answer of the API is an error.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	err := c.send(ctx, method, path, in, out)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

func (c *Client) send(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader = http.NoBody
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.endpoint+path, body)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	r.Header.Set("User-Agent", "example-ccm/1.0")
	answer, err := c.http.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 64<<20))
	if err != nil {
		return err
	}
	return decode(answer.StatusCode, answer.Header.Get("Content-Type"), text, out)
}

// decode decodes an answer to out, or returns the API's error.
func decode(status int, contentType string, text []byte, out any) error {
	if kind, _, err := mime.ParseMediaType(contentType); err != nil || kind != "application/json" {
		return fmt.Errorf("the answer with status %d is not the API's, but %q: check EXAMPLE_ENDPOINT", status, contentType)
	}
	if status >= 200 && status < 300 {
		if err := json.Unmarshal(text, out); err != nil {
			return fmt.Errorf("the answer with status %d is not the API's: %w; check EXAMPLE_ENDPOINT", status, err)
		}
		return nil
	}
	var refused struct{ Error *apiError }
	if err := json.Unmarshal(text, &refused); err != nil || refused.Error == nil || refused.Error.Code == "" {
		return fmt.Errorf("the answer with status %d has no error of the API: check EXAMPLE_ENDPOINT", status)
	}
	return refused.Error
}

// list returns a list. An answer without it is not an empty list.
func list[T any](ctx context.Context, c *Client, path, field string) ([]T, error) {
	var answer map[string]json.RawMessage
	if err := c.call(ctx, http.MethodGet, path, nil, &answer); err != nil {
		return nil, err
	}
	var all []T
	if err := json.Unmarshal(answer[field], &all); err != nil || all == nil {
		return nil, fmt.Errorf("GET %s: the answer has no list of %s: check EXAMPLE_ENDPOINT", path, field)
	}
	return all, nil
}

// absent turns the API's "not found" into nil if the list confirms it. An endpoint with a wrong path answers "not found" to every
// question, and an old cache shows empty lists: only both together are a proof.
func absent[T any](err error, code string, list func() ([]T, error), is func(T) bool) error {
	if !hasCode(err, code) {
		return err
	}
	all, listErr := list()
	if listErr != nil {
		return fmt.Errorf("%w; and the list cannot confirm it: %w", err, listErr)
	}
	if slices.ContainsFunc(all, is) {
		return fmt.Errorf("%w; but it is in the list: the API contradicts itself, so nothing is done", err)
	}
	return nil
}

// Instances returns all instances.
func (c *Client) Instances(ctx context.Context) ([]Instance, error) {
	return list[Instance](ctx, c, "/instances", "instances")
}

// Instance returns an instance, or nil if it is proven that it does not exist.
func (c *Client) Instance(ctx context.Context, id string) (*Instance, error) {
	var answer struct{ Instance Instance }
	err := c.call(ctx, http.MethodGet, "/instances/"+url.PathEscape(id), nil, &answer)
	if err != nil {
		return nil, absent(err, "instance_not_found", func() ([]Instance, error) { return c.Instances(ctx) },
			func(i Instance) bool { return i.ID == id })
	}
	if answer.Instance.ID != id {
		return nil, fmt.Errorf("GET /instances/%s: the answer is about %q: check EXAMPLE_ENDPOINT", id, answer.Instance.ID)
	}
	return &answer.Instance, nil
}

// LoadBalancer returns a load balancer, or nil if it is proven that it does not exist.
func (c *Client) LoadBalancer(ctx context.Context, name string) (*LoadBalancer, error) {
	var answer struct {
		LoadBalancer LoadBalancer `json:"load_balancer"`
	}
	err := c.call(ctx, http.MethodGet, "/load-balancers/"+url.PathEscape(name), nil, &answer)
	if err != nil {
		return nil, absent(err, "load_balancer_not_found",
			func() ([]LoadBalancer, error) { return list[LoadBalancer](ctx, c, "/load-balancers", "load_balancers") },
			func(b LoadBalancer) bool { return b.Name == name })
	}
	if answer.LoadBalancer.Name != name {
		return nil, fmt.Errorf("GET /load-balancers/%s: the answer is about %q: check EXAMPLE_ENDPOINT", name, answer.LoadBalancer.Name)
	}
	return &answer.LoadBalancer, nil
}

// CreateLoadBalancer creates a load balancer without listeners. It fails if there is one of that name.
func (c *Client) CreateLoadBalancer(ctx context.Context, name, region string) (*LoadBalancer, error) {
	var answer struct {
		LoadBalancer LoadBalancer `json:"load_balancer"`
	}
	err := c.call(ctx, http.MethodPost, "/load-balancers", map[string]string{"name": name, "region": region}, &answer)
	return &answer.LoadBalancer, err
}

// DeleteLoadBalancer deletes a load balancer that has no listeners.
func (c *Client) DeleteLoadBalancer(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodDelete, "/load-balancers/"+url.PathEscape(name), nil, &struct{}{})
}

// Listeners returns the listeners of a load balancer.
func (c *Client) Listeners(ctx context.Context, balancer string) ([]Listener, error) {
	return list[Listener](ctx, c, "/listeners?load_balancer="+url.QueryEscape(balancer), "listeners")
}

// CreateListener opens a port of a load balancer.
func (c *Client) CreateListener(ctx context.Context, balancer string, port int32, backends []string) error {
	in := map[string]any{"load_balancer": balancer, "port": port, "backends": backends}
	return c.call(ctx, http.MethodPost, "/listeners", in, &struct{}{})
}

// SetBackends replaces all backends of a listener at once.
func (c *Client) SetBackends(ctx context.Context, id string, backends []string) error {
	return c.call(ctx, http.MethodPut, "/listeners/"+url.PathEscape(id)+"/backends", map[string]any{"backends": backends}, &struct{}{})
}

// DeleteListener closes a port of a load balancer.
func (c *Client) DeleteListener(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/listeners/"+url.PathEscape(id), nil, &struct{}{})
}

// Routes returns all routes.
func (c *Client) Routes(ctx context.Context) ([]Route, error) {
	return list[Route](ctx, c, "/routes", "routes")
}

// SetRoute creates the route of a prefix, or replaces it.
func (c *Client) SetRoute(ctx context.Context, prefix netip.Prefix, instance string) error {
	return c.call(ctx, http.MethodPut, "/routes/"+prefix.String(), map[string]string{"instance": instance}, &struct{}{})
}

// DeleteRoute deletes the route of a prefix if it leads to an instance.
func (c *Client) DeleteRoute(ctx context.Context, prefix netip.Prefix, instance string) error {
	return c.call(ctx, http.MethodDelete, "/routes/"+prefix.String()+"?instance="+url.QueryEscape(instance), nil, &struct{}{})
}
