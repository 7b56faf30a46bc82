package controller

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/hetzner"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/v1alpha1"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
)

// stepKinds are what can happen.
var stepKinds = map[string]func(*sim, int){
	"pool":            (*sim).makePool,
	"pool deleted":    (*sim).deletePool,
	"scale":           (*sim).scale,
	"rollout":         (*sim).rollOut,
	"surge":           (*sim).changeSurge,
	"machine deleted": (*sim).deleteMachine,
	"machine marked":  (*sim).markMachine,
	"restore":         (*sim).restoreMachine,
	"server deleted":  (*sim).deleteServer,
	"servers deleted": func(s *sim, _ int) { s.lose(s.pooled()...) },
	"label removed":   (*sim).removeLabel,
	"label put back":  func(s *sim, _ int) { s.putLabelsBack() },
	"prefix":          (*sim).changePrefix,
	"kubelet silent":  (*sim).silenceOne,
	"kubelets silent": func(s *sim, _ int) { s.silence(true) },
	"kubelets speak":  func(s *sim, _ int) { s.broken = map[string]bool{} },
	"incident":        (*sim).beginIncident,
	"fault":           (*sim).addFault,
	"other project":   func(s *sim, _ int) { s.token = s.other },
	"token back":      func(s *sim, _ int) { s.token = s.tokens[len(s.tokens)-1] },
	"token rotated":   (*sim).rotate,
	"restart":         func(s *sim, _ int) { s.start() },
	"death":           func(s *sim, n int) { s.deathIn = 1 + n/2 },
}

// controlPlane is the name of a server that is not made for a Machine.
const controlPlane = "control-plane"

// makeControlPlane makes a Node that the machine controller knows, and nothing more.
func (s *sim) makeControlPlane() {
	_, _, err := s.api.Server.Create(s.Context(), hcloud.ServerCreateOpts{Name: controlPlane, ServerType: &hcloud.ServerType{Name: "cx23"},
		Image: &hcloud.Image{Name: "ubuntu-24.04"}})
	s.must(err)
	s.passes(5)
}

// pick returns one of the things that a step can act on, or false.
func pick[T any](all []T, n int) (one T, is bool) {
	if len(all) == 0 {
		return one, false
	}
	return all[n%len(all)], true
}

func (s *sim) makePool(n int) {
	name := []string{"a", "b"}[n%2]
	if slices.ContainsFunc(s.deployments(), func(d v1alpha1.MachineDeployment) bool { return d.Name == "pool-"+name }) {
		return
	}
	d := deployment(int32(n/2%5), "cx23")
	d.Name = "pool-" + name
	d.Spec.Selector.MatchLabels = map[string]string{"pool": name}
	d.Spec.Template.Metadata.Labels = d.Spec.Selector.MatchLabels
	d.Spec.Template.Spec.NodeDrainTimeout = &metav1.Duration{Duration: time.Duration(1+n/10%3) * 2 * time.Minute}
	if n%4 > 0 {
		d.Spec.HealthCheck.UnhealthyTimeout.Duration = 5 * time.Minute
	}
	s.must(s.create(s.Context(), d))
}

func (s *sim) deletePool(n int) {
	if d, is := pick(s.deployments(), n); is {
		s.must(s.objects.Delete(s.Context(), &d))
	}
}

// changePool changes one of the pools.
func (s *sim) changePool(n int, do func(*v1alpha1.MachineDeployment)) {
	if d, is := pick(s.deployments(), n); is {
		do(&d)
		s.must(s.objects.Update(s.Context(), &d))
	}
}

func (s *sim) scale(n int) {
	s.changePool(n, func(d *v1alpha1.MachineDeployment) { d.Spec.Replicas = new(int32(n / 2 % 6)) })
}

func (s *sim) rollOut(n int) {
	s.types++
	s.changePool(n, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Spec.ProviderSpec.CloudProviderSpec.Raw = fmt.Appendf(nil, `{"serverType":%q}`, []string{"cx33", "cx23"}[s.types%2])
	})
}

func (s *sim) changeSurge(n int) {
	s.changePool(n, func(d *v1alpha1.MachineDeployment) {
		surge, unavailable := intstr.FromInt(n/2%3), intstr.FromInt(n/6%2)
		d.Spec.Strategy.MaxSurge, d.Spec.Strategy.MaxUnavailable = &surge, &unavailable
	})
}

// living returns the Machines that are not being deleted and have a server.
func (s *sim) living() []v1alpha1.Machine {
	return slices.DeleteFunc(s.machines(), func(m v1alpha1.Machine) bool {
		return m.DeletionTimestamp != nil || m.Spec.ProviderID == "" || !controllerutil.ContainsFinalizer(&m, finalizer)
	})
}

func (s *sim) deleteMachine(n int) {
	if m, is := pick(s.living(), n); is {
		s.must(s.objects.Delete(s.Context(), &m))
	}
}

func (s *sim) markMachine(n int) {
	if m, is := pick(s.living(), n); is {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, AnnotationDelete, "")
		s.must(s.objects.Update(s.Context(), &m))
	}
}

// restoreMachine replaces a Machine by its copy from a backup, and sometimes deletes that at once.
func (s *sim) restoreMachine(n int) {
	m, is := pick(s.living(), n)
	if !is || m.Annotations[annotationFormerUID] != "" {
		return
	}
	again := s.restore(m)
	if n%2 == 0 {
		s.must(s.objects.Delete(s.Context(), again))
	}
}

func (s *sim) deleteServer(n int) {
	if server, is := pick(s.pooled(), n); is {
		s.lose(server)
	}
}

func (s *sim) removeLabel(n int) {
	server, is := pick(s.pooled(), n)
	if !is || server.Labels[hetzner.LabelUID] == "" {
		return
	}
	s.unlabelled[server.ID] = server.Labels
	_, _, err := s.api.Server.Update(s.Context(), server, hcloud.ServerUpdateOpts{Labels: map[string]string{}})
	s.must(err)
}

// putLabelsBack gives servers the labels back that a person has removed. The person deletes those whose Machine is gone.
func (s *sim) putLabelsBack() {
	left := map[int64]map[string]string{}
	for _, server := range s.servers() {
		labels, is := s.unlabelled[server.ID]
		if !is {
			continue
		}
		i := slices.IndexFunc(s.machines(), func(m v1alpha1.Machine) bool { return isOf(server, m.Spec.ProviderID) })
		if i < 0 {
			left[server.ID] = labels
			s.lose(server)
			continue
		}
		m := s.machines()[i]
		labels[hetzner.LabelUID] = string(m.UID)
		if former := m.Annotations[annotationFormerUID]; former != "" {
			labels[hetzner.LabelUID] = former
		}
		_, _, err := s.api.Server.Update(s.Context(), server, hcloud.ServerUpdateOpts{Labels: labels})
		s.must(err)
	}
	s.unlabelled = left
}

func (s *sim) changePrefix(int) {
	s.prefix = map[string]string{"": "hcloud", "hcloud": ""}[s.prefix]
	s.start()
}

func (s *sim) silenceOne(n int) {
	if node, is := pick(s.nodes(), n); is {
		s.broken[node.Name] = true
	}
}

// beginIncident makes the API misbehave for some minutes, less than five: it says that servers are gone, it fails, or it does not answer.
func (s *sim) beginIncident(n int) {
	if s.incident != nil || s.incidentEnds.Add(time.Minute).After(time.Now()) {
		return
	}
	s.incidentEnds = time.Now().Add(time.Duration(1+n%40) * 6 * time.Second)
	if n%4 > 0 {
		s.silence(true)
	}
	of := []string{"", "", "", "/servers", "/servers/"}[n/4%5]
	s.incident = func(after bool, what string) error {
		if of != "" && strings.HasSuffix(what, "/servers") != (of == "/servers") {
			return nil
		}
		return emptyAPI(after, what)
	}
	refused := map[int]error{9: &refusal{500 + n%4, ""}, 8: errSilent}[n%10]
	if refused != nil {
		s.incident = func(after bool, what string) error {
			if strings.HasPrefix(what, "cloud: ") && after == (n%20 == 18) {
				return refused
			}
			return nil
		}
	}
}

func (s *sim) endIncident() {
	s.say("the incident ends")
	s.incident = nil
	s.broken = map[string]bool{}
}

func (s *sim) addFault(n int) {
	operation, effect := "create_server", fault.LoseAnswer()
	switch n % 5 {
	case 1:
		effect = fault.FailAction("resource_unavailable", "no room")
	case 2:
		operation, effect = "delete_server", fault.FailAction("", "")
	case 3:
		operation = "delete_server"
	case 4:
		effect = fault.Latency(40 * time.Second)
	}
	_, err := s.cloud.Faults().Add(s.Context(), fault.Rule{Operation: operation, First: 1 + n%3, Client: "machine-controller",
		Effect: effect})
	s.must(err)
}

func (s *sim) rotate(int) {
	token, err := s.cloud.AddToken(s.Context(), 1, "", false)
	s.must(err)
	s.tokens, s.token = append(s.tokens, token), token
}

// fewest is the number of pods that the PodDisruptionBudget protects.
const fewest = 2

// pods lets a ReplicaSet have three pods, each on another Node, and deletes those whose Node is gone.
func (s *sim) pods() {
	nodes, pods := s.nodes(), s.allPods()
	for i := range pods {
		if !slices.ContainsFunc(nodes, func(n corev1.Node) bool { return n.Name == pods[i].Spec.NodeName }) {
			s.must(client.IgnoreNotFound(s.objects.Delete(s.Context(), &pods[i])))
		}
	}
	have := s.allPods()
	for _, n := range nodes {
		if n.Spec.Unschedulable || !nodeinfo.IsReady(&n) || len(have) >= fewest+1 {
			continue
		}
		s.uids++
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web-" + strconv.Itoa(s.uids),
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web", UID: "web", APIVersion: "apps/v1",
				Controller: new(true)}}},
			Spec: corev1.PodSpec{NodeName: n.Name}}
		s.must(s.create(s.Context(), &pod))
		have = append(have, pod)
	}
}

func (s *sim) allPods() []corev1.Pod {
	var l corev1.PodList
	s.must(s.objects.List(s.Context(), &l))
	return l.Items
}

// budgetIsUsedUp reports whether no pod may be evicted: too few are on Nodes that are ready.
func (s *sim) budgetIsUsedUp() bool {
	healthy := 0
	for _, pod := range s.allPods() {
		for _, n := range s.nodes() {
			if n.Name == pod.Spec.NodeName && nodeinfo.IsReady(&n) {
				healthy++
			}
		}
	}
	return healthy <= fewest
}
