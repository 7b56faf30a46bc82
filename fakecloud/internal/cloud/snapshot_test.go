package cloud

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/catalogue"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/longtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// busyCloud returns a cloud in which a random history has left lines of all kinds for a snapshot, and a target with its health.
func busyCloud(t testing.TB) *Cloud {
	t.Helper()
	p, clk := serverCloud(t, Options{Seed: 1})
	testNetwork(t, p, "one", "10.0.0.0/24")
	testNetwork(t, p, "two", "10.1.0.0/24")
	p.cloud.AddToken("secret", Token{Project: 1, ReadOnly: true, APIDate: testNow})
	check(t, p.cloud.AddProject("empty").SetLimits(Limits{KindServer: 3}))
	for _, err := range []error{
		p.cloud.OfferServerType("big", "fsn1", catalogue.Offer{Available: new(false), PriceMonthly: new(3.5)}),
		p.cloud.AddServerType(catalogue.NewServerType{Name: "huge", CopyOf: "big", Cores: 400}),
	} {
		check(t, err)
	}
	m := &model{Project: p, clk: clk, rnd: rand.New(rand.NewPCG(1, 1))}
	for i := range 30 {
		_, _, _ = p.CreateSSHKey(CreateSSHKey{Name: m.name(), PublicKey: publicKey(i)})
		run(m, m.rnd.Uint64(), 25, nil)
	}
	_, _, _ = p.WithOutcome(&ActionOutcome{Hang: true}).RebootServer(m.server())
	for i := uint64(1); i == 1 || !richView(p.View()); i++ {
		if i == 1000 {
			t.Fatal("the history leaves no volume, server, or target with its health")
		}
		run(m, i, 25, nil)
	}
	for s := range p.View().Servers.All() {
		check(t, p.cloud.ReportServerUsage(s.ID, hypervisor.Usage{CPU: 5}))
	}
	for lb := range p.View().LoadBalancers.All() {
		p.ReportLoadBalancerStats(lb.ID, LoadBalancerStats{OpenConnections: 3})
	}
	_, _, _, _ = p.CreateManagedCertificate(CreateManagedCertificate{Name: "cert", DomainNames: []string{"example.com"}})
	p.cloud.Settle()
	_, err := p.cloud.StartScenario(Scenario{Name: "all", Repeat: fault.Duration(time.Hour), Changes: []Change{
		{Offer: &OfferChange{ServerType: "small", Available: new(false), PriceMonthly: new(7.0), Retires: "24h"}},
		{Limit: &LimitChange{Project: 1, Kind: KindVolume, Most: 1}},
		{Tokens: &TokenChange{Project: 1, AnotherProject: true, APIDate: "2026-01-01"}, Until: fault.Duration(time.Minute)},
		{Fault: &fault.Rule{Effect: fault.Latency(1)}, At: fault.Duration(time.Second)},
	}})
	check(t, err)
	return p.cloud
}

// richView tells whether the resources that a history deletes most are there.
func richView(v *State) bool {
	if v.Volumes.Len() == 0 || v.Servers.Len() == 0 {
		return false
	}
	for lb := range v.LoadBalancers.All() {
		for target := range lb.Backends() {
			if len(target.Health) > 0 {
				return true
			}
		}
	}
	return false
}

func saveText(t testing.TB, c *Cloud) string {
	t.Helper()
	var text bytes.Buffer
	check(t, c.Save(&text))
	return text.String()
}

// TestASnapshotHasEveryField finds fields that a snapshot would lose: without a tag, or neither exported nor in the list of those that
// it saves or makes anew.
func TestASnapshotHasEveryField(t *testing.T) {
	known := map[string][]string{
		"Server":             {"powered", "filtered", "epoch"},
		"LoadBalancerTarget": {"selector"}, // parsed
		"Firewall":           {"inForce", "setting", "targets", "applied"},
		"FirewallTarget":     {"order", "pending", "filters", "selector", "selected", "coming"},
		"Zone":               {"sets", "publishing", "failed"},
		"RRSet":              {"created", "age"},
		"Action":             {"waited", "takes", "plan"},
		"actionPlan":         {},
		"taken":              {"setting", "of"},    // the fields of the one; the other is the scenario that has it
		"Scenario":           {"ended", "version"}, // one that has ended is not saved; versions are of a run
		"recordSets":         {"indexes", "owned", "records", "protected", "lastAge"},
	}
	byName := []any{Location{}, LoadBalancerType{}, ISO{}} // parts of the catalogue
	seen := map[reflect.Type]bool{}
	for _, v := range byName {
		seen[reflect.TypeOf(v)] = true
	}
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice:
			walk(typ.Elem())
			return
		case reflect.Struct:
		default:
			return
		}
		if seen[typ] || !strings.Contains(typ.PkgPath(), "/fakecloud/") || typ == reflect.TypeFor[Selected]() {
			return
		}
		seen[typ] = true
		for f := range typ.Fields() {
			switch {
			case f.IsExported() && !f.Anonymous && f.Tag.Get("json") == "" && typ.Name() != "actionPlan":
				t.Errorf("%s.%s has no tag for JSON", typ.Name(), f.Name)
			case !f.IsExported() && !slices.Contains(known[typ.Name()], f.Name):
				t.Errorf("%s.%s: say in this test how a snapshot saves it", typ.Name(), f.Name)
			}
			if f.IsExported() {
				walk(f.Type)
			}
		}
	}
	for _, r := range resources {
		if codecs[r.kind] == nil {
			t.Errorf("%s: has no codec", r.kind)
		}
	}
	for _, v := range []any{
		Server{}, Network{}, LoadBalancer{}, Certificate{}, PrimaryIP{}, FloatingIP{}, Volume{}, Firewall{}, FirewallTarget{}, Zone{},
		RRSet{}, PlacementGroup{}, SSHKey{}, Image{}, Action{}, actionPlan{}, recordSets{},
		ServerType{}, Scenario{},
	} {
		walk(reflect.TypeOf(v))
	}
}

// TestASnapshotHasEveryKind makes sure that the tests here see all kinds of lines.
func TestASnapshotHasEveryKind(t *testing.T) {
	text := saveText(t, busyCloud(t))
	others := []store.Kind{
		lineCloud, lineType, lineProject, lineToken, lineRRSet, lineTimer, lineScenario, lineBalancer, lineUsage, lineEnd,
	}
	for _, kind := range append(Kinds(), others...) {
		if !strings.Contains(text, fmt.Sprintf("\n{%q:%q", "kind", kind)) && !strings.HasPrefix(text, fmt.Sprintf("{%q:%q", "kind", kind)) {
			t.Errorf("the snapshot has no line of kind %s", kind)
		}
	}
}

// TestAWrongSnapshotIsRefused shows the errors of files that are broken, and that the cloud stays as it was.
func TestAWrongSnapshotIsRefused(t *testing.T) {
	c := busyCloud(t)
	good := saveText(t, c)
	lines := strings.SplitAfter(good, "\n")
	lines = lines[:len(lines)-1]
	at := func(kind string) int {
		return slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, fmt.Sprintf(`{"kind":%q`, kind)) })
	}
	edit := func(kind, old, now string) string {
		changed := slices.Clone(lines)
		changed[at(kind)] = strings.Replace(changed[at(kind)], old, now, 1)
		return strings.Join(changed, "")
	}
	twice := func(kind string) string {
		return strings.Join(slices.Insert(slices.Clone(lines), at(kind), lines[at(kind)]), "")
	}
	for name, test := range map[string]struct{ text, want string }{
		"empty":                 {"", "the snapshot has no end"},
		"cut off":               {strings.Join(lines[:9], ""), "line 9: the snapshot has no end, so a part of it is missing"},
		"cut in a line":         {good[:len(good)/2], "line"},
		"a line less":           {strings.Join(slices.Delete(slices.Clone(lines), at("ssh_key"), at("ssh_key")+1), ""), "the snapshot had"},
		"something after it":    {good + good, "stands after the end"},
		"not a snapshot":        {"hello\n", "line 1: not a line of a snapshot"},
		"another kind first":    {strings.Join(lines[1:], ""), `line 1: kind "server_type": a snapshot must begin with`},
		"a later version":       {edit(lineCloud, `"version":1`, `"version":2`), "line 1: version 2: must be 1 to 1; use the version"},
		"no version":            {edit(lineCloud, `"version":1`, `"version":0`), "version 0"},
		"a field of a later":    {edit("server", `"status"`, `"staatus"`), `unknown field "staatus"`},
		"an unknown project":    {edit("server", `"project":1`, `"project":7`), "project 7: must have a line"},
		"no project":            {edit("server", `"project":1,`, ``), "must name its project"},
		"an id twice":           {twice("network"), "must be that of one line only"},
		"an unknown type":       {edit("server", `"type":"`, `"type":"huge-`), `must be in the catalogue`},
		"an unknown effect":     {edit(lineTimer, `"type":"`, `"type":"x`), "must be one of"},
		"no certificates":       {edit(lineCloud, "BEGIN CERTIFICATE", "BEGIN"), "authority.0"},
		"a type in no location": {edit(lineType, `"location":"fsn1"`, `"location":"moon"`), `location "moon": must be in the catalogue`},
		"a limit of nothing":    {edit(lineProject, `"id":1,`, `"limits":{"moon":1},"id":1,`), `limit of "moon"`},
		"a project name twice":  {edit(lineProject, "default", "empty"), "must have a name and an id of its own"},
		"a token twice":         {twice(lineToken), "token: must be that of one line only"},
		"a scenario twice":      {twice(lineScenario), "larger than those before"},
		"a wrong scenario":      {edit(lineScenario, `"kind":"volume"`, `"kind":"moon"`), `changes[1]: limit of "moon"`},
		"an address twice":      {twice("primary_ip"), "must be that of one line only"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.ReadSnapshot(strings.NewReader(test.text))
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "line ") {
				t.Errorf("got %v, want an error with a line and %q", err, test.want)
			}
		})
	}
	sameLines(t, good, saveText(t, c))
}

// TestEachWrongFieldOfASnapshot replaces each value of a snapshot by others. Some are refused. With the others, the cloud must be
// able to go on.
func TestEachWrongFieldOfASnapshot(t *testing.T) {
	longtest.SkipRace(t)
	t.Parallel()
	lines := strings.SplitAfter(saveText(t, busyCloud(t)), "\n")
	type field struct {
		line  int
		value any
		path  []string
	}
	var fields []field
	tried := map[string]bool{}
	for i, line := range lines {
		var v any
		if json.Unmarshal([]byte(line), &v) != nil {
			continue
		}
		for _, path := range paths(v) {
			key := fmt.Sprint(v.(map[string]any)["kind"], path)
			if !tried[key] { // more of one field show nothing new
				fields = append(fields, field{i, v, path})
			}
			tried[key] = true
		}
	}
	accepted, refused := 0, 0
	for _, i := range longtest.Share(t, len(fields), 30) {
		f := fields[i]
		for _, wrong := range []string{"null", "-1", "1000003", `"x"`, "[]", "{}", "[null]"} {
			changed := slices.Clone(lines)
			changed[f.line] = replaced(t, f.value, f.path, json.RawMessage(wrong))
			name := fmt.Sprintf("line %d: %v = %s", f.line+1, f.path, wrong)
			if goesOn(t, name, strings.Join(changed, "")) {
				accepted++
			} else {
				refused++
			}
		}
	}
	t.Logf("%d changes were accepted, %d refused", accepted, refused)
	if accepted == 0 || refused == 0 {
		t.Error("the test tries too little")
	}
}

// goesOn loads a snapshot and lets the cloud go on; false if it is refused.
func goesOn(t testing.TB, name, text string) bool {
	t.Helper()
	defer func() {
		if broken := recover(); broken != nil {
			t.Errorf("%s: the cloud panics: %v", name, broken)
		}
	}()
	p, clk := serverCloud(t, Options{Seed: 1})
	defer p.cloud.Close()
	s, err := p.cloud.ReadSnapshot(strings.NewReader(text))
	if err != nil {
		return false
	}
	p.cloud.Restore(s)
	clk.SetTime(s.Time)
	p, _ = p.cloud.Project(1)
	m := &model{Project: p, clk: clk, rnd: rand.New(rand.NewPCG(1, 1))}
	contents(p.View())
	run(m, 1, 40, nil)
	p.cloud.ResumeActions()
	contents(p.View())
	return true
}

// paths returns the path of each value in JSON.
func paths(v any) (all [][]string) {
	add := func(name string, v any) {
		all = append(all, []string{name})
		for _, rest := range paths(v) {
			all = append(all, append([]string{name}, rest...))
		}
	}
	switch v := v.(type) {
	case map[string]any:
		for name, part := range v {
			add(name, part)
		}
	case []any:
		if len(v) > 0 {
			add("0", v[0])
		}
	}
	return all
}

// replaced returns JSON with another value at a path.
func replaced(t testing.TB, v any, path []string, value any) string {
	t.Helper()
	var change func(v any, path []string) any
	change = func(v any, path []string) any {
		if len(path) == 0 {
			return value
		}
		switch v := v.(type) {
		case map[string]any:
			c := maps.Clone(v)
			c[path[0]] = change(v[path[0]], path[1:])
			return c
		case []any:
			c := slices.Clone(v)
			i, _ := strconv.Atoi(path[0])
			c[i] = change(v[i], path[1:])
			return c
		}
		return v
	}
	text, err := json.Marshal(change(v, path))
	check(t, err)
	return string(text) + "\n"
}

// TestRestoreTellsSubscribers shows that a subscriber that keeps a copy of the state still has the right one after a snapshot was
// loaded.
func TestRestoreTellsSubscribers(t *testing.T) {
	text := saveText(t, busyCloud(t))
	p, clk := serverCloud(t, Options{Seed: 1})
	mustCreate(t, p, smallServer("gone"))
	s, err := p.cloud.ReadSnapshot(strings.NewReader(text))
	check(t, err)
	sub, _ := p.cloud.Subscribe()
	defer sub.Close()
	copied := map[int64]any{}
	for v := range p.View().Servers.All() {
		copied[v.ID] = v
	}
	p.cloud.Restore(s)
	clk.SetTime(s.Time)
	sameLines(t, text, saveText(t, p.cloud))
	p, _ = p.cloud.Project(1)
	want := p.View().Servers.Len()
	for range 100_000 {
		e, err := sub.Next(t.Context())
		check(t, err)
		if e.Kind == KindServer && e.Type == EventDeleted {
			delete(copied, e.ID)
		} else if e.Kind == KindServer {
			copied[e.ID] = e.New
		}
		if _, gone := copied[firstID+1]; !gone && len(copied) == want {
			return
		}
	}
	t.Errorf("%d servers, want %d", len(copied), want)
}

// TestASnapshotHasTheTypeOfAServerThatTheCatalogueLacks shows that servers keep a type that was removed.
func TestASnapshotHasTheTypeOfAServerThatTheCatalogueLacks(t *testing.T) {
	p, _ := serverCloud(t, Options{Seed: 1})
	check(t, p.cloud.AddServerType(catalogue.NewServerType{Name: "huge", CopyOf: "small", Cores: 400}))
	in := smallServer("one")
	in.ServerType = "huge"
	mustCreate(t, p, in)
	p.cloud.ResetCatalogue()
	text := saveText(t, p.cloud)
	p, _ = serverCloud(t, Options{Seed: 1})
	s, err := p.cloud.ReadSnapshot(strings.NewReader(text))
	check(t, err)
	p.cloud.Restore(s)
	p, _ = p.cloud.Project(1)
	for server := range p.View().Servers.All() {
		if typ := p.View().TypeOf(server); typ.Name != "huge" || typ.Cores != 400 {
			t.Errorf("the server has %s with %d cores", typ.Name, typ.Cores)
		}
	}
	if _, ok := p.cloud.Catalogue().ServerType("huge"); ok {
		t.Error("the type is in the catalogue again")
	}
	sameLines(t, text, saveText(t, p.cloud))
}

// TestADataPlaneMayReportDuringARestore needs the race detector: figures are reported without the lock that Restore holds.
func TestADataPlaneMayReportDuringARestore(t *testing.T) {
	c := busyCloud(t)
	s, err := c.ReadSnapshot(strings.NewReader(saveText(t, c)))
	check(t, err)
	p, _ := c.Project(1)
	begun, restored, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		close(begun)
		for {
			for lb := range p.View().LoadBalancers.All() {
				p.ReportLoadBalancerStats(lb.ID, LoadBalancerStats{OpenConnections: 3})
			}
			select {
			case <-restored:
				return
			default:
			}
		}
	}()
	<-begun
	c.Restore(s)
	close(restored)
	<-ended
}

// TestADataPlaneProbesTheTargetsOfASnapshot shows that a target counts as healthy only when the data plane that is there has said so.
func TestADataPlaneProbesTheTargetsOfASnapshot(t *testing.T) {
	text := strings.ReplaceAll(saveText(t, busyCloud(t)), `"status":"unknown"`, `"status":"healthy"`)
	p, _ := serverCloud(t, Options{Seed: 1, TargetHealth: HealthReported})
	s, err := p.cloud.ReadSnapshot(strings.NewReader(text))
	check(t, err)
	p.cloud.Restore(s)
	seen := 0
	for lb := range p.View().LoadBalancers.All() {
		for target := range lb.Backends() {
			for _, h := range target.Health {
				if seen++; h.Status != HealthUnknown {
					t.Errorf("load balancer %d, server %d: %s", lb.ID, target.Server, h.Status)
				}
			}
		}
	}
	if seen == 0 {
		t.Error("the history has left no target")
	}
}

// TestSnapshotsOfEarlierVersions loads a file of each version that was released.
func TestSnapshotsOfEarlierVersions(t *testing.T) {
	const file = "testdata/snapshot-1.jsonl"
	if os.Getenv("UPDATE_SNAPSHOT") != "" {
		check(t, os.WriteFile(file, []byte(saveText(t, busyCloud(t))), 0o600))
	}
	text, err := os.ReadFile(file)
	check(t, err)
	if !goesOn(t, file, string(text)) {
		p, _ := serverCloud(t, Options{})
		_, err := p.cloud.ReadSnapshot(bytes.NewReader(text))
		t.Errorf("%s: %v", file, err)
	}
}

func FuzzReadSnapshot(f *testing.F) {
	text := saveText(f, busyCloud(f))
	f.Add(text)
	for line := range strings.Lines(text) {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, text string) { goesOn(t, "this file", text) })
}

//nolint:paralleltest // it measures the process
func TestTheCostOfReadingASnapshotIsThatOfItsLines(t *testing.T) {
	longtest.SkipRace(t)
	for what, fill := range map[string]func(p Project, create func(int), n int){
		"servers that a load balancer and a firewall select": func(p Project, create func(int), n int) {
			mustFirewall(t, p, "f", FirewallTarget{Selector: "a"})
			for i := range n {
				create(i)
			}
		},
		"projects with tokens": func(p Project, _ func(int), n int) {
			for i := range n {
				p.cloud.AddToken(fmt.Sprintf("a-long-token-of-%d", i), Token{Project: p.cloud.AddProject(fmt.Sprint("project-", i)).ID()})
			}
		},
		"record sets": func(p Project, _ func(int), n int) {
			mustZone(t, p, CreateZone{Name: "example.com", Mode: ZonePrimary, RRSets: rrsetsOf(n)})
		},
	} {
		linear(t, what, 250, func(n int) func() {
			p, create := selectingCloud(t, 1, 0, "a")
			fill(p, create, n)
			var text bytes.Buffer
			check(t, p.cloud.Save(&text))
			return func() {
				if _, err := p.cloud.ReadSnapshot(&text); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
