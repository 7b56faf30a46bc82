package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// TypeNamed returns the type with this name or ID, or nil.
func TypeNamed(types []*hcloud.LoadBalancerType, name string) *hcloud.LoadBalancerType {
	for _, t := range types {
		if t != nil && (t.Name == name || strconv.FormatInt(t.ID, 10) == name) {
			return t
		}
	}
	return nil
}

// IsSmaller reports whether the excess is the result of a change to a smaller type.
func IsSmaller(next, current *hcloud.LoadBalancerType, excess []Excess) bool {
	return next != nil && current != nil && slices.ContainsFunc(excess, func(e Excess) bool { return e.limit(next) < e.limit(current) })
}

// Excess says what a load balancer's type has no room for. Want and Room include what is foreign.
type Excess struct {
	What       string
	Want, Room int
	limit      func(*hcloud.LoadBalancerType) int
}

// Limits of a load balancer type.
func maxTargets(t *hcloud.LoadBalancerType) int { return t.MaxTargets }

func maxServices(t *hcloud.LoadBalancerType) int { return t.MaxServices }

func maxCertificates(t *hcloud.LoadBalancerType) int { return t.MaxAssignedCertificates }

// fitToLimits cuts the plan down to the limits of the type. Existing targets, ports and certificates stay. Foreign ones count, and
// stay too.
func fitToLimits(plan *LoadBalancer, in Input) {
	if in.Limits == nil {
		return
	}
	current := cmp.Or(in.Current, &hcloud.LoadBalancer{})
	// room returns how many of the wanted ones fit.
	room := func(what string, foreign, want int, limit func(*hcloud.LoadBalancerType) int) int {
		most := limit(in.Limits)
		if foreign+want > most {
			plan.Excess = append(plan.Excess, Excess{what, foreign + want, most, limit})
		}
		return max(0, min(want, most-foreign))
	}
	has := ServerTargets(current)
	if n := room("targets", foreignTargets(current), len(plan.Targets), maxTargets); n < len(plan.Targets) {
		plan.Targets = chooseTargets(plan.Targets, n, has, in)
	}

	var foreignPorts int
	foreignCertificates := map[int64]bool{}
	ours, wanted := PortsOf(current, plan.UID), plan.ports()
	for _, s := range current.Services {
		if !ours[s.ListenPort] && !slices.Contains(wanted, s.ListenPort) {
			foreignPorts++
			for _, c := range s.HTTP.Certificates {
				foreignCertificates[c.ID] = true
			}
		}
	}
	if n := room("services", foreignPorts, len(plan.Services), maxServices); n < len(plan.Services) {
		plan.Services = choosePorts(plan.Services, n, current)
	}
	var wantedCertificates []*hcloud.Certificate
	for _, s := range plan.Services {
		wantedCertificates = append(wantedCertificates, s.HTTP.Certificates...)
	}
	own := slices.DeleteFunc(certificateIDs(wantedCertificates), func(id int64) bool { return foreignCertificates[id] })
	if n := room("certificates", len(foreignCertificates), len(own), maxCertificates); n < len(own) {
		plan.Services = chooseCertificates(plan.Services, own, n, in)
	}
}

// foreignTargets returns the number of targets of others.
func foreignTargets(lb *hcloud.LoadBalancer) int { return len(lb.Targets) - len(ServerTargets(lb)) }

// chooseCertificates returns the services with n of the certificates own, and with those of foreign ports.
// First come those in use, then those for existing ports. A port that gets none keeps what it has, or has to
// wait.
func chooseCertificates(services []hcloud.LoadBalancerService, own []int64, n int, in Input) (chosen []hcloud.LoadBalancerService) {
	rank := map[int64]int{}
	for _, s := range services {
		have, found := portToCopy(s.ListenPort, in)
		if !found {
			continue
		}
		for _, c := range s.HTTP.Certificates {
			rank[c.ID] = min(rank[c.ID], -1)
		}
		for _, c := range have.HTTP.Certificates {
			rank[c.ID] = -2
		}
	}
	slices.SortStableFunc(own, func(a, b int64) int { return cmp.Compare(rank[a], rank[b]) })
	for _, s := range services {
		wanted := len(s.HTTP.Certificates)
		s.HTTP.Certificates = without(s.HTTP.Certificates, func(c *hcloud.Certificate) bool { return slices.Contains(own[n:], c.ID) })
		if wanted > 0 && len(s.HTTP.Certificates) == 0 {
			have, found := portToCopy(s.ListenPort, in)
			if !found || have.ListenPort != s.ListenPort {
				continue
			}
			copyCertificates(&s, have)
		}
		chosen = append(chosen, s)
	}
	return chosen
}

// chooseTargets returns n of the targets. Those that the load balancer has stay. The others are spread over
// locations, so that the load balancer survives the loss of one. Those that the API refuses come last.
func chooseTargets(all []Target, n int, has []Target, in Input) []Target {
	location := func(t Target) string {
		if s := in.Servers[t.ServerID]; s != nil && s.Location != nil {
			return s.Location.Name
		}
		return ""
	}
	rank := map[int64]int{}
	for id := range in.Refused {
		rank[id] = 1
	}
	for _, t := range has {
		rank[t.ServerID] = -1
	}
	var chosen []Target
	perLocation := map[string]int{}
	left := slices.Clone(all)
	for len(chosen) < n {
		best := slices.MinFunc(left, func(a, b Target) int {
			return cmp.Or(cmp.Compare(rank[a.ServerID], rank[b.ServerID]), cmp.Compare(perLocation[location(a)], perLocation[location(b)]),
				cmp.Compare(location(a), location(b)), cmp.Compare(a.ServerID, b.ServerID))
		})
		chosen = append(chosen, best)
		perLocation[location(best)]++
		left = slices.DeleteFunc(left, func(t Target) bool { return t.ServerID == best.ServerID })
	}
	slices.SortFunc(chosen, compareTargets)
	return chosen
}

// choosePorts returns n of the services. Those that the load balancer has stay; then the lowest ports come.
func choosePorts(all []hcloud.LoadBalancerService, n int, lb *hcloud.LoadBalancer) []hcloud.LoadBalancerService {
	rank := func(s hcloud.LoadBalancerService) int {
		if slices.ContainsFunc(lb.Services, func(h hcloud.LoadBalancerService) bool { return h.ListenPort == s.ListenPort }) {
			return s.ListenPort
		}
		return s.ListenPort + math.MaxUint16
	}
	chosen := slices.SortedFunc(slices.Values(all), func(a, b hcloud.LoadBalancerService) int { return cmp.Compare(rank(a), rank(b)) })[:n]
	slices.SortFunc(chosen, func(a, b hcloud.LoadBalancerService) int { return cmp.Compare(a.ListenPort, b.ListenPort) })
	return chosen
}

// ExcessText says what the type has no room for, and which of the types have it.
func ExcessText(typeName string, excess []Excess, types []*hcloud.LoadBalancerType) string {
	var parts, fits []string
	for _, e := range excess {
		parts = append(parts, fmt.Sprintf("%d %s of %d", e.Room, e.What, e.Want))
	}
	for _, t := range types {
		if !slices.ContainsFunc(excess, func(e Excess) bool { return e.limit(t) < e.Want }) {
			fits = append(fits, t.Name)
		}
	}
	advice := "no type has room for all: use several Services"
	if len(fits) > 0 {
		slices.Sort(fits)
		advice = fmt.Sprintf("room for all have %s: set %stype", strings.Join(fits, ", "), AnnotationPrefix)
	}
	return fmt.Sprintf("Load balancer type %s has room for %s; %s", typeName, strings.Join(parts, " and "), advice)
}
