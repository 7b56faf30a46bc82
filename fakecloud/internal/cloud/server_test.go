package cloud

import (
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// testNow is when the tests of servers begin.
var testNow = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// serverCatalogue is a small catalogue: two locations in two zones, types that each differ in one property,
// images of both architectures.
func serverCatalogue() *Catalogue {
	fsn := &Location{ID: 1, Name: "fsn1", NetworkZone: "eu-central"}
	ash := &Location{ID: 2, Name: "ash", NetworkZone: "us-east"}
	in := func(l *Location, available bool, gone ...time.Time) ServerTypeLocation {
		tl := ServerTypeLocation{Location: l, Available: available}
		if len(gone) > 0 {
			tl.Deprecation = &Deprecation{Announced: gone[0].AddDate(0, -3, 0), UnavailableAfter: gone[0]}
		}
		return tl
	}
	kind := func(id int64, name, arch string, disk int, locations ...ServerTypeLocation) *ServerType {
		return &ServerType{
			ID: id, Name: name, Architecture: arch, Disk: disk, Cores: 2, Memory: 4,
			StorageType: "local", CPUType: "shared", Locations: locations,
		}
	}
	image := func(id int64, name, arch string, disk float64) *Image {
		return &Image{
			Meta: store.Meta{ID: id, Name: name, Created: testNow}, Type: ImageSystem, Status: "available", Architecture: arch,
			DiskSize: disk,
		}
	}
	old := image(105, "old", "x86", 5)
	old.Deprecation = &Deprecation{UnavailableAfter: testNow.Add(-time.Hour)}
	return &Catalogue{
		Locations: []*Location{fsn, ash},
		ServerTypes: []*ServerType{
			kind(1, "small", "x86", 40, in(fsn, true), in(ash, true)),
			kind(2, "big", "x86", 80, in(fsn, true)),
			kind(3, "arm", "arm", 40, in(fsn, true)),
			kind(4, "soldout", "x86", 40, in(fsn, false), in(ash, true)),
			kind(5, "retired", "x86", 40, in(fsn, true, testNow.Add(-time.Hour))),
			kind(6, "retiring", "x86", 40, in(fsn, true, testNow.Add(time.Hour))),
			kind(7, "tiny", "x86", 4, in(fsn, true)),
		},
		Images: []*Image{
			image(101, "debian", "x86", 5), image(102, "debian", "arm", 5), image(103, "onlyx86", "x86", 5),
			image(104, "huge", "x86", 60), old,
		},
		LoadBalancerTypes: []*LoadBalancerType{{ID: 301, Name: "lb", MaxServices: 5, MaxTargets: 25, MaxAssignedCertificates: 10}},
		ISOs: []*ISO{
			{ID: 201, Name: "any.iso", Type: "public"}, {ID: 202, Name: "arm.iso", Type: "public", Architecture: "arm"},
			{ID: 203, Name: "gone.iso", Type: "public", Deprecation: &Deprecation{UnavailableAfter: testNow.Add(-time.Hour)}},
		},
	}
}

// serverCloud returns a cloud whose actions take a second on a clock that only the test moves.
func serverCloud(t testing.TB, o Options) (Project, *testclock.FakeClock) {
	t.Helper()
	clk := testclock.NewFakeClock(testNow)
	o.Clock = clk
	if o.Profile == nil {
		o.Profile = ProfileFixed(time.Second)
	}
	if o.Catalogue == nil {
		o.Catalogue = serverCatalogue()
	}
	c := New(o)
	t.Cleanup(c.Close)
	p, _ := c.Project(1)
	return p, clk
}

// smallServer returns a valid request.
func smallServer(name string) CreateServer {
	return CreateServer{
		Name: name, ServerType: "small", Image: "debian", Location: "fsn1", StartAfterCreate: true,
		IPv4: ServerPublicIP{Enabled: true}, IPv6: ServerPublicIP{Enabled: true},
	}
}

// did returns the first result of a write that must succeed.
func did[T any](v T, _ *State, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		check(t, err)
		return v
	}
}

func mustCreate(t *testing.T, p Project, in CreateServer) CreatedServer {
	t.Helper()
	out, _, err := p.CreateServer(in)
	if err != nil {
		t.Fatalf("create %s: %v", in.Name, err)
	}
	return out
}

// offServer creates a server that is powered off and not locked.
func offServer(t *testing.T, p Project, clk *testclock.FakeClock, in CreateServer) *Server {
	t.Helper()
	in.StartAfterCreate = false
	id := mustCreate(t, p, in).Server.ID
	clk.Step(time.Minute)
	return server(t, p, id)
}

func runningServer(t *testing.T, p Project, clk *testclock.FakeClock, in CreateServer) *Server {
	t.Helper()
	id := mustCreate(t, p, in).Server.ID
	clk.Step(time.Minute)
	return server(t, p, id)
}

func server(t *testing.T, p Project, id int64) *Server {
	t.Helper()
	s, ok := p.View().Servers.Get(id)
	if !ok {
		t.Fatalf("server %d is gone", id)
	}
	return s
}

func wantStatus(t *testing.T, p Project, id int64, want ServerStatus, locked bool) {
	t.Helper()
	st := p.View()
	s, ok := st.Servers.Get(id)
	if !ok {
		t.Fatalf("server %d is gone, want it %s", id, want)
	}
	if got := st.Actions.Locked(s.Ref()); s.Status != want || got != locked {
		t.Fatalf("server is %s, locked %v; want %s, locked %v", s.Status, got, want, locked)
	}
}

func wantAction(t *testing.T, p Project, id int64, command string, want ActionStatus) {
	t.Helper()
	a, ok := p.View().Actions.Get(id)
	if !ok || a.Command != command || a.Status != want {
		t.Fatalf("action %d: %+v, want %s %s", id, a, command, want)
	}
}

func wantCode(t *testing.T, what string, err error, want string) {
	t.Helper()
	if got := codeOf(err); got != want {
		t.Errorf("%s: got %q (%v), want %q", what, got, err, want)
	}
}
