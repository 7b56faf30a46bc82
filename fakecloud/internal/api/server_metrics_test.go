package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

func TestMetricsOverTheWire(t *testing.T) {
	t.Parallel()
	client, w := newWireClient(t, fakecloud.Options{})
	ctx := t.Context()
	s := must(client.Server.Create(ctx, serverOpts("a")))(t).Server
	w.clock.Step(2 * time.Hour)
	now := w.clock.Now()
	m := must(client.Server.GetMetrics(ctx, s, hcloud.ServerGetMetricsOpts{
		Types: []hcloud.ServerMetricType{hcloud.ServerMetricCPU, hcloud.ServerMetricDisk, hcloud.ServerMetricNetwork},
		Start: now.Add(-time.Hour), End: now, Step: 60,
	}))(t)
	var names []string
	for name, values := range m.TimeSeries {
		names = append(names, name)
		if len(values) != 60 || values[0].Value == "" || values[0].Timestamp != float64(now.Add(-time.Hour).Unix()) {
			t.Errorf("%s: %d values, the first %+v", name, len(values), values[0])
		}
	}
	slices.Sort(names)
	if want := []string{
		"cpu", "disk.0.bandwidth.read", "disk.0.bandwidth.write", "disk.0.iops.read", "disk.0.iops.write",
		"network.0.bandwidth.in", "network.0.bandwidth.out", "network.0.pps.in", "network.0.pps.out",
	}; !slices.Equal(names, want) || m.Step != 60 {
		t.Errorf("step %v, series %v", m.Step, names)
	}
	path := fmt.Sprintf("/servers/%d/metrics", s.ID)
	period := "&start=2026-11-20T12:00:00Z&end=2026-11-20T13:00:00Z"
	for query, ok := range map[string]bool{
		"?type=cpu,disk" + period:                                            true,
		"?type=cpu&type=disk" + period:                                       true,
		"?type=cpu&step=7" + period:                                          true,
		"?type=cpu&start=2026-11-20T12:00:00+01:00&end=2026-11-20T13:00:00Z": true,
		"?type=ram" + period:                                                 false,
		"?" + period[1:]:                                                     false,
		"?type=cpu":                                                          false,
		"?type=cpu&step=-1" + period:                                         false,
		"?type=cpu&step=0" + period:                                          false,
		"?type=cpu&step=NaN" + period:                                        false,
		"?type=cpu&start=yesterday&end=2026-11-20T13:00:00Z":                 false,
		"?type=cpu&start=2026-11-20T13:00:00Z&end=2026-11-20T12:00:00Z":      false,
	} {
		if ok {
			w.do(http.MethodGet, path+query, nil, http.StatusOK)
		} else if got := w.refused(http.MethodGet, path+query, nil, http.StatusUnprocessableEntity); got != "invalid_input" {
			t.Errorf("%s: %s", query, got)
		}
	}
}
