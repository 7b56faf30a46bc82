// Package hypervisor describes how a program gives the cloud's servers guests: containers, virtual machines or
// processes.
//
// Without a hypervisor, servers are entries in a table, and the profile decides when their actions end. An attached
// hypervisor gets the actions that concern a server's guest as tasks (see [Task]) and decides how each ends: in
// success, or in failure with a code and a message. The hypervisor also reports guests that start or stop by
// themselves.
//
// A program attaches with the method AttachHypervisor: of a fakecloud.Cloud in the same process, or of a
// remote.Client, over the control API. Both return a [Session]. With the method ReportServerUsage of both, a
// hypervisor, or another program, reports the usage of a server: see [Usage].
package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Options select the servers of a hypervisor and limit how long it may take and be away.
type Options struct {
	// Name identifies the hypervisor: 1 to 63 of the characters a-z A-Z 0-9 . _ -. A hypervisor that attaches under
	// the name of another one replaces it and gets all its tasks.
	Name string `json:"name"`
	// Project is the id of the project with the servers that the hypervisor runs. 0 means all projects.
	Project int64 `json:"project,omitempty"`
	// Selector is a label selector for the servers. "" means all servers. The cloud applies it whenever an action
	// starts, so that a change of labels moves a server from one hypervisor to another. It has at most 4 KiB.
	Selector string `json:"selector,omitempty"`
	// Credentials makes the hypervisor get Guest.PasswordHash and Guest.Rescue, and the tasks that change them.
	Credentials bool `json:"credentials,omitempty"`
	// TaskTimeout is how long a task may take, on the cloud's clock. Then its action fails with the code timeout. Default:
	// DefaultTaskTimeout.
	TaskTimeout time.Duration `json:"-"`
	// Grace is how long a hypervisor may be suspended, on the cloud's clock. Then it is detached: the actions of its tasks fail. A task
	// that Next never returned waits until its deadline for another hypervisor that has the server. Default: DefaultGrace.
	Grace time.Duration `json:"-"`
	// Ping is the longest silence of the cloud on a connection over the control API, in the machine's time. After
	// three times as long the connection counts as lost. Default: 5 seconds.
	Ping time.Duration `json:"-"`
}

// Defaults of Options.
const (
	DefaultTaskTimeout = 5 * time.Minute
	DefaultGrace       = 15 * time.Second
)

// Guest describes a server in all respects that its guest needs.
type Guest struct {
	Project      int64             `json:"project"`
	Server       int64             `json:"server"`
	Name         string            `json:"name"`
	Status       string            `json:"status"` // as the API shows it, such as "running"
	Labels       map[string]string `json:"labels"`
	Location     string            `json:"location"`
	NetworkZone  string            `json:"network_zone"`
	ServerType   string            `json:"server_type"`
	Architecture string            `json:"architecture"`
	Cores        int               `json:"cores"`
	MemoryGB     float64           `json:"memory_gb"`
	DiskGB       int               `json:"disk_gb"`
	// Image is the image's name. Snapshots and backups have no name: it is their description.
	Image string `json:"image"`
	// ImageID is 0 if the image was deleted.
	ImageID int64 `json:"image_id"`
	// OSFlavor and OSVersion are those of the image, such as "debian" and "13".
	OSFlavor  string `json:"os_flavor,omitempty"`
	OSVersion string `json:"os_version,omitempty"`
	// PublicIPv4 and PublicIPv6 are zero if the server has no such interface.
	PublicIPv4 netip.Addr   `json:"public_ipv4,omitzero"`
	PublicIPv6 netip.Prefix `json:"public_ipv6,omitzero"`
	// Networks are the server's interfaces in networks, by ascending id of the network. They include those that are
	// still being attached: a guest is made with all its interfaces.
	Networks []Network `json:"networks"`
	SSHKeys  []string  `json:"ssh_keys"` // in the format of authorized_keys
	UserData string    `json:"user_data"`
	// PasswordHash is the SHA-256 of root's password, nil if root has none. No salt is needed: a password has 116 random bits. It
	// and Rescue are nil without Options.Credentials.
	PasswordHash []byte `json:"password_hash,omitempty"`
	// Rescue is the rescue system that the next boot starts, nil for the system of the disk. The task of a boot describes its own.
	Rescue *Rescue `json:"rescue,omitempty"`
}

// Rescue is how root gets into a rescue system.
type Rescue struct {
	SSHKeys      []string `json:"ssh_keys"` // in the format of authorized_keys
	PasswordHash []byte   `json:"password_hash"`
}

// Network is a guest's interface in a network.
type Network struct {
	Network  int64        `json:"network"`
	Name     string       `json:"name"`
	Subnet   netip.Prefix `json:"subnet"`
	IP       netip.Addr   `json:"ip"`
	AliasIPs []netip.Addr `json:"alias_ips,omitempty"`
	MAC      string       `json:"mac"`
}

// The commands of tasks. They are those of the actions that wait for them, except for CommandForget.
const (
	// CommandCreate makes the guest without starting it, or leaves that to the first CommandStart, when the server may have
	// more networks. CommandStart follows, unless the server is created powered off.
	CommandCreate = "create_server"
	CommandStart  = "start_server"
	CommandStop   = "stop_server"
	// CommandShutdown is done once the guest has been asked to shut down.
	CommandShutdown   = "shutdown_server"
	CommandReboot     = "reboot_server"
	CommandReset      = "reset_server"
	CommandRebuild    = "rebuild_server"
	CommandChangeType = "change_server_type"
	CommandDelete     = "delete_server"
	// CommandAttach is for a server that is on: it gets an interface in one more network. Attaching a server that is off makes no task, and
	// neither does removing an interface: the next task describes all networks of the server.
	CommandAttach = "attach_to_network"
	// CommandResetPassword and the two after it change only what the guest's description says. They need Options.Credentials.
	CommandResetPassword = "reset_password"
	CommandEnableRescue  = "enable_rescue"
	CommandDisableRescue = "disable_rescue"
	// CommandForget removes the guest of a server that a reset of the cloud removed. No action waits for it.
	CommandForget = "forget_server"
)

// Task is a task of a hypervisor. Until a task is completed, the cloud may hand it out again, to the same hypervisor or its successor: a
// second run must do no harm.
type Task struct {
	// Action is the id of the action that waits for the task, 0 for CommandForget.
	Action int64 `json:"action"`
	// Command is one of the constants.
	Command string `json:"command"`
	// Runs reports whether the guest has to run after the task, for example after a rebuild.
	Runs bool `json:"runs"`
	// Deadline is when the action fails by itself, in the cloud's time.
	Deadline time.Time `json:"deadline,omitzero"`
	// Guest is the server in its form after the task.
	Guest Guest `json:"machine"`
}

// Error is why a task failed. Its code and message become those of the action, which keeps 1 KiB of each.
type Error struct {
	// Code is such as "resource_unavailable". If empty, it is "action_failed".
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("%s (%s)", e.Message, e.Code) }

// Errors of a Session.
var (
	// ErrReplaced means that another hypervisor has attached under the same name.
	ErrReplaced = errors.New("another hypervisor has attached under this name")
	// ErrDetached means that the session is over.
	ErrDetached = errors.New("the hypervisor is detached")
	// ErrClosed means that the cloud is closed.
	ErrClosed = errors.New("the cloud is closed")
	// ErrNoTask means that no action waits for the task: it was completed already, its deadline has passed, or the
	// cloud was reset.
	ErrNoTask = errors.New("no action waits for this task")
	// ErrNoGuest means that the server does not exist or belongs to another hypervisor.
	ErrNoGuest = errors.New("the hypervisor has no server with this id")
)

// Session is a hypervisor's connection to the cloud. The methods may be called from several goroutines. Over the
// control API, their errors include those of the connection.
type Session interface {
	// Guests returns the servers that the hypervisor had when it attached, by project and id.
	Guests() []Guest
	// Next waits for the next task and returns it. The tasks of one server come in the order of their actions.
	// Unfinished tasks of an earlier session come again. Any error except the context's ends the session:
	// ErrReplaced, ErrDetached, ErrClosed.
	Next(ctx context.Context) (Task, error)
	// Complete ends the action of a task: in success if failure is nil. A failure that is an *Error gives the action
	// its code and message; the text of any other failure is the message of an action_failed.
	// Errors: ErrNoTask, ErrDetached, ErrReplaced.
	Complete(ctx context.Context, action int64, failure error) error
	// Report says that a guest runs or does not run, for a reason that is not a task. It does nothing while a task
	// of the server is unfinished. After CommandShutdown, a server stays stopping until the hypervisor reports that it
	// does not run. If the guest then runs again at once, report both.
	// Errors: ErrNoGuest, ErrDetached, ErrReplaced.
	Report(ctx context.Context, server int64, running bool) error
	// Suspend ends the session but leaves the tasks to the next one of this name, for as long as Options.Grace.
	Suspend()
	// Close ends the session and detaches the hypervisor. The actions that wait for it fail. The profile decides when
	// later ones end.
	Close()
}
