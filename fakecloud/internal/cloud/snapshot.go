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

// A snapshot is a text. Each of its lines is a JSON object with one resource or one other part of the cloud, in an order that
// does not change: so the difference of two snapshots is that of two clouds. The first line has the version and what the cloud
// has once, the last one the number of lines.

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
	lineFollower = "action_waits"
	lineTimer    = "timer"
	lineTask     = "hypervisor_task"
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
	// Authority is the authority of managed certificates: the root and the one that issues.
	Authority []savedIssuer `json:"authority"`
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

type savedTask struct {
	Action   int64     `json:"action"`
	Server   int64     `json:"server"`
	Deadline time.Time `json:"deadline"`
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
	lines(table) iter.Seq[any]
	load(l *loader, t table, data []byte) error
}

// savedAs is the codec of resources T that are saved as S.
type savedAs[T store.Object[T], S any] struct {
	save  func(T) S
	store func(*loader, *S) error
}

func (c savedAs[T, S]) lines(t table) iter.Seq[any] {
	return func(yield func(any) bool) {
		for v := range t.(interface{ All() iter.Seq[T] }).All() {
			if !yield(c.save(v)) {
				return
			}
		}
	}
}

func (c savedAs[T, S]) load(l *loader, _ table, data []byte) error {
	return decodeTo(data, func(saved *S) error { return c.store(l, saved) })
}

// plain is the codec of resources R that are saved as they are.
type plain[R any, T interface {
	*R
	store.Object[T]
}] struct{}

func (plain[R, T]) lines(t table) iter.Seq[any] {
	return savedAs[T, T]{save: func(v T) T { return v }}.lines(t)
}

func (plain[R, T]) load(l *loader, t table, data []byte) error {
	return decodeTo(data, func(saved *R) error {
		v := T(saved)
		err := l.meta(v.Header())
		if err == nil {
			t.(interface{ Put(T) }).Put(v)
		}
		return err
	})
}

// saver writes the lines of a snapshot. The first error of the writer stays.
type saver struct {
	out   *bufio.Writer
	lines int
}

// write writes a line. The types of data can all be encoded.
func (s *saver) write(kind string, project int64, data any) {
	encoded, err := json.Marshal(data)
	if err == nil {
		encoded, err = json.Marshal(SnapshotLine{Kind: kind, Project: project, Data: encoded})
	}
	if err != nil {
		panic("cloud: " + err.Error())
	}
	_, _ = s.out.Write(append(encoded, '\n'))
	s.lines++
}

// Save writes a snapshot of the cloud as it is now: all projects with what they own, their tokens, the actions that run, all
// other work that is due later, and the reports about traffic and usage. extra are further lines, of kinds that Load returns.
// It holds no lock while it writes. Its error is that of the writer.
//
// The snapshot has the secrets of the cloud: tokens, private keys, user data. It lacks subscriptions and hypervisors.
func (c *Cloud) Save(w io.Writer, extra []SnapshotLine) error {
	c.Settle()
	f := c.copy(c.clock)
	s := &saver{out: bufio.NewWriter(w)}
	f.ca.make()
	s.write(lineCloud, 0, savedCloud{
		Version: SnapshotVersion, Time: f.Now(), LastID: f.lastID.Load(), LastProject: f.lastProject, Passwords: f.passwords,
		NextIPv4: f.ips.v4.next, NextIPv6: f.ips.v6.next, NextBalancerIPv4: f.lbIPs.v4.next,
		CountsTraffic: f.countsTraffic.Load(), Authority: []savedIssuer{f.ca.root.saved(), f.ca.sub.saved()},
	})
	f.saveTypes(s)
	for _, p := range f.Projects() {
		saved := savedProject{ID: p.ID(), Name: p.Name(), Auto: p.Auto()}
		if limits := p.data.state.Load().Limits; !maps.Equal(limits, f.limits) {
			saved.Limits = &limits
		}
		s.write(lineProject, 0, saved)
	}
	for _, p := range f.Projects() {
		for _, text := range slices.Sorted(maps.Keys(p.data.tokens)) {
			t, _ := f.Token(text)
			s.write(lineToken, p.ID(), savedToken{text, t.ReadOnly, t.APIDate})
		}
	}
	for _, p := range f.Projects() {
		s.state(p.ID(), p.data.state.Load())
	}
	for _, scenario := range f.scenarios {
		s.write(lineScenario, 0, scenario)
	}
	for _, j := range f.queue.sorted() {
		if j.project == nil { // a scenario has its next step
			continue
		}
		s.write(lineTimer, j.project.id, savedTimer{j.due.UTC(), *saveWork(j.timer)})
	}
	for _, t := range f.waiting {
		s.write(lineTask, t.project.id, savedTask{t.action, t.server, t.deadline.UTC()})
	}
	saveStats(s, lineBalancer, &f.loadBalancerStats)
	saveStats(s, lineUsage, &f.serverUsage)
	saveStats(s, lineTraffic, &f.serverTraffic)
	for _, line := range extra {
		s.write(line.Kind, line.Project, line.Data)
	}
	s.write(lineEnd, 0, s.lines+1)
	return s.out.Flush()
}

// state writes the resources and actions of a project.
func (s *saver) state(project int64, st *State) {
	for _, t := range st.tables() {
		for line := range codecs[t.Kind()].lines(t) {
			s.write(string(t.Kind()), project, line)
		}
	}
	for z := range st.Zones.All() {
		for _, set := range z.RRSets() {
			s.write(lineRRSet, project, savedRRSet{*set, z.ID, set.created, set.age})
		}
	}
	st.Actions.waiting.Scan(func(f follower) bool {
		s.write(lineFollower, project, savedFollower{f.action, f.after})
		return true
	})
}

// saveTypes writes the server types that are not as in the catalogue of Options.
func (c *Cloud) saveTypes(s *saver) {
	known := map[int64]bool{}
	write := func(t *ServerType, removed bool) {
		saved := savedServerType{ServerType: *t, Removed: removed}
		for _, in := range t.Locations {
			saved.Locations = append(saved.Locations, savedOffer{in, in.Location.Name})
		}
		s.write(lineType, 0, saved)
	}
	for _, t := range c.catalogue.ServerTypes {
		known[t.ID] = true
		if !slices.Contains(c.offered.ServerTypes, t) {
			write(t, false)
		}
	}
	for _, p := range c.Projects() {
		for server := range p.data.state.Load().Servers.All() {
			if !known[server.Type.ID] {
				known[server.Type.ID] = true
				write(server.Type, true)
			}
		}
	}
}

func saveStats[S any](s *saver, kind string, h *statsHistory[S]) {
	for _, id := range slices.Sorted(maps.Keys(h.first)) {
		saved := savedStats[S]{ID: id, First: h.first[id].UTC()}
		for _, sample := range h.samples[id] {
			saved.Samples = append(saved.Samples, savedSample[S]{sample.at.UTC(), sample.stats})
		}
		s.write(kind, 0, saved)
	}
}
