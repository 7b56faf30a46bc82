package cloud

import (
	"testing"
	"time"
)

// withImages returns a project with a snapshot, a backup, and a server that was made from the snapshot.
func withImages(t *testing.T, o Options) (p Project, snapshot, backup, server int64) {
	t.Helper()
	c := New(o)
	t.Cleanup(c.Close)
	p, _ = c.Project(1)
	_, err := p.update(func(tx *Tx) error {
		s := &Image{Meta: tx.NewMeta("", nil), Type: ImageSnapshot, Status: "available", Description: "before the upgrade",
			Architecture: "x86"}
		b := &Image{Meta: tx.NewMeta("", nil), Type: ImageBackup, Status: "available", BoundTo: 4711, Architecture: "x86"}
		srv := &Server{Meta: tx.NewMeta("restored", nil), Image: s}
		tx.Images.Put(s)
		tx.Images.Put(b)
		tx.Servers.Put(srv)
		snapshot, backup, server = s.ID, b.ID, srv.ID
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return p, snapshot, backup, server
}

func TestAServerShowsTheChangesOfItsImage(t *testing.T) {
	t.Parallel()
	p, snapshot, _, server := withImages(t, Options{})
	description := "golden"
	st, err := p.UpdateImage(snapshot, UpdateImage{Description: &description, Labels: map[string]string{"a": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	i, _ := st.Images.Get(snapshot)
	s, _ := st.Servers.Get(server)
	if i.Description != "golden" || i.Labels["a"] != "b" || s.Image != i {
		t.Errorf("image %+v, the server's %+v", i, s.Image)
	}
	if err := p.DeleteImage(snapshot); err != nil {
		t.Fatal(err)
	}
	if s, _ := p.View().Servers.Get(server); s.Image != nil {
		t.Errorf("the server still shows %+v", s.Image)
	}
}

func TestABackupBecomesASnapshot(t *testing.T) {
	t.Parallel()
	p, _, backup, _ := withImages(t, Options{})
	yes := true
	if _, _, err := p.ChangeImageProtection(backup, &yes); codeOf(err) != "unsupported_error" {
		t.Errorf("protecting a backup: %v", err)
	}
	st, err := p.UpdateImage(backup, UpdateImage{ToSnapshot: true})
	if err != nil {
		t.Fatal(err)
	}
	if i, _ := st.Images.Get(backup); i.Type != ImageSnapshot || i.BoundTo != 0 {
		t.Errorf("image: %+v", i)
	}
}

func TestAProtectedSnapshotIsNotDeleted(t *testing.T) {
	t.Parallel()
	p, snapshot, _, _ := withImages(t, Options{})
	yes, no := true, false
	action, st, err := p.ChangeImageProtection(snapshot, &yes)
	if err != nil {
		t.Fatal(err)
	}
	if a, _ := st.Actions.Get(action); a.Command != "change_protection" || a.Status != ActionSuccess {
		t.Errorf("action: %+v", a)
	}
	if err := p.DeleteImage(snapshot); codeOf(err) != "protected" {
		t.Errorf("delete: %v", err)
	}
	if _, _, err := p.ChangeImageProtection(snapshot, nil); err != nil {
		t.Fatal(err)
	}
	if i, _ := p.View().Images.Get(snapshot); !i.DeleteProtection {
		t.Error("an empty change removed the protection")
	}
	if _, _, err := p.ChangeImageProtection(snapshot, &no); err != nil {
		t.Fatal(err)
	}
	if err := p.DeleteImage(snapshot); err != nil {
		t.Error(err)
	}
}

func TestAnImageThatAnActionWorksOnIsLocked(t *testing.T) {
	t.Parallel()
	p, snapshot, _, _ := withImages(t, Options{Profile: ProfileFixed(time.Hour)})
	yes := true
	if _, _, err := p.ChangeImageProtection(snapshot, &yes); err != nil {
		t.Fatal(err)
	}
	if err := p.DeleteImage(snapshot); codeOf(err) != "locked" {
		t.Errorf("delete: %v", err)
	}
	if _, err := p.UpdateImage(snapshot, UpdateImage{}); codeOf(err) != "locked" {
		t.Errorf("update: %v", err)
	}
}

func TestBadImageChangesAreRefused(t *testing.T) {
	t.Parallel()
	p, snapshot, _, _ := withImages(t, Options{})
	system := p.View().Catalogue.Images[0].ID
	for _, tt := range []struct {
		id   int64
		in   UpdateImage
		want string
	}{
		{snapshot, UpdateImage{Labels: map[string]string{"hetzner.cloud/x": ""}}, "labels"},
		{system, UpdateImage{}, "unsupported_error"},
		{999, UpdateImage{}, "not_found"},
	} {
		if _, err := p.UpdateImage(tt.id, tt.in); codeOf(err) != tt.want {
			t.Errorf("update %d: %v, want %s", tt.id, err, tt.want)
		}
	}
	if _, ok := p.View().Image(system); !ok {
		t.Error("a system image is not found in the state")
	}
}
