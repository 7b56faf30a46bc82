package cloud

import (
	"bufio"
	"encoding/json"
	"io"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// A snapshot is a text. Each of its lines is a JSON object with one resource or one other part of the cloud. Their order never changes: so
// the difference of two snapshots is that of two clouds. The first line has the version and the cloud's single values, the last one the
// number of lines.

// SnapshotVersion is the version of snapshots that Save writes. Load reads these and all before.
const SnapshotVersion = 1

// SnapshotLine is a line of a snapshot.
type SnapshotLine struct {
	Kind    string          `json:"kind"`
	Project int64           `json:"project,omitzero"`
	Data    json.RawMessage `json:"data"`
	Number  int             `json:"-"` // of the line in a snapshot that was read, from 1
}

// The kinds of lines that are not kinds of resources.
const (
	lineCloud    = "fakecloud"
	lineType     = "server_type"
	lineProject  = "project"
	lineToken    = "token"
	lineRRSet    = "zone_rrset"
	lineTarget   = "target_server"
	lineTimer    = "timer"
	lineScenario = "scenario"
	lineBalancer = "load_balancer_usage"
	lineUsage    = "server_usage"
	lineTraffic  = "server_traffic"
	lineEnd      = "end"
)

// savedCloud is the first line of a snapshot.
type savedCloud struct {
	Version int       `json:"version"`
	Time    time.Time `json:"time"`
	LastID  int64     `json:"last_id"`
	// LastProject is the largest id that a project had.
	LastProject int64  `json:"last_project"`
	Passwords   uint64 `json:"passwords,omitzero"`
	// NextIPv4, NextIPv6 and NextBalancerIPv4 are where the search for a free address continues.
	NextIPv4         uint64 `json:"next_ipv4"`
	NextIPv6         uint64 `json:"next_ipv6"`
	NextBalancerIPv4 uint64 `json:"next_load_balancer_ipv4"`
	CountsTraffic    bool   `json:"counts_traffic,omitzero"`
	// Authority is the authority of managed certificates: the root and the one that issues. A disk has it as an entry of its own, since
	// each write has this one.
	Authority []savedIssuer `json:"authority,omitzero"`
}

type savedIssuer struct {
	Certificate string `json:"certificate"` // PEM
	PrivateKey  string `json:"private_key"` // PEM
}

// savedServerType is a server type that is not as in the catalogue of Options.
type savedServerType struct {
	ServerType
	Locations []savedOffer `json:"locations,omitzero"`
	Removed   bool         `json:"removed,omitzero"` // servers have it, but the catalogue does not
}

type savedOffer struct {
	ServerTypeLocation
	Location string `json:"location"`
}

type savedProject struct {
	ID     int64   `json:"id"`
	Name   string  `json:"name"`
	Auto   bool    `json:"auto,omitzero"`   // it was made for an unknown token
	Limits *Limits `json:"limits,omitzero"` // nil for those of Options
}

type savedToken struct {
	Token    string    `json:"token"`
	ReadOnly bool      `json:"read_only,omitzero"`
	APIDate  time.Time `json:"api_date,omitzero"`
}

type savedTimer struct {
	Due time.Time `json:"due"`
	savedWork
}

type savedStats[S any] struct {
	ID      int64            `json:"id"`
	First   time.Time        `json:"first"`
	Samples []savedSample[S] `json:"samples"`
}

type savedSample[S any] struct {
	At    time.Time `json:"at"`
	Stats S         `json:"stats"`
}

// savedWork is a value of one of the types of effects and timers.
type savedWork struct {
	Type string          `json:"type"`
	Args json.RawMessage `json:"args"`
}

// workTypes are all types of effects and timers, by name.
var workTypes = sync.OnceValue(func() map[string]reflect.Type {
	types := map[string]reflect.Type{}
	for name, t := range timers {
		types[name] = reflect.TypeOf(t)
	}
	for _, c := range commands {
		for _, e := range c.effects {
			types[workName(e)] = reflect.TypeOf(e)
		}
	}
	return types
})

// workName is the name of the type of an effect or timer. The type of an effect of a load balancer's action has that of the change.
func workName(work any) string {
	if name, ok := timerNames()[reflect.TypeOf(work)]; ok {
		return name
	}
	name := strings.TrimSuffix(reflect.TypeOf(work).Name(), "]")
	return name[strings.LastIndexByte(name, '.')+1:]
}

// saveWork returns an effect or a timer as data; nil for none.
func saveWork(work any) *savedWork {
	if work == nil {
		return nil
	}
	args, err := json.Marshal(work)
	if err != nil { // their fields are numbers, texts and resources
		panic("cloud: " + err.Error())
	}
	return &savedWork{workName(work), args}
}

// codec encodes and decodes the resources of one kind, one a line.
type codec interface {
	all(table) iter.Seq2[int64, any]
	saved(resource any) any // what is encoded
	// decode returns a function that stores the resource. It may be called by several goroutines.
	decode(data []byte, unmarshal func([]byte, any) error) (put func(*loader, table) error, err error)
}

// savedAs is the codec of resources T that are saved as S.
type savedAs[T store.Object[T], S any] struct {
	save func(T) S
	load func(*loader, *S) (T, error) // the table gets what it returns
}

func (savedAs[T, S]) all(t table) iter.Seq2[int64, any] {
	return func(yield func(int64, any) bool) {
		for v := range t.(interface{ All() iter.Seq[T] }).All() {
			if !yield(v.Header().ID, v) {
				return
			}
		}
	}
}

func (c savedAs[T, S]) saved(v any) any { return c.save(v.(T)) }

func (c savedAs[T, S]) decode(data []byte, unmarshal func([]byte, any) error) (func(*loader, table) error, error) {
	saved := new(S)
	err := unmarshal(data, saved)
	return func(l *loader, t table) error {
		v, err := c.load(l, saved)
		if err == nil {
			t.(interface{ Put(T) }).Put(v)
		}
		return err
	}, err
}

// plain is the codec of resources R that are saved as they are.
func plain[R any, T interface {
	*R
	store.Object[T]
}]() codec {
	return savedAs[T, R]{func(v T) R { return *v }, func(l *loader, v *R) (T, error) { return v, l.meta(T(v).Header()) }}
}

// entry is a part of the cloud that is a line of a snapshot, and a key with a value on a [Disk].
type entry struct {
	entryKey
	value any // it never changes
}

// entryKey names an entry. Those of a project have its id.
type entryKey struct {
	kind    string
	project int64
	id      int64  // 0 for an entry that has a name, or the only one of its kind
	name    string // such as that of a record set, whose id is its zone's
}

// encode encodes the value. Its types can all be encoded.
func (e *entry) encode() []byte {
	v := e.value
	switch of := v.(type) {
	case job:
		v = savedTimer{of.due.UTC(), *saveWork(of.timer)}
	case *RRSet:
		v = savedRRSet{*of, e.id, of.created, of.age}
	default:
		if c := codecs[store.Kind(e.kind)]; c != nil {
			v = c.saved(v)
		}
	}
	data, err := json.Marshal(v)
	if err != nil {
		panic("cloud: " + err.Error())
	}
	return data
}

// Save writes a snapshot of the cloud: all projects with their resources and tokens, the running actions, all other future work, the
// reports about traffic and usage, and the parts of [Cloud.SaveAlso]. It holds no lock while it writes. Its error is that of the writer.
//
// The snapshot has the secrets of the cloud: tokens, private keys, user data. It lacks subscriptions and hypervisors.
func (c *Cloud) Save(w io.Writer) error {
	c.settle()
	out, lines := bufio.NewWriter(w), 0
	write := func(e entry) {
		line, err := json.Marshal(SnapshotLine{Kind: e.kind, Project: e.project, Data: e.encode()})
		if err != nil {
			panic("cloud: " + err.Error())
		}
		_, _ = out.Write(append(line, '\n')) // the first error stays
		lines++
	}
	saved := c.copy(c.clock)
	_ = c.Sync() // a snapshot does not run ahead of the disk, unless that is full: then it saves the work
	saved.entries(write)
	for _, part := range c.extra {
		for _, e := range part.entries() {
			write(e)
		}
	}
	write(entry{entryKey{kind: lineEnd}, lines + 1})
	return out.Flush()
}

// entries calls yield for all that a cloud has which does not run, in the order of a snapshot.
func (c *Cloud) entries(yield func(entry)) {
	header := c.header()
	header.Authority = c.ca.saved()
	yield(entry{entryKey{kind: lineCloud}, header})
	for _, e := range c.typeEntries(nil) {
		yield(e)
	}
	for _, p := range c.Projects() {
		yield(c.projectEntry(p.data))
	}
	for _, p := range c.Projects() {
		for _, text := range slices.Sorted(maps.Keys(p.data.tokens)) {
			yield(tokenEntry(text, c.token(text).Token))
		}
	}
	for _, p := range c.Projects() {
		p.data.state.Load().entries(p.ID(), yield)
	}
	for _, s := range c.scenarios {
		yield(s.entry())
	}
	for _, j := range c.queue.sorted() {
		if j.project != nil { // else it is the next step of a scenario, which has it
			yield(j.entry())
		}
	}
	c.statsEntries(yield)
}

// statsEntries calls yield for the reports about traffic and usage.
func (c *Cloud) statsEntries(yield func(entry)) {
	c.loadBalancerStats.entries(lineBalancer, yield)
	c.serverUsage.entries(lineUsage, yield)
	c.serverTraffic.entries(lineTraffic, yield)
}

// header has the cloud's single values, except for the authority. The caller holds Cloud.mu if the cloud runs.
func (c *Cloud) header() savedCloud {
	return savedCloud{
		Version: SnapshotVersion, Time: c.Now(), LastID: c.lastID.Load(), LastProject: c.lastProject, Passwords: c.passwords,
		NextIPv4: c.ips.v4.next, NextIPv6: c.ips.v6.next, NextBalancerIPv4: c.lbIPs.v4.next,
		CountsTraffic: c.countsTraffic.Load(),
	}
}

func (c *Cloud) projectEntry(d *projectData) entry {
	saved := savedProject{ID: d.id, Name: d.name, Auto: d.auto}
	if limits := d.state.Load().Limits; !maps.Equal(limits, c.limits) {
		saved.Limits = &limits
	}
	return entry{entryKey{kind: lineProject, id: d.id}, saved}
}

func tokenEntry(text string, t Token) entry {
	return entry{entryKey{kind: lineToken, project: t.Project, name: text}, savedToken{text, t.ReadOnly, t.APIDate}}
}

func (j *job) key() entryKey {
	return entryKey{kind: lineTimer, project: j.project.id, id: int64(j.seq)}
}

func (j *job) entry() entry { return entry{j.key(), *j} }

func rrsetEntry(project, zone int64, s *RRSet) entry {
	return entry{entryKey{lineRRSet, project, zone, s.Name + "\x00" + s.Type}, s}
}

// entries calls yield for the resources and actions of a project.
func (st *State) entries(project int64, yield func(entry)) {
	for _, t := range st.tables() {
		for id, v := range codecs[t.Kind()].all(t) {
			yield(entry{entryKey{kind: string(t.Kind()), project: project, id: id}, v})
		}
	}
	for z := range st.Zones.All() {
		for _, set := range z.RRSets() {
			yield(rrsetEntry(project, z.ID, set))
		}
	}
	for t := range st.targetServers {
		if e, ok := t.entry(project, st); ok {
			yield(e)
		}
	}
}

// typeEntries are the entries of the server types that are not as in the catalogue of Options, without some of the catalogue.
func (c *Cloud) typeEntries(without []*ServerType) (all []entry) {
	known := map[int64]bool{}
	add := func(t *ServerType, removed bool) {
		saved := savedServerType{ServerType: *t, Removed: removed}
		for _, in := range t.Locations {
			saved.Locations = append(saved.Locations, savedOffer{in, in.Location.Name})
		}
		all = append(all, entry{entryKey{kind: lineType, id: t.ID}, saved})
	}
	for _, t := range c.catalogue.ServerTypes {
		known[t.ID] = true
		if !slices.Contains(c.offered.ServerTypes, t) && !slices.Contains(without, t) {
			add(t, false)
		}
	}
	for _, p := range c.Projects() {
		for server := range p.data.state.Load().Servers.All() {
			if !known[server.Type.ID] {
				known[server.Type.ID] = true
				add(server.Type, true)
			}
		}
	}
	return all
}

// entries calls yield for each entry. yield must not use the history.
func (h *statsHistory[S]) entries(kind string, yield func(entry)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(h.first)) {
		saved := savedStats[S]{ID: id, First: h.first[id].UTC()}
		for _, sample := range h.samples[id] {
			saved.Samples = append(saved.Samples, savedSample[S]{sample.at.UTC(), sample.stats})
		}
		yield(entry{entryKey{kind: kind, id: id}, saved})
	}
}

// LineFault is the kind of the parts of SaveAlso that are fault rules.
const LineFault = "fault"

// Extra is a part of a snapshot that other packages add. Each of its values is a line.
type Extra struct {
	Kind   string
	Values func() []any
	// Changed calls put for each value that was added or changed since its last call, and with nil for each one that is gone. The ids
	// order the values. The first call is about all. It must not call the cloud. If it is nil, a disk has the values of now and then.
	Changed func(put func(id int64, value any))
}

// SaveAlso adds parts to snapshots. They can be encoded as JSON. [Snapshot.Extra] returns them.
func (c *Cloud) SaveAlso(parts ...Extra) { c.extra = parts }

func (e *Extra) entries() (all []entry) {
	for i, v := range e.Values() {
		all = append(all, entry{entryKey{kind: e.Kind, id: int64(i)}, v})
	}
	return all
}
