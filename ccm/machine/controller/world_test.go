package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/hetzner"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/v1alpha1"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

const namespace = "default"

// refusal is an answer of the cloud instead of its own.
type refusal struct {
	status int
	body   string
}

func (r *refusal) Error() string { return r.body }

// hosts are the clouds of the worlds, by host. Requests to them stay in the process: they work in a bubble of testing/synctest, too.
var (
	hosts  sync.Map
	worlds atomic.Int64
)

type router struct{}

func (router) RoundTrip(r *http.Request) (*http.Response, error) {
	if cloud, is := hosts.Load(r.URL.Host); is {
		return cloud.(http.RoundTripper).RoundTrip(r)
	}
	return nil, fmt.Errorf("the world of %s has ended", r.URL.Host)
}

func TestMain(m *testing.M) {
	http.DefaultTransport = router{}
	os.Exit(m.Run())
}

var (
	errDead   = errors.New("the process is dead")
	errSilent = errors.New("the cloud does not answer") // until the client gives up
)

// world is a cloud, a Kubernetes API and a process of the controllers. Servers become Nodes.
type world struct {
	*testing.T
	clock   *testingclock.FakeClock
	cloud   *fakecloud.Cloud
	api     *hcloud.Client   // of a person
	objects client.WithWatch // a person's and the cluster's
	process *common          // the controllers
	events  *events.FakeRecorder
	host    string // under which the process finds the cloud
	token   string // of the process
	prefix  string // of provider IDs; empty: the default
	uids    int
	// lag is the number of passes after which the cache of the process learns what has changed. If 0, it always knows.
	lag    int
	passes int
	cache  client.WithWatch
	// lists holds what was listed since the last change. Without it, a sweep would decode the same objects most of its time.
	listing sync.Mutex
	lists   map[string]any
	// broken holds Nodes whose kubelet is silent.
	broken map[string]bool
	// protected reports whether a PodDisruptionBudget allows no eviction now. nil: it allows all.
	protected func() bool
	// bubble says that the world lives in a bubble of testing/synctest, whose time is the only one.
	bubble bool
	// subject is what the process makes or deletes at this call.
	subject client.Object
	// hook is called before and after each write to Kubernetes and each request to the cloud. An error of it is the answer.
	mu   sync.Mutex
	hook func(after bool, what string) error
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldWith(t, fakecloud.Options{})
}

func newWorldWith(t *testing.T, o fakecloud.Options) *world {
	t.Helper()
	w := &world{T: t, clock: testingclock.NewFakeClock(time.Now()), events: events.NewFakeRecorder(100000), broken: map[string]bool{},
		lists: map[string]any{}}
	w.cloud = fakecloud.New(o)
	w.api, w.token = w.cloud.Client(), w.cloud.Token()
	w.host = fmt.Sprintf("cloud-%d.invalid", worlds.Add(1))
	hosts.Store(w.host, fakecloud.InProcess(http.HandlerFunc(w.serveCloud)))
	t.Cleanup(w.end)
	w.objects = w.noticing(newClient(t))
	w.start()
	return w
}

// newClient returns a Kubernetes API with these objects.
func newClient(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme() // a small one: the client's time grows with it
	if err := errors.Join(corev1.AddToScheme(scheme), policyv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.Machine{}, &v1alpha1.MachineSet{},
		&v1alpha1.MachineDeployment{}).
		WithIndex(&corev1.Node{}, providerIDField, nodeProviderID).WithIndex(&v1alpha1.Machine{}, providerIDField, machineProviderID).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return nonEmpty(o.(*corev1.Pod).Spec.NodeName) }).
		WithObjects(objects...).Build()
}

// noticing returns a client whose writes are seen by the lists of the world.
func (w *world) noticing(c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			defer w.changed()
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			defer w.changed()
			return c.Update(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			defer w.changed()
			return c.Patch(ctx, o, p, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			defer w.changed()
			return c.Delete(ctx, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			defer w.changed()
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object,
			opts ...client.SubResourceUpdateOption) error {
			defer w.changed()
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, sub string, o, of client.Object,
			opts ...client.SubResourceCreateOption) error {
			if w.protected != nil && w.protected() && sub == "eviction" {
				return apierrors.NewTooManyRequests("the pod's disruption budget needs it", 0)
			}
			defer w.changed()
			return c.SubResource(sub).Create(ctx, o, of, opts...)
		},
	})
}

// changed forgets the lists. All that changes the cloud or the cluster calls it.
func (w *world) changed() {
	w.listing.Lock()
	defer w.listing.Unlock()
	w.lists = map[string]any{}
}

// listed returns what list returned at its first call since the last change.
func listed[T any](w *world, what string, list func() []T) []T {
	w.listing.Lock()
	defer w.listing.Unlock()
	all, has := w.lists[what].([]T)
	if !has {
		all = list()
		w.lists[what] = all
	}
	return slices.Clone(all)
}

// remember makes the process's cache show what is there now, until the next call.
func (w *world) remember() {
	w.Helper()
	var all []client.Object
	for _, d := range w.deployments() {
		all = append(all, &d)
	}
	for _, s := range w.sets() {
		all = append(all, &s)
	}
	for _, m := range w.machines() {
		all = append(all, &m)
	}
	for _, n := range w.nodes() {
		all = append(all, &n)
	}
	w.cache = newClient(w.T, all...)
}

// end ends the cloud. Without it, worlds live until their test ends.
func (w *world) end() {
	hosts.Delete(w.host)
	w.cloud.Close()
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// start starts a process, which knows nothing of earlier ones.
func (w *world) start() {
	env := func(name string) string {
		return map[string]string{"HCLOUD_TOKEN": w.token, "HCLOUD_ENDPOINT": "http://" + w.host + "/v1",
			"HCLOUD_INSTANCES_PROVIDER_ID_PREFIX": w.prefix}[name]
	}
	resolver := &machine.Resolver{Client: w.objects, Namespace: namespace, Getenv: env}
	c := w.intercepted()
	w.process = newCommon(c, w.objects, w.events, w.clock, Options{Resolver: resolver})
}

// intercepted returns the client of the process.
func (w *world) intercepted() client.Client {
	write := func(what string, do func() error) error {
		if err := w.call(false, what); err != nil {
			return err
		}
		if err := do(); err != nil {
			return err
		}
		return w.call(true, what)
	}
	cached := func(c client.WithWatch) client.WithWatch {
		if w.cache != nil {
			return w.cache
		}
		return c
	}
	return interceptor.NewClient(w.objects, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return cached(c).Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			return cached(c).List(ctx, l, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if i := strings.LastIndex(o.GetName(), "-"); kindOf(o) == "Machine" {
				o.SetName(fmt.Sprintf("%s-%05d", o.GetName()[:i], w.uids)) // the same in each run, so that a death can be repeated
			}
			w.subject = o
			return write("create "+kindOf(o), func() error { return w.create(ctx, o) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			w.subject = o
			return write("delete "+kindOf(o), func() error { return c.Delete(ctx, o) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return write("patch "+kindOf(o), func() error { return c.Patch(ctx, o, p, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			return write("patch "+sub+" of "+kindOf(o), func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	})
}

func kindOf(o client.Object) string { return strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1alpha1.") }

// create makes an object, as the API server does.
func (w *world) create(ctx context.Context, o client.Object) error {
	w.uids++
	o.SetUID(types.UID(fmt.Sprintf("uid-%d", w.uids)))
	o.SetCreationTimestamp(metav1.NewTime(w.clock.Now()))
	return w.objects.Create(ctx, o)
}

// setHook sets the hook, nil for none.
func (w *world) setHook(hook func(after bool, what string) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hook = hook
}

func (w *world) call(after bool, what string) error {
	w.mu.Lock() // of an aborted request, the handler may still run
	defer w.mu.Unlock()
	if w.bubble {
		w.clock.SetTime(time.Now())
	}
	if w.hook == nil {
		return nil
	}
	return w.hook(after, what)
}

// serveCloud passes a request on to the cloud. If the process is dead, the connection ends.
func (w *world) serveCloud(rw http.ResponseWriter, r *http.Request) {
	what := "cloud: " + r.Method + " " + r.URL.Path
	var refusal *refusal
	switch err := w.call(false, what); {
	case errors.As(err, &refusal):
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(refusal.status)
		_, _ = rw.Write([]byte(refusal.body))
		return
	case err != nil:
		abort(r, err)
	}
	answer := httptest.NewRecorder()
	w.cloud.Handler().ServeHTTP(answer, r)
	if r.Method != http.MethodGet {
		w.changed()
	}
	if err := w.call(true, what); err != nil {
		abort(r, err)
	}
	maps.Copy(rw.Header(), answer.Header())
	rw.WriteHeader(answer.Code)
	_, _ = rw.Write(answer.Body.Bytes())
}

// abort ends a connection without an answer, at once or when the client gives up.
func abort(r *http.Request, err error) {
	if errors.Is(err, errSilent) {
		<-r.Context().Done()
	}
	panic(http.ErrAbortHandler)
}

// pass lets all controllers look once at everything, and the cluster's own parts do their work.
func (w *world) pass() {
	w.Helper()
	ctx := w.Context()
	if w.lag > 0 && w.passes%w.lag == 0 {
		w.remember()
	}
	w.passes++
	for _, d := range w.deployments() {
		w.reconcile(&machineDeployments{w.process}, &d)
	}
	for _, s := range w.sets() {
		w.reconcile(&machineSets{w.process}, &s)
	}
	for _, m := range w.machines() {
		w.reconcile(&machines{w.process}, &m)
	}
	w.kubelets(ctx)
	w.collectGarbage(ctx)
	if w.bubble {
		time.Sleep(6 * time.Second)
		w.clock.SetTime(time.Now())
	} else {
		w.clock.Step(6 * time.Second)
	}
	w.changed()
}

func (w *world) reconcile(r reconcile.Reconciler, o client.Object) {
	_, _ = r.Reconcile(w.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)})
}

// settle passes until nothing changes any more, with time.
func (w *world) settle() {
	w.Helper()
	w.settleFor(4 * max(w.lag, 1))
}

// settleFor passes until so many passes in a row have changed nothing, and no Machine waits for its end or for a proof.
func (w *world) settleFor(passes int) {
	w.Helper()
	for quiet, before := 0, ""; quiet < passes; {
		w.pass()
		waits := slices.ContainsFunc(w.machines(), func(m v1alpha1.Machine) bool {
			return m.DeletionTimestamp != nil || m.Status.FailureReason == reasonDoubtful
		})
		if now := w.state(); now == before {
			if !waits {
				quiet++
			}
		} else {
			quiet, before = 0, now
		}
		if w.clock.Since(time.Now()) > 24*time.Hour {
			w.Fatalf("it does not settle:\n%s", w.state())
		}
	}
}

// objectsOf is listed for objects of Kubernetes. items returns those of the list.
func objectsOf[L client.ObjectList, T any](w *world, what string, list L, items func(L) []T) []T {
	w.Helper()
	return listed(w, what, func() []T {
		w.must(w.objects.List(w.Context(), list))
		return items(list)
	})
}

func (w *world) deployments() []v1alpha1.MachineDeployment {
	type list = v1alpha1.MachineDeploymentList
	return objectsOf(w, "deployments", new(list), func(l *list) []v1alpha1.MachineDeployment { return l.Items })
}

func (w *world) sets() []v1alpha1.MachineSet {
	return objectsOf(w, "sets", new(v1alpha1.MachineSetList), func(l *v1alpha1.MachineSetList) []v1alpha1.MachineSet { return l.Items })
}

func (w *world) machines() []v1alpha1.Machine {
	return objectsOf(w, "machines", new(v1alpha1.MachineList), func(l *v1alpha1.MachineList) []v1alpha1.Machine { return l.Items })
}

func (w *world) nodes() []corev1.Node {
	return objectsOf(w, "nodes", new(corev1.NodeList), func(l *corev1.NodeList) []corev1.Node { return l.Items })
}

func (w *world) servers() []*hcloud.Server {
	w.Helper()
	return listed(w, "servers", func() []*hcloud.Server {
		all, err := w.api.Server.All(context.Background())
		w.must(err)
		return all
	})
}

// deployment returns a MachineDeployment.
func deployment(n int32, serverType string) *v1alpha1.MachineDeployment {
	pool := map[string]string{"pool": "a"}
	return &v1alpha1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pool-a"},
		Spec: v1alpha1.MachineDeploymentSpec{MachineSetSpec: v1alpha1.MachineSetSpec{Replicas: &n,
			HealthCheck: v1alpha1.HealthCheck{UnhealthyTimeout: &metav1.Duration{Duration: 15 * time.Second}},
			Selector:    v1alpha1.LabelSelector{MatchLabels: pool}, Template: v1alpha1.MachineTemplate{
				Metadata: v1alpha1.ObjectMeta{Labels: pool},
				Spec: v1alpha1.MachineSpec{
					Metadata: v1alpha1.ObjectMeta{Labels: map[string]string{"example.org/pool": "a"}},
					Taints:   []corev1.Taint{{Key: "fresh", Effect: corev1.TaintEffectNoSchedule}},
					ProviderSpec: v1alpha1.ProviderSpec{CloudProvider: hetzner.Name,
						CloudProviderSpec: runtime.RawExtension{Raw: fmt.Appendf(nil, `{"serverType":%q}`, serverType)}},
				},
			}}},
	}
}

// change changes the only MachineDeployment, as a person does.
func (w *world) change(do func(*v1alpha1.MachineDeployment)) {
	w.Helper()
	d := w.deployments()[0]
	do(&d)
	w.must(w.objects.Update(w.Context(), &d))
}

// expect makes sure that there are n Machines, and that each has a server of the type and a ready Node.
func (w *world) expect(n int, serverType string) {
	w.Helper()
	ms, servers, nodes := w.machines(), w.servers(), w.nodes()
	if len(ms) != n || len(servers) != n || len(nodes) != n {
		w.Fatalf("%d Machines, %d servers and %d Nodes, want %d:\n%s", len(ms), len(servers), len(nodes), n, w.state())
	}
	for _, m := range ms {
		i := slices.IndexFunc(servers, func(s *hcloud.Server) bool { return s.Labels[hetzner.LabelUID] == string(m.UID) })
		if m.Status.Phase != v1alpha1.PhaseRunning || !isMachineReady(&m) || i < 0 || servers[i].ServerType.Name != serverType ||
			servers[i].Name != m.Name {
			w.Fatalf("Machine %s: %+v\n%s", m.Name, m.Status, w.state())
		}
	}
	for _, node := range nodes {
		if !nodeinfo.IsReady(&node) || node.Spec.Unschedulable || node.Labels["example.org/pool"] != "a" || len(node.Spec.Taints) != 1 {
			w.Fatalf("Node %+v", node)
		}
	}
	for _, d := range w.deployments() {
		if s := d.Status; int(s.Replicas) != n || int(s.AvailableReplicas) != n || int(s.UpdatedReplicas) != n {
			w.Fatalf("status %+v", s)
		}
	}
}

func keyOf(o client.Object) client.ObjectKey { return client.ObjectKeyFromObject(o) }
