package contract_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestAChangeOfTypeStartsTheServerAndKeepsOrUpgradesTheDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for i, upgrade := range []bool{false, true} {
		path := serverPath(w.offServer(fmt.Sprint("node-", i)))
		before := w.do(200, "GET", path, nil)["server"].(object)
		w.startAction(path, "change_type", object{"server_type": "cx33", "upgrade_disk": upgrade})
		w.expectStatus(path, "migrating")
		w.clock.Step(actionTime)
		w.expectStatus(path, "running")
		after := w.do(200, "GET", path, nil)["server"].(object)
		want := before["primary_disk_size"]
		if upgrade {
			want = at(after, "server_type", "disk")
		}
		if at(after, "server_type", "name") != "cx33" || after["primary_disk_size"] != want {
			t.Errorf("upgrade %v: type %v, disk %v, want %v", upgrade, at(after, "server_type", "name"), after["primary_disk_size"], want)
		}
	}
}

func TestAfterADiskUpgradeThereIsNoWayBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	back := object{"server_type": "cx23", "upgrade_disk": false}
	for i, upgrade := range []bool{false, true} {
		path := serverPath(w.offServer(fmt.Sprint("node-", i)))
		w.act(path, "change_type", object{"server_type": "cx33", "upgrade_disk": upgrade})
		w.act(path, "poweroff", nil)
		if upgrade {
			w.refuseAction("invalid_server_type", path, "change_type", back)
		} else {
			w.act(path, "change_type", back)
		}
	}
}

func TestASnapshotOutlivesItsServerAndABackupDoesNot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	server := w.runningServer("a")
	w.act(serverPath(server), "enable_backup", nil)
	snapshot, backup := w.imageOf(serverPath(server), "snapshot"), w.imageOf(serverPath(server), "backup")
	for image, bound := range map[string]string{snapshot: "0", backup: server.String()} {
		got := at(w.do(200, "GET", image, nil), "image").(object)
		if idOf(object{"id": got["bound_to"]}) != bound || idOf(got["created_from"]) != server.String() {
			t.Errorf("image: %v", got)
		}
	}
	w.do(200, "DELETE", serverPath(server), nil)
	w.finish()
	w.do(200, "GET", snapshot, nil)
	w.refuse(404, "not_found", "GET", backup, nil)
}

func TestABackupNeedsBackupsToBeEnabled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	path := serverPath(w.runningServer("a"))
	w.refuseAction("invalid_input", path, "create_image", object{"type": "backup"})
	w.act(path, "enable_backup", nil)
	w.do(200, "GET", w.imageOf(path, "backup"), nil)
}

func TestAServerKeepsSevenBackups(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	path := serverPath(w.runningServer("a"))
	w.act(path, "enable_backup", nil)
	if window := at(w.do(200, "GET", path, nil), "server", "backup_window"); window == nil {
		t.Error("backups are not enabled")
	}
	var made []string
	for range 9 {
		made = append(made, idIn(w.imageOf(path, "backup")).String())
	}
	if kept := idsIn(w.list("/images?type=backup", "images")); !slices.Equal(kept, made[2:]) {
		t.Errorf("backups %v, want the latest seven of %v", kept, made)
	}
}

func TestDisablingBackupsDeletesThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	path := serverPath(w.runningServer("a"))
	w.act(path, "enable_backup", nil)
	backup, snapshot := w.imageOf(path, "backup"), w.imageOf(path, "snapshot")
	w.act(path, "disable_backup", nil)
	w.refuse(404, "not_found", "GET", backup, nil)
	w.do(200, "GET", snapshot, nil)
	if window := at(w.do(200, "GET", path, nil), "server", "backup_window"); window != nil {
		t.Errorf("backup window %v", window)
	}
}

func TestABackupIsMadeEachDay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	path := serverPath(w.runningServer("a"))
	w.act(path, "enable_backup", nil)
	for day := 1; day <= 9; day++ { // the latest seven stay
		w.clock.Step(24 * time.Hour)
		if made := w.list("/images?type=backup&status=available", "images"); len(made) != min(day, 7) {
			t.Errorf("after %d days, there are %d backups", day, len(made))
		}
	}
}

// metricsOf makes a resource that is a day old, and returns the path of its metrics and the types of them.
func (w *world) metricsOf(kind string) (path string, types []string) {
	w.Helper()
	if kind == "servers" {
		path, types = serverPath(w.runningServer("a")), []string{"cpu", "disk", "network"}
	} else {
		path = w.loadBalancer(smallLoadBalancer(w, "lb"))
		types = []string{"open_connections", "connections_per_second", "requests_per_second", "bandwidth"}
	}
	w.clock.Step(24 * time.Hour)
	return path + "/metrics", types
}

// series returns the time series of a query for metrics, and its step.
func (w *world) series(path, query string) (map[string][]any, float64) {
	w.Helper()
	metrics := w.do(200, "GET", path+"?"+query, nil)["metrics"].(object)
	all := make(map[string][]any)
	for name, series := range metrics["time_series"].(object) {
		all[name] = series.(object)["values"].([]any)
	}
	return all, metrics["step"].(float64)
}

var metricKinds = []string{"servers", "load_balancers"}

func TestMetricsNeedATypeAndTakeSeveral(t *testing.T) {
	t.Parallel()
	for _, kind := range metricKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			path, types := w.metricsOf(kind)
			period := "start=" + w.hoursAgo(1) + "&end=" + w.hoursAgo(0)
			w.refuse(422, "invalid_input", "GET", path+"?"+period, nil)
			for _, wrong := range []string{
				"type=other&" + period, "type=" + types[0] + "&step=0&" + period, "type=" + types[0] + "&step=NaN&" + period,
				"type=" + types[0] + "&start=" + w.hoursAgo(0) + "&end=" + w.hoursAgo(1),
			} {
				w.refuse(422, "invalid_input", "GET", path+"?"+wrong, nil)
			}
			// Exporters ask so at each scrape, and read the first value of each series (promhippie/hcloud_exporter issue 74).
			for _, moment := range []string{w.hoursAgo(0), w.hoursAgo(100), w.hoursAgo(-1)} {
				all, _ := w.series(path, "type="+strings.Join(types, ",")+"&start="+moment+"&end="+moment)
				for name, values := range all {
					if len(values) != 1 {
						t.Errorf("%s at %s: %d samples, want one", name, moment, len(values))
					}
				}
			}
			one, _ := w.series(path, "type="+types[0]+"&"+period)
			two, _ := w.series(path, "type="+types[0]+","+types[1]+"&"+period)
			if len(one) == 0 || len(two) <= len(one) {
				t.Errorf("one type: %d series, two: %d", len(one), len(two))
			}
		})
	}
}

func TestEachTypeOfMetricHasItsSeries(t *testing.T) {
	t.Parallel()
	for metric, c := range map[string]struct {
		kind   string
		series []string
	}{
		"cpu": {"servers", []string{"cpu"}},
		"disk": {"servers", []string{"disk.0.bandwidth.read", "disk.0.bandwidth.write", "disk.0.iops.read",
			"disk.0.iops.write"}},
		"network": {"servers", []string{"network.0.bandwidth.in", "network.0.bandwidth.out", "network.0.pps.in",
			"network.0.pps.out"}},
		"open_connections":       {"load_balancers", []string{"open_connections"}},
		"connections_per_second": {"load_balancers", []string{"connections_per_second"}},
		"requests_per_second":    {"load_balancers", []string{"requests_per_second"}},
		"bandwidth":              {"load_balancers", []string{"bandwidth.in", "bandwidth.out"}},
	} {
		t.Run(metric, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			path, _ := w.metricsOf(c.kind)
			all, _ := w.series(path, "type="+metric+"&start="+w.hoursAgo(1)+"&end="+w.hoursAgo(0))
			var got []string
			for name, values := range all {
				if got = append(got, name); len(values) == 0 {
					t.Errorf("%s has no samples", name)
				}
			}
			if slices.Sort(got); !slices.Equal(got, c.series) {
				t.Errorf("series %v, want %v", got, c.series)
			}
		})
	}
}

func TestMetricsGoBackThirtyDays(t *testing.T) {
	t.Parallel()
	for _, kind := range metricKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			path, types := w.metricsOf(kind)
			w.clock.Step(60 * 24 * time.Hour)
			all, _ := w.series(path, "type="+types[0]+"&step=86400&start="+w.hoursAgo(40*24)+"&end="+w.hoursAgo(0))
			if values := all[types[0]]; len(values) != 30 {
				t.Errorf("%d days, want 30", len(values))
			}
			all, _ = w.series(path, "type="+types[0]+"&start="+w.hoursAgo(40*24)+"&end="+w.hoursAgo(31*24))
			if values := all[types[0]]; len(values) != 0 {
				t.Errorf("%d samples of 31 days ago", len(values))
			}
		})
	}
}

func TestMetricsHave200SamplesAndAtMost500(t *testing.T) {
	t.Parallel()
	for _, kind := range metricKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			path, types := w.metricsOf(kind)
			query := "type=" + types[0] + "&start=" + w.hoursAgo(1) + "&end=" + w.hoursAgo(0)
			all, step := w.series(path, query)
			if n := len(all[types[0]]); n != 200 || step != 18 {
				t.Errorf("without a step: %d samples with step %v, want 200 with 18", n, step)
			}
			all, step = w.series(path, query+"&step=1")
			if n := len(all[types[0]]); n > 500 || n < 400 || step != 8 {
				t.Errorf("with step 1: %d samples with step %v, want at most 500 with 8", n, step)
			}
		})
	}
}
