package fakecloud_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

func TestASeedFileCreatesAnInventory(t *testing.T) {
	t.Parallel()
	c := newCloud(t, fakecloud.Options{})
	n := must(c.SeedFile(t.Context(), "testdata/seed.yaml"))(t)
	if n != 10 {
		t.Errorf("created %d resources, want 10", n)
	}
	client := c.Client()
	lb, _, err := client.LoadBalancer.GetByName(t.Context(), "web")
	if err != nil || lb == nil {
		t.Fatalf("load balancer: %v, %v", lb, err)
	}
	server, _, err := client.Server.GetByName(t.Context(), "web-1")
	if err != nil || server == nil {
		t.Fatalf("server: %v, %v", server, err)
	}
	if server.Status != hcloud.ServerStatusRunning || !server.Protection.Delete || len(server.PrivateNet) != 1 ||
		len(server.PublicNet.FloatingIPs) != 1 || server.PlacementGroup.Name != "web" {
		t.Errorf("server: %+v", server)
	}
	if len(lb.Targets) != 2 || lb.Targets[0].Server.Server.ID != server.ID || len(lb.Services) != 1 || len(lb.PrivateNet) != 1 {
		t.Errorf("load balancer: %+v", lb)
	}
	db, _, err := client.Server.GetByName(t.Context(), "db-1")
	if err != nil || db.PrivateNet[0].IP.String() != "10.0.1.50" || db.Status != hcloud.ServerStatusOff {
		t.Errorf("server attached by an action: %+v, %v", db, err)
	}
	projects, _ := c.Projects(t.Context())
	if len(projects) != 2 || projects[1].Name != "staging" || keys(t, c) != 2 {
		t.Errorf("the second document's project: %+v", projects)
	}
}

func TestASeedWaitsForItsActions(t *testing.T) {
	t.Parallel()
	c := newCloud(t, fakecloud.Options{Actions: "1h"})
	check(t, c.SetSpeed(t.Context(), 0))
	result := make(chan error)
	go func() {
		_, err := c.Seed(t.Context(), "seed.yaml", []byte("servers:\n- {name: a, server_type: cx23, image: ubuntu-24.04}\n"))
		result <- err
	}()
	must(c.Journal().Await(t.Context(), journal.Filter{Operation: "create_server"}, 1))(t)
	select {
	case err := <-result:
		t.Fatalf("did not wait: %v", err)
	default:
	}
	for waiting := true; waiting; {
		select {
		case err := <-result:
			if err != nil {
				t.Error(err)
			}
			waiting = false
		default:
			check(t, c.Step(t.Context(), time.Hour))
		}
	}
	if err := c.AwaitIdle(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestASeedReturnsTheErrorsOfTheAPI(t *testing.T) {
	t.Parallel()
	c := newCloud(t, fakecloud.Options{})
	n, err := c.Seed(t.Context(), "inventory.yaml", []byte(`
ssh_keys:
- {name: one, public_key: `+testKey+`}
servers:
- name: a
  image: ubuntu-24.04
  server_type: cx9999
`))
	if err == nil || n != 1 || !strings.HasPrefix(err.Error(), `inventory.yaml:`) || !strings.Contains(err.Error(), `servers[0] "a"`) {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := c.SeedFile(t.Context(), "testdata/missing.yaml"); err == nil {
		t.Error("a missing file was accepted")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Seed(ctx, "x", []byte("ssh_keys:\n- {name: x}\n")); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	// The seed's token is revoked, and a failed action is an error.
	must(c.Faults().Add(t.Context(),
		fault.Rule{Operation: "create_server", Effect: fault.FailAction("placement_error", "no space")}))(t)
	_, err = c.Seed(t.Context(), "inventory.yaml", []byte("servers:\n- {name: a, server_type: cx23, image: ubuntu-24.04}\n"))
	if err == nil || !strings.Contains(err.Error(), "no space (placement_error)") {
		t.Errorf("%v", err)
	}
}

// The API ignores a misspelled field: the resource would silently differ from the file.
func TestASeedRefusesUnknownFields(t *testing.T) {
	t.Parallel()
	c := newCloud(t, fakecloud.Options{})
	n, err := c.Seed(t.Context(), "inventory.yaml", []byte(`
networks:
- name: cluster
  ip_range: 10.0.0.0/16
  subnets:
  - type: cloud
    network_zone: eu-central
    iprange: 10.0.1.0/24
servers:
- name: a
  image: ubuntu-24.04
  server_type: cx23
  networks: [cluster]
  lables: {role: web}
  actions:
  - change_protection: {delete: true, rebuild: true, forever: true}
`))
	if n != 0 || err == nil {
		t.Fatalf("%d created, %v", n, err)
	}
	for _, want := range []string{
		`inventory.yaml:8: networks[0] "cluster": subnets.0.iprange`,
		`inventory.yaml:14: servers[0] "a": lables`,
		`inventory.yaml:16: servers[0] "a": change_protection: forever`,
		"must be one of delete, rebuild",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
	networks, err := c.Client().Network.All(t.Context())
	if err != nil || len(networks) != 0 {
		t.Errorf("%d networks were created, %v", len(networks), err)
	}
}
