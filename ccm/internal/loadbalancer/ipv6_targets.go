package loadbalancer

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// changeIPv6Target adds or removes a server by an address of its public IPv6 network. The API has that, hcloud-go
// v2.53 does not.
func (l *Controller) changeIPv6Target(ctx context.Context, lb *hcloud.LoadBalancer, change string, server int64,
	ip netip.Addr) (*hcloud.Action, error) {
	l.mu.Lock()
	delete(l.reached, lb.ID)
	l.mu.Unlock()
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
// answer says that it is not found.
func (l *Controller) removeTarget(ctx context.Context, lb *hcloud.LoadBalancer, t plan.Target) (*hcloud.Action, error) {
	action, _, err := l.client.LoadBalancer.RemoveServerTarget(ctx, lb, &hcloud.Server{ID: t.ServerID})
	if t.Private || !notFound(err) {
		return action, err
	}
	reached, readErr := l.ipv6Targets(ctx, lb.ID)
	if ip := reached[t.ServerID]; readErr == nil && ip.IsValid() {
		return l.changeIPv6Target(ctx, lb, "remove_target", t.ServerID, ip)
	}
	return nil, cmp.Or(readErr, err)
}

func notFound(err error) bool {
	e, ok := errors.AsType[hcloud.Error](err)
	return ok && (e.Code == hcloud.ErrorCodeNotFound || e.Code == hcloud.ErrorCodeInvalidInput && strings.HasSuffix(e.Message, "not found"))
}

// noteFormer tells the plan of a target that the load balancer reaches by another IPv6 address than the plan has. With its new address, a
// target serves only after its first health check, so one changes when all are checked. To ask costs a request for each load balancer with
// such targets, once and after a change of one.
func (s *serviceSync) noteFormer(ctx context.Context, planned *plan.LoadBalancer, lb *hcloud.LoadBalancer) error {
	if len(planned.IPv6) == 0 || lb == nil {
		return nil
	}
	s.mu.Lock()
	reached, known := s.reached[lb.ID]
	s.mu.Unlock()
	if !known {
		var err error
		if reached, err = s.ipv6Targets(ctx, lb.ID); err != nil {
			return err
		}
		s.mu.Lock()
		s.reached[lb.ID] = reached
		s.mu.Unlock()
	}
	planned.Former = map[int64]netip.Addr{}
	may := s.in.LingerOver || !slices.ContainsFunc(lb.Targets, plan.IsUnknown)
	for _, server := range slices.Sorted(maps.Keys(planned.IPv6)) {
		switch has := reached[server]; {
		case !has.IsValid() || has == planned.IPv6[server]:
		case may:
			planned.Former[server], may = has, false
		default:
			planned.Waiting = append(planned.Waiting, plan.Target{ServerID: server})
		}
	}
	return nil
}

// ipv6Targets returns the addresses of the servers that are targets over IPv6.
func (l *Controller) ipv6Targets(ctx context.Context, id int64) (map[int64]netip.Addr, error) {
	req, err := l.client.NewRequest(ctx, http.MethodGet, fmt.Sprintf("/load_balancers/%d", id), nil)
	if err != nil {
		return nil, err
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
		return nil, fmt.Errorf("reading the targets of load balancer %d: %w", id, err)
	}
	reached := map[int64]netip.Addr{}
	for _, t := range answer.LoadBalancer.Targets {
		if t.Server.IP.Is6() {
			reached[t.Server.ID] = t.Server.IP
		}
	}
	return reached, nil
}
