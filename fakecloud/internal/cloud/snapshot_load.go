package cloud

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/simclock"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/strictjson"
)

// Snapshot is the content of a snapshot, for [Cloud.Restore].
type Snapshot struct {
	// Time is that of the cloud's clock when the snapshot was made.
	Time time.Time
	// Extra are the lines of kinds that this package does not know.
	Extra []SnapshotLine
	cloud *Cloud // it does not run; nil if the disk is empty
	disk  Disk   // that it was read from; nil for a file
	// earlier is whether an earlier version wrote it: the lines of load balancers or firewalls have their servers.
	earlier bool
}

// loader reads a snapshot into a cloud that does not run.
type loader struct {
	cloud    *Cloud
	snapshot *Snapshot
	projects map[int64]*Tx
	tx       *Tx // that of the line's project; nil if it has none
	ids      map[int64]bool
	names    map[string]bool        // of projects
	links    []func() error         // of resources to others that may come later
	removed  map[string]*ServerType // which servers have, but the catalogue does not
	ended    bool
}

// maxSnapshotLine is the size of the largest line in bytes. The largest resource is a load balancer with thousands of targets.
const maxSnapshotLine = 256 << 20

// ReadSnapshot reads a snapshot for this cloud. It does not change the cloud. An error names the line.
func (c *Cloud) ReadSnapshot(r io.Reader) (*Snapshot, error) {
	l := c.newLoader()
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxSnapshotLine)
	n := 0
	for in.Scan() && in.Err() == nil { // after an error, the rest of a line comes
		if n++; l.ended {
			return nil, fmt.Errorf("line %d: stands after the end of the snapshot; remove it", n)
		}
		if err := l.line(n, in.Bytes()); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	switch {
	case in.Err() != nil:
		return nil, fmt.Errorf("line %d: %w", n+1, in.Err())
	case !l.ended:
		return nil, fmt.Errorf("line %d: the snapshot has no end, so a part of it is missing; save it again", n)
	}
	if err := l.resolve(); err != nil {
		return nil, err
	}
	return l.snapshot, l.cloud.rehearse(l.snapshot.Time)
}

func (c *Cloud) newLoader() *loader {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.sibling(c.clock)
	f.ips.reset()
	f.lbIPs.reset()
	return &loader{
		cloud: f, snapshot: &Snapshot{cloud: f}, projects: map[int64]*Tx{}, ids: map[int64]bool{}, names: map[string]bool{},
		removed: map[string]*ServerType{},
	}
}

func (l *loader) line(n int, text []byte) error {
	var line SnapshotLine
	if err := strictjson.Decode(text, &line); err != nil {
		return fmt.Errorf("not a line of a snapshot: %w", err)
	}
	if (n == 1) != (line.Kind == lineCloud) {
		return fmt.Errorf("kind %.64q: a snapshot must begin with one line of kind %q", line.Kind, lineCloud)
	}
	if line.Kind == lineEnd {
		l.ended = true
		return decodeTo(line.Data, func(lines *int) error {
			if *lines != n {
				return fmt.Errorf("the snapshot had %d lines; save it again, or set the number of lines to %d if this is right", *lines, n)
			}
			return nil
		})
	}
	line.Number = n
	return l.entry(line)
}

// entry reads an entry.
func (l *loader) entry(line SnapshotLine) error {
	if l.tx = l.projects[line.Project]; line.Project != 0 && l.tx == nil {
		return fmt.Errorf("project %d: must have a line of kind %q before", line.Project, lineProject)
	}
	if i := place(store.Kind(line.Kind)); i >= 0 {
		return l.inProject(func(data []byte) error {
			put, err := codecs[resources[i].kind].decode(data, strictjson.Decode)
			if err == nil {
				err = put(l, resources[i].table(l.tx.State))
			}
			return err
		}, line)
	}
	switch line.Kind {
	case lineCloud:
		return decodeTo(line.Data, l.header)
	case lineType:
		return decodeTo(line.Data, l.serverType)
	case lineProject:
		return decodeTo(line.Data, l.project)
	case lineToken:
		return l.inProject(decoder(l.token), line)
	case lineRRSet:
		return l.inProject(decoder(l.rrset), line)
	case lineTarget:
		return l.inProject(decoder(l.targetServer), line)
	case lineTimer:
		return l.inProject(decoder(l.timer), line)
	case lineScenario:
		return decodeTo(line.Data, l.scenario)
	case lineBalancer:
		return decodeTo(line.Data, func(s *savedStats[LoadBalancerStats]) error { return loadStats(&l.cloud.loadBalancerStats, s) })
	case lineUsage:
		return decodeTo(line.Data, func(s *savedStats[hypervisor.Usage]) error { return loadStats(&l.cloud.serverUsage, s) })
	case lineTraffic:
		return decodeTo(line.Data, func(s *savedStats[hypervisor.Usage]) error { return loadStats(&l.cloud.serverTraffic, s) })
	}
	line.Data = bytes.Clone(line.Data)
	l.snapshot.Extra = append(l.snapshot.Extra, line)
	return nil
}

func (l *loader) inProject(load func([]byte) error, line SnapshotLine) error {
	if l.tx == nil {
		return fmt.Errorf("kind %.64q: must name its project", line.Kind)
	}
	return load(line.Data)
}

func decodeTo[T any](data []byte, take func(*T) error) error {
	var v T
	if err := strictjson.Decode(data, &v); err != nil {
		return err
	}
	return take(&v)
}

func decoder[T any](take func(*T) error) func([]byte) error {
	return func(data []byte) error { return decodeTo(data, take) }
}

func (l *loader) header(h *savedCloud) error {
	switch {
	case h.Version < 1 || h.Version > SnapshotVersion:
		return fmt.Errorf("version %d: must be 1 to %d; use the version of fakecloud that wrote it, or a later one", h.Version,
			SnapshotVersion)
	case h.Time.IsZero() || h.Time.After(simclock.Latest):
		return fmt.Errorf("time %v: must be a time before %v", h.Time, simclock.Latest)
	case h.LastID < firstID || h.LastID >= 1<<53:
		return fmt.Errorf("last_id %d: must be %d to 2^53", h.LastID, firstID)
	}
	if h.Authority != nil || l.snapshot.disk == nil {
		if err := l.authority(&h.Authority); err != nil {
			return err
		}
	}
	l.snapshot.Time, l.cloud.passwords, l.cloud.lastProject = h.Time.UTC(), h.Passwords, h.LastProject
	l.cloud.lastID.Store(h.LastID)
	l.cloud.countsTraffic.Store(h.CountsTraffic)
	// The pool may be another one now. A number outside of it restarts the search.
	l.cloud.ips.v4.seek(h.NextIPv4)
	l.cloud.ips.v6.seek(h.NextIPv6)
	l.cloud.lbIPs.v4.seek(h.NextBalancerIPv4)
	return nil
}

// serverType adds a server type to the catalogue, or replaces one. It must come before the projects.
func (l *loader) serverType(saved *savedServerType) error {
	t := &saved.ServerType
	t.Locations = nil
	for _, o := range saved.Locations {
		in := o.ServerTypeLocation
		if err := part("location", o.Location, l.cloud.catalogue.Location, &in.Location); err != nil {
			return err
		}
		t.Locations = append(t.Locations, in)
	}
	if t.ID <= 0 || t.Name == "" || len(t.Locations) == 0 || len(l.projects) > 0 {
		return fmt.Errorf("server type %d, %.64q: must have an id, a name and a location, and must come before the projects", t.ID, t.Name)
	}
	if saved.Removed {
		l.removed[t.Name] = t
		return nil
	}
	next := *l.cloud.catalogue
	next.ServerTypes = slices.Clone(next.ServerTypes)
	i := slices.IndexFunc(next.ServerTypes, func(o *ServerType) bool { return o.ID == t.ID })
	if i < 0 {
		if i = len(next.ServerTypes); i >= maxServerTypes {
			return fmt.Errorf("server type %s: the catalogue has no room for more than %d", t.Name, maxServerTypes)
		}
		next.ServerTypes = append(next.ServerTypes, nil)
	}
	next.ServerTypes[i] = t
	l.cloud.catalogue = &next
	return nil
}

// findType finds a server type of the catalogue, or one that it does not have any more.
func (l *loader) findType(name string) (*ServerType, bool) {
	if t, ok := l.cloud.catalogue.ServerType(name); ok {
		return t, true
	}
	t, ok := l.removed[name]
	return t, ok
}

func (l *loader) project(p *savedProject) error {
	if p.ID <= 0 || p.ID > l.cloud.lastProject || p.Name == "" || l.projects[p.ID] != nil || l.names[p.Name] {
		return fmt.Errorf("project %d, %.64q: must have a name and an id of its own, from 1 to the last_project of the first line", p.ID,
			p.Name)
	}
	l.names[p.Name] = true
	d := &projectData{id: p.ID, name: p.Name, auto: p.Auto, tokens: map[string]struct{}{}}
	if p.Auto {
		d.lastUse.Store(l.cloud.auto.uptime())
		l.cloud.auto.count++
	}
	limits := l.cloud.limits
	if p.Limits != nil {
		limits = *p.Limits
	}
	if err := limits.Check(); err != nil {
		return fmt.Errorf("project %d: %w", p.ID, err)
	}
	d.state.Store(newState(l.cloud.catalogue, limits))
	l.cloud.changeProjects(func(all *store.Ascending[*projectData]) { all.Set(d) })
	l.projects[p.ID] = l.cloud.begin(d, d.state.Load(), l.snapshot.Time, nil)
	return nil
}

func (l *loader) token(t *savedToken) error {
	if _, exists := l.cloud.Token(t.Token); exists {
		return errors.New("token: must be that of one line only")
	}
	if err := CheckToken(t.Token); err != nil {
		return err
	}
	l.cloud.AddToken(t.Token, Token{Project: l.tx.project.id, ReadOnly: t.ReadOnly, APIDate: t.APIDate})
	return nil
}

// meta checks what all resources have.
func (l *loader) meta(m *store.Meta) error {
	switch {
	case m.ID <= 0 || m.ID > l.cloud.lastID.Load():
		return fmt.Errorf("id %d: must be 1 to %d, the last_id of the first line", m.ID, l.cloud.lastID.Load())
	case l.ids[m.ID]:
		return fmt.Errorf("id %d: must be that of one line only", m.ID)
	}
	l.ids[m.ID] = true
	l.tx.log.Clear() // it is for subscribers, who get what is loaded from Restore
	m.Created = m.Created.UTC()
	if m.Labels = labelsOrNone(m.Labels); maps.Equal(m.Labels, l.cloud.lastLabels) {
		m.Labels = l.cloud.lastLabels // see Tx.NewMeta
		return nil
	}
	l.cloud.lastLabels = m.Labels
	return ValidateLabels(m.Labels)
}

// load is the opposite of saveWork.
func (s *savedWork) load() (any, error) {
	t, ok := workTypes()[s.Type]
	if !ok || t.Implements(reflect.TypeFor[cloudTimer]()) {
		return nil, fmt.Errorf("type %.64q: must be one of %v", s.Type, slices.Sorted(maps.Keys(workTypes())))
	}
	v := reflect.New(t)
	if err := strictjson.Decode(s.Args, v.Interface()); err != nil {
		return nil, fmt.Errorf("args of %s: %w", s.Type, err)
	}
	return v.Elem().Interface(), nil
}

func (l *loader) timer(saved *savedTimer) error {
	work, err := saved.load()
	if err != nil {
		return err
	}
	t, ok := work.(timer)
	earliest := l.snapshot.Time.Add(-time.Hour) // a cloud that has much to do may be late
	if !ok || saved.Due.Before(earliest) || saved.Due.After(simclock.Latest) {
		return fmt.Errorf("timer of type %.64q, due %v: must be a type of timers, and due from %v to %v", saved.Type, saved.Due,
			earliest, simclock.Latest)
	}
	l.cloud.jobSeq++
	l.cloud.push(job{due: saved.Due.UTC(), seq: l.cloud.jobSeq, project: l.tx.project, timer: t})
	return nil
}

// findFollowers notes which running actions of a project wait for the end of another one, and which for ResumeActions. The others have a
// timer.
func (tx *Tx) findFollowers() {
	for a := range tx.Actions.All() {
		if a.plan == nil {
			continue
		}
		prev, ok := tx.Actions.Get(a.plan.After)
		switch o := a.plan.Outcome; {
		case ok && prev.Status == ActionRunning:
			tx.Actions.waiting.Set(follower{prev.ID, a.ID})
		case o != nil && o.Hang:
			tx.Actions.waiting.Set(follower{hanging, a.ID})
		}
	}
}

func loadStats[S any](h *statsHistory[S], saved *savedStats[S]) error {
	if !slices.IsSortedFunc(saved.Samples, func(a, b savedSample[S]) int { return a.At.Compare(b.At) }) || len(saved.Samples) > maxStats {
		return fmt.Errorf("samples: must be at most %d, in the order of their times", maxStats)
	}
	for _, s := range saved.Samples {
		h.add(saved.ID, s.At, s.Stats)
	}
	if h.first != nil {
		h.first[saved.ID] = saved.First
	}
	return nil
}

// saved returns the authority. It makes the authority if no client asked for a certificate yet.
func (a *authority) saved() (saved []savedIssuer) {
	a.make()
	for _, i := range []issuer{a.root, a.sub} {
		saved = append(saved, savedIssuer{string(encodePEM("CERTIFICATE", i.cert.Raw)), string(encodeKey(i.key))})
	}
	return saved
}

func (l *loader) authority(saved *[]savedIssuer) error {
	if len(*saved) != 2 {
		return errors.New("authority: must have two certificates with their keys")
	}
	ca := &authority{seed: l.cloud.seed}
	for i, to := range []*issuer{&ca.root, &ca.sub} {
		pair, err := tls.X509KeyPair([]byte((*saved)[i].Certificate), []byte((*saved)[i].PrivateKey))
		if err != nil {
			return fmt.Errorf("authority.%d: %w", i, err)
		}
		key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
		if !ok {
			return fmt.Errorf("authority.%d: must have an ECDSA key", i)
		}
		to.cert, to.key = pair.Leaf, key
	}
	ca.once.Do(func() {})
	l.cloud.ca = ca
	return nil
}

// resolve finds and checks what can be found only at the end.
func (l *loader) resolve() error {
	for _, link := range l.links {
		if err := link(); err != nil {
			return err
		}
	}
	slices.SortStableFunc(l.cloud.finished, func(a, b finishedAction) int { return a.at.Compare(b.at) })
	for _, tx := range l.projects {
		if err := tx.checkReferences(); err != nil {
			return err
		}
		tx.findFollowers()
		for _, t := range tx.tables() {
			t.Publish()
		}
		tx.project.state.Store(tx.State)
	}
	if l.projects[1] == nil {
		return errors.New("project 1: must exist")
	}
	l.cloud.findTasks()
	return nil
}
