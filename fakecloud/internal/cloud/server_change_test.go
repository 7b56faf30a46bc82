package cloud

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestChangeOfType(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	running := runningServer(t, p, clk, smallServer("running")).ID
	id := offServer(t, p, clk, smallServer("off")).ID
	for name, c := range map[string]struct {
		id      int64
		to      string
		upgrade bool
		want    string
	}{
		"running":            {running, "big", true, "server_not_stopped"},
		"no such type":       {id, "none", true, "server_type"},
		"the same":           {id, "small", true, "invalid_server_type"},
		"other architecture": {id, "arm", true, "invalid_server_type"},
		"smaller disk":       {id, "tiny", false, "invalid_server_type"},
		"retired":            {id, "retired", false, "invalid_server_type"},
		"sold out":           {id, "soldout", false, "resource_unavailable"},
		"unknown server":     {1, "big", false, "not_found"},
	} {
		_, _, err := p.ChangeServerType(c.id, c.to, c.upgrade)
		wantCode(t, name, err, c.want)
	}

	change := func(to string, upgrade bool, disk int) {
		t.Helper()
		if _, _, err := p.ChangeServerType(id, to, upgrade); err != nil {
			t.Fatal(err)
		}
		wantStatus(t, p, id, ServerMigrating, true)
		clk.Step(time.Second)
		wantStatus(t, p, id, ServerRunning, false)
		if s := server(t, p, id); s.Type.Name != to || s.PrimaryDisk != disk {
			t.Fatalf("type %s, disk %d", s.Type.Name, s.PrimaryDisk)
		}
		if _, _, err := p.PowerOffServer(id); err != nil {
			t.Fatal(err)
		}
		clk.Step(time.Second)
	}
	change("big", false, 40)
	change("small", false, 40)
	change("big", true, 80)
	_, _, err := p.ChangeServerType(id, "small", false)
	wantCode(t, "a smaller type after the disk has grown", err, "invalid_server_type")
}

func TestRebuild(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	in := smallServer("a")
	in.UserData = "first"
	id := runningServer(t, p, clk, in).ID
	for image, want := range map[string]string{"none": "image", "102": "image", "huge": "image", "old": "image"} {
		_, _, _, err := p.RebuildServer(id, RebuildServer{Image: image})
		wantCode(t, image, err, want)
	}
	long := strings.Repeat("x", MaxUserDataBytes+1)
	_, _, _, err := p.RebuildServer(id, RebuildServer{Image: "debian", UserData: &long})
	wantCode(t, "user data too long", err, "user_data")

	second := "second"
	for _, c := range []struct {
		in   RebuildServer
		data string
	}{{RebuildServer{Image: "onlyx86"}, "first"}, {RebuildServer{Image: "debian", UserData: &second}, "second"}} {
		password, _, _, err := p.RebuildServer(id, c.in)
		if err != nil || password == "" {
			t.Fatal(password, err)
		}
		wantStatus(t, p, id, ServerRebuilding, true)
		clk.Step(time.Second)
		wantStatus(t, p, id, ServerRunning, false)
		if s := server(t, p, id); s.Image.Name != c.in.Image || s.UserData != c.data {
			t.Errorf("image %s, user data %q", s.Image.Name, s.UserData)
		}
	}
}

func TestProtectionOfAServer(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	id := runningServer(t, p, clk, smallServer("a")).ID
	yes, no := true, false
	for _, c := range [][2]*bool{{&yes, &no}, {&yes, nil}, {nil, &yes}} {
		_, _, err := p.ChangeServerProtection(id, c[0], c[1])
		wantCode(t, "different values", err, "delete")
	}
	if _, _, err := p.ChangeServerProtection(id, &yes, &yes); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second)
	_, _, err := p.DeleteServer(id)
	wantCode(t, "delete", err, "protected")
	_, _, _, err = p.RebuildServer(id, RebuildServer{Image: "debian"})
	wantCode(t, "rebuild", err, "protected")
	if _, _, err := p.ChangeServerProtection(id, &no, &no); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second)
	if _, _, err := p.DeleteServer(id); err != nil {
		t.Error(err)
	}
}

func TestISOs(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	id := runningServer(t, p, clk, smallServer("a")).ID
	for _, iso := range []string{"none", "arm.iso", "gone.iso"} {
		_, _, err := p.AttachServerISO(id, iso)
		wantCode(t, iso, err, "iso")
	}
	if _, _, err := p.AttachServerISO(id, "201"); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second)
	if s := server(t, p, id); s.ISO == nil || s.ISO.Name != "any.iso" {
		t.Fatalf("ISO %+v", s.ISO)
	}
	for _, immediate := range []bool{false, true} {
		action, st, err := p.DetachServerISO(id)
		if err != nil {
			t.Fatal(err)
		}
		if a, _ := st.Actions.Get(action); (a.Status == ActionSuccess) != immediate {
			t.Errorf("detach: %s, at once: %v", a.Status, immediate)
		}
		clk.Step(time.Second)
	}
	if server(t, p, id).ISO != nil {
		t.Error("still attached")
	}
}

func TestImagesOfAServer(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	id := runningServer(t, p, clk, smallServer("a")).ID
	_, _, _, err := p.CreateServerImage(id, CreateServerImage{Type: ImageBackup})
	wantCode(t, "backup that is not enabled", err, "type")

	snap, _, st, err := p.CreateServerImage(id, CreateServerImage{Type: ImageSnapshot, Labels: map[string]string{"a": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	if i, _ := st.Images.Get(snap.ID); i.Status != "creating" || i.ImageSize != 0 || i.Description == "" {
		t.Errorf("at first: %+v", i)
	}
	_, _, err = p.DeleteServer(id)
	wantCode(t, "delete while the image is created", err, "locked")
	wantCode(t, "delete the image while it is created", p.DeleteImage(snap.ID), "locked")
	_, _, err = p.CreateServer(func() CreateServer {
		in := smallServer("b")
		in.Image = strconv.FormatInt(snap.ID, 10)
		return in
	}())
	wantCode(t, "server from an image that is still creating", err, "image")
	clk.Step(time.Second)
	i, _ := p.View().Images.Get(snap.ID)
	if i.Status != "available" || i.ImageSize <= 0 || i.DiskSize != 40 || i.CreatedFrom.ID != id || i.CreatedFromName != "a" ||
		i.BoundTo != 0 {
		t.Errorf("then: %+v", i)
	}

	if _, _, err := p.EnableServerBackup(id); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second)
	if server(t, p, id).Backups == nil {
		t.Fatal("backups are not enabled")
	}
	for range MaxBackupsPerServer + 2 {
		if _, _, _, err := p.CreateServerImage(id, CreateServerImage{Type: ImageBackup}); err != nil {
			t.Fatal(err)
		}
		clk.Step(time.Second)
	}
	backups := func() (ids []int64) {
		for i := range p.View().Images.All() {
			if i.Type == ImageBackup {
				ids = append(ids, i.ID)
				if i.BoundTo != id {
					t.Errorf("bound to %d", i.BoundTo)
				}
			}
		}
		return ids
	}
	if got := backups(); len(got) != MaxBackupsPerServer {
		t.Fatalf("backups: %v", got)
	}
	if _, _, err := p.DisableServerBackup(id); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second)
	if got := backups(); len(got) != 0 || server(t, p, id).Backups != nil {
		t.Errorf("after disabling: %v", got)
	}

	failed, action, _, err := p.WithOutcome(&ActionOutcome{Fail: true}).CreateServerImage(id, CreateServerImage{Type: ImageSnapshot})
	if err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second)
	wantAction(t, p, action, "create_image", ActionFailed)
	if _, ok := p.View().Images.Get(failed.ID); ok {
		t.Error("the image of a failed action stays")
	}

	restored := smallServer("restored")
	restored.Image = strconv.FormatInt(snap.ID, 10)
	if out := mustCreate(t, p, restored); out.Server.Image.ID != snap.ID {
		t.Errorf("image %+v", out.Server.Image)
	}
}

func TestDeletingAServerRemovesAllReferencesToIt(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	n := testNetwork(t, p, "n", "10.0.0.0/24")
	g, _, err := p.CreatePlacementGroup(CreatePlacementGroup{Name: "g", Type: "spread"})
	if err != nil {
		t.Fatal(err)
	}
	keep, _, _, err := p.CreatePrimaryIP(CreatePrimaryIP{Name: "keep", Type: IPv6, Location: "fsn1"})
	if err != nil {
		t.Fatal(err)
	}
	in := smallServer("a")
	in.Networks, in.PlacementGroup, in.IPv6.PrimaryIP = []int64{n.ID}, g.ID, keep.ID
	s := runningServer(t, p, clk, in)
	if _, _, err := p.EnableServerBackup(s.ID); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second)
	for _, kind := range []string{ImageBackup, ImageSnapshot} {
		if _, _, _, err := p.CreateServerImage(s.ID, CreateServerImage{Type: kind}); err != nil {
			t.Fatal(err)
		}
		clk.Step(time.Second)
	}

	action, _, err := p.DeleteServer(s.ID)
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, p, s.ID, ServerDeleting, true)
	clk.Step(time.Second)
	wantAction(t, p, action, "delete_server", ActionSuccess)
	st := p.View()
	if _, ok := st.Servers.Get(s.ID); ok {
		t.Error("the server is still there")
	}
	if net, _ := st.Networks.Get(n.ID); len(net.Members) != 0 {
		t.Errorf("network members: %v", net.Members)
	}
	if group, _ := st.PlacementGroups.Get(g.ID); len(group.Servers) != 0 {
		t.Errorf("placement group: %v", group.Servers)
	}
	if _, ok := st.PrimaryIPs.Get(s.PublicIPv4); ok {
		t.Error("the auto-delete primary IP is still there")
	}
	if ip, ok := st.PrimaryIPs.Get(keep.ID); !ok || ip.Assigned() {
		t.Errorf("the other primary IP: %+v", ip)
	}
	if st.Images.Len() != 1 {
		t.Errorf("%d images, want the snapshot alone", st.Images.Len())
	}
	if st.Actions.Locked(s.Ref()) {
		t.Error("the lock stays")
	}
	checkInvariants(t, st, p.cloud)
}

func TestAServerHasANewVersionWhenAResourceThatItShowsChanges(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	g, _, err := p.CreatePlacementGroup(CreatePlacementGroup{Name: "g", Type: "spread"})
	if err != nil {
		t.Fatal(err)
	}
	in := smallServer("a")
	in.PlacementGroup = g.ID
	s := runningServer(t, p, clk, in)
	ptr := "example.com"
	v4, _ := p.View().PrimaryIPs.Get(s.PublicIPv4)
	for name, change := range map[string]func() error{
		"group's name": func() error {
			name := "h"
			_, err := p.UpdatePlacementGroup(g.ID, UpdateResource{Name: &name})
			return err
		},
		"another server in the group": func() error {
			other := smallServer("b")
			other.PlacementGroup = g.ID
			_, _, err := p.CreateServer(other)
			return err
		},
		"reverse DNS": func() error {
			_, _, err := p.ChangePrimaryIPDNSPtr(v4.ID, ChangeDNSPtr{IP: v4.IP.Addr(), Ptr: &ptr})
			clk.Step(time.Second)
			return err
		},
		"lock": func() error {
			_, _, err := p.PowerOnServer(s.ID)
			return err
		},
	} {
		before, _ := p.View().Servers.Entry(s.ID)
		if err := change(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if after, _ := p.View().Servers.Entry(s.ID); after == before {
			t.Errorf("%s: the server has no new version", name)
		}
		clk.Step(time.Minute)
	}
}
