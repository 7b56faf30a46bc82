package cloud

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// checkVolumes checks that volumes and servers agree, and that each volume is where its server is.
func checkVolumes(t *testing.T, st *State) {
	t.Helper()
	for v := range st.Volumes.All() {
		if v.Server == 0 {
			continue
		}
		s, ok := st.Servers.Get(v.Server)
		if !ok || !slices.Contains(s.Volumes, v.ID) || s.Location.ID != v.Location.ID || v.Status != VolumeAvailable {
			t.Errorf("volume %+v is attached to server %+v", v, s)
		}
	}
	for s := range st.Servers.All() {
		if !slices.IsSorted(s.Volumes) || len(s.Volumes) > MaxVolumesPerServer {
			t.Errorf("server %d has the volumes %v", s.ID, s.Volumes)
		}
		for _, id := range s.Volumes {
			if v, ok := st.Volumes.Get(id); !ok || v.Server != s.ID {
				t.Errorf("server %d shows volume %d, which is not attached to it", s.ID, id)
			}
		}
	}
}

// volumeOperations are the operations of the model on volumes.
func (m *model) volumeOperations() []func() {
	id := func() int64 { st := m.View(); return m.one(idsOf(&st.Volumes)) }
	return []func(){
		func() {
			in := CreateVolume{Name: fmt.Sprintf("v%d", m.rnd.IntN(20)), Size: 10, Location: []string{"fsn1", "ash"}[m.rnd.IntN(2)]}
			if m.coin() {
				in.Location, in.Server = "", m.server()
			}
			_, _, _ = m.CreateVolume(in)
		},
		func() { _, _, _ = m.AttachVolume(id(), m.server()) },
		func() { _, _, _ = m.DetachVolume(id()) },
		func() { _, _, _ = m.ResizeVolume(id(), 10+m.rnd.IntN(20)) },
		func() { _ = m.DeleteVolume(id()) },
	}
}

// A failed creation leaves a volume that is creating and can be deleted; nothing is attached.
func TestAVolumeWhoseCreationFailsIsNotAttached(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	s := runningServer(t, p, clk, smallServer("node")).ID
	out := did(p.WithOutcome(&ActionOutcome{Fail: true}).CreateVolume(CreateVolume{Name: "v", Size: 10, Server: s}))(t)
	clk.Step(time.Minute)
	v, _ := p.View().Volumes.Get(out.Volume.ID)
	server, _ := p.View().Servers.Get(s)
	if v.Status != VolumeCreating || v.Server != 0 || len(server.Volumes) != 0 {
		t.Errorf("%+v, server %+v", v, server)
	}
	if err := p.DeleteVolume(v.ID); err != nil {
		t.Error(err)
	}
	if _, _, err := p.PowerOffServer(s); err != nil {
		t.Errorf("the server is still locked: %v", err)
	}
}
