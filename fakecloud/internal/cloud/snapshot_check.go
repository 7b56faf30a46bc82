package cloud

import (
	"fmt"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/simclock"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// checkReferences returns an error if a resource names one that does not exist, and other code relies on it.
func (tx *Tx) checkReferences() (err error) {
	need := func(from Ref, kind store.Kind, ids ...int64) {
		for _, id := range ids {
			if id != 0 && err == nil && !tx.has(Ref{kind, id}) {
				err = fmt.Errorf("project %d: the %s %d must exist: the %s %d names it", tx.project.id, words(kind), id, words(from.Kind),
					from.ID)
			}
		}
	}
	for s := range tx.Servers.All() {
		need(s.Ref(), KindPrimaryIP, s.PublicIPv4, s.PublicIPv6)
		need(s.Ref(), KindFloatingIP, s.FloatingIPs...)
		need(s.Ref(), KindVolume, s.Volumes...)
		need(s.Ref(), KindPlacementGroup, s.PlacementGroup)
		need(s.Ref(), KindLoadBalancer, s.LoadBalancers...)
		for _, f := range s.Firewalls {
			need(s.Ref(), KindFirewall, f.ID)
		}
		for _, n := range s.PrivateNets {
			need(s.Ref(), KindNetwork, n.Network)
		}
	}
	for lb := range tx.LoadBalancers.All() {
		need(lb.Ref(), KindPrimaryIP, lb.IPv4.PrimaryIP, lb.IPv6.PrimaryIP)
		need(lb.Ref(), KindNetwork, lb.network())
		need(lb.Ref(), KindCertificate, lb.certificates()...)
		need(lb.Ref(), KindServer, serversOf(lb.Targets)...)
	}
	for n := range tx.Networks.All() {
		for _, m := range n.Members {
			need(n.Ref(), m.Kind, m.ID)
		}
	}
	for ip := range tx.PrimaryIPs.All() {
		need(ip.Ref(), ip.Assignee.Kind, ip.Assignee.ID)
	}
	for ip := range tx.FloatingIPs.All() {
		need(ip.Ref(), KindServer, ip.Server)
	}
	for v := range tx.Volumes.All() {
		need(v.Ref(), KindServer, v.Server)
	}
	for f := range tx.Firewalls.All() {
		need(f.Ref(), KindServer, f.servers()...)
	}
	for g := range tx.PlacementGroups.All() {
		need(Ref{KindPlacementGroup, g.ID}, KindServer, g.Servers...)
	}
	for c := range tx.Certificates.All() {
		for _, r := range c.UsedBy {
			need(c.Ref(), r.Kind, r.ID)
		}
	}
	return err
}

// has reports whether a resource exists.
func (st *State) has(r Ref) bool {
	i := place(r.Kind)
	return i >= 0 && resources[i].table(st).Has(r.ID)
}

// rehearse lets a copy of the cloud do what is due, and returns an error if that cannot be done: a file that a user has edited may
// have work that fits no resource. What is repeated without end is done a few times.
func (c *Cloud) rehearse(start time.Time) (err error) {
	clk := simclock.NewAt(start, 0)
	f := c.copy(clk)
	defer func() {
		if broken := recover(); broken != nil {
			err = fmt.Errorf("what is due in the snapshot does not fit its resources, so it cannot happen (%v); save it again", broken)
		}
	}()
	f.ResumeActions()
	var last time.Time
	for _, j := range f.queue {
		if j.due.After(last) {
			last = j.due
		}
	}
	for range len(f.queue)/maxBatch + 10 {
		f.settleBatch(last)
	}
	return nil
}
