package ccm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	corev1 "k8s.io/api/core/v1"
)

// chooseAddress returns how the load balancer reaches a node's server, or no target if it cannot. The node ports of
// a Service serve only its IP families, and networks have only IPv4. So a server without a public IPv4 address
// is reached by its private one, unless an annotation or its default has decided that, or else over IPv6.
//
// An existing target keeps the address that it has: the API's answer about a target of type server does not show it to
// hcloud-go.
func chooseAddress(in lbPlanInput, node *corev1.Node, server *hcloud.Server, network int64, private bool) (target lbTarget, ipv6 netip.Addr) {
	families := in.Service.Spec.IPFamilies
	v4 := len(families) == 0 || slices.Contains(families, corev1.IPv4Protocol)
	v6 := slices.Contains(families, corev1.IPv6Protocol)
	hasPrivate := privateIP(server, network).IsValid()
	undecided := in.Settings.UsePrivateIP == nil && !in.Wrong["use-private-ip"]
	switch ip := nodeIPv6(server, node); {
	case private && hasPrivate:
		return lbTarget{ServerID: server.ID, Private: true}, ipv6
	case private:
		return target, ipv6
	case v4 && publicIPv4(server).IsValid():
		return lbTarget{ServerID: server.ID}, ipv6
	case v4 && undecided && hasPrivate:
		return lbTarget{ServerID: server.ID, Private: true}, ipv6
	case v6 && ip.IsValid():
		return lbTarget{ServerID: server.ID}, ip
	}
	return target, ipv6
}

// familyNotes warns about a Service whose IP family no private target can serve.
func familyNotes(in lbPlanInput, targets []lbTarget) []lbNote {
	families := in.Service.Spec.IPFamilies
	if slices.Contains(families, corev1.IPv4Protocol) || len(families) == 0 || !slices.ContainsFunc(targets, func(t lbTarget) bool { return t.Private }) {
		return nil
	}
	return []lbNote{{EventIgnoredSetting, "The Service has only the IP family IPv6, but private networks have only IPv4, so that its private targets cannot serve: set ipFamilyPolicy: PreferDualStack, or use-private-ip to false"}}
}

// changeIPv6Target adds or removes a server by an address of its public IPv6 network. The API has that, hcloud-go
// v2.53 does not.
func (l *loadBalancers) changeIPv6Target(ctx context.Context, lb *hcloud.LoadBalancer, change string, server int64, ip netip.Addr) (*hcloud.Action, error) {
	body, err := json.Marshal(map[string]any{
		"type": hcloud.LoadBalancerTargetTypeServer, "server": map[string]any{"id": server, "ip": ip},
	})
	if err != nil {
		return nil, err
	}
	req, err := l.client.NewRequest(ctx, http.MethodPost, fmt.Sprintf("/load_balancers/%d/actions/%s", lb.ID, change), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	var answer struct {
		Action schema.Action `json:"action"`
	}
	if _, err := l.client.Do(req, &answer); err != nil {
		return nil, err
	}
	return hcloud.ActionFromSchema(answer.Action), nil
}

// removeTarget removes a server. The API finds a target over IPv6 only by its address: without it, the
// answer is not_found.
func (l *loadBalancers) removeTarget(ctx context.Context, lb *hcloud.LoadBalancer, t lbTarget) (*hcloud.Action, error) {
	action, _, err := l.client.LoadBalancer.RemoveServerTarget(ctx, lb, &hcloud.Server{ID: t.ServerID})
	if t.Private || !hcloud.IsError(err, hcloud.ErrorCodeNotFound) {
		return action, err
	}
	ip, readErr := l.ipv6OfTarget(ctx, lb.ID, t.ServerID)
	switch {
	case readErr != nil:
		return nil, readErr
	case !ip.IsValid():
		return nil, err
	}
	return l.changeIPv6Target(ctx, lb, "remove_target", t.ServerID, ip)
}

// ipv6OfTarget returns the address by which a server is a target over IPv6, or the zero Addr if it is none.
func (l *loadBalancers) ipv6OfTarget(ctx context.Context, id, server int64) (netip.Addr, error) {
	req, err := l.client.NewRequest(ctx, http.MethodGet, fmt.Sprintf("/load_balancers/%d", id), nil)
	if err != nil {
		return netip.Addr{}, err
	}
	var answer struct {
		LoadBalancer struct {
			Targets []struct {
				Server struct {
					ID int64      `json:"id"`
					IP netip.Addr `json:"ip"`
				} `json:"server"`
			} `json:"targets"`
		} `json:"load_balancer"`
	}
	if _, err := l.client.Do(req, &answer); err != nil {
		return netip.Addr{}, fmt.Errorf("reading the targets of load balancer %d: %w", id, err)
	}
	for _, t := range answer.LoadBalancer.Targets {
		if t.Server.ID == server && t.Server.IP.Is6() {
			return t.Server.IP, nil
		}
	}
	return netip.Addr{}, nil
}
