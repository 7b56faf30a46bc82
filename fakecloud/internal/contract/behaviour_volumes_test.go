package contract_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func (w *world) volume(name string) string {
	w.Helper()
	path := "/volumes/" + w.create("volume", "/volumes", smallVolume(w, name))
	w.finish()
	return path
}

func TestAVolumeForAServerIsAttachedAfterItsCreation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	server := w.runningServer("a")
	created := w.do(201, "POST", "/volumes", object{"name": "v", "size": 10, "server": server})
	if next := created["next_actions"].([]any); len(next) != 1 || at(next[0].(object), "command") != "attach_volume" {
		t.Errorf("next actions: %v", next)
	}
	if at(created, "volume", "server") != nil || at(created, "volume", "status") != "creating" {
		t.Errorf("volume at first: %v", created["volume"])
	}
	w.finish()
	w.expectVolumes(server, "/volumes/"+idOf(created["volume"]))
}

func TestAVolumeHasAServerOrALocation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.refuse(422, "invalid_input", "POST", "/volumes", object{"name": "nowhere", "size": 10})
	if got := w.do(200, "GET", w.volume("v"), nil); at(got, "volume", "server") != nil || at(got, "volume", "location", "name") != "fsn1" {
		t.Errorf("a volume with a location: %v", got)
	}
}

func TestAVolumeIsAttachedOnlyInItsLocation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	far := smallServer(w, "far")
	far["location"] = "hel1"
	path := w.volume("v")
	w.refuseAction("service_error", path, "attach", object{"server": json.Number(w.server(far))})
	near := w.runningServer("near")
	w.act(path, "attach", object{"server": near})
	w.expectVolumes(near, path)
}

func TestAVolumeHasTenTo10240GB(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for size, fits := range map[int]bool{9: false, 10: true, 10240: true, 10241: false} {
		body := smallVolume(w, fmt.Sprint("v", size))
		body["size"] = size
		if fits {
			w.do(201, "POST", "/volumes", body)
		} else {
			w.refuse(422, "invalid_input", "POST", "/volumes", body)
		}
	}
}

func TestNamesOfVolumes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for _, name := range []string{"a", "A-1_b.c", "0", strings.Repeat("n", 64)} {
		w.do(201, "POST", "/volumes", smallVolume(w, name))
	}
	for _, name := range []string{"", "-a", "a-", ".a", "a.", "_a", "a_", "a b", "a/b", "ä", strings.Repeat("n", 65)} {
		w.refuse(422, "invalid_input", "POST", "/volumes", smallVolume(w, name))
	}
	w.refuse(409, "uniqueness_error", "POST", "/volumes", smallVolume(w, "a"))
	w.as(otherToken).do(201, "POST", "/volumes", smallVolume(w, "a"))
}

func TestAVolumeIsDeletedOnlyIfItIsDetachedAndNotProtected(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	path := w.volume("v")
	w.act(path, "attach", object{"server": w.runningServer("a")})
	w.refuse(422, "service_error", "DELETE", path, nil)
	w.act(path, "detach", nil)
	w.act(path, "change_protection", object{"delete": true})
	w.refuse(423, "protected", "DELETE", path, nil)
	w.act(path, "change_protection", object{"delete": false})
	w.do(204, "DELETE", path, nil)
}

func TestADetachedVolumeCanBeAttachedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	path := w.volume("v")
	one, two := w.runningServer("one"), w.runningServer("two")
	for _, server := range []json.Number{one, two} {
		w.act(path, "attach", object{"server": server})
		w.expectVolumes(server, path)
		w.act(path, "detach", nil)
		w.expectVolumes(server)
	}
}

func TestAVolumeOnlyGrows(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	path := w.volume("v")
	w.act(path, "resize", object{"size": 20})
	if got := at(w.do(200, "GET", path, nil), "volume", "size"); got != 20.0 {
		t.Errorf("size %v", got)
	}
	for _, size := range []int{10, 19} {
		w.refuseAction("invalid_input", path, "resize", object{"size": size})
	}
}
