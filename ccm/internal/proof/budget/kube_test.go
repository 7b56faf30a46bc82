package budget

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
)

// kube is a Kubernetes API. Its watches have room for any number of changes. Those of client-go's fake clientset
// have room for a hundred, and a cold start makes thousands at once.
type kube struct {
	clienttesting.ObjectTracker
	mu      sync.Mutex
	watches map[string][]*watcher // by resource
}

// newKube returns the client of a new Kubernetes API, which drops events.
func newKube() *fake.Clientset {
	k := &kube{ObjectTracker: clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder()),
		watches: map[string][]*watcher{}}
	c := &fake.Clientset{}
	c.AddReactor("*", "events", func(clienttesting.Action) (bool, runtime.Object, error) { return true, &corev1.Event{}, nil })
	c.AddReactor("*", "*", clienttesting.ObjectReaction(k))
	c.AddWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
		return true, k.watch(a.GetResource()), nil
	})
	return c
}

// Create implements ObjectTracker.
func (k *kube) Create(r schema.GroupVersionResource, obj runtime.Object, ns string, o ...metav1.CreateOptions) error {
	err := k.ObjectTracker.Create(r, obj, ns, o...)
	k.tell(r, watch.Added, obj, err)
	return err
}

// Update implements ObjectTracker.
func (k *kube) Update(r schema.GroupVersionResource, obj runtime.Object, ns string, o ...metav1.UpdateOptions) error {
	err := k.ObjectTracker.Update(r, obj, ns, o...)
	k.tell(r, watch.Modified, obj, err)
	return err
}

// Patch implements ObjectTracker.
func (k *kube) Patch(r schema.GroupVersionResource, obj runtime.Object, ns string, o ...metav1.PatchOptions) error {
	err := k.ObjectTracker.Patch(r, obj, ns, o...)
	k.tell(r, watch.Modified, obj, err)
	return err
}

// Delete implements ObjectTracker.
func (k *kube) Delete(r schema.GroupVersionResource, ns, name string, o ...metav1.DeleteOptions) error {
	obj, err := k.Get(r, ns, name)
	if err == nil {
		err = k.ObjectTracker.Delete(r, ns, name, o...)
	}
	k.tell(r, watch.Deleted, obj, err)
	return err
}

func (k *kube) tell(r schema.GroupVersionResource, what watch.EventType, obj runtime.Object, err error) {
	if err != nil {
		return
	}
	if m, err := meta.Accessor(obj); err != nil || m == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range k.watches[r.Resource] {
		w.add(watch.Event{Type: what, Object: obj.DeepCopyObject()})
	}
}

func (k *kube) watch(r schema.GroupVersionResource) *watcher {
	w := &watcher{events: make(chan watch.Event), more: make(chan struct{}, 1), stop: make(chan struct{})}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.watches[r.Resource] = append(k.watches[r.Resource], w)
	go w.run()
	return w
}

// watcher is a watch with a queue.
type watcher struct {
	events chan watch.Event
	more   chan struct{}
	stop   chan struct{}
	once   sync.Once

	mu    sync.Mutex
	queue []watch.Event
}

func (w *watcher) add(e watch.Event) {
	w.mu.Lock()
	w.queue = append(w.queue, e)
	w.mu.Unlock()
	select {
	case w.more <- struct{}{}:
	default: // it looks for more already
	}
}

func (w *watcher) run() {
	for {
		w.mu.Lock()
		queue := w.queue
		w.queue = nil
		w.mu.Unlock()
		for _, e := range queue {
			select {
			case w.events <- e:
			case <-w.stop:
				return
			}
		}
		select {
		case <-w.more:
		case <-w.stop:
			return
		}
	}
}

// Stop implements watch.Interface.
func (w *watcher) Stop() { w.once.Do(func() { close(w.stop) }) }

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.events }
