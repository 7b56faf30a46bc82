package loadbalancer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// changeIPv6Target adds or removes a server by an address of its public IPv6 network. The API has that, hcloud-go
// v2.53 does not.
func (l *Controller) changeIPv6Target(ctx context.Context, lb *hcloud.LoadBalancer, change string, server int64,
	ip netip.Addr) (*hcloud.Action, error) {
	body, err := json.Marshal(map[string]any{
		"type": hcloud.LoadBalancerTargetTypeServer, "server": map[string]any{"id": server, "ip": ip},
	})
	if err != nil {
		return nil, err
	}
	req, err := l.client.NewRequest(ctx, http.MethodPost, fmt.Sprintf("/load_balancers/%d/actions/%s", lb.ID, change),
		bytes.NewReader(body))
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
func (l *Controller) removeTarget(ctx context.Context, lb *hcloud.LoadBalancer, t plan.Target) (*hcloud.Action, error) {
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

// ipv6OfTarget returns the address of a server that is a target over IPv6, or else the zero Addr.
func (l *Controller) ipv6OfTarget(ctx context.Context, id, server int64) (netip.Addr, error) {
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
