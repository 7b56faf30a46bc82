package controller

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/ccmtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/proof/crash"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/hetzner"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/v1alpha1"
)

// scenario is a change during which a process may die.
type scenario struct {
	name   string
	before int // Machines of type cx23 that there are before the change
	change func(*world)
	most   int // Machines that are not being deleted, and their servers
	least  int // Nodes that are ready and schedulable, or as many as there were
	after  int // Machines that there are at the end
	kind   string
}

var scenarios = []scenario{
	{name: "a MachineDeployment is created", change: func(w *world) { w.must(w.create(w.Context(), deployment(2, "cx23"))) }, most: 2,
		after: 2, kind: "cx23"},
	{name: "one becomes two", before: 1,
		change: func(w *world) { w.change(func(d *v1alpha1.MachineDeployment) { d.Spec.Replicas = new(int32(2)) }) }, most: 2, least: 1,
		after: 2, kind: "cx23"},
	{name: "two become one", before: 2,
		change: func(w *world) { w.change(func(d *v1alpha1.MachineDeployment) { d.Spec.Replicas = new(int32(1)) }) }, most: 2, least: 1,
		after: 1, kind: "cx23"},
	{name: "the server type changes", before: 1, change: func(w *world) {
		w.change(func(d *v1alpha1.MachineDeployment) {
			d.Spec.Template.Spec.ProviderSpec.CloudProviderSpec.Raw = []byte(`{"serverType":"cx33"}`)
		})
	}, most: 2, least: 1, after: 1, kind: "cx33"},
	{name: "a server is deleted", before: 2, change: func(w *world) {
		_, _, err := w.api.Server.DeleteWithResult(w.Context(), w.servers()[0])
		w.must(err)
		w.changed()
	}, most: 2, least: 1, after: 2, kind: "cx23"},
	{name: "a kubelet is silent", before: 2, change: func(w *world) { w.broken[w.nodes()[0].Name] = true }, most: 2, least: 1, after: 2,
		kind: "cx23"},
	{name: "the MachineDeployment is deleted", before: 2,
		change: func(w *world) { d := w.deployments()[0]; w.must(w.objects.Delete(w.Context(), &d)) }, most: 2},
}

// prepare returns the world in which the change has just happened.
func (s *scenario) prepare(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	if s.before > 0 {
		w.must(w.create(t.Context(), deployment(int32(s.before), "cx23")))
		w.settleFor(1)
		w.expect(s.before, "cx23")
	}
	s.change(w)
	return w
}

// check makes sure that at this moment nothing has leaked, and that enough is there.
func (s *scenario) check(w *world, when string) {
	w.Helper()
	living := map[string]bool{}
	count := 0
	for _, m := range w.machines() {
		living[string(m.UID)] = true
		if m.DeletionTimestamp == nil {
			count++
		}
	}
	servers := map[string]bool{}
	for _, server := range w.servers() {
		uid := server.Labels[hetzner.LabelUID]
		if servers[uid] || !living[uid] {
			w.Errorf("%s: server %d is a second one (%t), or has no Machine (%t)", when, server.ID, servers[uid], !living[uid])
		}
		servers[uid] = true
	}
	serving := 0
	for _, n := range w.nodes() {
		if nodeinfo.IsReady(&n) && !n.Spec.Unschedulable && !w.broken[n.Name] {
			serving++
		}
	}
	if count > s.most || serving < s.least {
		w.Errorf("%s: %d Machines, at most %d may be; %d Nodes serve, at least %d must", when, count, s.most, serving, s.least)
	}
}

// finish makes sure that the change comes to its end.
func (s *scenario) finish(w *world) {
	w.Helper()
	w.settle()
	w.setHook(nil)
	w.expect(s.after, s.kind)
	if left := len(w.servers()); left != s.after {
		w.Errorf("%d servers, want %d", left, s.after)
	}
}

// TestAnyCallMayBeTheLast lets processes die before and after each write to Kubernetes and each request to the cloud, and their
// successors too: see package crash.
func TestAnyCallMayBeTheLast(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			crash.Sweep(t, 13, s.run)
		})
	}
}

// atEachCall calls hook before and after each call, which is counted from 1.
func (w *world) atEachCall(hook func(call int, after bool, what string) error) {
	calls := 0
	w.setHook(func(after bool, what string) error {
		if !after {
			calls++
		}
		return hook(calls, after, what)
	})
}

func (s *scenario) run(t *testing.T, deaths []crash.Death) (ends []crash.End) {
	t.Helper()
	w := s.prepare(t)
	defer w.end()
	for _, d := range deaths {
		dead := false
		w.atEachCall(func(call int, after bool, _ string) error {
			if dead = dead || call == d.Call && after == d.After; dead {
				return errDead
			}
			return nil
		})
		for range 300 {
			if w.pass(); dead {
				break
			}
		}
		w.start()
	}
	w.atEachCall(func(call int, after bool, what string) error {
		ends = append(ends, crash.End{Death: crash.Death{Call: call, After: after}, State: w.state()})
		s.check(w, fmt.Sprintf("died at %+v, call %d (%s, after: %t)", deaths, call, what, after))
		return nil
	})
	s.finish(w)
	return ends
}

var allWays = flag.Bool("all", false, "make each call fail in each way, and delete at each, before and after its effect (many minutes)")

// TestAnyCallMayFail makes each call fail once, in one of the ways after the other; with -all, in each way. The same process
// must come to the end.
func TestAnyCallMayFail(t *testing.T) {
	t.Parallel()
	cloudErrors := map[string]error{
		"429": &refusal{429, `{"error": {"code": "rate_limit_exceeded", "message": "limit"}}`}, "500": &refusal{500, ""},
		"401": &refusal{401, `{"error": {"code": "unauthorized", "message": "unable to authenticate"}}`},
		"{}":  &refusal{200, "{}"}, "dropped": errors.New("the connection ends"),
	}
	kubeErrors := map[string]error{
		"conflict":  apierrors.NewConflict(schema.GroupResource{}, "name", errors.New("changed")),
		"500":       apierrors.NewInternalError(errors.New("no etcd")),
		"forbidden": apierrors.NewForbidden(schema.GroupResource{}, "name", errors.New("no")),
	}
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			n, runs := 0, ccmtest.Share(t, 13)
			for i, what := range s.calls(t) {
				kinds := kubeErrors
				if strings.HasPrefix(what, "cloud: ") {
					kinds = cloudErrors
				}
				names := slices.Sorted(maps.Keys(kinds))
				if !strings.Contains(what, " GET ") {
					names = slices.DeleteFunc(names, func(name string) bool { return name == "{}" })
				}
				sides := []bool{false, true}
				if !*allWays {
					names, sides = names[i%len(names):][:1], sides[i%2:][:1]
				}
				for _, name := range names {
					for _, after := range sides {
						if !runs() {
							continue
						}
						if n++; t.Failed() {
							return
						}
						s.fail(t, i+1, after, fmt.Sprintf("call %d (%s) fails with %s, after: %t", i+1, what, name, after), kinds[name])
					}
				}
			}
			t.Logf("%d runs", n)
		})
	}
}

// calls returns what a process does without trouble.
func (s *scenario) calls(t *testing.T) (all []string) {
	t.Helper()
	w := s.prepare(t)
	defer w.end()
	w.setHook(func(after bool, what string) error {
		if !after {
			all = append(all, what)
		}
		return nil
	})
	s.finish(w)
	return all
}

func (s *scenario) fail(t *testing.T, call int, after bool, when string, err error) {
	t.Helper()
	w := s.prepare(t)
	defer w.end()
	w.atEachCall(func(now int, isAfter bool, _ string) error {
		s.check(w, when)
		if now == call && isAfter == after {
			return err
		}
		return nil
	})
	defer func() {
		if t.Failed() {
			t.Error(when)
		}
	}()
	s.finish(w)
}

// TestAStaleCacheDoesNoHarm lets the process see what has changed only after some looks at everything.
func TestAStaleCacheDoesNoHarm(t *testing.T) {
	t.Parallel()
	runs := ccmtest.Share(t, 5)
	for _, s := range scenarios {
		for _, lag := range []int{2, 4} {
			if !runs() {
				continue
			}
			t.Run(fmt.Sprintf("%s, %d passes", s.name, lag), func(t *testing.T) {
				w := s.prepare(t)
				defer w.end()
				w.lag = lag
				w.setHook(func(_ bool, what string) error { s.check(w, what); return nil })
				s.finish(w)
			})
		}
	}
}

// TestEverythingMayBeDeletedAtAnyCall deletes a MachineDeployment before or after each call of its creation; with -all, before and after.
func TestEverythingMayBeDeletedAtAnyCall(t *testing.T) {
	t.Parallel()
	s := scenario{change: scenarios[0].change, most: 2}
	creation, runs := scenarios[0].calls(t), ccmtest.Share(t, 13)
	for i := range creation {
		if !runs() {
			continue
		}
		sides := []bool{false, true}
		if !*allWays {
			sides = sides[i%2:][:1]
		}
		for _, after := range sides {
			when := fmt.Sprintf("deleted at call %d (%s), after: %t", i+1, creation[i], after)
			w := s.prepare(t)
			w.atEachCall(func(call int, isAfter bool, _ string) error {
				if call == i+1 && isAfter == after {
					d := w.deployments()[0]
					w.must(w.objects.Delete(t.Context(), &d))
					w.collectGarbage(t.Context())
				}
				s.check(w, when)
				return nil
			})
			w.settle()
			if left := len(w.machines()) + len(w.servers()); left > 0 {
				t.Fatalf("%s: something is left:\n%s", when, w.state())
			}
			w.end()
		}
	}
}

func TestAPersonCanRestoreAMachineFromABackup(t *testing.T) {
	w := pool(t, 1)
	server := w.servers()[0].ID
	w.restore(w.machines()[0])
	w.settle()
	w.expect(1, "cx23")
	if now := w.servers()[0].ID; now != server {
		t.Errorf("server %d, want %d", now, server)
	}
}

func TestAServerIsNotGoneWhileItsNodeIsReady(t *testing.T) {
	w := pool(t, 2)
	w.setHook(emptyAPI) // as with another project's token
	w.passTimes(200)
	if len(w.machines()) != 2 || len(w.servers()) != 2 {
		t.Fatalf("Machines were replaced:\n%s", w.state())
	}
	for _, m := range w.machines() {
		if !slices.ContainsFunc(m.Status.Conditions, func(c metav1.Condition) bool { return c.Reason == reasonDoubtful }) ||
			m.Status.Phase != v1alpha1.PhaseRunning {
			t.Errorf("status %+v", m.Status)
		}
	}
	w.setHook(nil)
	w.settle()
	w.expect(2, "cx23")
}

func TestManyUnhealthyMachinesAreNotReplaced(t *testing.T) {
	w := pool(t, 5)
	for _, n := range w.nodes()[:3] { // 40 % of five are two
		w.broken[n.Name] = true
	}
	before := names(w)
	w.passTimes(200)
	if after := names(w); !slices.Equal(before, after) {
		t.Errorf("Machines %v, want %v", after, before)
	}
	delete(w.broken, w.nodes()[0].Name)
	w.settle()
	w.expect(5, "cx23")
	if after := names(w); slices.Equal(before, after) {
		t.Error("two unhealthy Machines were not replaced")
	}
}

// The cloud refuses the type, so that there is neither a server nor a condition of a Node.
func TestAMachineThatNeverGotAServerIsReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := deployment(1, "no-such-type")
	d.Spec.HealthCheck.NodeStartupTimeout = &metav1.Duration{Duration: time.Minute}
	w.must(w.create(t.Context(), d))
	w.passTimes(5)
	before := names(w)
	if m := w.machines()[0]; m.Status.Phase != v1alpha1.PhaseFailed {
		t.Fatalf("status %+v", m.Status)
	}
	w.passTimes(10)
	if after := names(w); len(after) != 1 || slices.Equal(before, after) {
		t.Errorf("Machines %v, before %v", after, before)
	}
}

// stayOff makes each server go off that was just made, and after a power-on if again is set. It counts the power-ons.
func (w *world) stayOff(again bool) (started *int) {
	started = new(int)
	w.setHook(func(after bool, what string) error {
		isStart := strings.HasSuffix(what, "/actions/poweron")
		if after && isStart {
			*started++
		}
		if after && (what == "cloud: POST /v1/servers" || isStart && again) {
			all, err := w.api.Server.All(w.Context())
			w.must(err)
			for _, s := range all {
				_, _, err := w.api.Server.Poweroff(w.Context(), s)
				w.must(err)
			}
		}
		return nil
	})
	return started
}

func TestAServerThatDoesNotStartIsStartedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	started := w.stayOff(false)
	d := deployment(1, "cx23")
	d.Spec.HealthCheck.UnhealthyTimeout = &metav1.Duration{}
	w.must(w.create(t.Context(), d))
	w.settle()
	w.passTimes(30)
	w.expect(1, "cx23")
	if *started != 1 || w.uids > 4 { // the deployment, its set, the Machine and its Node
		t.Errorf("%d starts, %d objects", *started, w.uids)
	}
	_, _, err := w.api.Server.Poweroff(t.Context(), w.servers()[0]) // a person
	w.must(err)
	w.changed()
	w.passTimes(30)
	if *started != 1 {
		t.Errorf("%d starts", *started)
	}
}

func TestMachinesThatNeverStartAreReplacedInPausesThatGrow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	started := w.stayOff(true)
	d := deployment(1, "cx23")
	d.Spec.HealthCheck.NodeStartupTimeout = &metav1.Duration{Duration: 2 * time.Minute}
	w.must(w.create(t.Context(), d))
	var pauses []int // in minutes
	w.pass()
	for last, since := names(w), w.clock.Now(); len(pauses) < 5; w.pass() {
		if now := names(w); len(now) == 1 && !slices.Equal(now, last) {
			pauses = append(pauses, int(w.clock.Since(since).Minutes()))
			last, since = now, w.clock.Now()
		}
	}
	if !slices.Equal(pauses, []int{2, 4, 8, 16, 16}) || *started != 5 {
		t.Errorf("replaced after %v minutes, %d starts", pauses, *started)
	}
}

func names(w *world) (all []string) {
	for _, m := range w.machines() {
		all = append(all, m.Name)
	}
	return all
}

func TestPodsAreEvictedBeforeTheServerIsDeleted(t *testing.T) {
	w := pool(t, 1)
	node := w.nodes()[0].Name
	pod := func(name, owner string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: []string{"example.org/slow"}},
			Spec: corev1.PodSpec{NodeName: node}}
		if owner != "" {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: owner, Name: "x", UID: "x", APIVersion: "apps/v1", Controller: new(true)}}
		}
		w.must(w.create(t.Context(), p))
		return p
	}
	slow := pod("slow", "ReplicaSet")
	pod("daemon", "DaemonSet")
	w.change(func(d *v1alpha1.MachineDeployment) { d.Spec.Replicas = new(int32(0)) })
	w.clock.SetTime(time.Now())
	w.passTimes(20)
	if len(w.servers()) != 1 || !w.nodes()[0].Spec.Unschedulable {
		t.Fatalf("the server was deleted, or its Node is schedulable:\n%s", w.state())
	}
	w.must(w.objects.Get(t.Context(), keyOf(slow), slow))
	if slow.DeletionTimestamp == nil {
		t.Error("the pod was not evicted")
	}
	slow.Finalizers = nil
	w.must(w.objects.Update(t.Context(), slow))
	w.settle()
	w.expectNothing("at the end")
}

func TestAPodDisruptionBudgetHoldsTheDeletionUpForALimitedTime(t *testing.T) {
	t.Parallel()
	for name, timeout := range map[string]time.Duration{"until it allows the eviction": time.Hour, "until the time is over": time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			d := deployment(1, "cx23")
			d.Spec.Template.Spec.NodeDrainTimeout = &metav1.Duration{Duration: timeout}
			w.must(w.create(t.Context(), d))
			w.settle()
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", OwnerReferences: []metav1.OwnerReference{
				{Kind: "ReplicaSet", Name: "web", UID: "x", APIVersion: "apps/v1", Controller: new(true)}}},
				Spec: corev1.PodSpec{NodeName: w.nodes()[0].Name}}
			w.must(w.create(t.Context(), pod))
			w.protected = func() bool { return true }
			w.clock.SetTime(time.Now()) // that of deletions is the computer's
			w.change(func(d *v1alpha1.MachineDeployment) { d.Spec.Replicas = new(int32(0)) })
			w.passTimes(5) // less than a minute
			w.must(w.objects.Get(t.Context(), keyOf(pod), pod))
			m := w.machines()[0]
			if len(w.servers()) != 1 || pod.DeletionTimestamp != nil ||
				!slices.ContainsFunc(m.Status.Conditions, func(c metav1.Condition) bool {
					return c.Reason == "Draining" && strings.Contains(c.Message, namespace+"/web")
				}) {
				t.Fatalf("the deletion does not wait for the pod: %+v\n%s", m.Status, w.state())
			}
			over := timeout < time.Hour
			w.protected = func() bool { return over }
			w.passTimes(10) // a minute
			w.settle()
			w.expectNothing("at the end")
			if err := w.objects.Get(t.Context(), keyOf(pod), pod); (err == nil) != over {
				t.Errorf("pod: %v", err)
			}
		})
	}
}
