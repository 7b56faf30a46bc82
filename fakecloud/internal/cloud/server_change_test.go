package cloud

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestRebuild(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	in := smallServer("a")
	in.UserData = "first"
	id := runningServer(t, p, clk, in).ID
	for image, want := range map[string]string{"none": "image not found", "102": "image has wrong architecture",
		"huge": "image disk is bigger than server type disk", "old": "image not found"} {
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

func TestISOs(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	id := runningServer(t, p, clk, smallServer("a")).ID
	for _, iso := range []string{"none", "arm.iso", "gone.iso"} {
		_, _, err := p.AttachServerISO(id, iso)
		wantCode(t, iso, err, "iso")
	}
}

func TestImagesOfAServer(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	id := runningServer(t, p, clk, smallServer("a")).ID
	snap, _, st, err := p.CreateServerImage(id, CreateServerImage{Type: ImageSnapshot, Labels: map[string]string{"a": "b"}})
	check(t, err)
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
	wantCode(t, "server from an image that is still creating", err, "image not found")
	clk.Step(time.Second)
	i, _ := p.View().Images.Get(snap.ID)
	if i.Status != "available" || i.ImageSize <= 0 || i.DiskSize != 40 || i.CreatedFrom.ID != id || i.CreatedFromName != "a" ||
		i.BoundTo != 0 {
		t.Errorf("then: %+v", i)
	}

	failed, action, _, err := p.WithOutcome(&ActionOutcome{Fail: true}).CreateServerImage(id, CreateServerImage{Type: ImageSnapshot})
	check(t, err)
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

func TestAServerHasANewVersionWhenAResourceThatItShowsChanges(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	g := did(p.CreatePlacementGroup(CreatePlacementGroup{Name: "g", Type: "spread"}))(t)
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
