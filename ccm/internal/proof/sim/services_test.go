//go:build sim

package sim

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	prefix    = "load-balancer.hetzner.cloud/"
	noAddress = "10.9.9.9" // in no subnet
	managed   = 24         // variant with a managed certificate
	common    = "common"   // name of a load balancer that Services share
)

// variants are annotations of Services; %d is the number of the Service. The first are plain.
var variants = []map[string]string{
	{}, {},
	{"use-private-ip": "true"},
	{"disable-public-network": "true"},
	{"disable-public-network": "true", "private-ipv4": "10.0.200.%d"},
	{"disable-public-network": "true", "disable-private-ingress": "true"},
	{"disable-public-network": "true", "hostname": "a.example.org"},
	{"hostname": "a.example.org"},
	{"private-ipv4": "10.0.200.%d"},
	{"private-ipv4": noAddress},
	{"use-private-ip": "true", "private-ipv4": noAddress},
	{"use-private-ip": "true", "private-ipv4": "10.0.200.9"}, // which another may have
	{"name": "edge-%d"},
	{"name": handmade},
	{"adopt": handmade},
	{"type": "lb21", "algorithm-type": "least_connections"},
	{"location": "", "network-zone": "eu-central", "algorithm-type": "LEAST_CONNECTIONS"},
	{"uses-proxyprotocol": "true"},
	{"algorithm-type": "fastest"},      // mistyped
	{"disable-public-network": "ture"}, // mistyped
	{"type": "lb99"},                   // does not exist
	{"protocol": "https", "http-certificates": "missing"},
	{"protocol": "http", "health-check-http-path": "/healthy"},
	{"protocol": "http", "protocol.443": "tcp", "health-check-http-path.80": "/healthy"},
	{"protocol.443": "https", "certificate-type.443": "managed", "http-managed-certificate-domains.443": "a%d.example.org"},
	{"name": "edge-%d", "hostname": "b.example.org", "disable-public-network": "true"},
	{"labels": "team=web,env=prod", "delete-protection": "true"},
	{"labels": "team=db", "delete-protection": "false"},
	{"name": "kept-%d", "keep-on-delete": "true"},
	{"name": common, "shared": "true"}, {"name": common, "shared": "true"},
	{"name": common, "shared": "true", "disable-public-network": "true"},
	{"name": common, "shared": "true", "type": "lb21", "keep-on-delete": "true"},
	{"name": common, "shared": "true", "algorithm-type": "least_connections", "use-private-ip": "true"},
}

// setting returns the value of an annotation, "" if it is not set.
func setting(s *corev1.Service, name string) string { return s.Annotations[prefix+name] }

// portSetting returns the value of an annotation for a port.
func portSetting(s *corev1.Service, name string, port int32) string {
	return cmp.Or(setting(s, name+"."+strconv.Itoa(int(port))), setting(s, name))
}

func isPrivate(s *corev1.Service) bool {
	value := setting(s, "disable-public-network")
	return value != "" && value != "false"
}

func isShared(s *corev1.Service) bool { return setting(s, "shared") == "true" }

// mistakes are values of annotations that cannot be applied.
var mistakes = map[string]string{"disable-public-network": "ture", "algorithm-type": "fastest", "private-ipv4": noAddress, "type": "lb99",
	"http-certificates": "missing"}

// isMistyped reports whether a setting of the Service is wrong. Then only what is right must converge.
func isMistyped(s *corev1.Service) bool {
	for name, value := range mistakes {
		if setting(s, name) == value {
			return true
		}
	}
	return false
}

var portSets = [][]int32{{80}, {80, 443}, {443, 8080}, {80, 443, 8080}, {8443}, {80, 443, 8080, 8443, 9080, 9443}}

// putService creates a Service or changes its settings.
func (w *world) putService(name string, variant, ports int) {
	s := w.kube.service(name)
	fresh := s == nil
	switch {
	case fresh:
		w.uids++
		s = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
			UID: types.UID(fmt.Sprintf("uid-%s-%d", name, w.uids))},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	case s.DeletionTimestamp != nil:
		return
	default:
		w.guard.userChanges(s)
	}
	defer w.guard.note() // the settings
	number := int(name[0] - 'a' + 1)
	if w.host != nil {
		number += 100 // a project has one managed certificate for the same domains
	}
	w.guard.puts(s)
	s.Annotations = map[string]string{}
	for key, value := range variants[variant%len(variants)] {
		if strings.Contains(value, "%d") {
			value = fmt.Sprintf(value, number)
		}
		s.Annotations[prefix+key] = value
	}
	s.Spec.Ports = nil
	for _, p := range portSets[ports%len(portSets)] {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("p%d", p), Protocol: corev1.ProtocolTCP, Port: p,
			NodePort: 20000 + p + int32(100*number+ports/len(portSets))}) // as in a cluster, no two Services have the same
	}
	if ports%7 == 3 {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "udp", Protocol: corev1.ProtocolUDP, Port: 53, NodePort: 30053})
	}
	if fresh {
		must(w.kube.Create(servicesResource, s, namespace))
		return
	}
	must(w.kube.Update(servicesResource, s, namespace))
}

func toggleType(w *world, who string, _, _ int) {
	w.withService(who, func(s *corev1.Service) {
		if s.DeletionTimestamp != nil {
			return
		}
		if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
			s.Spec.Type = corev1.ServiceTypeClusterIP
		} else {
			s.Spec.Type = corev1.ServiceTypeLoadBalancer
		}
		must(w.kube.Update(servicesResource, s, namespace))
	})
}
