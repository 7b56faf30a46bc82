package plan

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/event"
)

// FindPrimaryIP returns the Primary IP with this ID or name, or nil. An ID takes precedence.
func FindPrimaryIP(all []*hcloud.PrimaryIP, idOrName string) *hcloud.PrimaryIP {
	i := slices.IndexFunc(all, func(p *hcloud.PrimaryIP) bool { return strconv.FormatInt(p.ID, 10) == idOrName })
	if i < 0 {
		i = slices.IndexFunc(all, func(p *hcloud.PrimaryIP) bool { return p.Name == idOrName })
	}
	if i < 0 {
		return nil
	}
	return all[i]
}

// UnfitPrimaryIP says why a new load balancer with the settings cannot have the Primary IP, or returns "".
func UnfitPrimaryIP(ip *hcloud.PrimaryIP, kind hcloud.PrimaryIPType, s *Settings) string {
	switch location := s.Location; {
	case s.DisablePublicNetwork:
		return "contradicts disable-public-network: remove one of the two" // the production CCM refuses this, too
	case ip == nil:
		return "does not exist: must be the ID or name of a Primary IP in the project"
	case ip.Type != kind:
		return fmt.Sprintf("is of type %s: must be a Primary IP of type %s", ip.Type, kind)
	case ip.AssigneeID != 0:
		return fmt.Sprintf("is assigned to %s %d: must be a Primary IP that is not assigned", ip.AssigneeType, ip.AssigneeID)
	case ip.Blocked:
		return "is blocked: must be a Primary IP that is not blocked"
	case ip.Location != nil && location != "" && ip.Location.Name != location:
		return fmt.Sprintf("is in location %s: must be in %s, the location of the load balancer", ip.Location.Name, location)
	}
	return ""
}

// primaryIPNotes warns of Primary IPs that do not outlive the load balancer.
func primaryIPNotes(in Input) (notes []Note) {
	for _, ip := range []*hcloud.PrimaryIP{in.PrimaryIPv4, in.PrimaryIPv6} {
		if ip != nil && ip.AutoDelete {
			notes = append(notes, Note{Reason: event.AddressImmutable, Text: fmt.Sprintf(
				"Primary IP %d (%s) is deleted together with the load balancer: set its auto_delete to false to keep the "+
					"address", ip.ID, ip.Name)})
		}
	}
	return notes
}
