package framework

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8stypes "k8s.io/apimachinery/pkg/types"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
)

// shop is a shared cloud. In it, the CCM changed a certificate of the spec's, and one of another spec's.
type shop struct{ cloud.Cloud }

func (shop) LoadBalancers(context.Context) ([]cloud.LoadBalancer, error) {
	return []cloud.LoadBalancer{{Addresses: []string{"a"}, Ports: []cloud.Port{{Port: 53, Protocol: "UDP"}, {Port: 80}}}}, nil
}

func TestAPortOfUDPAnswersNoRequestOfTCP(t *testing.T) {
	g, traffic := NewWithT(t), Traffic{env: &Env{Cloud: shop{}}}
	for port, want := range map[int]types.GomegaMatcher{53: HaveOccurred(), 80: Not(HaveOccurred())} {
		_, err := traffic.portOf(t.Context(), "a", port)
		g.Expect(err).To(want)
	}
	all, _ := shop{}.LoadBalancers(t.Context())
	g.Expect(ListenPorts(all[0])).To(Equal([]int{80}))
}

func (shop) Requests(context.Context, uint64) ([]cloud.Request, error) {
	return []cloud.Request{
		{Seq: 1, Write: true, About: cloud.AboutLoadBalancers, ID: "own"},
		{Seq: 2, Write: true, About: cloud.AboutLoadBalancers, ID: "of another spec"},
	}, nil
}

func TestAFailureShowsTheEventsSinceItsSpecBegan(t *testing.T) {
	begin := time.Date(2026, 11, 26, 12, 0, 0, 5e8, time.UTC)
	event := func(name string, after time.Duration) corev1.Event {
		return corev1.Event{Type: "Normal", Reason: "Ready", InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: name},
			LastTimestamp: metav1.NewTime(begin.Add(after).Truncate(time.Second))}
	}
	b := event("b", 0)
	b.LastTimestamp, b.EventTime = metav1.Time{}, metav1.NewMicroTime(begin.Add(time.Second))
	events := []corev1.Event{event("c", 2*time.Second), event("old", -time.Second), b, event("a", 0)}
	NewWithT(t).Expect(eventsText(events, begin)).To(Equal(
		"12:00:00 Normal Node/a Ready: \n12:00:01 Normal Node/b Ready: \n12:00:02 Normal Node/c Ready: \n"))
}

func TestWritesToWhatElseBelongsToServicesCount(t *testing.T) {
	RegisterTestingT(t)
	env := &Env{suite: &Suite{shared: &Shared{}}, Cloud: shop{}}
	env.CCM.env, env.LoadBalancers.env = env, env
	env.created.addService("uid")
	Expect(env.CCM.ServiceWrites()).To(Equal(0))
	env.AlsoOwns(func(context.Context) (ids []string) {
		for id, service := range map[string]k8stypes.UID{"own": "uid", "of another spec": "another"} {
			if env.Owns(id, service) {
				ids = append(ids, id)
			}
		}
		return ids
	})
	Expect(env.CCM.ServiceWrites()).To(Equal(1))
}
