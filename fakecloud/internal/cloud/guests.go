package cloud

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
)

// GuestWork is the effect of an action on the guest of a server.
type GuestWork struct {
	Server int64
	// Runs is whether the guest runs after the action.
	Runs bool
	// Amend, if set, changes the description of the server for the hypervisor: from its state before the
	// action to its state after.
	Amend func(*hypervisor.Guest)
}

// workIfOn returns the work of an action that affects only a running guest; nil if it does not run.
func workIfOn(s *Server, runs bool) *GuestWork {
	if s.Status != ServerRunning {
		return nil
	}
	return &GuestWork{Server: s.ID, Runs: runs}
}

func setGuestType(m *hypervisor.Guest, t *ServerType) {
	m.ServerType, m.Architecture, m.Cores, m.MemoryGB = t.Name, t.Architecture, t.Cores, t.Memory
}

func setGuestImage(m *hypervisor.Guest, i *Image) {
	m.Image, m.ImageID = "", 0
	if i != nil {
		m.Image, m.ImageID = cmp.Or(i.Name, i.Description), i.ID
	}
}

// guest describes the guest of a server.
func (st *State) guest(project int64, s *Server) hypervisor.Guest {
	m := hypervisor.Guest{
		Project: project, Server: s.ID, Name: s.Name, Status: string(s.Status), Labels: maps.Clone(s.Labels),
		Location: s.Location.Name, NetworkZone: s.Location.NetworkZone, DiskGB: s.PrimaryDisk, UserData: s.UserData,
		Networks: []hypervisor.Network{}, SSHKeys: []string{},
	}
	setGuestType(&m, s.Type)
	setGuestImage(&m, s.Image)
	if ip, ok := st.PrimaryIPs.Get(s.PublicIPv4); ok {
		m.PublicIPv4 = ip.IP.Addr()
	}
	if ip, ok := st.PrimaryIPs.Get(s.PublicIPv6); ok {
		m.PublicIPv6 = ip.IP
	}
	for _, n := range st.networksOf(s.Ref()) {
		in, _ := n.Member(s.Ref())
		m.Networks = append(m.Networks, hypervisor.Network{
			Network: n.ID, Name: n.Name, Subnet: in.Subnet, IP: in.IP, AliasIPs: slices.Clone(in.AliasIPs), MAC: macOf(s.ID, n.ID),
		})
	}
	for _, id := range s.SSHKeys {
		if k, ok := st.SSHKeys.Get(id); ok {
			m.SSHKeys = append(m.SSHKeys, k.PublicKey)
		}
	}
	return m
}

// task is a running action that waits for a hypervisor.
type task struct {
	hypervisor *attachment
	project    *projectData
	run        *actionRun
	deadline   time.Time
	begun      bool // it was handed out
}

// describe returns the task for the hypervisor; false if the server no longer exists.
func (t *task) describe() (hypervisor.Task, bool) {
	st := t.project.state.Load()
	s, ok := st.Servers.Get(t.run.Guest.Server)
	if !ok {
		return hypervisor.Task{}, false
	}
	out := hypervisor.Task{
		Action: t.run.id, Command: t.run.Command, Runs: t.run.Guest.Runs, Deadline: t.deadline,
		Guest: st.guest(t.project.id, s),
	}
	if t.run.Guest.Amend != nil {
		t.run.Guest.Amend(&out.Guest)
	}
	return out, true
}

// handOver makes an action a task of the hypervisor that has its guest. It returns
// false if there is none, or if a fault rule has decided how the action ends.
func (r *actionRun) handOver(tx *Tx) bool {
	if r.Guest == nil || r.outcome != nil {
		return false
	}
	s, ok := tx.Servers.Get(r.Guest.Server)
	if !ok {
		return false
	}
	h := tx.hypervisorOf(s)
	if h == nil {
		return false
	}
	t := &task{hypervisor: h, project: tx.project, run: r, deadline: tx.now.Add(h.TaskTimeout)}
	tx.tasks = append(tx.tasks, t)
	tx.schedule(h.TaskTimeout, func(tx *Tx) {
		if t.take() {
			t.fail(tx, "timeout", "the hypervisor "+h.Name+" did not complete the task within "+h.TaskTimeout.String())
		}
	})
	return true
}

// take removes the task, so that only the caller ends it. It returns false if the task has ended.
func (t *task) take() bool {
	if t.hypervisor.tasks[t.run.id] != t {
		return false
	}
	delete(t.hypervisor.tasks, t.run.id)
	return true
}

func (t *task) fail(tx *Tx, code Code, message string) {
	t.run.outcome = &ActionOutcome{Fail: true, FailCode: code, FailMessage: message}
	t.run.end(tx)
}

// hypervisorOf returns the hypervisor that has a server's guest, or nil.
func (tx *Tx) hypervisorOf(s *Server) *attachment { return tx.cloud.hypervisorOf(tx.project, s) }

func (c *Cloud) hypervisorOf(p *projectData, s *Server) *attachment {
	for _, h := range c.hypervisors {
		if h.has(p.id, s) {
			return h
		}
	}
	return nil
}

// reportGuest sets the status of a server to that of its guest. While a server is stopping, its
// guest still runs, so such a report changes nothing.
func (tx *Tx) reportGuest(s *Server, running bool) {
	switch {
	case running && (s.Status == ServerOff || s.Status == ServerUnknown):
		tx.bootServer(s.ID)
	case !running && (s.Status == ServerRunning || s.Status == ServerStopping || s.Status == ServerUnknown):
		tx.setServerStatus(s.ID, ServerOff)
	}
}
