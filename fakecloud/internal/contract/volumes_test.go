package contract_test

import (
	"encoding/json"
	"fmt"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

func smallVolume(_ *world, name string) object {
	return object{"name": name, "size": 10, "location": "fsn1"}
}

func populateVolumes(w *world) {
	w.Helper()
	server := json.Number(idOf(w.first("/servers", "servers")))
	w.create("volume", "/volumes", object{"name": "data", "size": 42, "server": server, "automount": true, "format": "xfs",
		"labels": object{"env": "test"}})
	kept := "/volumes/" + w.create("volume", "/volumes", smallVolume(w, "kept"))
	w.finish()
	w.act(kept, "change_protection", object{"delete": true})
}

func volumeScenario(w *world) {
	created := w.do(201, "POST", "/volumes", object{"name": "db.data_1", "size": 10, "location": "fsn1", "format": "ext4",
		"labels": object{"a": "b"}})
	path := "/volumes/" + idOf(created["volume"])
	if got := created["volume"].(object); at(got, "status") != "creating" || at(got, "format") != "ext4" || at(got, "server") != nil ||
		at(got, "linux_device") != "/dev/disk/by-id/scsi-0HC_Volume_"+idOf(got) || at(created, "action", "command") != "create_volume" ||
		len(created["next_actions"].([]any)) != 0 {
		w.Errorf("new volume: %v", created)
	}
	w.refuse(423, "locked", "DELETE", path, nil)
	if list := w.do(200, "GET", "/volumes?status=creating&name=db.data_1&label_selector=a&sort=name:desc",
		nil); len(list["volumes"].([]any)) != 1 {
		w.Errorf("creating volumes: %v", list)
	}
	w.finish()
	if list := w.do(200, "GET", "/volumes?status=available&sort=created", nil); len(list["volumes"].([]any)) != 1 {
		w.Errorf("available volumes: %v", list)
	}
	w.do(200, "PUT", path, object{"name": "renamed", "labels": object{}})
	w.refuse(422, "invalid_input", "PUT", path, object{"name": "-renamed"})
	w.refuse(409, "uniqueness_error", "POST", "/volumes", smallVolume(w, "renamed"))
	w.act(path, "resize", object{"size": 50})
	w.refuseAction("invalid_input", path, "resize", object{"size": 50})
	w.refuseAction("invalid_input", path, "resize", object{"size": 10241})
	w.act(path, "change_protection", object{"delete": true})
	w.refuse(423, "protected", "DELETE", path, nil)
	w.act(path, "change_protection", object{"delete": false})
	w.refuseAction("service_error", path, "detach", nil)

	one := json.Number(w.server(smallServer(w, "one")))
	there := smallServer(w, "there")
	there["location"] = "nbg1"
	w.refuseAction("service_error", path, "attach", object{"server": json.Number(w.server(there))})
	w.refuseAction("invalid_input", path, "attach", object{"server": json.Number(absentID)})
	w.act(path, "attach", object{"server": one, "automount": true})
	w.refuseAction("volume_already_attached", path, "attach", object{"server": one})
	w.refuse(422, "service_error", "DELETE", path, nil)
	w.expectVolumes(one, path)

	// The action that follows the creation attaches the volume; the server is locked from the start.
	second := w.do(201, "POST", "/volumes", object{"name": "second", "size": 10, "server": one})
	if next := second["next_actions"].([]any); len(next) != 1 || at(next[0].(object), "command") != "attach_volume" {
		w.Errorf("a volume for a server: %v", second)
	}
	w.refuse(423, "locked", "POST", "/servers/"+one.String()+"/actions/poweroff", nil)
	w.finish()
	w.expectVolumes(one, path, "/volumes/"+idOf(second["volume"]))
	w.refuse(422, "service_error", "POST", "/volumes", object{"name": "elsewhere", "size": 10, "server": one, "location": "nbg1"})
	w.act(path, "detach", nil)

	// A new server gets volumes before it starts.
	body := smallServer(w, "two")
	body["volumes"], body["automount"] = []any{json.Number(idOf(created["volume"]))}, true
	two := w.do(201, "POST", "/servers", body)
	next := two["next_actions"].([]any)
	if commands := fmt.Sprint(at(next[0].(object), "command"), at(next[1].(object), "command")); commands != "attach_volumestart_server" {
		w.Errorf("next actions of a server with a volume: %v", two["next_actions"])
	}
	w.refuse(423, "locked", "POST", path+"/actions/resize", object{"size": 60})
	w.finish()
	w.expectVolumes(json.Number(idOf(two["server"])), path)
	body = smallServer(w, "three")
	body["volumes"] = []any{json.Number(idOf(created["volume"]))}
	w.refuse(422, "volume_already_attached", "POST", "/servers", body)
	crowded := object{"name": "crowded", "server_type": body["server_type"], "image": body["image"], "location": "fsn1"}
	var many []json.Number
	for i := range 17 {
		many = append(many, json.Number(w.create("volume", "/volumes", smallVolume(w, fmt.Sprintf("many-%d", i)))))
	}
	w.finish()
	crowded["volumes"] = many
	w.refuse(422, "limit_exceeded_error", "POST", "/servers", crowded)
	crowded["volumes"] = many[:16]
	full := json.Number(w.server(crowded))
	for range 2 { // the volumes are attached one after the other
		w.finish()
	}
	w.refuse(422, "limit_exceeded_error", "POST", "/volumes", object{"name": "too-many", "size": 10, "server": full})
	w.refuseAction("limit_exceeded_error", "/volumes/"+many[16].String(), "attach", object{"server": full})
	w.do(200, "DELETE", "/servers/"+idOf(two["server"]), nil)
	w.finish()
	if left := at(w.do(200, "GET", path, nil), "volume", "server"); left != nil {
		w.Errorf("server of a volume whose server was deleted: %v", left)
	}
	action := idOf(w.first(path+"/actions", "actions"))
	w.do(200, "GET", path+"/actions/"+action, nil)
	w.do(200, "GET", "/volumes/actions", nil)
	w.do(200, "GET", "/volumes/actions/"+action, nil)
	w.do(204, "DELETE", path, nil)
	w.refuse(404, "not_found", "GET", path, nil)
}

// expectVolumes compares the volumes that a server shows.
func (w *world) expectVolumes(server json.Number, paths ...string) {
	w.Helper()
	shown := at(w.do(200, "GET", "/servers/"+server.String(), nil), "server", "volumes").([]any)
	var got []string
	for _, id := range shown {
		got = append(got, "/volumes/"+idOf(object{"id": id}))
	}
	if fmt.Sprint(got) != fmt.Sprint(paths) {
		w.Errorf("volumes of server %s: %v, want %v", server, got, paths)
	}
}

func (w walk) volumes() {
	server := w.createServer("node")
	created := of(w.Volume.Create(w.ctx, hcloud.VolumeCreateOpts{
		Name: "one", Size: 10, Location: &hcloud.Location{Name: "fsn1"}, Format: new(hcloud.VolumeFormatXFS),
		Labels: map[string]string{"a": "b"},
	})).must(w)
	w.wait(created.Action)
	v := created.Volume
	read[hcloud.Volume](w, &w.Volume, v.ID, "one")
	of(w.Volume.Update(w.ctx, v, hcloud.VolumeUpdateOpts{Name: "renamed", Labels: map[string]string{}})).must(w)
	w.done(w.Volume.AttachWithOpts(w.ctx, v, hcloud.VolumeAttachOpts{Server: server, Automount: new(true)}))
	if s := of(w.Server.GetByID(w.ctx, server.ID)).must(w); len(s.Volumes) != 1 || s.Volumes[0].ID != v.ID {
		w.Errorf("volumes of the server: %+v", s.Volumes)
	}
	w.done(w.Volume.Resize(w.ctx, v, 20))
	if now := of(w.Volume.GetByID(w.ctx, v.ID)).must(w); now.Size != 20 || now.Server.ID != server.ID || *now.Format != "xfs" ||
		now.LinuxDevice == "" || now.Location.Name != "fsn1" {
		w.Errorf("volume: %+v", now)
	}
	w.done(w.Volume.Detach(w.ctx, v))
	w.done(w.Volume.ChangeProtection(w.ctx, v, hcloud.VolumeChangeProtectionOpts{Delete: new(true)}))
	w.done(w.Volume.ChangeProtection(w.ctx, v, hcloud.VolumeChangeProtectionOpts{Delete: new(false)}))
	actionsOf(w, w.Volume.Action.All, w.Volume.Action.AllFor, w.Volume.Action.GetByID, v)
	w.gone(w.Volume.Delete(w.ctx, v))
	second := of(w.Volume.Create(w.ctx, hcloud.VolumeCreateOpts{Name: "two", Size: 10, Server: server, Automount: new(true),
		Format: new("ext4")})).must(w)
	w.waitAll(append(second.NextActions, second.Action))
}
