package nodes

import (
	"strings"
	"testing"
	"time"
)

const (
	readV2 = `/proc/uptime:827.46 349.49
/proc/net/dev:Inter-|   Receive                                                |  Transmit
/proc/net/dev: face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
/proc/net/dev:    lo: 779625715  492938    0    0    0     0          0         0 779625715  492938    0    0    0     0       0          0
/proc/net/dev:  eth0: 244909951   15421    0    0    0     0          0         0  1339235   12063    0    0    0     0       0          0
/proc/net/dev: veth1: 7 7    0    0    0     0          0         0  7   7    0    0    0     0       0          0
/sys/fs/cgroup/cpu.stat:usage_usec 22876513
/sys/fs/cgroup/cpu.stat:user_usec 12876513
/sys/fs/cgroup/io.stat:8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=512 dios=9
/sys/fs/cgroup/io.stat:7:3
/sys/fs/cgroup/io.stat:253:1 rbytes=100 wbytes=200 rios=3 wios=4 dbytes=0 dios=0`
	readV1 = `/proc/uptime:10.5 1
/proc/net/dev:  eth0:1 2    0    0    0     0          0         0  3   4    0    0    0     0       0          0
/sys/fs/cgroup/cpuacct/cpuacct.usage:1298324703904
/sys/fs/cgroup/blkio/blkio.throttle.io_service_bytes_recursive:8:0 Read 4096
/sys/fs/cgroup/blkio/blkio.throttle.io_service_bytes_recursive:8:0 Write 10
/sys/fs/cgroup/blkio/blkio.throttle.io_service_bytes_recursive:8:0 Sync 7
/sys/fs/cgroup/blkio/blkio.throttle.io_service_bytes_recursive:8:16 Read 4
/sys/fs/cgroup/blkio/blkio.throttle.io_service_bytes_recursive:Total 4110
/sys/fs/cgroup/blkio/blkio.throttle.io_serviced_recursive:8:0 Read 5
/sys/fs/cgroup/blkio/blkio.throttle.io_serviced_recursive:8:0 Write 6
/sys/fs/cgroup/blkio/blkio.throttle.io_serviced_recursive:Total 11`
)

func TestCountersAreReadFromBothVersionsOfCgroups(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want Counters
	}{
		"version 2": {readV2, Counters{
			Uptime: 827460 * time.Millisecond, CPU: 22876513 * time.Microsecond,
			DiskReadOps: 4, DiskWriteOps: 6, DiskReadBytes: 4196, DiskWriteBytes: 8392,
			PacketsIn: 15421, PacketsOut: 12063, BytesIn: 244909951, BytesOut: 1339235,
		}},
		"version 1": {readV1, Counters{
			Uptime: 10500 * time.Millisecond, CPU: 1298324703904,
			DiskReadOps: 5, DiskWriteOps: 6, DiskReadBytes: 4100, DiskWriteBytes: 10,
			PacketsIn: 2, PacketsOut: 4, BytesIn: 1, BytesOut: 3,
		}},
	} {
		if got, err := parseCounters(c.text); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v\nwant %+v", name, got, err, c.want)
		}
	}
}

func TestCountersThatCannotBeReadAreErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ old, new, want string }{
		"nothing":          {readV2, "", "/proc/uptime is missing"},
		"no uptime":        {"/proc/uptime:827.46 349.49\n", "", "/proc/uptime is missing"},
		"no eth0":          {"eth0", "eth1", "no interface eth0"},
		"no CPU":           {"usage_usec", "nr_periods", "no CPU time"},
		"uptime NaN":       {"827.46", "NaN", "seconds"},
		"uptime backwards": {"827.46", "-1", "seconds"},
		"uptime forever":   {"827.46", "1e300", "seconds"},
		"negative CPU":     {"usage_usec 2", "usage_usec -2", "a time"},
		"endless CPU":      {"usage_usec 22876513", "usage_usec 9223372036854775807", "a time"},
		"words for bytes":  {"244909951", "many", "many"},
		"words for I/O":    {"rbytes=4096", "rbytes=", "io.stat"},
	} {
		text := strings.Replace(readV2, c.old, c.new, 1)
		if got, err := parseCounters(text); err == nil || !strings.Contains(err.Error(), c.want) || got != (Counters{}) {
			t.Errorf("%s: %+v, %v; want an error with %q", name, got, err, c.want)
		}
	}
}

// FuzzCounters: what is read of a container makes a report that the cloud takes, or none.
func FuzzCounters(f *testing.F) {
	f.Add(readV1, readV2)
	f.Add(readV2, strings.Replace(readV2, "827", "837", 1))
	f.Fuzz(func(t *testing.T, first, second string) {
		before, err := parseCounters(first)
		if err != nil {
			return
		}
		after, err := parseCounters(second)
		if err != nil {
			return
		}
		if u, ok := usage(before, after); ok {
			if err := u.Check(); err != nil {
				t.Errorf("%+v, %+v: %v", before, after, err)
			}
		}
	})
}

func TestUsageNeedsTimeAndCountersThatGrow(t *testing.T) {
	t.Parallel()
	before := Counters{Uptime: time.Minute, CPU: time.Minute, DiskWriteOps: 5, BytesOut: 5}
	for name, c := range map[string]struct {
		change func(*Counters)
		ok     bool
	}{
		"time and nothing used": {func(c *Counters) { c.Uptime++ }, true},
		"no time":               {func(c *Counters) { c.BytesOut++ }, false},
		"time goes back":        {func(c *Counters) { c.Uptime-- }, false},
		"less CPU":              {func(c *Counters) { c.Uptime++; c.CPU-- }, false},
		"fewer operations":      {func(c *Counters) { c.Uptime++; c.DiskWriteOps-- }, false},
		"fewer bytes":           {func(c *Counters) { c.Uptime++; c.BytesOut-- }, false},
	} {
		after := before
		c.change(&after)
		if u, ok := usage(before, after); ok != c.ok || !ok && u.Check() != nil {
			t.Errorf("%s: %+v, %t", name, u, ok)
		}
	}
}
