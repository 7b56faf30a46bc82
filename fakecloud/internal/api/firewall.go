package api

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

type firewallJSON struct {
	ID        int64                `json:"id"`
	Name      string               `json:"name"`
	Labels    map[string]string    `json:"labels"`
	Created   timeJSON             `json:"created"`
	Rules     []firewallRuleJSON   `json:"rules"`
	AppliedTo []firewallTargetJSON `json:"applied_to"`
}

type firewallRuleJSON struct {
	Description    *string        `json:"description"`
	Direction      string         `json:"direction"`
	SourceIPs      []netip.Prefix `json:"source_ips"`
	DestinationIPs []netip.Prefix `json:"destination_ips"`
	Protocol       string         `json:"protocol"`
	Port           *string        `json:"port"`
}

// firewallTargetJSON has only the fields of its type.
type firewallTargetJSON struct {
	Type     string              `json:"type"`
	Server   *serverRefJSON      `json:"server,omitempty"`
	Selector *targetSelectorJSON `json:"label_selector,omitempty"`
	// Selected is null, and therefore absent, for a server.
	Selected []firewallTargetJSON `json:"applied_to_resources,omitzero"`
}

type serverRefJSON struct {
	ID int64 `json:"id"`
}

func firewallServer(id int64) firewallTargetJSON {
	return firewallTargetJSON{Type: "server", Server: &serverRefJSON{id}}
}

func encodeFirewall(_ Date, _ *cloud.State, f *cloud.Firewall) any {
	rules := each(f.Rules, func(r cloud.FirewallRule) firewallRuleJSON {
		return firewallRuleJSON{r.Description, r.Direction, nonNil(r.SourceIPs), nonNil(r.DestinationIPs), r.Protocol, nullable(r.Port)}
	})
	targets := each(f.AppliedTo(), func(t cloud.FirewallTarget) firewallTargetJSON {
		if t.Server != 0 {
			return firewallServer(t.Server)
		}
		selected := each(t.Servers(), firewallServer)
		return firewallTargetJSON{Type: "label_selector", Selector: &targetSelectorJSON{t.Selector}, Selected: selected}
	})
	return firewallJSON{f.ID, f.Name, f.Labels, timeJSON(f.Created), rules, targets}
}

var firewalls = &resource[*cloud.Firewall]{
	singular: "firewall", plural: "firewalls", kind: cloud.KindFirewall,
	table:  func(st *cloud.State) *store.Table[*cloud.Firewall] { return &st.Firewalls },
	encode: encodeFirewall,
	sort:   orders[*cloud.Firewall]("id", "name", "created"),
}

func firewallRoutes() []Route {
	const kind = cloud.KindFirewall
	return slices.Concat(firewalls.routes(
		withBody(createFirewall), withIDAndBody(kind, updateFirewall), firewalls.remove(cloud.Project.DeleteFirewall),
	), []Route{
		firewalls.action("set_rules", withIDAndBody(kind, setFirewallRules)),
		firewalls.action("apply_to_resources", withIDAndBody(kind, applyFirewall)),
		firewalls.action("remove_from_resources", withIDAndBody(kind, removeFirewall)),
	}, actionRoutesOf(firewalls))
}

type firewallRuleRequest struct {
	Direction      string         `json:"direction" check:"required,oneof=in|out"`
	Protocol       string         `json:"protocol" check:"required,oneof=tcp|udp|icmp|esp|gre"`
	Port           string         `json:"port"`
	SourceIPs      []netip.Prefix `json:"source_ips"`
	DestinationIPs []netip.Prefix `json:"destination_ips"`
	Description    *string        `json:"description"`
}

func rulesOf(requests []firewallRuleRequest) []cloud.FirewallRule {
	var rules []cloud.FirewallRule
	for _, r := range requests {
		rules = append(rules, cloud.FirewallRule(r))
	}
	return rules
}

type firewallTargetRequest struct {
	Type   string `json:"type" check:"required,oneof=server|label_selector"`
	Server *struct {
		ID int64 `json:"id" check:"required,min=1"`
	} `json:"server"`
	LabelSelector *struct {
		Selector string `json:"selector" check:"required,notblank"`
	} `json:"label_selector"`
}

// firewallTargetsOf returns the resources of a request. field is the name of their list.
func firewallTargetsOf(field string, requests []firewallTargetRequest) ([]cloud.FirewallTarget, error) {
	var targets []cloud.FirewallTarget
	for i, r := range requests {
		switch {
		case r.Type == "server" && r.Server != nil:
			targets = append(targets, cloud.FirewallTarget{Server: r.Server.ID})
		case r.Type == "label_selector" && r.LabelSelector != nil:
			targets = append(targets, cloud.FirewallTarget{Selector: r.LabelSelector.Selector})
		default:
			return nil, cloud.ErrField(fmt.Sprintf("%s.%d.%s", field, i, r.Type), "is required for the type "+r.Type)
		}
	}
	return targets, nil
}

func createFirewall(r *Request, body struct {
	Name    string                  `json:"name" check:"required,len=1:128"`
	Labels  map[string]string       `json:"labels"`
	Rules   []firewallRuleRequest   `json:"rules"`
	ApplyTo []firewallTargetRequest `json:"apply_to"`
}) (Response, error) {
	targets, err := firewallTargetsOf("apply_to", body.ApplyTo)
	if err != nil {
		return Response{}, err
	}
	f, actions, st, err := r.Project.CreateFirewall(cloud.CreateFirewall{
		Name: body.Name, Labels: body.Labels, Rules: rulesOf(body.Rules), ApplyTo: targets,
	})
	return firewalls.created(r, f, st, err, startedPart("actions", st, actions))
}

// updateFirewall is resource.update with a longest name.
func updateFirewall(r *Request, id int64, body struct {
	Name   *string           `json:"name" check:"len=1:128"`
	Labels map[string]string `json:"labels"`
}) (Response, error) {
	st, err := r.Project.UpdateFirewall(id, cloud.UpdateResource{Name: body.Name, Labels: body.Labels})
	return firewalls.updated(r, id, st, err)
}

// startedAll answers a request that has started several actions.
func startedAll(actions []int64, st *cloud.State, err error) (Response, error) {
	return object(http.StatusCreated, startedPart("actions", st, actions)), err
}

func setFirewallRules(r *Request, id int64, body struct {
	Rules []firewallRuleRequest `json:"rules" check:"required"`
}) (Response, error) {
	return startedAll(r.Project.SetFirewallRules(id, rulesOf(body.Rules)))
}

func applyFirewall(r *Request, id int64, body struct {
	ApplyTo []firewallTargetRequest `json:"apply_to" check:"required"`
}) (Response, error) {
	targets, err := firewallTargetsOf("apply_to", body.ApplyTo)
	if err != nil {
		return Response{}, err
	}
	return startedAll(r.Project.ApplyFirewall(id, targets))
}

func removeFirewall(r *Request, id int64, body struct {
	RemoveFrom []firewallTargetRequest `json:"remove_from" check:"required"`
}) (Response, error) {
	targets, err := firewallTargetsOf("remove_from", body.RemoveFrom)
	if err != nil {
		return Response{}, err
	}
	return startedAll(r.Project.RemoveFirewall(id, targets))
}
