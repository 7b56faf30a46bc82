package example

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
)

// ProviderPrefix is how the provider IDs of the example CCM begin: example://north-a/vm-….
const ProviderPrefix = "example://"

// Driver starts example clouds in this process.
type Driver struct{}

// Start implements cloud.Driver.
func (Driver) Start(ctx context.Context, o cloud.Options) (cloud.Cloud, error) {
	c, err := New(Options{Instances: o.Servers, LoadBalancers: o.LoadBalancers})
	if err != nil {
		return nil, fmt.Errorf("cannot start an example cloud: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("cannot start an example cloud: %w", err)
	}
	d := &driven{cloud: c, options: o, endpoint: Endpoint(listener.Addr().String())}
	out := o.Log
	if out == nil {
		out = io.Discard
	}
	d.server = &http.Server{Handler: c.Handler(), ReadHeaderTimeout: time.Minute, ErrorLog: log.New(out, "example cloud: ", log.LstdFlags)}
	go func() { _ = d.server.Serve(listener) }() // ends with Close
	return d, nil
}

// Open implements cloud.Driver.
func (Driver) Open(context.Context, cloud.Options) (cloud.Cloud, error) {
	return nil, fmt.Errorf("an example cloud is in memory and has no cluster: use E2E_CLUSTER=embedded: %w", errors.ErrUnsupported)
}

// driven is an example cloud as specs see it. It calls the methods of the cloud, so that its requests are not among those of the CCM.
type driven struct {
	cloud    *Cloud
	server   *http.Server
	endpoint string
	options  cloud.Options
}

var (
	_ cloud.Renamer  = (*driven)(nil)
	_ cloud.Router   = (*driven)(nil)
	_ cloud.Recorder = (*driven)(nil)
	_ cloud.Faulty   = (*driven)(nil)
	_ cloud.Limiter  = (*driven)(nil)
	_ cloud.Dumper   = (*driven)(nil)
)

// explain makes an error of the cloud one of the interface.
func explain(err error) error {
	var e *Error
	if errors.As(err, &e) && e.Status == http.StatusNotFound {
		return fmt.Errorf("%w: %w", cloud.ErrNotFound, err)
	}
	return err
}

// CCM implements cloud.Cloud.
func (d *driven) CCM() cloud.CCM {
	return cloud.CCM{Env: map[string]string{"EXAMPLE_ENDPOINT": d.endpoint, "EXAMPLE_TOKEN": d.cloud.options.Token}}
}

// Close implements cloud.Cloud.
func (d *driven) Close() error { return errors.Join(d.cloud.Close(), d.server.Close()) }

// asServer returns an instance in the terms of Kubernetes.
func (d *driven) asServer(i Instance) cloud.Server {
	return cloud.Server{
		ID: i.ID, Name: i.Name, ProviderID: cmp.Or(d.options.ProviderPrefix, ProviderPrefix) + i.Zone + "/" + i.ID,
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: i.PrivateIP.String()},
			{Type: corev1.NodeExternalIP, Address: i.PublicIP.String()},
		},
		Type: i.Size, Region: i.Region, Zone: i.Zone, Running: i.State == Running, Local: i.PublicIP,
	}
}

// CreateServer implements cloud.Cloud.
func (d *driven) CreateServer(_ context.Context, name string) (cloud.Server, error) {
	i, err := d.cloud.CreateInstance(name)
	if err != nil {
		return cloud.Server{}, err
	}
	return d.asServer(i), nil
}

// DeleteServer implements cloud.Cloud.
func (d *driven) DeleteServer(_ context.Context, id string) error {
	return explain(d.cloud.DeleteInstance(id))
}

// change changes the name or the state of an instance.
func (d *driven) change(id, name, state string) error {
	_, err := d.cloud.ChangeInstance(id, name, state)
	return explain(err)
}

// StopServer implements cloud.Cloud.
func (d *driven) StopServer(_ context.Context, id string) error { return d.change(id, "", Stopped) }

// StartServer implements cloud.Cloud.
func (d *driven) StartServer(_ context.Context, id string) error { return d.change(id, "", Running) }

// RenameServer implements cloud.Renamer.
func (d *driven) RenameServer(_ context.Context, id, name string) error {
	if name == "" {
		return badRequest("name: is missing")
	}
	return d.change(id, name, "")
}

// Servers implements cloud.Cloud.
func (d *driven) Servers(context.Context) ([]cloud.Server, error) {
	var all []cloud.Server
	for _, i := range d.cloud.Instances() {
		all = append(all, d.asServer(i))
	}
	return all, nil
}

// LoadBalancers implements cloud.Cloud. The result names no Service: load balancers of this API have no labels.
func (d *driven) LoadBalancers(context.Context) ([]cloud.LoadBalancer, error) {
	var all []cloud.LoadBalancer
	for _, b := range d.cloud.LoadBalancers() {
		lb := cloud.LoadBalancer{ID: b.ID, Name: b.Name}
		if b.Address != "" {
			lb.Addresses = []string{b.Address}
		}
		for _, l := range d.cloud.Listeners(b.Name) {
			port := cloud.Port{Protocol: corev1.ProtocolTCP, Port: int32(l.Port)}
			for _, backend := range l.Backends {
				// Each backend has a port. Those of a listener of a CCM are equal.
				port.NodePort = int32(backend.Port())
				port.Targets = append(port.Targets, cloud.Target{Address: backend.Addr().String(), Health: cloud.Unknown})
			}
			lb.Ports = append(lb.Ports, port)
		}
		all = append(all, lb)
	}
	return all, nil
}

// DeleteLoadBalancer implements cloud.Cloud.
func (d *driven) DeleteLoadBalancer(_ context.Context, id string) error {
	for _, b := range d.cloud.LoadBalancers() {
		if b.ID != id {
			continue
		}
		for _, l := range d.cloud.Listeners(b.Name) {
			if err := d.cloud.DeleteListener(l.ID); err != nil {
				return explain(err)
			}
		}
		return explain(d.cloud.DeleteLoadBalancer(b.Name))
	}
	return explain(loadBalancerNotFound("there is not a load balancer with the ID %q", id))
}

// Routes implements cloud.Router.
func (d *driven) Routes(context.Context) ([]cloud.Route, error) {
	var all []cloud.Route
	for _, r := range d.cloud.Routes() {
		all = append(all, cloud.Route{Destination: r.Prefix, Server: r.Instance})
	}
	return all, nil
}

// AddRoute implements cloud.Router.
func (d *driven) AddRoute(_ context.Context, r cloud.Route) error {
	if r.Server == "" {
		return fmt.Errorf("routes of the example cloud lead to instances, not to %q: %w", r.Address, errors.ErrUnsupported)
	}
	_, err := d.cloud.SetRoute(r.Destination, r.Server)
	return explain(err)
}

// DeleteRoute implements cloud.Router.
func (d *driven) DeleteRoute(_ context.Context, r cloud.Route) error {
	return explain(d.cloud.DeleteRoute(r.Destination, r.Server))
}

// Dump implements cloud.Dumper.
func (d *driven) Dump(context.Context) string {
	text, err := json.MarshalIndent(map[string]any{"instances": d.cloud.Instances(), "load_balancers": d.cloud.LoadBalancers(),
		"listeners": d.cloud.Listeners(""), "routes": d.cloud.Routes()}, "", " ")
	return cmp.Or(string(text), fmt.Sprint(err))
}

// LimitLoadBalancers implements cloud.Limiter.
func (d *driven) LimitLoadBalancers(_ context.Context, most int) error {
	d.cloud.LimitLoadBalancers(most)
	return nil
}
