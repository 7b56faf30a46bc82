package cloud

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// MachineWork says what an action does to the machine of a server.
type MachineWork struct {
	Server int64
	// Runs tells whether the machine is to run when the work has been done.
	Runs bool
	// Amend, if set, changes the description that a hypervisor gets from what the server is to what
	// it will be.
	Amend func(*Machine)
}

// workIfOn is the work of an action that a machine which is off does not notice.
func workIfOn(s *Server, runs bool) *MachineWork {
	if s.Status != ServerRunning {
		return nil
	}
	return &MachineWork{Server: s.ID, Runs: runs}
}

// Machine is what a hypervisor knows of a server: enough to make a machine for it.
type Machine struct {
	Project      int64             `json:"project"`
	Server       int64             `json:"server"`
	Name         string            `json:"name"`
	Status       ServerStatus      `json:"status"`
	Labels       map[string]string `json:"labels"`
	Location     string            `json:"location"`
	NetworkZone  string            `json:"network_zone"`
	ServerType   string            `json:"server_type"`
	Architecture string            `json:"architecture"`
	Cores        int               `json:"cores"`
	MemoryGB     float64           `json:"memory_gb"`
	DiskGB       int               `json:"disk_gb"`
	// Image is the image's name, or the description of a snapshot or backup, which have no name.
	// ImageID is 0 when the image was deleted.
	Image   string `json:"image"`
	ImageID int64  `json:"image_id"`
	// PublicIPv4 and PublicIPv6 are zero where the server has no such interface.
	PublicIPv4 netip.Addr   `json:"public_ipv4,omitzero"`
	PublicIPv6 netip.Prefix `json:"public_ipv6,omitzero"`
	// Networks are the server's interfaces in networks, by ascending id of the network, those that
	// are about to be attached as well: a machine is made with all its interfaces.
	Networks []MachineNetwork `json:"networks"`
	SSHKeys  []string         `json:"ssh_keys"` // in the format of authorized_keys
	UserData string           `json:"user_data"`
}

// MachineNetwork is the interface of a machine in a network.
type MachineNetwork struct {
	Network  int64        `json:"network"`
	Name     string       `json:"name"`
	Subnet   netip.Prefix `json:"subnet"`
	IP       netip.Addr   `json:"ip"`
	AliasIPs []netip.Addr `json:"alias_ips,omitempty"`
	MAC      string       `json:"mac"`
}

func (m *Machine) setType(t *ServerType) {
	m.ServerType, m.Architecture, m.Cores, m.MemoryGB = t.Name, t.Architecture, t.Cores, t.Memory
}

func (m *Machine) setImage(i *Image) {
	m.Image, m.ImageID = "", 0
	if i != nil {
		m.Image, m.ImageID = cmp.Or(i.Name, i.Description), i.ID
	}
}

// machine describes the machine of a server.
func (st *State) machine(project int64, s *Server) Machine {
	m := Machine{
		Project: project, Server: s.ID, Name: s.Name, Status: s.Status, Labels: cloneLabels(s.Labels),
		Location: s.Location.Name, NetworkZone: s.Location.NetworkZone, DiskGB: s.PrimaryDisk, UserData: s.UserData,
		Networks: []MachineNetwork{}, SSHKeys: []string{},
	}
	m.setType(s.Type)
	m.setImage(s.Image)
	if ip, ok := st.PrimaryIPs.Get(s.PublicIPv4); ok {
		m.PublicIPv4 = ip.IP.Addr()
	}
	if ip, ok := st.PrimaryIPs.Get(s.PublicIPv6); ok {
		m.PublicIPv6 = ip.IP
	}
	for n := range st.Networks.All() {
		if in, ok := n.Member(s.Ref()); ok {
			m.Networks = append(m.Networks, MachineNetwork{
				Network: n.ID, Name: n.Name, Subnet: in.Subnet, IP: in.IP, AliasIPs: slices.Clone(in.AliasIPs), MAC: macOf(s.ID, n.ID),
			})
		}
	}
	for _, id := range s.SSHKeys {
		if k, ok := st.SSHKeys.Get(id); ok {
			m.SSHKeys = append(m.SSHKeys, k.PublicKey)
		}
	}
	return m
}

// CommandForget is the Command of a MachineTask that no action waits for: the server is gone
// without an action, because the cloud was reset, and its machine is nobody's.
const CommandForget = "forget_server"

// MachineTask is what a hypervisor is to do. A task may be handed out again, to the same
// hypervisor or its successor, until it has been completed: doing it twice must do no harm.
type MachineTask struct {
	// Action is the id of the action that waits for the task; 0 when none does (CommandForget).
	Action int64 `json:"action"`
	// Command is the action's: create_server, start_server, stop_server, shutdown_server,
	// reboot_server, reset_server, rebuild_server, change_server_type, delete_server.
	//
	// create_server makes the machine without starting it: start_server follows, unless the server
	// is created powered off. shutdown_server has been done when the guest was asked. A server that
	// changes its type or is rebuilt is off or not, and is started if Runs says so.
	Command string `json:"command"`
	// Runs tells whether the machine is to run when the task has been done.
	Runs bool `json:"runs"`
	// Deadline is when the action fails by itself, in the cloud's time.
	Deadline time.Time `json:"deadline,omitzero"`
	Machine  Machine   `json:"machine"`
}

// machineTask is a running action that waits for a hypervisor.
type machineTask struct {
	hypervisor *hypervisor
	project    *projectData
	run        *actionRun
	deadline   time.Time
}

// describe returns the task for the hypervisor; false if the server is gone.
func (t *machineTask) describe() (MachineTask, bool) {
	st := t.project.state.Load()
	s, ok := st.Servers.Get(t.run.Machine.Server)
	if !ok {
		return MachineTask{}, false
	}
	out := MachineTask{
		Action: t.run.id, Command: t.run.Command, Runs: t.run.Machine.Runs, Deadline: t.deadline,
		Machine: st.machine(t.project.id, s),
	}
	if t.run.Machine.Amend != nil {
		t.run.Machine.Amend(&out.Machine)
	}
	return out, true
}

// handOver gives an action to the hypervisor that has the machine which it concerns, and returns
// false if there is none. What a fault rule decided about an action, no machine sees.
func (r *actionRun) handOver(tx *Tx) bool {
	if r.Machine == nil || r.outcome != nil {
		return false
	}
	s, ok := tx.Servers.Get(r.Machine.Server)
	if !ok {
		return false
	}
	h := tx.hypervisorOf(s)
	if h == nil {
		return false
	}
	t := &machineTask{hypervisor: h, project: tx.project, run: r, deadline: tx.now.Add(h.TaskTimeout)}
	tx.tasks = append(tx.tasks, t)
	tx.schedule(h.TaskTimeout, func(tx *Tx) {
		if t.take() {
			t.fail(tx, "timeout", "the hypervisor "+h.Name+" did not carry it out in "+h.TaskTimeout.String())
		}
	})
	return true
}

// take makes the caller the one who ends the task; false if somebody has been faster.
func (t *machineTask) take() bool {
	if t.hypervisor.tasks[t.run.id] != t {
		return false
	}
	delete(t.hypervisor.tasks, t.run.id)
	return true
}

func (t *machineTask) fail(tx *Tx, code Code, message string) {
	t.run.outcome = &ActionOutcome{Fail: true, FailCode: code, FailMessage: message}
	t.run.end(tx)
}

// hypervisorOf returns the hypervisor that has a server's machine, nil for none.
func (tx *Tx) hypervisorOf(s *Server) *hypervisor { return tx.cloud.hypervisorOf(tx.project, s) }

func (c *Cloud) hypervisorOf(p *projectData, s *Server) *hypervisor {
	for _, h := range c.hypervisors {
		if h.has(p.id, s) {
			return h
		}
	}
	return nil
}

// reportMachine makes the cloud's picture of a server that of its machine. The machine of a server
// that is stopping runs still, so that this is no news.
func (tx *Tx) reportMachine(s *Server, running bool) {
	switch {
	case running && (s.Status == ServerOff || s.Status == ServerUnknown):
		tx.bootServer(s.ID)
	case !running && (s.Status == ServerRunning || s.Status == ServerStopping || s.Status == ServerUnknown):
		tx.setServerStatus(s.ID, ServerOff)
	}
}
