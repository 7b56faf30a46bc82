package nodes

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
)

// Counters are a container's resource usage since its start.
type Counters struct {
	// Uptime is the host's, when the others were read. It is read with them: the time between two readings needs no clock,
	// and no guess how long Docker took.
	Uptime time.Duration
	CPU    time.Duration // of all cores together

	DiskReadOps, DiskWriteOps     uint64
	DiskReadBytes, DiskWriteBytes uint64
	// Those of eth0: a node's interface in the cluster's network plays the private and the public one of its server.
	PacketsIn, PacketsOut, BytesIn, BytesOut uint64
}

// The files that are read in a container. The files of cgroups depend on their version: cpu.stat and io.stat are those of version 2, and
// the disk's are missing where the controller is off.
const (
	uptimeFile     = "/proc/uptime"
	interfacesFile = "/proc/net/dev"
	cpuFile        = "/sys/fs/cgroup/cpu.stat"
	diskFile       = "/sys/fs/cgroup/io.stat"
	cpuFileV1      = "/sys/fs/cgroup/cpuacct/cpuacct.usage"
	diskBytesV1    = "/sys/fs/cgroup/blkio/blkio.throttle.io_service_bytes_recursive"
	diskOpsV1      = "/sys/fs/cgroup/blkio/blkio.throttle.io_serviced_recursive"
)

// Counters implements Driver. It reads the files in the container, all in one command: they are exact, and the same on Linux, macOS and
// WSL. docker stats would need no process in the container, but rounds to four digits (a node that received 1 GB seems to receive nothing
// or 1 MB), counts neither packets nor operations, and takes two seconds. grep prints the name of the file before each line. It fails if
// one of the files is missing: that says nothing.
func (d *Docker) Counters(ctx context.Context, name string) (Counters, error) {
	files := strings.Join([]string{uptimeFile, interfacesFile, cpuFile, diskFile, cpuFileV1, diskBytesV1, diskOpsV1}, " ")
	text, err := docker(ctx, nil, "exec", name, "sh", "-c", "grep -s '' "+files+" || true")
	if err != nil {
		return Counters{}, err
	}
	return parseCounters(text)
}

// parseCounters reads lines such as "/proc/uptime:827.46 349.49". Bytes that pass several devices, such as an encrypted
// disk and the one beneath, count on each, as in docker stats.
func parseCounters(text string) (Counters, error) {
	var c Counters
	found := map[string]bool{}
	for line := range strings.Lines(text) {
		file, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		used, err := c.add(file, rest)
		if err != nil {
			return Counters{}, fmt.Errorf("%s has the line %.100q, which is not as expected: %w", file, rest, err)
		}
		if used {
			found[file] = true
		}
	}
	switch {
	case !found[uptimeFile]:
		return Counters{}, errors.New(uptimeFile + " is missing in the container")
	case !found[interfacesFile]:
		return Counters{}, errors.New("the container has no interface eth0; attach it to the cluster's network")
	case !found[cpuFile] && !found[cpuFileV1]:
		return Counters{}, errors.New("the container shows no CPU time; mount its cgroup at /sys/fs/cgroup")
	}
	return c, nil
}

// add adds the line of a file, and reports whether it says something.
func (c *Counters) add(file, line string) (bool, error) {
	if file == interfacesFile {
		return c.addInterface(line)
	}
	fields := strings.Fields(line)
	switch {
	case len(fields) == 0:
		return false, nil
	case file == uptimeFile:
		return true, c.setUptime(fields[0])
	case file == cpuFile && fields[0] == "usage_usec" && len(fields) == 2:
		return true, c.setCPU(fields[1], time.Microsecond)
	case file == cpuFileV1:
		return true, c.setCPU(fields[0], time.Nanosecond)
	case file == diskFile:
		return true, c.addDisk(fields[1:])
	case file == diskBytesV1 && len(fields) == 3:
		return true, addNumber(map[string]*uint64{"Read": &c.DiskReadBytes, "Write": &c.DiskWriteBytes}[fields[1]], fields[2])
	case file == diskOpsV1 && len(fields) == 3:
		return true, addNumber(map[string]*uint64{"Read": &c.DiskReadOps, "Write": &c.DiskWriteOps}[fields[1]], fields[2])
	}
	return false, nil
}

func (c *Counters) setUptime(text string) error {
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return err
	}
	if !(seconds >= 0 && seconds < math.MaxInt64/float64(time.Second)) {
		return errors.New("must be a number of seconds")
	}
	c.Uptime = time.Duration(seconds * float64(time.Second))
	return nil
}

// addInterface adds the counters of eth0: 8 of received data, then 8 of sent data.
func (c *Counters) addInterface(line string) (bool, error) {
	name, counters, _ := strings.Cut(line, ":")
	fields := strings.Fields(counters)
	if strings.TrimSpace(name) != "eth0" || len(fields) != 16 {
		return false, nil
	}
	return true, errors.Join(
		addNumber(&c.BytesIn, fields[0]), addNumber(&c.PacketsIn, fields[1]),
		addNumber(&c.BytesOut, fields[8]), addNumber(&c.PacketsOut, fields[9]))
}

func (c *Counters) setCPU(text string, unit time.Duration) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return err
	}
	if n < 0 || n > math.MaxInt64/int64(unit) {
		return errors.New("must be a time")
	}
	c.CPU = time.Duration(n) * unit
	return nil
}

// addDisk adds the counters of a device, such as rbytes=4096 wbytes=0 rios=1 wios=0.
func (c *Counters) addDisk(fields []string) error {
	for _, f := range fields {
		key, value, _ := strings.Cut(f, "=")
		counter := map[string]*uint64{
			"rbytes": &c.DiskReadBytes, "wbytes": &c.DiskWriteBytes, "rios": &c.DiskReadOps, "wios": &c.DiskWriteOps,
		}[key]
		if err := addNumber(counter, value); err != nil {
			return err
		}
	}
	return nil
}

// addNumber adds the number in a text to a counter; nothing if the counter is nil.
func addNumber(counter *uint64, text string) error {
	if counter == nil {
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	*counter += n
	return err
}

// usage returns the usage between two readings. It returns false if no time passed, or if a counter started again at 0.
func usage(before, after Counters) (hypervisor.Usage, bool) {
	seconds := (after.Uptime - before.Uptime).Seconds()
	ok := seconds > 0 && after.CPU >= before.CPU
	rate := func(before, after uint64) float64 {
		if after < before {
			ok = false
		}
		return float64(after-before) / seconds
	}
	u := hypervisor.Usage{
		CPU:            100 * (after.CPU - before.CPU).Seconds() / seconds,
		DiskReadOps:    rate(before.DiskReadOps, after.DiskReadOps),
		DiskWriteOps:   rate(before.DiskWriteOps, after.DiskWriteOps),
		DiskReadBytes:  rate(before.DiskReadBytes, after.DiskReadBytes),
		DiskWriteBytes: rate(before.DiskWriteBytes, after.DiskWriteBytes),
		PacketsIn:      rate(before.PacketsIn, after.PacketsIn),
		PacketsOut:     rate(before.PacketsOut, after.PacketsOut),
		BytesIn:        rate(before.BytesIn, after.BytesIn),
		BytesOut:       rate(before.BytesOut, after.BytesOut),
	}
	if !ok {
		return hypervisor.Usage{}, false
	}
	return u, true
}
