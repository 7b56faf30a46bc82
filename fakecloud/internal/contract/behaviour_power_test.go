package contract_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// expectStatus compares the status of a server.
func (w *world) expectStatus(path, want string) {
	w.Helper()
	if got := at(w.do(200, "GET", path, nil), "server", "status"); got != want {
		w.Errorf("%s is %v, want %s", path, got, want)
	}
}

func serverPath(id json.Number) string { return "/servers/" + id.String() }

// startAction starts an action and returns its path.
func (w *world) startAction(path, name string, body any) string {
	w.Helper()
	return "/actions/" + idOf(w.do(201, "POST", path+"/actions/"+name, body)["action"])
}

func (w *world) expectAction(path, want string) {
	w.Helper()
	if got := at(w.do(200, "GET", path, nil), "action", "status"); got != want {
		w.Errorf("%s: %v, want %s", path, got, want)
	}
}

func TestPower(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		off                    bool
		command                string
		during, atEnd, andThen string // the status while the action runs, when it has ended, and a minute after that
	}{
		"the power of a server is cut":          {false, "poweroff", "stopping", "off", "off"}, // the guest has no time to stop
		"a server starts":                       {true, "poweron", "starting", "running", "running"},
		"a shutdown ends after its action":      {false, "shutdown", "running", "running", "off"},
		"a reboot keeps the guest running":      {false, "reboot", "running", "running", "running"},
		"a server that is off ignores a reboot": {true, "reboot", "off", "off", "off"},
		"a reset starts a running server again": {false, "reset", "starting", "running", "running"},
		"a reset starts a server that is off":   {true, "reset", "starting", "running", "running"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			body := smallServer(w, "a")
			body["start_after_create"] = !c.off
			path := "/servers/" + w.server(body)
			action := w.startAction(path, c.command, nil)
			for i, want := range []string{c.during, c.atEnd, c.andThen} {
				w.expectStatus(path, want)
				if got := at(w.do(200, "GET", path, nil), "server", "locked"); got != (i == 0) {
					t.Errorf("locked: %v while it is %s", got, want)
				}
				w.clock.Step([]time.Duration{actionTime, time.Minute, 0}[i])
			}
			w.expectAction(action, "success")
		})
	}
}

func TestRescueModeDoesNotReboot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	path, linux := serverPath(w.runningServer("a")), object{"type": "linux64"}
	for name, want := range map[string]bool{"enable_rescue": true, "disable_rescue": false} {
		if name == "disable_rescue" {
			w.act(path, "enable_rescue", linux)
		}
		w.startAction(path, name, map[bool]any{true: linux}[want])
		w.expectStatus(path, "running")
		w.finish()
		w.expectStatus(path, "running")
		if got := at(w.do(200, "GET", path, nil), "server", "rescue_enabled"); got != want {
			t.Errorf("%s: rescue_enabled is %v", name, got)
		}
	}
}

func TestEachRequestForAConsoleHasANewURLAndPassword(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	path := serverPath(w.runningServer("a")) + "/actions/request_console"
	seen := make(map[string]bool)
	for range 2 {
		console := w.do(201, "POST", path, nil)
		address, password := console["wss_url"].(string), console["password"].(string)
		if seen[address], seen[password] = true, true; strings.Contains(address, password) {
			t.Errorf("the URL %s has the password %s", address, password)
		}
		w.finish()
	}
	if len(seen) != 4 || seen[""] {
		t.Errorf("URLs and passwords: %v", seen)
	}
}

func TestANewRootPasswordNeedsARunningServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	created := w.do(201, "POST", "/servers", smallServer(w, "a"))
	w.finish()
	path := "/servers/" + idOf(created["server"])
	password := w.do(201, "POST", path+"/actions/reset_password", nil)["root_password"]
	if password == "" || password == nil || password == created["root_password"] {
		t.Errorf("the new password is %v, the first one was %v", password, created["root_password"])
	}
	w.refuseAction("unsupported_error", serverPath(w.offServer("off")), "reset_password", nil)
}

func TestARebuildTakesAnySystemImageSnapshotOrBackup(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	path := serverPath(w.runningServer("a"))
	w.act(path, "enable_backup", nil)
	debian := w.first("/images?name=debian-13&architecture=x86", "images")
	images := []string{"/images/" + idOf(debian), w.imageOf(path, "snapshot"), w.imageOf(path, "backup")}
	for _, image := range images {
		id := image[len("/images/"):]
		w.act(path, "rebuild", object{"image": id})
		if got := idOf(at(w.do(200, "GET", path, nil), "server", "image")); got != id {
			t.Errorf("image %s, want %s", got, id)
		}
	}
}

func TestAServerIsRebuildingAndThenRunsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	path := serverPath(w.runningServer("a"))
	w.startAction(path, "rebuild", object{"image": "debian-13"})
	w.expectStatus(path, "rebuilding") // it does not run
	w.clock.Step(actionTime)
	w.expectStatus(path, "running")
}

func TestAnISOReplacesTheAttachedOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	path := serverPath(w.runningServer("a"))
	for _, iso := range w.list("/isos?architecture=x86&per_page=2", "isos") {
		w.act(path, "attach_iso", object{"iso": iso.(object)["name"]})
		if got := at(w.do(200, "GET", path, nil), "server", "iso", "name"); got != iso.(object)["name"] {
			t.Errorf("ISO %v, want %v", got, iso)
		}
	}
}

func TestDetachingNoISOSucceedsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	path := serverPath(w.runningServer("a"))
	w.act(path, "attach_iso", object{"iso": w.first("/isos?architecture=x86", "isos")["name"]})
	w.expectAction(w.startAction(path, "detach_iso", nil), "running")
	w.finish()
	if left := at(w.do(200, "GET", path, nil), "server", "iso"); left != nil {
		t.Errorf("ISO %v", left)
	}
	if got := at(w.do(201, "POST", path+"/actions/detach_iso", nil), "action", "status"); got != "success" {
		t.Errorf("detaching nothing: %v", got)
	}
}
