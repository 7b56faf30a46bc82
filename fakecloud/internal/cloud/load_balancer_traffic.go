package cloud

import "time"

// LoadBalancerTraffic is what a load balancer has moved in the current billing period, a calendar month in UTC.
type LoadBalancerTraffic struct {
	In    int64     `json:"in,omitzero"`    // bytes from and to clients
	Out   int64     `json:"out,omitzero"`   // bytes from and to clients
	Month time.Time `json:"month,omitzero"` // its beginning
}

// AddLoadBalancerTraffic adds bytes that a load balancer moved since the last report. A data plane calls it every few seconds, even with
// zero bytes: with a new month, the counters begin at 0 again.
func (p Project) AddLoadBalancerTraffic(lb, in, out int64) {
	now := p.cloud.Now().UTC()
	month := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	changes := func(t *LoadBalancerTraffic) bool {
		return in > 0 || out > 0 || t != nil && !t.Month.Equal(month)
	}
	if old, ok := p.View().LoadBalancers.Get(lb); !ok || !changes(old.Traffic) {
		return
	}
	_, _ = p.update(func(tx *Tx) error { // the function returns no error
		old, ok := tx.LoadBalancers.Get(lb)
		if !ok || !changes(old.Traffic) {
			return nil
		}
		traffic := LoadBalancerTraffic{In: in, Out: out, Month: month}
		if t := old.Traffic; t != nil && t.Month.Equal(month) {
			traffic.In, traffic.Out = t.In+in, t.Out+out
		}
		changed := *old // the settings and the targets are shared
		changed.Traffic = &traffic
		tx.LoadBalancers.Put(&changed)
		return nil
	})
}
