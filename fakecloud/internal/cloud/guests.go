package cloud

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
)

// GuestWork is the effect of an action on the guest of a server.
type GuestWork struct {
	Server int64 `json:"server,omitzero"`
	// Runs is whether the guest runs after the action.
	Runs bool `json:"runs,omitzero"`
	// Credentials is set for work that only a hypervisor with hypervisor.Options.Credentials gets.
	Credentials bool `json:"credentials,omitzero"`
}

// hiddenFrom reports whether a hypervisor must not get the work.
func (w *GuestWork) hiddenFrom(h *attachment) bool { return w.Credentials && !h.Credentials }

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
	m.Image, m.ImageID, m.OSFlavor, m.OSVersion = "", 0, "", ""
	if i != nil {
		m.Image, m.ImageID, m.OSFlavor, m.OSVersion = cmp.Or(i.Name, i.Description), i.ID, i.OSFlavor, i.OSVersion
	}
}

// guest describes the guest of a server.
func (st *State) guest(project int64, s *Server) hypervisor.Guest {
	m := hypervisor.Guest{
		Project: project, Server: s.ID, Name: s.Name, Status: string(s.Status), Labels: maps.Clone(s.Labels),
		Location: s.Location.Name, NetworkZone: s.Location.NetworkZone, DiskGB: s.PrimaryDisk, UserData: s.UserData,
		Networks: []hypervisor.Network{}, SSHKeys: st.publicKeys(s.SSHKeys), PasswordHash: s.PasswordHash,
	}
	if s.RescueEnabled {
		m.Rescue = &hypervisor.Rescue{SSHKeys: st.publicKeys(s.RescueSSHKeys), PasswordHash: s.RescueHash}
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
	return m
}

// publicKeys returns those keys that were not deleted.
func (st *State) publicKeys(ids []int64) []string {
	keys := []string{}
	for _, id := range ids {
		if k, ok := st.SSHKeys.Get(id); ok {
			keys = append(keys, k.PublicKey)
		}
	}
	return keys
}

// see removes the credentials from a guest, unless the hypervisor wants them.
func (h *attachment) see(m hypervisor.Guest) hypervisor.Guest {
	if !h.Credentials {
		m.PasswordHash, m.Rescue = nil, nil
	}
	return m
}

// task is a running action that waits for a hypervisor.
type task struct {
	hypervisor *attachment
	project    *projectData
	action     int64
	server     int64
	deadline   time.Time
	begun      bool // it was handed out
}

// describe returns the task for the hypervisor; false if the server no longer exists.
func (t *task) describe() (hypervisor.Task, bool) {
	st := t.project.state.Load()
	s, exists := st.Servers.Get(t.server)
	a, ok := st.Actions.Get(t.action)
	if !exists || !ok || a.plan == nil {
		return hypervisor.Task{}, false
	}
	out := hypervisor.Task{
		Action: t.action, Command: a.Command, Runs: a.plan.Guest.Runs, Deadline: t.deadline,
		Guest: st.guest(t.project.id, s),
	}
	if does, ok := a.plan.Does.(interface {
		amend(*State, *hypervisor.Guest)
	}); ok {
		does.amend(st, &out.Guest)
	}
	out.Guest = t.hypervisor.see(out.Guest)
	return out, true
}

// handOver makes an action a task of the hypervisor that has its guest. It returns false without
// such a hypervisor, or if a fault rule has decided how, not only when, the action ends, or what the guest does.
func (tx *Tx) handOver(a *Action) bool {
	g, o := a.plan.Guest, a.plan.Outcome
	if g == nil || o != nil && (o.Fail || o.Hang || o.GuestIgnores || o.StaysOff && g.Runs) {
		return false
	}
	s, ok := tx.Servers.Get(g.Server)
	if !ok {
		return false
	}
	h := tx.hypervisorOf(s)
	if h == nil || g.hiddenFrom(h) {
		return false
	}
	tx.tasks = append(tx.tasks, &task{
		hypervisor: h, project: tx.project, action: a.ID, server: s.ID, deadline: tx.now.Add(h.TaskTimeout),
	})
	tx.schedule(h.TaskTimeout, taskDeadline{a.ID, h.Name, h.TaskTimeout})
	return true
}

// taskDeadline is due when a hypervisor has to have completed a task.
type taskDeadline struct {
	Action     int64
	Hypervisor string // that had it first
	Timeout    time.Duration
}

func (d taskDeadline) about() Ref { return Ref{KindAction, d.Action} }

func (d taskDeadline) due(tx *Tx) {
	if t := tx.cloud.task(d.Action); t != nil && t.take() {
		tx.endAction(d.Action, &Error{
			Code: "timeout", Message: fmt.Sprintf("the hypervisor %s did not complete the task within %s", d.Hypervisor, d.Timeout),
		})
	}
}

// task returns the task of an action, or nil. The caller holds Cloud.mu.
func (c *Cloud) task(action int64) *task {
	for _, h := range c.hypervisors {
		if t := h.tasks[action]; t != nil {
			return t
		}
	}
	if i := slices.IndexFunc(c.waiting, func(t *task) bool { return t.action == action }); i >= 0 {
		return c.waiting[i]
	}
	return nil
}

// take removes the task, so that only the caller ends it. It returns false if the task is over.
func (t *task) take() bool {
	if t.hypervisor.tasks[t.action] != t {
		return false
	}
	delete(t.hypervisor.tasks, t.action)
	return true
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
