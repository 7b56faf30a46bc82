package plan

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
)

// simple returns a plan with these targets and ports. The node port is the port plus 30000.
func simple(targets []Target, ports ...int) *LoadBalancer {
	p := &LoadBalancer{UID: testUID, Algorithm: "round_robin", Public: true, Targets: targets}
	for _, port := range ports {
		p.Services = append(p.Services, hcloud.LoadBalancerService{Protocol: "tcp", ListenPort: port, DestinationPort: port + 30000,
			HealthCheck: hcloud.LoadBalancerServiceHealthCheck{Protocol: "tcp", Port: port + 30000, Interval: 15 * time.Second,
				Timeout: 10 * time.Second, Retries: 3}})
	}
	return p
}

// built returns the planned load balancer in the API's representation.
func built(plan *LoadBalancer) *hcloud.LoadBalancer {
	lb := &hcloud.LoadBalancer{
		ID: 1, Name: "a-name", Labels: recorded(nil, owns(plan.UID, plan.ports()...)),
		Algorithm:        hcloud.LoadBalancerAlgorithm{Type: plan.Algorithm},
		LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11", MaxServices: 5, MaxTargets: 25},
		PublicNet: hcloud.LoadBalancerPublicNet{Enabled: plan.Public, IPv4: hcloud.LoadBalancerPublicNetIPv4{IP: net.ParseIP("203.0.113.9"),
			DNSPtr: "default."},
			IPv6: hcloud.LoadBalancerPublicNetIPv6{IP: net.ParseIP("2001:db8::9")}},
		Services: slices.Clone(plan.Services),
	}
	for _, t := range plan.Targets {
		lb.Targets = append(lb.Targets, serverTarget(t.ServerID, t.Private))
	}
	if plan.NetworkID != 0 {
		lb.PrivateNet = []hcloud.LoadBalancerPrivateNet{{Network: &hcloud.Network{ID: plan.NetworkID}, IP: net.ParseIP("10.0.0.9")}}
	}
	return lb
}

func serverTarget(id int64, private bool) hcloud.LoadBalancerTarget {
	return hcloud.LoadBalancerTarget{Type: "server", Server: &hcloud.LoadBalancerTargetServer{Server: &hcloud.Server{ID: id}},
		UsePrivateIP: private}
}

func public(ids ...int64) (targets []Target) {
	for _, id := range ids {
		targets = append(targets, Target{ServerID: id})
	}
	return targets
}

func TestNoDifferenceMeansNoOperation(t *testing.T) {
	t.Parallel()
	https := simple(public(1), 443)
	https.Services[0].Protocol = "https"
	https.Services[0].HTTP = hcloud.LoadBalancerServiceHTTP{CookieName: "C", Certificates: []*hcloud.Certificate{{ID: 2}, {ID: 1}}}
	https.Services[0].HealthCheck.Protocol = "http"
	https.Services[0].HealthCheck.HTTP = &hcloud.LoadBalancerServiceHealthCheckHTTP{Path: "/", StatusCodes: []string{"3??", "2??"}}
	private := simple([]Target{{1, true}}, 80)
	private.NetworkID, private.PrivateIPv4, private.PrivateSubnet, private.Public = 5, netip.MustParseAddr("10.0.0.9"),
		netip.MustParsePrefix("10.0.0.0/24"), false
	for name, plan := range map[string]*LoadBalancer{
		"tcp": simple(public(1, 2), 80, 443), "empty": simple(nil, 80), "https": https, "private": private,
		"30 ports": simple(nil, slices.Collect(func(yield func(int) bool) {
			for p := 10000; p < 10030 && yield(p); p++ {
			}
		})...),
	} {
		lb := built(plan)
		if name == "https" { // the API returns another order
			lb.Services[0].HTTP.Certificates = []*hcloud.Certificate{{ID: 1}, {ID: 2}}
			lb.Services[0].HealthCheck.HTTP = &hcloud.LoadBalancerServiceHealthCheckHTTP{Path: "/", StatusCodes: []string{"2??", "3??"},
				Response: "set by a person"}
		}
		if ops := Diff(plan, lb); len(ops) != 0 {
			t.Errorf("%s: %v", name, ops)
		}
	}
}

func TestDiff(t *testing.T) {
	t.Parallel()
	ipTarget := hcloud.LoadBalancerTarget{Type: "ip", IP: &hcloud.LoadBalancerTargetIP{IP: "198.51.100.1"}}
	selectorTarget := hcloud.LoadBalancerTarget{Type: "label_selector",
		LabelSelector: &hcloud.LoadBalancerTargetLabelSelector{Selector: "a=b"},
		Targets:       []hcloud.LoadBalancerTarget{serverTarget(77, false)}}
	for _, tc := range []struct {
		name   string
		plan   *LoadBalancer
		change func(plan *LoadBalancer, lb *hcloud.LoadBalancer)
		want   []string
	}{
		{"a node was added", simple(public(1, 2), 80), func(_ *LoadBalancer, lb *hcloud.LoadBalancer) { lb.Targets = lb.Targets[:1] },
			[]string{"add_target server 2 (private false)"}},
		{"a node was removed", simple(public(1), 80), func(_ *LoadBalancer, lb *hcloud.LoadBalancer) {
			lb.Targets = append(lb.Targets, serverTarget(2, false))
		},
			[]string{"remove_target server 2 (private false)"}},
		{"a node was replaced: the new one is added first", simple(public(2), 80), func(_ *LoadBalancer, lb *hcloud.LoadBalancer) {
			lb.Targets = []hcloud.LoadBalancerTarget{serverTarget(1, false)}
		},
			[]string{"add_target server 2 (private false)", "remove_target server 1 (private false)"}},
		{"a node was replaced, no room: the old one is removed first", simple(public(2), 80),
			func(_ *LoadBalancer, lb *hcloud.LoadBalancer) {
				lb.Targets, lb.LoadBalancerType.MaxTargets = []hcloud.LoadBalancerTarget{serverTarget(1, false)}, 1
			}, []string{"remove_target server 1 (private false)", "add_target server 2 (private false)"}},
		{"foreign targets stay", simple(public(1), 80), func(_ *LoadBalancer, lb *hcloud.LoadBalancer) {
			lb.Targets = append(lb.Targets, ipTarget, selectorTarget)
		}, nil},
		{"change to private addresses, one target at a time", simple([]Target{{1, true}, {2, true}}, 80),
			func(_ *LoadBalancer, lb *hcloud.LoadBalancer) {
				lb.Targets = []hcloud.LoadBalancerTarget{serverTarget(1, false), serverTarget(2, false)}
			}, []string{"remove_target server 1 (private false)", "add_target server 1 (private true)",
				"remove_target server 2 (private false)", "add_target server 2 (private true)"}},
		{"a port was added", simple(nil, 80, 443), func(_ *LoadBalancer, lb *hcloud.LoadBalancer) {
			lb.Services, lb.Labels = lb.Services[:1], recorded(lb.Labels, owns(testUID, 80))
		}, []string{`update (ports 80 443)`, "add_service tcp 443 to 30443"}},
		{"a port was removed", simple(nil, 80), func(_ *LoadBalancer, lb *hcloud.LoadBalancer) {
			lb.Services, lb.Labels = simple(nil, 80, 443).Services, recorded(lb.Labels, owns(testUID, 80, 443))
		}, []string{"delete_service 443", `update (ports 80)`}},
		{"a port was renumbered", simple(nil, 81), func(_ *LoadBalancer, lb *hcloud.LoadBalancer) {
			lb.Services, lb.Labels = simple(nil, 80).Services, recorded(lb.Labels, owns(testUID, 80))
		}, []string{`update (ports 81)`, "add_service tcp 81 to 30081", "delete_service 80", `update (ports 81)`}},
		{"a port was renumbered, no room", simple(nil, 81), func(_ *LoadBalancer, lb *hcloud.LoadBalancer) {
			lb.Services, lb.Labels = simple(nil, 80).Services, recorded(lb.Labels, owns(testUID, 80))
			lb.LoadBalancerType.MaxServices = 1
		}, []string{`update (ports 81)`, "delete_service 80", "add_service tcp 81 to 30081", `update (ports 81)`}},
		{"a node port changed", simple(nil, 80),
			func(plan *LoadBalancer, _ *hcloud.LoadBalancer) { plan.Services[0].DestinationPort = 31111 },
			[]string{"update_service tcp 80 to 31111"}},
		{"a foreign port stays", simple(nil, 80), func(_ *LoadBalancer, lb *hcloud.LoadBalancer) {
			lb.Services = append(lb.Services, simple(nil, 9000).Services...)
		}, nil},
		{"the Service takes over a foreign port that it wants", simple(nil, 80), func(plan *LoadBalancer, lb *hcloud.LoadBalancer) {
			lb.Labels = recorded(lb.Labels, owns(testUID))
			lb.Services[0].DestinationPort = 9
		}, []string{`update (ports 80)`, "update_service tcp 80 to 30080"}},
		{"labels of the annotation", simple(nil, 80), func(plan *LoadBalancer, lb *hcloud.LoadBalancer) {
			lb.Labels = recorded(lb.Labels, sets(map[string]string{"team": "web", "env": "prod"}))
			lb.Labels["owner"] = "me"
			plan.Labels = map[string]string{"team": "db"}
		}, []string{"change labels to team=db"}},
		{"protection and labels that are kept", simple(nil, 80), func(_ *LoadBalancer, lb *hcloud.LoadBalancer) {
			lb.Labels, lb.Protection.Delete = recorded(lb.Labels, sets(map[string]string{"team": "web"})), true
		}, nil},
		{"no protection any more", simple(nil, 80), func(plan *LoadBalancer, lb *hcloud.LoadBalancer) {
			lb.Protection.Delete, plan.DeleteProtection = true, new(bool)
		}, []string{"change_protection against deletion to false"}},
		{"our port labels were lost", simple(nil, 80), func(_ *LoadBalancer, lb *hcloud.LoadBalancer) {
			lb.Services = simple(nil, 80, 443).Services
			lb.Labels = map[string]string{LabelServiceUID: testUID, "team": "web"}
		}, []string{`update (ports 80)`}},
		{"renamed", simple(nil, 80), func(plan *LoadBalancer, _ *hcloud.LoadBalancer) { plan.Name = "edge" }, []string{`rename to "edge"`}},
		{"larger type, before the targets that need it", simple(public(1), 80),
			func(plan *LoadBalancer, lb *hcloud.LoadBalancer) { plan.Type, lb.Targets = "lb31", nil },
			[]string{"change_type to lb31", "add_target server 1 (private false)"}},
		{"smaller type, after the targets that exceed it", simple(nil, 80), func(plan *LoadBalancer, lb *hcloud.LoadBalancer) {
			plan.Type, lb.LoadBalancerType.Name, lb.Targets = "lb11", "lb31", []hcloud.LoadBalancerTarget{serverTarget(1, false)}
		}, []string{"remove_target server 1 (private false)", "change_type to lb11"}},
		{"no type configured", simple(nil, 80), func(_ *LoadBalancer, lb *hcloud.LoadBalancer) { lb.LoadBalancerType.Name = "lb31" }, nil},
		{"algorithm", simple(nil, 80), func(plan *LoadBalancer, _ *hcloud.LoadBalancer) { plan.Algorithm = "least_connections" },
			[]string{"change_algorithm to least_connections"}},
		{"reverse DNS", simple(nil, 80), func(plan *LoadBalancer, _ *hcloud.LoadBalancer) {
			plan.IPv4RDNS, plan.IPv6RDNS = "a.example.org", "b.example.org"
		},
			[]string{"change_dns_ptr of 203.0.113.9 to a.example.org", "change_dns_ptr of 2001:db8::9 to b.example.org"}},
		{"network and no public interface, in the order that the API needs", simple([]Target{{1, true}}, 80),
			func(plan *LoadBalancer, lb *hcloud.LoadBalancer) {
				plan.NetworkID, plan.Public = 5, false
				lb.Targets = []hcloud.LoadBalancerTarget{serverTarget(1, false)}
			}, []string{"attach_to_network 5", "remove_target server 1 (private false)", "disable_public_interface",
				"add_target server 1 (private true)"}},
		{"made private: what can wait until it is hidden waits", simple([]Target{{1, true}, {2, true}, {3, true}}, 80),
			func(plan *LoadBalancer, lb *hcloud.LoadBalancer) {
				plan.NetworkID, plan.Public = 5, false
				lb.PrivateNet = []hcloud.LoadBalancerPrivateNet{{Network: &hcloud.Network{ID: 5}, IP: net.ParseIP("10.0.0.9")}}
				lb.Targets = []hcloud.LoadBalancerTarget{serverTarget(1, false), serverTarget(2, false)}
			}, []string{"add_target server 3 (private true)", "remove_target server 1 (private false)",
				"add_target server 1 (private true)",
				"remove_target server 2 (private false)", "disable_public_interface", "add_target server 2 (private true)"}},
		{"made private: no target is public any more", simple([]Target{{1, true}, {2, true}}, 80),
			func(plan *LoadBalancer, lb *hcloud.LoadBalancer) {
				plan.NetworkID, plan.Public = 5, false
				lb.PrivateNet = []hcloud.LoadBalancerPrivateNet{{Network: &hcloud.Network{ID: 5}, IP: net.ParseIP("10.0.0.9")}}
				lb.Targets = lb.Targets[:1]
			}, []string{"disable_public_interface", "add_target server 2 (private true)"}},
		{"made public with another private address: its targets become public first", simple(public(1, 2), 80),
			func(plan *LoadBalancer, lb *hcloud.LoadBalancer) {
				plan.NetworkID, plan.PrivateIPv4 = 5, netip.MustParseAddr("10.0.0.10")
				lb.PublicNet.Enabled = false
				lb.PrivateNet = []hcloud.LoadBalancerPrivateNet{{Network: &hcloud.Network{ID: 5}, IP: net.ParseIP("10.0.0.9")}}
				lb.Targets = []hcloud.LoadBalancerTarget{serverTarget(1, true), serverTarget(2, true)}
			}, []string{"enable_public_interface", "remove_target server 1 (private true)", "add_target server 1 (private false)",
				"remove_target server 2 (private true)", "add_target server 2 (private false)", "detach_from_network 5",
				"attach_to_network 5"}},
		{"public interface enabled again", simple(public(1), 80), func(plan *LoadBalancer, lb *hcloud.LoadBalancer) {
			lb.PublicNet.Enabled = false
			lb.Targets = []hcloud.LoadBalancerTarget{serverTarget(1, true)}
		}, []string{"enable_public_interface", "remove_target server 1 (private true)", "add_target server 1 (private false)"}},
		{"another network", simple(nil, 80), func(plan *LoadBalancer, lb *hcloud.LoadBalancer) {
			plan.NetworkID = 5
			lb.PrivateNet = []hcloud.LoadBalancerPrivateNet{{Network: &hcloud.Network{ID: 6}, IP: net.ParseIP("10.9.0.1")}}
		}, []string{"detach_from_network 6", "attach_to_network 5"}},
		{"foreign attachment, no network configured", simple(nil, 80), func(_ *LoadBalancer, lb *hcloud.LoadBalancer) {
			lb.PrivateNet = []hcloud.LoadBalancerPrivateNet{{Network: &hcloud.Network{ID: 6}, IP: net.ParseIP("10.9.0.1")}}
		}, nil},
		{"another private address, without a public interface", simple([]Target{{1, true}}, 80),
			func(plan *LoadBalancer, lb *hcloud.LoadBalancer) {
				plan.NetworkID, plan.Public, plan.PrivateIPv4 = 5, false, netip.MustParseAddr("10.0.0.10")
				lb.PublicNet.Enabled = false
				lb.PrivateNet = []hcloud.LoadBalancerPrivateNet{{Network: &hcloud.Network{ID: 5}, IP: net.ParseIP("10.0.0.9")}}
			}, []string{"remove_target server 1 (private true)", "detach_from_network 5", "attach_to_network 5",
				"add_target server 1 (private true)"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			lb := built(tc.plan)
			tc.change(tc.plan, lb)
			var got []string
			for _, op := range Diff(tc.plan, lb) {
				got = append(got, op.String())
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(tc.want, "\n  "))
			}
		})
	}
}

// pretend applies an operation to a load balancer like the API, with the API's errors.
func pretend(lb *hcloud.LoadBalancer, op Op) error {
	attached := len(lb.PrivateNet) > 0
	index := slices.IndexFunc(lb.Targets, func(t hcloud.LoadBalancerTarget) bool {
		return t.Server != nil && t.Server.Server.ID == op.Target.ServerID
	})
	service := slices.IndexFunc(lb.Services, func(s hcloud.LoadBalancerService) bool {
		return s.ListenPort == max(op.Service.ListenPort, op.Port)
	})
	switch op.Kind {
	case OpRecord, OpLabel:
		r, err := RecordAfter(lb, op)
		if err != nil {
			return err
		}
		lb.Labels = r.Encode()
	case OpProtect:
		lb.Protection.Delete = op.Protect
	case OpRename:
		lb.Name = op.Name
	case OpChangeType:
		lb.LoadBalancerType.Name = op.Type
	case OpAlgorithm:
		lb.Algorithm.Type = op.Algorithm
	case OpEnablePublic:
		lb.PublicNet.Enabled = true
	case OpDisablePublic:
		if !attached || slices.ContainsFunc(lb.Targets, func(t hcloud.LoadBalancerTarget) bool {
			return t.Type == "server" &&
				!t.UsePrivateIP
		}) {
			return fmt.Errorf("targets_without_use_private_ip")
		}
		lb.PublicNet.Enabled = false
	case OpAttach:
		if attached {
			return fmt.Errorf("load_balancer_already_attached")
		}
		ip := net.ParseIP("10.0.0.9")
		if op.IP.IsValid() {
			ip = op.IP.AsSlice()
		}
		lb.PrivateNet = []hcloud.LoadBalancerPrivateNet{{Network: &hcloud.Network{ID: op.NetworkID}, IP: ip}}
	case OpDetach:
		if !attached || slices.ContainsFunc(lb.Targets, func(t hcloud.LoadBalancerTarget) bool { return t.UsePrivateIP }) {
			return fmt.Errorf("detach with private targets")
		}
		lb.PrivateNet = nil
	case OpAddTarget:
		switch {
		case index >= 0:
			return fmt.Errorf("target_already_defined")
		case op.Target.Private && !attached:
			return fmt.Errorf("load_balancer_not_attached_to_network")
		case !op.Target.Private && !lb.PublicNet.Enabled:
			return fmt.Errorf("load_balancer_public_interface_disabled")
		case len(lb.Targets) >= lb.LoadBalancerType.MaxTargets:
			return fmt.Errorf("resource_limit_exceeded")
		}
		lb.Targets = append(lb.Targets, serverTarget(op.Target.ServerID, op.Target.Private))
	case OpRemoveTarget:
		if index < 0 {
			return fmt.Errorf("no such target")
		}
		lb.Targets = slices.Delete(lb.Targets, index, index+1)
	case OpAddService:
		if service >= 0 || len(lb.Services) >= lb.LoadBalancerType.MaxServices {
			return fmt.Errorf("source_port_already_used or resource_limit_exceeded")
		}
		lb.Services = append(lb.Services, op.Service)
	case OpUpdateService:
		lb.Services[service] = op.Service
	case OpDeleteService:
		lb.Services = slices.Delete(lb.Services, service, service+1)
	}
	return nil
}

// TestAnyOperationMayBeTheLast uses random plans and load balancers. It stops after each number of
// operations and continues with a new diff. The load balancer must reach the planned state, the API must
// accept each operation, and foreign ports and targets must stay.
func TestAnyOperationMayBeTheLast(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	some := func(n int) []int {
		var s []int
		for i := 1; i <= n; i++ {
			if rnd.IntN(2) == 0 {
				s = append(s, i)
			}
		}
		return s
	}
	draw := func() *LoadBalancer {
		p := simple(nil, some(5)...)
		for i := range p.Services {
			p.Services[i].DestinationPort += rnd.IntN(2)
		}
		p.Algorithm = []hcloud.LoadBalancerAlgorithmType{"round_robin", "least_connections"}[rnd.IntN(2)]
		p.NetworkID = int64(5 * rnd.IntN(2))
		p.Public = p.NetworkID == 0 || rnd.IntN(2) == 0
		private := !p.Public || p.NetworkID != 0 && rnd.IntN(2) == 0
		for _, id := range some(6) {
			p.Targets = append(p.Targets, Target{int64(id), private})
		}
		if p.NetworkID != 0 && rnd.IntN(2) == 0 {
			p.PrivateIPv4 = netip.MustParseAddr([]string{"10.0.0.9", "10.0.0.10"}[rnd.IntN(2)])
		}
		return p
	}
	for range 600 {
		from, to := draw(), draw()
		start := func() *hcloud.LoadBalancer {
			lb := built(from)
			lb.LoadBalancerType.MaxTargets, lb.LoadBalancerType.MaxServices = 8, 7
			lb.Labels["team"] = "web"
			lb.Services = append(lb.Services, hcloud.LoadBalancerService{Protocol: "tcp", ListenPort: 9000, DestinationPort: 1})
			lb.Targets = append(lb.Targets, hcloud.LoadBalancerTarget{Type: "ip", IP: &hcloud.LoadBalancerTargetIP{IP: "198.51.100.1"}})
			return lb
		}
		total := len(Diff(to, start()))
		for stop := range total + 1 {
			lb := start()
			for round := 0; ; round++ {
				ops := Diff(to, lb)
				if len(ops) == 0 {
					break
				}
				if round > 3 {
					t.Fatalf("does not converge: %v", ops)
				}
				if round == 0 {
					ops = ops[:min(stop, len(ops))]
				}
				for _, op := range ops {
					if err := pretend(lb, op); err != nil {
						t.Fatalf("from %+v to %+v, stopped after %d: %v is refused: %v", from, to, stop, op, err)
					}
				}
			}
			foreignPort := slices.ContainsFunc(lb.Services, func(s hcloud.LoadBalancerService) bool { return s.ListenPort == 9000 })
			foreignTarget := slices.ContainsFunc(lb.Targets, func(t hcloud.LoadBalancerTarget) bool { return t.Type == "ip" })
			if !foreignPort || !foreignTarget || lb.Labels["team"] != "web" || len(lb.Services) != len(to.Services)+1 ||
				len(lb.Targets) != len(to.Targets)+1 {
				t.Fatalf("from %+v to %+v, stopped after %d: %+v", from, to, stop, lb)
			}
		}
	}
}

func TestTheLoadBalancerInUseIsTheOnlyOneThatTheServiceShows(t *testing.T) {
	t.Parallel()
	with := func(id int64, public, private string) *hcloud.LoadBalancer {
		lb := &hcloud.LoadBalancer{ID: id}
		lb.PublicNet.IPv4.IP = net.ParseIP(public)
		if private != "" {
			lb.PrivateNet = []hcloud.LoadBalancerPrivateNet{{IP: net.ParseIP(private)}}
		}
		return lb
	}
	lbs := []*hcloud.LoadBalancer{with(9, "203.0.113.9", ""), with(3, "203.0.113.3", "10.0.0.3"), with(5, "203.0.113.5", "10.0.0.3")}
	for shown, want := range map[string]int64{"203.0.113.9": 9, "203.0.113.3": 3, "10.0.0.3": 0, "198.51.100.1": 0, "": 0} {
		svc := &corev1.Service{}
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: shown}}
		var got int64
		if lb := InUse(lbs, svc); lb != nil {
			got = lb.ID
		}
		if got != want {
			t.Errorf("the Service shows %q: got load balancer %d, want %d", shown, got, want)
		}
	}
}

func TestWhoseALoadBalancerIs(t *testing.T) {
	t.Parallel()
	type labels = map[string]string
	for _, tc := range []struct {
		cluster        string // HCLOUD_CLUSTER_ID
		labels         labels
		owns, inherits bool
		other          string
	}{
		{"", nil, false, false, ""},
		{"", labels{LabelServiceUID: "me"}, true, false, ""},
		{"", labels{LabelServiceUID: "you"}, false, false, "UID you"},
		{"", labels{LabelServiceUIDHcloud: "you"}, false, false, "UID you"},
		{"", labels{LabelServiceUIDHcloud: "me", "team": "you"}, false, true, ""},
		{"", labels{LabelServiceUIDHcloud: "me", LabelServiceUID: "me"}, true, false, ""},
		{"", labels{LabelServiceUIDHcloud: "me", LabelServiceUID: "you"}, false, false, "UID you"},
		{"", labels{LabelServiceUIDHcloud: "me", LabelLastOwner: "me"}, false, false, ""}, // a person has removed our label
		{"", labels{LabelServiceUIDHcloud: "you", LabelLastOwner: "you"}, false, false, ""},
		{"a", labels{LabelServiceUID: "me"}, true, false, ""}, // made before the ID was set
		{"a", labels{LabelServiceUID: "me", LabelCluster: "a"}, true, false, ""},
		{"b", labels{LabelServiceUID: "me", LabelCluster: "a"}, false, false, `HCLOUD_CLUSTER_ID="a"`},
		{"", labels{LabelServiceUID: "me", LabelCluster: "a"}, false, false, `HCLOUD_CLUSTER_ID="a"`},
		{"b", labels{LabelServiceUIDHcloud: "me", LabelCluster: "a"}, false, false, `HCLOUD_CLUSTER_ID="a"`},
	} {
		o := Ownership{ClusterID: tc.cluster}
		other := o.OtherOwner(tc.labels, "me")
		if o.Owns(tc.labels, "me") != tc.owns || o.Inherits(tc.labels, "me") != tc.inherits || (other == "") != (tc.other == "") ||
			!strings.Contains(other, tc.other) {
			t.Errorf("cluster %q, %v: owns %t, inherits %t, other %q", tc.cluster, tc.labels, o.Owns(tc.labels, "me"),
				o.Inherits(tc.labels, "me"), other)
		}
	}
}

// The number of targets must not fall below the smallest of before, after and the limit, less one.
func TestTargetsAreReplacedInTurns(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		limit := 1 + rnd.IntN(9)
		foreign := rnd.IntN(limit)
		draw := func() (targets []Target) {
			for id := int64(1); id <= 12 && len(targets) < limit-foreign; id++ {
				if rnd.IntN(2) == 0 {
					targets = append(targets, Target{id, rnd.IntN(2) == 0})
				}
			}
			return targets
		}
		from, to := simple(draw(), 80), simple(draw(), 80)
		from.NetworkID, to.NetworkID = 5, 5
		from.PrivateIPv4, to.PrivateIPv4 = netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("10.0.0.9")
		switch rnd.IntN(4) {
		case 0: // made private
			private(to, true)
			to.Public = false
		case 1: // made public
			private(from, true)
			from.Public = false
		case 2: // another address: only public targets can stay
			private(to, false)
			to.PrivateIPv4 = netip.MustParseAddr("10.0.0.10")
		}
		lb := built(from)
		lb.LoadBalancerType.MaxTargets = limit
		for i := range foreign {
			lb.Targets = append(lb.Targets,
				hcloud.LoadBalancerTarget{Type: "ip", IP: &hcloud.LoadBalancerTargetIP{IP: fmt.Sprintf("198.51.100.%d", i+1)}})
		}
		floor := min(len(from.Targets), len(to.Targets), limit-foreign) - 1
		for _, op := range Diff(to, lb) {
			if err := pretend(lb, op); err != nil {
				t.Fatalf("from %v to %v, limit %d, %d foreign: %v is refused: %v", from.Targets, to.Targets, limit, foreign, op, err)
			}
			if n := len(ServerTargets(lb)); n < floor {
				t.Fatalf("from %v to %v, limit %d, %d foreign: %d targets after %v", from.Targets, to.Targets, limit, foreign, n, op)
			}
		}
		if !slices.Equal(ServerTargets(lb), to.Targets) {
			t.Fatalf("from %v: got %v, want %v", from.Targets, ServerTargets(lb), to.Targets)
		}
	}
}

// private makes all targets of the plan private or public.
func private(plan *LoadBalancer, is bool) {
	for i := range plan.Targets {
		plan.Targets[i].Private = is
	}
}

// What an operation needs, so that an error before it does not make it wrong.
func TestWhatOperationsNeed(t *testing.T) {
	t.Parallel()
	plan := simple([]Target{{1, true}}, 80, 81)
	plan.NetworkID, plan.Public, plan.PrivateIPv4 = 5, false, netip.MustParseAddr("10.0.0.10")
	lb := built(plan)
	lb.PublicNet.Enabled = true
	lb.Services, lb.Labels = lb.Services[:1], recorded(nil, owns(testUID, 80))
	needs := map[OpKind][]Part{}
	for _, op := range Diff(plan, lb) {
		needs[op.Kind] = op.Needs
	}
	for kind, want := range map[OpKind][]Part{
		OpDetach:        {partServer(1)},          // its private targets would be lost
		OpAddService:    {partLabels, partPublic}, // a port is recorded before it exists, and never exposed
		OpDisablePublic: {partNetwork},            // it would have no address at all
		OpRecord:        nil,
	} {
		if got, sent := needs[kind]; !sent || !slices.Equal(got, want) {
			t.Errorf("%s needs %v (sent: %t), want %v", kind, got, sent, want)
		}
	}
}

// Each setting of a port that differs is one update of the port, also if only the user notices it: the kind of check, a cookie.
func TestEachSettingOfAPortIsCompared(t *testing.T) {
	t.Parallel()
	type service = hcloud.LoadBalancerService
	check := hcloud.LoadBalancerServiceHealthCheckHTTP{Domain: "example.org", Path: "/up", StatusCodes: []string{"200", "3??"}, TLS: true}
	full := func() service {
		http := check
		http.StatusCodes = slices.Clone(check.StatusCodes)
		return service{Protocol: "https", ListenPort: 443, DestinationPort: 30443,
			HTTP: hcloud.LoadBalancerServiceHTTP{CookieName: "C", CookieLifetime: time.Minute, TimeoutIdle: time.Minute,
				Certificates: []*hcloud.Certificate{{ID: 8}, {ID: 9}}},
			HealthCheck: hcloud.LoadBalancerServiceHealthCheck{Protocol: "http", Port: 30443, Interval: 5 * time.Second,
				Timeout: 4 * time.Second, Retries: 2, HTTP: &http}}
	}
	for name, tc := range map[string]struct {
		change func(*service)
		same   bool
	}{
		"nothing":                       {func(*service) {}, true},
		"protocol":                      {func(s *service) { s.Protocol = "http" }, false},
		"destination port":              {func(s *service) { s.DestinationPort = 1 }, false},
		"PROXY protocol":                {func(s *service) { s.Proxyprotocol = true }, false},
		"name of the cookie":            {func(s *service) { s.HTTP.CookieName = "D" }, false},
		"lifetime of the cookie":        {func(s *service) { s.HTTP.CookieLifetime++ }, false},
		"idle timeout":                  {func(s *service) { s.HTTP.TimeoutIdle++ }, false},
		"sticky sessions":               {func(s *service) { s.HTTP.StickySessions = true }, false},
		"redirect":                      {func(s *service) { s.HTTP.RedirectHTTP = true }, false},
		"a certificate less":            {func(s *service) { s.HTTP.Certificates = s.HTTP.Certificates[:1] }, false},
		"the order of the certificates": {func(s *service) { slices.Reverse(s.HTTP.Certificates) }, true},
		"protocol of the check":         {func(s *service) { s.HealthCheck.Protocol = "tcp" }, false},
		"port of the check":             {func(s *service) { s.HealthCheck.Port = 1 }, false},
		"interval of the check":         {func(s *service) { s.HealthCheck.Interval++ }, false},
		"timeout of the check":          {func(s *service) { s.HealthCheck.Timeout++ }, false},
		"retries of the check":          {func(s *service) { s.HealthCheck.Retries++ }, false},
		"domain of the check":           {func(s *service) { s.HealthCheck.HTTP.Domain = "" }, false},
		"path of the check":             {func(s *service) { s.HealthCheck.HTTP.Path = "/" }, false},
		"TLS of the check":              {func(s *service) { s.HealthCheck.HTTP.TLS = false }, false},
		"status codes of the check":     {func(s *service) { s.HealthCheck.HTTP.StatusCodes[0] = "204" }, false},
		"their order":                   {func(s *service) { slices.Reverse(s.HealthCheck.HTTP.StatusCodes) }, true},
		"no HTTP check":                 {func(s *service) { s.HealthCheck.HTTP = nil }, false},
		"the expected response":         {func(s *service) { s.HealthCheck.HTTP.Response = "ok" }, true}, // has no annotation
	} {
		have := full()
		if tc.change(&have); sameService(full(), have) != tc.same {
			t.Errorf("%s: same %t, want %t", name, !tc.same, tc.same)
		}
	}
	for name, tc := range map[string]struct {
		protocol hcloud.LoadBalancerServiceProtocol
		change   func(*service)
	}{
		"HTTP settings of a TCP port":  {"tcp", func(s *service) { s.HTTP = hcloud.LoadBalancerServiceHTTP{CookieName: "D"} }},
		"certificates of an HTTP port": {"http", func(s *service) { s.HTTP.Certificates = nil }},
		"the redirect of an HTTP port": {"http", func(s *service) { s.HTTP.RedirectHTTP = true }},
		"the settings of a check that is TCP": {"tcp",
			func(s *service) { s.HealthCheck.HTTP = &hcloud.LoadBalancerServiceHealthCheckHTTP{Path: "/old"} }},
	} {
		want, have := full(), full()
		want.Protocol, have.Protocol = tc.protocol, tc.protocol
		if strings.Contains(name, "check") {
			want.HealthCheck.HTTP = nil
		}
		if tc.change(&have); !sameService(want, have) {
			t.Errorf("%s: not the same", name)
		}
	}
}

// A load balancer without room would wait for a target that it cannot get. What is full changes in turns, as that of any Service.
func TestAnAdoptedLoadBalancerWithoutRoomGivesInTurns(t *testing.T) {
	t.Parallel()
	plan := simple(public(2, 3, 4), 80)
	lb := built(simple(public(1, 2), 80))
	for limit, want := range map[int]string{
		2: "remove_target server 1 (private false); add_target server 3 (private false); add_target server 4 (private false)",
		3: "add_target server 3 (private false); remove_target server 1 (private false); add_target server 4 (private false)",
		9: "add_target server 3 (private false); add_target server 4 (private false); remove_target server 1 (private false)",
	} {
		lb.LoadBalancerType.MaxTargets = limit
		delete(lb.Labels, LabelLastOwner)
		if got := DescribeOps(GiveFirst(Diff(plan, lb), lb, testUID, nil), 9); got != want {
			t.Errorf("with room for %d: %s", limit, got)
		}
	}
	full := built(simple(nil, 80, 81))
	full.LoadBalancerType.MaxServices = 3
	want := "add_service tcp 82 to 30082; delete_service 81; add_service tcp 83 to 30083"
	if got := DescribeOps(slices.DeleteFunc(GiveFirst(Diff(simple(nil, 80, 82, 83), full), full, testUID, nil),
		func(op Op) bool { return op.Kind == OpRecord }), 9); got != want {
		t.Errorf("ports: %s", got)
	}
}
