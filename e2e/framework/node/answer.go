package node

import (
	"fmt"
	"net/http"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/whoami"
)

// handler answers on one socket.
func (b *backend) handler(at socket) http.Handler {
	if at.health {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { b.health(w, at.service) })
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		custom, service := b.handlers[at.service], b.services[at.service]
		b.mu.Unlock()
		if custom != nil {
			custom.ServeHTTP(w, r)
			return
		}
		a := whoami.To(r)
		a.Node, a.Service, a.NodePort = b.node, at.service.String(), int32(at.port)
		a.PortName, a.Port = servicePort(service, a.NodePort)
		a.Write(w)
	})
}

// servicePort returns the name and number of the Service's port that has the node port; service is nil if it has just gone.
func servicePort(service *corev1.Service, nodePort int32) (name string, number int32) {
	if service == nil {
		return "", 0
	}
	for _, port := range service.Spec.Ports {
		if port.NodePort == nodePort {
			return port.Name, port.Port
		}
	}
	return "", 0
}

// health answers on a health check node port, with the status, headers and body
// of kube-proxy (pkg/proxy/healthcheck in Kubernetes 1.37.1), whatever the path.
func (b *backend) health(w http.ResponseWriter, service types.NamespacedName) {
	b.mu.Lock()
	pods := b.pods(service)
	b.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(pods))
	if pods == 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	fmt.Fprintf(w, `{"service":{"namespace":%q,"name":%q},"localEndpoints":%d,"serviceProxyHealthy":true}`+"\n",
		service.Namespace, service.Name, pods)
}
