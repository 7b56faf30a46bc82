package hypervisor

import (
	"fmt"
	"math"
)

// Usage is the resource usage of a server's guest, for the server's metrics. All values are averages since the last report, and must not be
// negative. A report counts for a minute or for one step of the metrics, whichever is longer: report more often, or the metrics have zeros
// between the reports.
type Usage struct {
	// CPU is in percent of one core. With several cores, it may exceed 100.
	CPU float64 `json:"cpu"`

	DiskReadOps    float64 `json:"disk_read_ops"`    // operations per second
	DiskWriteOps   float64 `json:"disk_write_ops"`   // operations per second
	DiskReadBytes  float64 `json:"disk_read_bytes"`  // per second
	DiskWriteBytes float64 `json:"disk_write_bytes"` // per second

	// The packets and bytes are those of the server's public interface, per second. The server receives In and sends Out.
	PacketsIn  float64 `json:"packets_in"`
	PacketsOut float64 `json:"packets_out"`
	BytesIn    float64 `json:"bytes_in"`
	BytesOut   float64 `json:"bytes_out"`
}

// Check returns an error that names the first value that is negative, infinite or not a number.
func (u Usage) Check() error {
	for _, v := range []struct {
		name  string
		value float64
	}{
		{"cpu", u.CPU},
		{"disk_read_ops", u.DiskReadOps},
		{"disk_write_ops", u.DiskWriteOps},
		{"disk_read_bytes", u.DiskReadBytes},
		{"disk_write_bytes", u.DiskWriteBytes},
		{"packets_in", u.PacketsIn},
		{"packets_out", u.PacketsOut},
		{"bytes_in", u.BytesIn},
		{"bytes_out", u.BytesOut},
	} {
		if math.Signbit(v.value) || math.IsNaN(v.value) || math.IsInf(v.value, 0) {
			return fmt.Errorf("%s: %v: must be a number of at least 0", v.name, v.value)
		}
	}
	return nil
}
