package cloudtest

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
)

func created(t *testing.T, s *suite) {
	g, c := NewWithT(t), s.start(t)
	g.Expect(servers(t, c)).To(BeEmpty(), "a new cloud has servers")
	one := server(t, c, "node-1")
	g.Expect(one.ID).NotTo(BeEmpty())
	g.Expect(one.Name).To(Equal("node-1"))
	g.Expect(one.ProviderID).To(HavePrefix("cloudtest://"), "a provider ID begins with Options.ProviderPrefix")
	g.Expect(strings.TrimPrefix(one.ProviderID, "cloudtest://")).NotTo(BeEmpty(), "the provider ID has nothing after its prefix")
	g.Expect(one.Running).To(BeTrue(), "CreateServer must return when the server runs")
	g.Expect(one.Addresses).NotTo(BeEmpty(), "a node without an address cannot be used")
	for _, a := range one.Addresses {
		g.Expect(a.Type).To(BeElementOf(corev1.NodeInternalIP, corev1.NodeExternalIP), "other types are the CCM's affair")
		g.Expect(netip.ParseAddr(a.Address)).Error().NotTo(HaveOccurred())
	}
	g.Expect(servers(t, c)).To(Equal(map[string]cloud.Server{"node-1": one}), "Servers and CreateServer differ")
}

func uniqueNames(t *testing.T, s *suite) {
	g, c := NewWithT(t), s.start(t)
	one := server(t, c, "node-1")
	_, err := c.CreateServer(t.Context(), "node-1")
	g.Expect(err).To(HaveOccurred(), "a second server has the name")
	g.Expect(servers(t, c)).To(Equal(map[string]cloud.Server{"node-1": one}))
}

func deleted(t *testing.T, s *suite) {
	g, c := NewWithT(t), s.start(t)
	one, stays := server(t, c, "node-1"), server(t, c, "stays")
	g.Expect(c.DeleteServer(t.Context(), one.ID)).To(Succeed())
	g.Expect(servers(t, c)).To(Equal(map[string]cloud.Server{"stays": stays}))
	g.Expect(c.DeleteServer(t.Context(), one.ID)).To(isNotFound())

	again := server(t, c, "node-1")
	g.Expect(again.ID).NotTo(Equal(one.ID), "an ID must not be used again")
	g.Expect(again.ProviderID).NotTo(Equal(one.ProviderID), "a provider ID must not be used again")
	g.Expect(c.StopServer(t.Context(), again.ID)).To(Succeed())
	g.Expect(c.DeleteServer(t.Context(), again.ID)).To(Succeed(), "a server that is off can be deleted")
	g.Expect(servers(t, c)).To(HaveLen(1))
}

// stopped does not look at the addresses of a server that is off, or was: clouds may take them away.
func stopped(t *testing.T, s *suite) {
	g, c := NewWithT(t), s.start(t)
	one, other := server(t, c, "node-1"), server(t, c, "node-2")
	expect := func(running bool) {
		t.Helper()
		all := servers(t, c)
		g.Expect(all).To(And(HaveLen(2), HaveKeyWithValue("node-2", other)), "another server has changed")
		g.Expect(all["node-1"]).To(And(HaveField("ID", one.ID), HaveField("ProviderID", one.ProviderID), HaveField("Running", running)))
	}
	g.Expect(c.StopServer(t.Context(), one.ID)).To(Succeed())
	expect(false)
	g.Expect(c.StartServer(t.Context(), one.ID)).To(Succeed())
	expect(true)
}

func notFound(t *testing.T, s *suite) {
	g, c := NewWithT(t), s.start(t)
	ctx := t.Context()
	gone := server(t, c, "node-1").ID
	g.Expect(c.DeleteServer(ctx, gone)).To(Succeed())
	for _, id := range []string{gone, "123456", "no-such-thing"} {
		g.Expect(c.DeleteServer(ctx, id)).To(isNotFound(), "DeleteServer %q", id)
		g.Expect(c.StopServer(ctx, id)).To(isNotFound(), "StopServer %q", id)
		g.Expect(c.StartServer(ctx, id)).To(isNotFound(), "StartServer %q", id)
		g.Expect(c.DeleteLoadBalancer(ctx, id)).To(isNotFound(), "DeleteLoadBalancer %q", id)
		if renamer, ok := cloud.As[cloud.Renamer](c); ok {
			g.Expect(renamer.RenameServer(ctx, id, "node-2")).To(isNotFound(), "RenameServer %q", id)
		}
	}
}

func ownAddresses(t *testing.T, s *suite) {
	g, o := NewWithT(t), Options(t)
	c := s.startWith(t, o)
	seen, local := map[string]string{}, 0
	for i := range 3 {
		one := server(t, c, fmt.Sprintf("node-%d", i))
		for _, a := range one.Addresses {
			g.Expect(seen).NotTo(HaveKey(a.Address), "%s has an address of another server", one.Name)
			seen[a.Address] = one.Name
		}
		if one.Local.IsValid() {
			local++
			g.Expect(o.Servers.Contains(one.Local)).To(BeTrue(), "Local of %s, %s, is not in Options.Servers, %s", one.Name, one.Local,
				o.Servers)
			g.Expect(seen).NotTo(HaveKey("local "+one.Local.String()), "%s has Local of another server", one.Name)
			seen["local "+one.Local.String()] = one.Name
		}
	}
	g.Expect(local).To(BeElementOf(0, 3), "either all servers have Local or none")
}

func separate(t *testing.T, s *suite) {
	g, one, two := NewWithT(t), s.start(t), s.start(t)
	a := server(t, one, "node-1")
	b := server(t, two, "node-1")
	g.Expect(two.DeleteServer(t.Context(), b.ID)).To(Succeed())
	g.Expect(servers(t, one)).To(Equal(map[string]cloud.Server{"node-1": a}))
	g.Expect(servers(t, two)).To(BeEmpty())
}

func concurrent(t *testing.T, s *suite) {
	g, c := NewWithT(t), s.start(t)
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			name := fmt.Sprintf("node-%d", i)
			one, err := c.CreateServer(t.Context(), name)
			if err != nil {
				t.Errorf("CreateServer %s: %v", name, err)
				return
			}
			if all, err := c.Servers(t.Context()); err != nil || len(all) == 0 {
				t.Errorf("Servers: %d servers, %v", len(all), err)
			}
			if _, err := c.LoadBalancers(t.Context()); err != nil {
				t.Errorf("LoadBalancers: %v", err)
			}
			if i%2 == 0 {
				if err := c.DeleteServer(t.Context(), one.ID); err != nil {
					t.Errorf("DeleteServer %s: %v", name, err)
				}
			}
		})
	}
	wait.Wait()
	g.Expect(servers(t, c)).To(And(HaveLen(4), HaveKey("node-1"), HaveKey("node-3"), HaveKey("node-5"), HaveKey("node-7")))
}

// canceled shows that a method returns soon after its context is canceled, with or without an error.
func canceled(t *testing.T, s *suite) {
	g, c := NewWithT(t), s.start(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		_, _ = c.Servers(ctx)
		_ = c.DeleteServer(ctx, "no-such-thing")
	}()
	g.Eventually(returned, s.config.Slow, 5*time.Millisecond).Should(BeClosed())
	g.Expect(servers(t, c)).To(BeEmpty(), "the cloud does not work any more")
}

func ccm(t *testing.T, s *suite) {
	g, c := NewWithT(t), s.start(t)
	how := c.CCM()
	g.Expect(len(how.Env)+len(how.Args)).To(BeNumerically(">", 0), "the CCM does not learn where the cloud is")
	for name, value := range how.Env {
		g.Expect(name).To(MatchRegexp(`^[A-Za-z_][A-Za-z0-9_]*$`))
		g.Expect(value).NotTo(BeEmpty(), name)
	}
	for _, arg := range how.Args {
		g.Expect(arg).To(HavePrefix("--"))
	}
}

func renamed(t *testing.T, s *suite) {
	g, c := NewWithT(t), s.start(t)
	renamer := optional[cloud.Renamer](t, c)
	one, other := server(t, c, "node-1"), server(t, c, "node-2")
	g.Expect(renamer.RenameServer(t.Context(), one.ID, "renamed")).To(Succeed())
	one.Name = "renamed"
	want := map[string]cloud.Server{"renamed": one, "node-2": other}
	g.Expect(servers(t, c)).To(Equal(want), "a server that is renamed changes its name only")
	g.Expect(renamer.RenameServer(t.Context(), one.ID, "node-2")).NotTo(Succeed(), "two servers have the same name")
	g.Expect(servers(t, c)).To(Equal(want))
	server(t, c, "node-1") // the name is free again
}
