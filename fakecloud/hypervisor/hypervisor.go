// Package hypervisor lets a program give the cloud's servers machines: containers, virtual
// machines, processes.
//
// Without a hypervisor, servers are entries in a table and their actions end when the profile says.
// While one is attached, the actions that concern a server's machine (create_server, start_server,
// stop_server, shutdown_server, reboot_server, reset_server, rebuild_server, change_server_type,
// delete_server) are handed to it as tasks, and each ends as the hypervisor says: in success, or as
// failed with a code and a message. It also reports what machines do by themselves.
//
// A program in the same process attaches with fakecloud's Cloud.AttachHypervisor, one elsewhere
// with [Dial], over the control API. Both give a [Session], so that what is written for one works
// with the other.
package hypervisor

import (
	"context"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// Options say which servers a hypervisor has, and how long it may take and be away.
type Options = cloud.HypervisorOptions

// Defaults of Options, in the cloud's time.
const (
	DefaultTaskTimeout = cloud.DefaultTaskTimeout
	DefaultGrace       = cloud.DefaultGrace
)

// Machine describes a server: what is needed to make a machine for it.
type Machine = cloud.Machine

// Network is a machine's interface in a network.
type Network = cloud.MachineNetwork

// Task is what a hypervisor is to do.
type Task = cloud.MachineTask

// Error is why a task failed. Its code and message become those of the action.
type Error = cloud.MachineError

// Code is the code of an Error, as clients see it in the action.
type Code = cloud.Code

// The commands of tasks: those of the actions, and CommandForget for a machine whose server is gone
// without an action.
const (
	CommandCreate     = "create_server"
	CommandStart      = "start_server"
	CommandStop       = "stop_server"
	CommandShutdown   = "shutdown_server"
	CommandReboot     = "reboot_server"
	CommandReset      = "reset_server"
	CommandRebuild    = "rebuild_server"
	CommandChangeType = "change_server_type"
	CommandDelete     = "delete_server"
	CommandForget     = cloud.CommandForget
)

// Errors of a Session.
var (
	// ErrReplaced: another hypervisor has attached under the same name.
	ErrReplaced = cloud.ErrReplaced
	// ErrDetached: the session has ended.
	ErrDetached = cloud.ErrDetached
	// ErrClosed: the cloud is closed.
	ErrClosed = cloud.ErrClosed
	// ErrNoTask: no action waits for the task (any more).
	ErrNoTask = cloud.ErrNoTask
	// ErrNoMachine: the server does not exist or belongs to another hypervisor.
	ErrNoMachine = cloud.ErrNoMachine
)

// Session is a hypervisor's connection to the cloud. Its methods may be called from several
// goroutines.
type Session interface {
	// Machines returns the servers that the hypervisor had when it attached, by project and id.
	Machines() []Machine
	// Next returns the next task, waiting for it if need be. Tasks that were handed out and not
	// completed before the session began come again. An error is the end of the session, unless
	// it is the context's: ErrReplaced, ErrDetached, ErrClosed, or that of a connection.
	Next(ctx context.Context) (Task, error)
	// Complete ends the action of a task: in success, or, with a failure, in an error. An *Error
	// gives the action's code and message; any other failure's text is the message of an
	// action_failed.
	// Errors: ErrNoTask, ErrDetached, ErrReplaced, those of a connection.
	Complete(ctx context.Context, action int64, failure error) error
	// Report tells that a machine runs, or does not run, by itself or by somebody else's hand. It
	// does nothing while a task of the server is not completed. A server that was shut down is
	// stopping until it is reported not to run: report both for one that runs again right after that.
	// Errors: ErrNoMachine, ErrDetached, ErrReplaced, those of a connection.
	Report(ctx context.Context, server int64, running bool) error
	// Suspend ends the session, leaving the tasks to the next one of this name for as long as
	// Options.Grace.
	Suspend()
	// Close ends the session and detaches the hypervisor: the actions that wait for it fail, and those
	// that start from now on end by the profile's time.
	Close()
}

// Local returns the Session of a hypervisor within the process of the cloud. Use fakecloud's
// Cloud.AttachHypervisor.
func Local(h *cloud.Hypervisor) Session { return local{h} }

type local struct{ *cloud.Hypervisor }

func (l local) Complete(_ context.Context, action int64, failure error) error {
	return l.Hypervisor.Complete(action, failure)
}

func (l local) Report(_ context.Context, server int64, running bool) error {
	return l.Hypervisor.Report(server, running)
}
