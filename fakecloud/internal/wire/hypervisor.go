// Package wire has what the control API and its clients send each other, as far as other packages need it.
package wire

import (
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
)

// DefaultPing is that of hypervisor.Options.
const DefaultPing = 5 * time.Second

// AttachRequest is the body of POST /hypervisors.
type AttachRequest struct {
	hypervisor.Options
	TaskTimeout fault.Duration `json:"task_timeout,omitempty"`
	Grace       fault.Duration `json:"grace,omitempty"`
	Ping        fault.Duration `json:"ping,omitempty"`
}

// The types of a Message.
const (
	MessageGuest  = "machine" // a server that the hypervisor has
	MessageSynced = "synced"  // the end of the servers; tasks follow
	MessageTask   = "task"    // a task
	MessagePing   = "ping"    // the connection is alive
	MessageEnd    = "end"     // the end of the session; Reason says why
)

// Message is one line of the answer to POST /hypervisors.
type Message struct {
	Type   string            `json:"type"`
	Guest  *hypervisor.Guest `json:"machine,omitempty"`
	Task   *hypervisor.Task  `json:"task,omitempty"`
	Reason string            `json:"reason,omitempty"`
	// Replaced is true if the reason is hypervisor.ErrReplaced.
	Replaced bool `json:"replaced,omitempty"`
}

// CompleteRequest is the body of POST /hypervisors/{hypervisor}/tasks/{action}.
type CompleteRequest struct {
	Error *hypervisor.Error `json:"error,omitempty"`
}

// ReportRequest is the body of POST /hypervisors/{hypervisor}/servers/{server}.
type ReportRequest struct {
	Running *bool `json:"running"`
}
