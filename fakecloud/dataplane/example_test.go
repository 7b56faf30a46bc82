package dataplane_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/dataplane"
)

func Example() {
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "hello "+r.Header.Get("X-Forwarded-Proto"))
	}))
	defer node.Close()

	healthy := make(chan struct{})
	engine := dataplane.New(dataplane.Options{
		// The address of servers on this machine.
		Resolver: func(t dataplane.Target, port uint16) (string, error) {
			return node.Listener.Addr().String(), nil
		},
		Health: func(r dataplane.HealthReport) {
			fmt.Println(r.Target, r.ListenPort, r.Status)
			if r.Status == dataplane.Healthy {
				close(healthy)
			}
		},
	})
	defer func() { _ = engine.Close(context.Background()) }()

	err := engine.Apply(dataplane.LoadBalancer{
		ID:        1,
		Addresses: []netip.Addr{netip.MustParseAddr("203.0.113.10")},
		Services:  []dataplane.Service{{Protocol: dataplane.HTTP, ListenPort: 80, DestinationPort: 30080}},
		Targets:   []dataplane.Target{{Key: "server:42", Address: netip.MustParseAddr("10.0.0.2")}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	<-healthy

	// The client uses the address that the cloud's API shows.
	transport := &http.Transport{DialContext: engine.DialContext}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get("http://203.0.113.10/")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(resp.Body)
	fmt.Println(resp.StatusCode, string(body))
	// Output:
	// server:42 80 unknown
	// server:42 80 healthy
	// 200 hello http
}
