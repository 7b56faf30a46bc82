package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/hetzner"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/v1alpha1"
)

// fail records that a promise is broken. The first one counts.
func (s *sim) fail(rule, format string, args ...any) {
	if s.failed == "" {
		s.failed = rule + ": " + fmt.Sprintf(format, args...)
		s.say("BROKEN %s", s.failed)
	}
}

// server returns the server of a Machine, from what really is.
func (s *sim) server(m *v1alpha1.Machine) *hcloud.Server {
	for _, server := range s.servers() {
		if isOf(server, m.Spec.ProviderID) {
			return server
		}
	}
	return nil
}

// check makes sure that each server has one Machine, and that no Machine lost a server that exists.
func (s *sim) check(when string) {
	machines := s.machines()
	seen := map[string]bool{}
	for _, server := range s.servers() {
		uid := server.Labels[hetzner.LabelUID]
		if uid == "" { // a person has removed it, or it is the control plane
			continue
		}
		if seen[uid] {
			s.fail("second", "after %s: server %s is a second one of its Machine", when, server.Name)
		}
		seen[uid] = true
		if !slices.ContainsFunc(machines, func(m v1alpha1.Machine) bool {
			return string(m.UID) == uid || m.Annotations[annotationFormerUID] == uid
		}) {
			s.fail("leaked", "after %s: server %s has no Machine", when, server.Name)
		}
	}
	for _, m := range machines {
		if m.Status.FailureReason == reasonGone && s.server(&m) != nil {
			s.fail("gone", "after %s: server %s exists, but its Machine says: %s", when, m.Name, m.Status.FailureMessage)
		}
	}
}

// checkCount makes sure that a pool has no more Machines than it asked for, and the surge.
func (s *sim) checkCount(when string) {
	if when != "create Machine" {
		return
	}
	for _, d := range s.deployments() {
		if d.Spec.Selector.MatchLabels["pool"] != s.subject.GetLabels()["pool"] {
			continue
		}
		state, err := rolloutOf(&d)
		s.must(err)
		have := s.owned(&d)
		if have > state.replicas+state.maxSurge && have > s.before(&d) {
			s.fail("too many", "after %s: %s has %d Machines, wants %d and %d more during a rollout", when, d.Name, have, state.replicas,
				state.maxSurge)
		}
	}
}

// owned returns how many Machines a pool has that are not being deleted. Those of a deleted pool of the same name are not among them,
// although they have its labels until the garbage collector comes.
func (s *sim) owned(d *v1alpha1.MachineDeployment) (n int) {
	own := map[types.UID]bool{}
	for _, set := range s.sets() {
		own[set.UID] = metav1.IsControlledBy(&set, d)
	}
	for _, m := range s.machines() {
		if owner := metav1.GetControllerOf(&m); owner != nil && own[owner.UID] && m.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}

// before returns how many Machines all MachineSets of a pool want together: what it was allowed before a change that the controller
// has not seen.
func (s *sim) before(d *v1alpha1.MachineDeployment) (n int) {
	for _, set := range s.sets() {
		if metav1.IsControlledBy(&set, d) {
			n += replicas(set.Spec.Replicas)
		}
	}
	return n
}

// checkRequest makes sure that a request which is about to be made may be made.
func (s *sim) checkRequest(what string) {
	switch {
	case strings.HasPrefix(what, "cloud: POST") && s.token == s.other:
		s.fail("other project", "a server is ordered in another project")
	case strings.HasPrefix(what, "cloud: DELETE"):
		for _, m := range s.machines() {
			if server := s.server(&m); server != nil && strings.HasSuffix(what, fmt.Sprintf("/servers/%d", server.ID)) {
				s.checkPods(&m)
			}
		}
	case what == "delete Machine":
		s.checkReplacement(s.subject.(*v1alpha1.Machine))
	}
}

// checkPods makes sure that pods were evicted before their server is deleted, while there was time and a kubelet.
func (s *sim) checkPods(m *v1alpha1.Machine) {
	if m.DeletionTimestamp == nil || time.Since(m.DeletionTimestamp.Time) >= m.Spec.NodeDrainTimeout.Duration {
		return
	}
	for _, n := range s.nodes() {
		if n.Spec.ProviderID != m.Spec.ProviderID || !nodeinfo.IsReady(&n) {
			continue
		}
		for _, pod := range s.allPods() {
			if pod.Spec.NodeName == n.Name && pod.DeletionTimestamp == nil {
				s.fail("pods", "server %s is deleted with the pod %s", m.Name, pod.Name)
			}
		}
	}
}

// checkReplacement makes sure that a MachineSet deletes only what is too much, or what does not work.
func (s *sim) checkReplacement(m *v1alpha1.Machine) {
	owner := metav1.GetControllerOf(m)
	living := 0
	for _, other := range s.machines() {
		if o := metav1.GetControllerOf(&other); o != nil && o.UID == owner.UID && other.DeletionTimestamp == nil {
			living++
		}
	}
	for _, set := range s.sets() {
		if set.UID == owner.UID && living > replicas(set.Spec.Replicas) {
			return
		}
	}
	for _, n := range s.nodes() {
		if n.Spec.ProviderID == m.Spec.ProviderID && nodeinfo.IsReady(&n) && !s.broken[n.Name] {
			s.fail("replaced", "Machine %s works and is replaced: %s", m.Name, m.Status.FailureMessage)
		}
	}
}

// end ends all troubles, and makes sure that everything becomes as it should be; then it deletes all pools.
func (s *sim) end() {
	s.endIncident()
	s.deathIn, s.token = 0, s.tokens[len(s.tokens)-1]
	s.must(s.cloud.Faults().Clear(s.Context()))
	s.changed()
	s.putLabelsBack()
	s.quiet("at the end")
	s.putLabelsBack() // those that could not be deleted before
	s.quiet("at the end")
	for _, d := range s.deployments() {
		n := replicas(d.Spec.Replicas)
		var have []string
		for _, m := range s.machines() {
			if m.Labels["pool"] == d.Spec.Selector.MatchLabels["pool"] && isMachineReady(&m) && s.server(&m) != nil {
				have = append(have, m.Name)
			}
		}
		if len(have) != n || s.paid() != len(s.machines()) {
			s.fail("not settled", "%s wants %d Machines and has %v; %d servers, %d Machines", d.Name, n, have, s.paid(),
				len(s.machines()))
		}
		s.must(s.objects.Delete(s.Context(), &d))
	}
	s.changed()
	s.quiet("after the deletion of the pools")
	all, err := s.inOther.Server.All(context.Background())
	s.must(err)
	if left := len(s.machines()) + s.paid() + len(all); left > 0 {
		s.fail("leaked", "after the deletion of everything: %d Machines, %d servers, and %d in the other project", len(s.machines()),
			s.paid(), len(all))
	}
}

// paid returns the number of servers without that of the control plane.
func (s *sim) paid() int { return len(s.pooled()) }

// pooled returns the servers without that of the control plane.
func (s *sim) pooled() []*hcloud.Server {
	return slices.DeleteFunc(s.servers(), func(server *hcloud.Server) bool { return server.Name == controlPlane })
}

// confirm does what Machines ask a person to do when no server is left that could show whether a new token is one of the cluster's
// project. They must not ask otherwise.
func (s *sim) confirm() {
	ids := map[string]bool{}
	for _, n := range s.nodes() {
		ids[n.Spec.ProviderID] = true
	}
	for _, m := range s.machines() {
		ids[m.Spec.ProviderID] = true
	}
	for _, m := range s.machines() {
		_, account, asks := strings.Cut(m.Status.FailureMessage, annotationAccount+"=")
		if !asks {
			continue
		}
		for id := range ids {
			if slices.ContainsFunc(s.servers(), func(server *hcloud.Server) bool { return isOf(server, id) }) {
				s.fail("asks", "Machine %s asks a person although %s proves it: %s", m.Name, id, m.Status.FailureMessage)
			}
		}
		if slices.ContainsFunc(s.machines(), func(o v1alpha1.Machine) bool { return o.Annotations[annotationAccount] == account }) {
			s.fail("asks", "Machine %s asks a person although the token is known: %s", m.Name, m.Status.FailureMessage)
		}
		s.say("a person confirms the token")
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, annotationAccount, account)
		s.must(s.objects.Update(s.Context(), &m))
		return
	}
}

// switchOn switches servers on that are off, if they are more than maxUnhealthy allows the controller to replace.
func (s *sim) switchOn() {
	off := slices.DeleteFunc(s.servers(), func(server *hcloud.Server) bool { return server.Status != hcloud.ServerStatusOff })
	if len(off)*10 <= len(s.machines())*4 { // defaultMaxUnhealthy
		return
	}
	for _, server := range off {
		s.say("a person switches %s on", server.Name)
		_, _, err := s.api.Server.Poweron(s.Context(), server)
		s.must(err)
	}
}

// quiet passes until nothing changes any more. A person comes after an hour.
func (s *sim) quiet(when string) {
	before, person := "", time.Now().Add(time.Hour)
	for same, end := 0, time.Now().Add(4*time.Hour); same < 5 && s.failed == ""; {
		if !person.IsZero() && time.Now().After(person) {
			person = time.Time{}
			s.confirm()
			s.switchOn()
		}
		s.passes(1)
		waits := slices.ContainsFunc(s.machines(), func(m v1alpha1.Machine) bool {
			return m.DeletionTimestamp != nil || m.Status.FailureReason != "" || !isMachineReady(&m)
		})
		same++
		if now := s.state(); now != before || waits {
			same, before = 0, now
		}
		if time.Now().After(end) {
			s.fail("not settled", "%s, nothing comes to an end in 4 hours:\n%s", when, s.state())
		}
	}
	s.check(when)
}
