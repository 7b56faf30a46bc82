package framework

import (
	"context"
	"fmt"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/whoami"
)

// Mute reports whether the cloud's load balancers forward nothing. An answer then names the Service's port that the load balancer is
// configured to forward to. It does not name the node that answered.
func (t Traffic) Mute() bool {
	_, mute := cloud.As[cloud.Mute](t.env.Cloud)
	return mute
}

// SkipIfMute skips a spec that needs requests, because the settings of load balancers do not show the difference that it checks.
func (t Traffic) SkipIfMute() {
	if t.Mute() {
		Skip(unsupportedPrefix + "the cloud's load balancers forward nothing")
	}
}

// portOf returns the port of the load balancer that has an address.
func (t Traffic) portOf(ctx context.Context, address string, port int) (cloud.Port, error) {
	all, err := t.env.Cloud.LoadBalancers(ctx)
	if err != nil {
		return cloud.Port{}, err
	}
	for _, lb := range all {
		i := slices.IndexFunc(lb.Ports, func(p cloud.Port) bool { return int(p.Port) == port && isTCP(p) })
		if i >= 0 && slices.Contains(lb.Addresses, address) {
			return lb.Ports[i], nil
		}
	}
	return cloud.Port{}, fmt.Errorf("no load balancer is set to forward %s:%d", address, port)
}

// muteAnswer returns the answer that pods would give to a request: the Service, and the name of its port.
func (t Traffic) muteAnswer(ctx context.Context, address string, port int) (whoami.Answer, error) {
	p, err := t.portOf(ctx, address, port)
	if err != nil {
		return whoami.Answer{}, err
	}
	if len(p.Targets) == 0 {
		return whoami.Answer{}, fmt.Errorf("%s:%d has no target", address, port)
	}
	services, err := t.env.Kube.CoreV1().Services(t.env.Services.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return whoami.Answer{}, err
	}
	for _, s := range services.Items {
		for _, sp := range s.Spec.Ports {
			if sp.NodePort == p.NodePort {
				return whoami.Answer{Service: s.Namespace + "/" + s.Name, PortName: sp.Name}, nil
			}
		}
	}
	return whoami.Answer{}, fmt.Errorf("%s:%d is set to forward to the port %d, which no Service has", address, port, p.NodePort)
}

// awaitTargetNodes waits until a port of an address is set to forward to each of these nodes' servers, and to no other.
func (t Traffic) awaitTargetNodes(ctx context.Context, address string, port int, names []string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		p, err := t.portOf(ctx, address, port)
		g.Expect(err).NotTo(HaveOccurred())
		servers, err := t.env.Cloud.Servers(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(targetNames(p, servers)).To(ConsistOf(names))
	}).WithContext(ctx).Should(Succeed())
}
