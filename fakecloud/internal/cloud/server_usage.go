package cloud

import (
	"fmt"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
)

// ReportServerUsage records what a server uses, at the cloud's current time, for the metrics: see ServerMetrics.
// Errors: a value that is not a number, infinite or negative; not_found.
func (c *Cloud) ReportServerUsage(id int64, u hypervisor.Usage) error {
	if err := u.Check(); err != nil {
		return fmt.Errorf("usage of server %d: %w", id, err)
	}
	return c.ifServer(id, func() { c.serverUsage.add(id, c.Now(), u) })
}

// CountServerTraffic says that from now on a data plane calls ReportServerTraffic for all traffic of servers. It is for
// the time before the first request: the metrics of servers then show this traffic, and no made-up one.
func (c *Cloud) CountServerTraffic() { c.countsTraffic.Store(true) }

// maxSegment is the payload of a full TCP segment on Ethernet with time stamps.
const maxSegment = 1448

// ReportServerTraffic records the bytes that load balancers sent to a server's public address, and got from there, in the time until now.
// Packets are estimated: as few as can carry the bytes, without those that carry none (SYN, ACK, FIN). It does nothing if the server does
// not exist: it may be deleted while a report is on its way.
func (c *Cloud) ReportServerTraffic(id, in, out int64, during time.Duration) {
	if during <= 0 || in < 0 || out < 0 {
		return
	}
	seconds := during.Seconds()
	packets := func(n int64) float64 { return float64((n+maxSegment-1)/maxSegment) / seconds }
	u := hypervisor.Usage{
		BytesIn: float64(in) / seconds, BytesOut: float64(out) / seconds, PacketsIn: packets(in), PacketsOut: packets(out),
	}
	_ = c.ifServer(id, func() { c.serverTraffic.add(id, c.Now(), u) })
}

// ifServer calls do if a server exists. It is not deleted meanwhile. Error: not_found.
func (c *Cloud) ifServer(id int64, do func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.catchUp()
	for d := range c.projects.Load().Scan {
		if _, ok := d.state.Load().Servers.Get(id); ok {
			do()
			return nil
		}
	}
	return ErrNotFound(KindServer, id)
}
