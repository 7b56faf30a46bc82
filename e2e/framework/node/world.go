package node

import (
	"context"
	"log/slog"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// world watches the API for nodes: it has each follower's Node, and all Services. The nodes of a
// fleet share one, so that a hundred nodes do not watch a hundred times. A follower hears of every
// Service, including the existing ones.
type world struct {
	client kubernetes.Interface
	nodes  cache.SharedIndexInformer
	end    context.CancelFunc
	loops  sync.WaitGroup

	mu        sync.Mutex
	services  map[types.NamespacedName]*corev1.Service
	followers map[*backend]struct{}

	versionMu sync.Mutex
	release   string // of the API server, once it has been asked
}

// newWorld begins to watch all Services and Nodes.
func newWorld(client kubernetes.Interface, log *slog.Logger) *world {
	ctx, cancel := context.WithCancel(context.Background())
	w := &world{
		client: client, end: cancel,
		services: map[types.NamespacedName]*corev1.Service{}, followers: map[*backend]struct{}{},
	}
	core := informers.NewSharedInformerFactory(client, 0).Core().V1()
	w.nodes = core.Nodes().Informer()
	services := core.Services().Informer()
	_, _ = services.AddEventHandler(cache.ResourceEventHandlerFuncs{ // fails on a stopped informer only
		AddFunc:    func(object any) { w.set(object, true) },
		UpdateFunc: func(_, object any) { w.set(object, true) },
		DeleteFunc: func(object any) { w.set(object, false) },
	})
	for _, informer := range []cache.SharedIndexInformer{w.nodes, services} {
		// The default handler writes to standard error; that the API is away, or
		// stopped before the nodes, is part of many specs.
		_ = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
			log.Debug("watching the Kubernetes API was interrupted", "error", err)
		})
		w.loops.Go(func() { informer.RunWithContext(ctx) })
	}
	return w
}

// stop ends the watches and waits for their end.
func (w *world) stop() {
	w.end()
	w.loops.Wait()
}

// node returns the last known state of the Node, or nil.
func (w *world) node(name string) *corev1.Node {
	object, ok, err := w.nodes.GetStore().GetByKey(name)
	if err != nil || !ok {
		return nil
	}
	return object.(*corev1.Node)
}

// version returns the API server's release; empty while it does not answer, or
// when ctx ends before it does.
func (w *world) version(ctx context.Context) string {
	w.versionMu.Lock()
	defer w.versionMu.Unlock()
	if w.release == "" {
		info, err := discovery.ToServerVersionInterfaceWithContext(w.client.Discovery()).ServerVersionWithContext(ctx)
		if err == nil {
			w.release = info.GitVersion
		}
	}
	return w.release
}

// set tells the followers that a Service exists or is gone.
func (w *world) set(object any, present bool) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	service, ok := object.(*corev1.Service)
	if !ok {
		return
	}
	name := types.NamespacedName{Namespace: service.Namespace, Name: service.Name}
	w.mu.Lock()
	defer w.mu.Unlock()
	if present {
		w.services[name] = service
	} else {
		delete(w.services, name)
	}
	for follower := range w.followers {
		follower.setServices(maps.Clone(w.services))
	}
}

// follow tells the backend about all Services until unfollow is called.
func (w *world) follow(b *backend) (unfollow func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.followers[b] = struct{}{}
	b.setServices(maps.Clone(w.services))
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.followers, b)
	}
}
