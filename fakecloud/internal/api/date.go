package api

import (
	"fmt"
	"time"
)

// Date is a day: the API behaves as on that day. Authors use it to test both sides of a change. The zero value is after
// all changes.
type Date struct{ t time.Time }

// The days of the modelled changes (from the changelogs of hcloud-go and the API).
var (
	// DatacenterGone: servers and Primary IPs no longer have a datacenter.
	DatacenterGone = day(7, 1)
	// DatacentersGone: /datacenters answers 410.
	DatacentersGone = day(10, 1)
	// UnassignedAssigneeType: assignee_type is "unassigned" if there is no assignee.
	UnassignedAssigneeType = day(9, 23)
	// ReadonlyTokenForbidden: a write with a read-only token answers 403 forbidden.
	ReadonlyTokenForbidden = day(10, 5)
	// LoadBalancerDeleteAction: deleting a load balancer answers 201 with an action.
	LoadBalancerDeleteAction = day(10, 5)
	// MustBeUnassigned: an assigned Primary IP cannot be deleted.
	MustBeUnassigned = day(5, 1)
)

// day returns a day of 2026.
func day(m time.Month, d int) Date { return Date{time.Date(2026, m, d, 0, 0, 0, 0, time.UTC)} }

// ParseDate reads a day such as 2026-06-01. "" is the zero Date.
func ParseDate(s string) (Date, error) {
	if s == "" {
		return Date{}, nil
	}
	t, err := time.Parse(time.DateOnly, s)
	if err != nil {
		return Date{}, fmt.Errorf("API date %q: must be a day such as 2026-06-01", s)
	}
	return Date{t}, nil
}

// Before reports whether the date is before the day of a change.
func (d Date) Before(change Date) bool { return !d.t.IsZero() && d.t.Before(change.t) }
