package controller

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/hetzner"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/v1alpha1"
)

// emptyAPI is the hook of an incident: lists of servers are empty, and each server is not found.
func emptyAPI(after bool, what string) error {
	switch {
	case after || !strings.HasPrefix(what, "cloud: GET") || !strings.Contains(what, "/servers"):
	case strings.HasSuffix(what, "/servers"):
		return &refusal{200, `{"servers": [], "meta": {"pagination": {"page": 1, "per_page": 50, "last_page": 1, "total_entries": 0}}}`}
	default:
		return &refusal{404, `{"error": {"code": "not_found", "message": "server not found"}}`}
	}
	return nil
}

// pool returns a world with a MachineDeployment of n Machines that run.
func pool(t *testing.T, n int32) *world {
	t.Helper()
	w := newWorld(t)
	w.must(w.create(t.Context(), deployment(n, "cx23")))
	w.settle()
	w.expect(int(n), "cx23")
	return w
}

// passFor passes until the time is over.
func (w *world) passFor(d time.Duration) {
	w.Helper()
	for end := w.clock.Now().Add(d); w.clock.Now().Before(end); {
		w.pass()
	}
}

// passTimes passes n times.
func (w *world) passTimes(n int) {
	w.Helper()
	for range n {
		w.pass()
	}
}

// expectNothing fails the test if a Machine or a server is left.
func (w *world) expectNothing(when string) {
	w.Helper()
	if left := len(w.machines()) + len(w.servers()); left > 0 {
		w.Errorf("%s: something is left:\n%s", when, w.state())
	}
}

// silence makes the kubelets of all Nodes silent, or lets them speak again.
func (w *world) silence(silent bool) {
	w.Helper()
	for _, n := range w.nodes() {
		w.broken[n.Name] = silent
	}
	w.kubelets(w.Context())
	w.changed()
}

// otherProject returns the token of another project, and a client of it.
func (w *world) otherProject() (token string, other *hcloud.Client) {
	w.Helper()
	_, token, err := w.cloud.AddProject(w.Context(), "other", "")
	w.must(err)
	return token, w.cloud.Client(hcloud.WithToken(token))
}

// lose deletes servers, as a person does. One that is being made cannot be deleted.
func (w *world) lose(servers ...*hcloud.Server) {
	w.Helper()
	for _, s := range servers {
		if _, _, err := w.api.Server.DeleteWithResult(w.Context(), s); !hcloud.IsError(err, hcloud.ErrorCodeLocked) {
			w.must(err)
		}
	}
	w.changed()
}

func TestAnIncidentWhileNodesAreNotReadyReplacesNothing(t *testing.T) {
	t.Parallel()
	w := pool(t, 6)
	before := names(w)
	w.silence(true)
	w.setHook(emptyAPI)
	w.passFor(time.Minute)
	w.setHook(nil)
	w.silence(false)
	w.settle()
	w.expect(6, "cx23")
	if after := names(w); !slices.Equal(before, after) {
		t.Errorf("Machines %v, want %v", after, before)
	}
}

func TestAnotherProjectsTokenDeletesAndOrdersNothing(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		w := pool(t, 4)
		token, other := w.otherProject()
		right := w.token
		w.token = token
		if restart {
			w.start()
		}
		w.change(func(d *v1alpha1.MachineDeployment) { d.Spec.Replicas = new(int32(1)) })
		w.silence(true)
		w.passFor(7 * time.Minute)
		w.change(func(d *v1alpha1.MachineDeployment) { d.Spec.Replicas = new(int32(2)) }) // a server is ordered
		w.passFor(7 * time.Minute)
		all, err := other.Server.All(t.Context())
		w.must(err)
		if len(all) > 0 || len(w.servers()) != 4 {
			t.Errorf("%d servers in the other project, %d of 4 in the own", len(all), len(w.servers()))
		}
		w.token = right
		w.silence(false)
		w.settle()
		w.expect(2, "cx23")
	}
}

// held is a provider with a list of all servers that waits.
type held struct {
	machine.Provider
	begun, end chan struct{}
}

func (h held) Shows(ctx context.Context, spec v1alpha1.MachineSpec, ids []string) (map[string]bool, error) {
	close(h.begun)
	<-h.end
	return h.Provider.Shows(ctx, spec, ids)
}

// The Machine without a server waits for the list; nothing else does.
func TestAListWithoutAnAnswerHoldsUpNoOtherMachine(t *testing.T) {
	t.Parallel()
	w := pool(t, 2)
	server := w.servers()[0]
	w.lose(server)
	w.silence(true)
	all := w.machines()
	lost := slices.IndexFunc(all, func(m v1alpha1.Machine) bool { return m.Name == server.Name })
	p, err := w.process.provider(&all[lost])
	w.must(err)
	h := held{p, make(chan struct{}), make(chan struct{})}
	w.process.providers[hetzner.Name] = h
	var done sync.WaitGroup
	done.Go(func() { w.reconcile(&machines{w.process}, &all[lost]) })
	<-h.begun
	other := make(chan struct{})
	go func() {
		w.reconcile(&machines{w.process}, &all[1-lost])
		close(other)
	}()
	select {
	case <-other:
	case <-time.After(10 * time.Second):
		t.Error("the other Machine waits, too")
	}
	close(h.end)
	done.Wait()
	<-other
}

func TestAnEmptyListAtADeletionLeaksNothing(t *testing.T) {
	t.Parallel()
	for name, hook := range map[string]func(n int) func(bool, string) error{
		"one list": func(n int) func(bool, string) error {
			return func(after bool, what string) error {
				if strings.HasSuffix(what, "/servers") {
					if n--; n >= 0 {
						return emptyAPI(after, what)
					}
				}
				return nil
			}
		},
		"one minute": func(int) func(bool, string) error { return emptyAPI },
	} {
		w := pool(t, 2)
		d := w.deployments()[0]
		w.must(w.objects.Delete(t.Context(), &d))
		w.collectGarbage(t.Context())
		w.changed()
		w.setHook(hook(1))
		w.passFor(time.Minute)
		w.setHook(nil)
		w.settle()
		w.expectNothing(name)
	}
}

// The backup has the finalizer. The person deletes the Machine before the controller sees it.
func TestARestoredMachineThatIsDeletedAtOnceLeaksNothing(t *testing.T) {
	t.Parallel()
	for _, hook := range []func(bool, string) error{nil, emptyAPI} {
		w := pool(t, 1)
		m := w.restore(w.machines()[0])
		w.must(w.objects.Delete(t.Context(), m))
		w.change(func(d *v1alpha1.MachineDeployment) { d.Spec.Replicas = new(int32(0)) })
		w.setHook(hook)
		w.passFor(time.Minute)
		w.setHook(nil)
		w.settle()
		w.expectNothing("at the end")
	}
}

// restore replaces a Machine by its copy from a backup, which has another UID.
func (w *world) restore(old v1alpha1.Machine) *v1alpha1.Machine {
	w.Helper()
	again := old.DeepCopy()
	old.Finalizers = nil
	w.must(w.objects.Update(w.Context(), &old))
	w.must(w.objects.Delete(w.Context(), &old))
	again.ResourceVersion = ""
	metav1.SetMetaDataAnnotation(&again.ObjectMeta, annotationFormerUID, string(old.UID))
	w.must(w.create(w.Context(), again))
	w.changed()
	return again
}

// The label is put back later. Until then the server has no proof that it is the Machine's, but it exists.
func TestAChangedPrefixDoesNotHideAServerWithoutItsLabel(t *testing.T) {
	t.Parallel()
	w := pool(t, 3)
	before, s := names(w), w.servers()[0]
	labels := s.Labels
	_, _, err := w.api.Server.Update(t.Context(), s, hcloud.ServerUpdateOpts{Labels: map[string]string{}})
	w.must(err)
	w.prefix = "hcloud"
	w.start()
	w.broken[s.Name] = true
	w.kubelets(t.Context())
	w.changed()
	w.passTimes(10)
	if after := names(w); !slices.Equal(before, after) || len(w.servers()) != 3 {
		t.Errorf("Machines %v, want %v; %d servers", after, before, len(w.servers()))
	}
	_, _, err = w.api.Server.Update(t.Context(), s, hcloud.ServerUpdateOpts{Labels: labels})
	w.must(err)
	w.broken[s.Name] = false
	w.settle()
	w.expect(3, "cx23")
}

func TestServersThatAreGoneAreReplaced(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		lost    int
		restart bool
		soon    time.Duration // after which they are not replaced yet
		late    time.Duration // after which they are
	}{
		"one of six, which a look at the others proves": {1, false, 0, time.Minute},
		"one of six, after a restart":                   {1, true, 0, time.Minute},
		"half of them, which may be an incident":        {3, false, 4 * time.Minute, 7 * time.Minute},
		"all of them, with the token that made them":    {6, true, 4 * time.Minute, 7 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := pool(t, 6)
			before := names(w)
			w.silence(true)
			w.lose(w.servers()[:tc.lost]...)
			if tc.restart {
				w.start()
			}
			w.change(func(d *v1alpha1.MachineDeployment) { d.Spec.HealthCheck.UnhealthyTimeout.Duration = time.Hour })
			w.passFor(tc.soon)
			if after := names(w); tc.soon > 0 && !slices.Equal(before, after) {
				t.Errorf("Machines %v, before %v", after, before)
			}
			w.passFor(tc.late - tc.soon)
			if n := len(slices.DeleteFunc(names(w), func(name string) bool { return slices.Contains(before, name) })); n != tc.lost {
				t.Errorf("%d Machines were replaced, want %d:\n%s", n, tc.lost, w.state())
			}
			w.silence(false)
			w.settle()
			w.expect(6, "cx23")
		})
	}
}

// A Machine says why its server does not count as gone.
func TestADoubtIsExplained(t *testing.T) {
	t.Parallel()
	w := pool(t, 3)
	w.token, _ = w.otherProject()
	w.silence(true)
	w.passFor(time.Minute)
	for _, m := range w.machines() {
		if m.Status.FailureReason != reasonDoubtful || !strings.Contains(m.Status.FailureMessage, "may belong to another project") ||
			m.Status.Phase == v1alpha1.PhaseFailed {
			t.Errorf("status %+v", m.Status)
		}
	}
	for _, s := range w.servers() {
		if s.Labels[hetzner.LabelUID] == "" {
			t.Errorf("server %+v", s)
		}
	}
}

// No server is left that could show that the token is one of the same project. One that was never confirmed proves nothing.
func TestAPersonConfirmsANewToken(t *testing.T) {
	t.Parallel()
	w := pool(t, 3)
	w.lose(w.servers()...)
	right, err := w.cloud.AddToken(t.Context(), 1, "", false)
	w.must(err)
	w.token = right
	w.passFor(time.Hour)
	m := w.machines()[0]
	_, account, asks := strings.Cut(m.Status.FailureMessage, annotationAccount+"=")
	if !asks || len(w.servers()) > 0 || m.Status.FailureReason != reasonDoubtful {
		t.Fatalf("%d servers, status %+v", len(w.servers()), m.Status)
	}
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, annotationAccount, account)
	w.must(w.objects.Update(t.Context(), &m))
	w.token, _ = w.otherProject()
	w.passFor(time.Hour)
	if n := len(w.servers()); n > 0 {
		t.Errorf("%d servers with a token that no person has confirmed", n)
	}
	w.token = right
	w.settle()
	w.expect(3, "cx23")
}

// The Node has become ready, and the Machine's status does not say so yet.
func TestAnOldStatusReplacesNoMachineWhoseNodeIsReady(t *testing.T) {
	t.Parallel()
	w := pool(t, 2)
	before := names(w)
	w.broken[w.nodes()[0].Name] = true
	w.passTimes(2)
	w.clock.Step(time.Minute)
	w.silence(false)
	set := w.sets()[0]
	w.reconcile(&machineSets{w.process}, &set)
	w.changed()
	if after := names(w); !slices.Equal(before, after) {
		t.Errorf("Machines %v, want %v", after, before)
	}
	w.settle()
	w.expect(2, "cx23")
}

func TestAFailedMachineIsTriedAgainInPausesThatDouble(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must(w.create(t.Context(), deployment(1, "not-yet-offered")))
	w.passTimes(2)
	made := w.machines()[0]
	if made.Status.Phase != v1alpha1.PhaseFailed {
		t.Fatalf("the phase is %s, want Failed", made.Status.Phase)
	}
	for age, want := range map[time.Duration]time.Duration{
		0: 5 * time.Second, time.Second: 5 * time.Second, 40 * time.Second: 40 * time.Second, 5 * time.Minute: 5 * time.Minute,
		10 * time.Minute: 10 * time.Minute, 24 * time.Hour: 10 * time.Minute,
	} {
		w.clock.SetTime(made.CreationTimestamp.Add(age))
		result, err := (&machines{w.process}).Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&made)})
		if err != nil || result.RequeueAfter != want {
			t.Errorf("%v after its creation: tried again in %v (%v), want %v", age, result.RequeueAfter, err, want)
		}
	}
}

func TestAMachineWarnsOfAServerTypeThatRetires(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.cloud.Scenarios().Start(t.Context(), "retired=cx23@24h")
	w.must(err)
	w.must(w.create(t.Context(), deployment(1, "cx23")))
	w.settle()
	warned := false
	for len(w.events.Events) > 0 {
		event := <-w.events.Events
		warned = warned || strings.HasPrefix(event, "Warning Deprecated") && strings.Contains(event, "cx23 retires in")
	}
	if !warned || len(w.servers()) != 1 {
		t.Errorf("warned %t, servers %d, want a warning and a server", warned, len(w.servers()))
	}
}

func TestAnOutageBeginsWithoutABurstAndEndsSoon(t *testing.T) {
	t.Parallel()
	limiter, waited, tries := retries(), time.Duration(0), 0
	for range 30 {
		wait := limiter.When(ctrl.Request{})
		if waited += wait; waited <= 10*time.Second {
			tries++
		}
		if wait > 5*time.Minute {
			t.Errorf("waits for %v, want 5 minutes at most", wait)
		}
	}
	if tries > 6 {
		t.Errorf("%d tries in the first ten seconds, want 6 at most", tries)
	}
}
