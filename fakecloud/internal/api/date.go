package api

import (
	"fmt"
	"time"
)

// Date is a day: the API behaves as on that day. Authors use it to test both sides of a change. The zero value is after
// all changes.
type Date struct{ t time.Time }

// The days of the modelled changes (from the changelogs of hcloud-go and the API). Fields of requests that came or went
// have the day in a tag: see package bind.
var (
	// ActionsNeedIDs: GET /actions needs an id.
	ActionsNeedIDs = day(2025, 1, 30)
	// ServerTypeLocations: server types have locations.
	ServerTypeLocations = day(2025, 9, 24)
	// ServerTypeAvailability: the locations of a server type have available and recommended.
	ServerTypeAvailability = day(2026, 4, 1)
	// AssigneeTypeOptional: POST /primary_ips does not need assignee_type.
	AssigneeTypeOptional = day(2026, 4, 27)
	// LoadBalancerIdleTimeout: http of a load balancer's service has timeout_idle, in requests and responses.
	LoadBalancerIdleTimeout = day(2026, 4, 30)
	// MustBeUnassigned: an assigned Primary IP or Floating IP cannot be deleted.
	MustBeUnassigned = day(2026, 5, 1)
	// DatacenterGone: servers and Primary IPs no longer have a datacenter, in requests and responses.
	DatacenterGone = day(2026, 7, 1)
	// ImageDeprecation: images have deprecation, in addition to deprecated.
	ImageDeprecation = day(2026, 9, 11)
	// NetworkMembers: GET /networks/{id}/members exists.
	NetworkMembers = day(2026, 9, 22)
	// UnassignedAssigneeType: assignee_type is "unassigned" without an assignee.
	UnassignedAssigneeType = day(2026, 9, 23)
	// DatacentersGone: /datacenters answers 410.
	DatacentersGone = day(2026, 10, 1)
	// LoadBalancerHealthDetail: unhealthy targets of a load balancer have detail, and http_status_code if it is the reason.
	LoadBalancerHealthDetail = day(2026, 10, 2)
	// ReadonlyTokenForbidden: a write with a read-only token answers 403 forbidden.
	ReadonlyTokenForbidden = day(2026, 10, 5)
	// LoadBalancerDeleteAction: deleting a load balancer answers 201 with an action.
	LoadBalancerDeleteAction = day(2026, 10, 5)
	// LoadBalancerPrimaryIPs: POST /load_balancers takes public_net, and addresses of load balancers have id and blocked.
	LoadBalancerPrimaryIPs = day(2026, 10, 5)
)

// since are the days of the changes that added operations.
var since = map[string]Date{"list_network_members": NetworkMembers}

func day(y int, m time.Month, d int) Date { return Date{time.Date(y, m, d, 0, 0, 0, 0, time.UTC)} }

// ParseDate reads a day such as 2026-06-01. "" is the zero Date.
func ParseDate(s string) (Date, error) {
	if s == "" {
		return Date{}, nil
	}
	t, err := time.Parse(time.DateOnly, s)
	if err != nil || t.IsZero() {
		return Date{}, fmt.Errorf("API date %.64q: must be a day such as 2026-06-01", s)
	}
	return Date{t}, nil
}

// Time returns the start of the day.
func (d Date) Time() time.Time { return d.t }

// Before reports whether the date is before the day of a change.
func (d Date) Before(change Date) bool { return !d.t.IsZero() && d.t.Before(change.t) }

// day returns the date in the form of ParseDate.
func (d Date) day() string {
	if d.t.IsZero() {
		return ""
	}
	return d.t.Format(time.DateOnly)
}
