package framework

import (
	"context"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
)

// Servers are the cloud's servers. Each becomes a node.
type Servers struct {
	env *Env
}

// Create creates a server, and returns it when it runs. Its node registers by itself.
func (sv Servers) Create(ctx context.Context, name string) cloud.Server {
	GinkgoHelper()
	SkipUnlessServersJoin()
	s, err := sv.env.Cloud.CreateServer(ctx, name)
	Expect(err).NotTo(HaveOccurred())
	sv.env.CreatedServer(s)
	return s
}

// SkipUnlessServersJoin skips a spec that needs new servers on a cluster that they do not join.
func SkipUnlessServersJoin() {
	if current.Kind == Existing {
		Skip("needs a new server that joins the cluster by itself: runs with E2E_CLUSTER=kind or embedded")
	}
}

// CreateAll creates several servers at the same time.
func (sv Servers) CreateAll(ctx context.Context, names ...string) []cloud.Server {
	GinkgoHelper()
	return CreateAll(names, func(name string) cloud.Server { return sv.Create(ctx, name) })
}

// CreateAll creates something for each of the names at the same time.
func CreateAll[T any](names []string, create func(name string) T) []T {
	all := make([]T, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			defer GinkgoRecover()
			all[i] = create(name)
		})
	}
	wg.Wait()
	return all
}

// Delete deletes a server and waits until it is gone.
func (sv Servers) Delete(ctx context.Context, s cloud.Server) {
	GinkgoHelper()
	Expect(sv.env.Cloud.DeleteServer(ctx, s.ID)).To(Succeed())
}

// PowerOff turns a server off.
func (sv Servers) PowerOff(ctx context.Context, s cloud.Server) {
	GinkgoHelper()
	Expect(sv.env.Cloud.StopServer(ctx, s.ID)).To(Succeed())
}

// PowerOn turns a server on.
func (sv Servers) PowerOn(ctx context.Context, s cloud.Server) {
	GinkgoHelper()
	Expect(sv.env.Cloud.StartServer(ctx, s.ID)).To(Succeed())
}

// Rename gives a server another name.
func (sv Servers) Rename(ctx context.Context, s cloud.Server, name string) {
	GinkgoHelper()
	Expect(Capability[cloud.Renamer](sv.env).RenameServer(ctx, s.ID, name)).To(Succeed())
}
