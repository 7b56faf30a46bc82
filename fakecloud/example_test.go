package fakecloud_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/catalogue"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/dataplane"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

func createExample(ctx context.Context, cloud *fakecloud.Cloud, name string) hcloud.ServerCreateResult {
	created, _, err := cloud.Client().Server.Create(ctx, hcloud.ServerCreateOpts{
		Name: name, ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-13"},
	})
	if err != nil {
		panic(err)
	}
	return created
}

func Example() {
	cloud := fakecloud.New(fakecloud.Options{})
	defer cloud.Close()

	client := cloud.Client() // of hcloud-go; it needs no listener
	server := createExample(context.Background(), cloud, "web-1").Server
	server, _, err := client.Server.GetByID(context.Background(), server.ID)
	fmt.Println(server.Name, server.Status, err)
	// Output: web-1 running <nil>
}

// The first answer to create_server is lost: the server exists, but the client cannot know.
func ExampleCloud_Faults() {
	ctx := context.Background()
	cloud := fakecloud.New(fakecloud.Options{})
	defer cloud.Close()
	if _, err := cloud.Faults().Add(ctx, fault.Rule{Operation: "create_server", First: 1, Effect: fault.LoseAnswer()}); err != nil {
		panic(err)
	}

	client := cloud.Client()
	_, _, err := client.Server.Create(ctx, hcloud.ServerCreateOpts{
		Name: "web-1", ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-13"},
	})
	fmt.Println("create failed:", err != nil)
	server, _, err := client.Server.GetByName(ctx, "web-1")
	fmt.Println("the server exists:", server != nil, err)
	// Output:
	// create failed: true
	// the server exists: true <nil>
}

// One cloud shows two sides of a change: Primary IPs lost their datacenter on 2026-07-01.
func ExampleCloud_SetTokenDate() {
	ctx := context.Background()
	cloud := fakecloud.New(fakecloud.Options{})
	defer cloud.Close()
	old, err := cloud.AddToken(ctx, fakecloud.DefaultProject, "", false)
	if err != nil {
		panic(err)
	}
	if err := cloud.SetTokenDate(ctx, old, "2026-06-30"); err != nil {
		panic(err)
	}

	createExample(ctx, cloud, "web-1")
	for _, token := range []string{old, cloud.Token()} {
		request := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/primary_ips", nil)
		request.Header.Set("Authorization", "Bearer "+token)
		answer := httptest.NewRecorder()
		cloud.Handler().ServeHTTP(answer, request)
		fmt.Println(strings.Contains(answer.Body.String(), `"datacenter":`))
	}
	// Output:
	// true
	// false
}

// cx23 is sold out where the client wants it. It has to try another location.
func ExampleCloud_OfferServerType() {
	ctx := context.Background()
	cloud := fakecloud.New(fakecloud.Options{})
	defer cloud.Close()
	if err := cloud.OfferServerType(ctx, "cx23", "fsn1", catalogue.Offer{Available: new(false)}); err != nil {
		panic(err)
	}

	for _, location := range []string{"fsn1", "nbg1"} {
		_, _, err := cloud.Client().Server.Create(ctx, hcloud.ServerCreateOpts{
			Name: "web-1", ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-13"},
			Location: &hcloud.Location{Name: location},
		})
		fmt.Println(location, "is sold out:", hcloud.IsError(err, hcloud.ErrorCodeResourceUnavailable))
	}
	// Output:
	// fsn1 is sold out: true
	// nbg1 is sold out: false
}

// The account's limit is one server.
func ExampleCloud_SetLimits() {
	ctx := context.Background()
	cloud := fakecloud.New(fakecloud.Options{})
	defer cloud.Close()
	createExample(ctx, cloud, "web-1")
	if err := cloud.SetLimits(ctx, fakecloud.DefaultProject, map[string]int{"server": 1}); err != nil {
		panic(err)
	}

	_, _, err := cloud.Client().Server.Create(ctx, hcloud.ServerCreateOpts{
		Name: "web-2", ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-13"},
	})
	fmt.Println("limit exceeded:", hcloud.IsError(err, hcloud.ErrorCodeResourceLimitExceeded))
	// Output: limit exceeded: true
}

// Actions take a minute of the cloud's time, which passes only in steps.
func ExampleCloud_Step() {
	ctx := context.Background()
	cloud := fakecloud.New(fakecloud.Options{Actions: "1m"})
	defer cloud.Close()
	if err := cloud.SetSpeed(ctx, 0); err != nil {
		panic(err)
	}

	created := createExample(ctx, cloud, "web-1")
	for range 2 {
		action, _, err := cloud.Client().Action.GetByID(ctx, created.Action.ID)
		fmt.Println(action.Command, action.Status, err)
		if err := cloud.Step(ctx, time.Minute); err != nil {
			panic(err)
		}
	}
	// Output:
	// create_server running <nil>
	// create_server success <nil>
}

// A test waits for a request of the program that it tests, and then looks at it.
func ExampleCloud_Journal() {
	ctx := context.Background()
	cloud := fakecloud.New(fakecloud.Options{})
	defer cloud.Close()
	go createExample(ctx, cloud, "web-1") // the program

	entries, err := cloud.Journal().Await(ctx, journal.Filter{Operation: "create_server"}, 1)
	if err != nil {
		panic(err)
	}
	fmt.Println(entries[0].Method, entries[0].Path, entries[0].Status)
	// Output: POST /v1/servers 201
}

// A load balancer forwards to its targets. The resolver translates a server's port to an address on this machine.
func ExampleCloud_DataPlane() {
	ctx := context.Background()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	defer web.Close()
	cloud := fakecloud.New(fakecloud.Options{DataPlane: &fakecloud.DataPlaneOptions{
		Resolver: func(dataplane.Target, uint16) (string, error) { return web.Listener.Addr().String(), nil },
		Logger:   slog.New(slog.DiscardHandler),
	}})
	defer cloud.Close()
	changes := cloud.Subscribe()
	defer changes.Close()

	created, _, err := cloud.Client().LoadBalancer.Create(ctx, hcloud.LoadBalancerCreateOpts{
		Name: "web", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: &hcloud.Location{Name: "fsn1"},
		Targets: []hcloud.LoadBalancerCreateOptsTarget{{
			Type:   hcloud.LoadBalancerTargetTypeServer,
			Server: hcloud.LoadBalancerCreateOptsTargetServer{Server: createExample(ctx, cloud, "web-1").Server},
		}},
		Services: []hcloud.LoadBalancerCreateOptsService{{
			Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: new(80), DestinationPort: new(8080),
		}},
	})
	if err != nil {
		panic(err)
	}
	for healthy := false; !healthy; { // until the health check has found the target
		e, err := changes.Next(ctx)
		if err != nil {
			panic(err)
		}
		healthy = e.ID == created.LoadBalancer.ID && bytes.Contains(e.Resource, []byte(`"healthy"`))
	}

	// DialContext connects to the load balancer's listener on this machine.
	client := http.Client{Transport: &http.Transport{DialContext: cloud.DataPlane().DialContext}}
	answer, err := client.Get("http://" + created.LoadBalancer.PublicNet.IPv4.IP.String())
	if err != nil {
		panic(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	fmt.Println(string(body), err)
	// Output: hello <nil>
}
