package hypervisor

import "github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"

// What follows is the JSON of the control API, for hypervisors that are not written in Go. Programs in Go use a
// Session.

// AttachRequest is the body of POST /hypervisors.
type AttachRequest struct {
	Options
	TaskTimeout fault.Duration `json:"task_timeout,omitempty"`
	Grace       fault.Duration `json:"grace,omitempty"`
	Ping        fault.Duration `json:"ping,omitempty"`
}

// The types of a Message.
const (
	MessageMachine = "machine" // a server that the hypervisor has
	MessageSynced  = "synced"  // the end of the servers; tasks follow
	MessageTask    = "task"    // a task
	MessagePing    = "ping"    // the connection is alive
	MessageEnd     = "end"     // the end of the session; Reason says why
)

// Message is one line of the answer to POST /hypervisors.
type Message struct {
	Type    string   `json:"type"`
	Machine *Machine `json:"machine,omitempty"`
	Task    *Task    `json:"task,omitempty"`
	Reason  string   `json:"reason,omitempty"`
	// Replaced is true if the reason is ErrReplaced.
	Replaced bool `json:"replaced,omitempty"`
}

// CompleteRequest is the body of POST /hypervisors/{hypervisor}/tasks/{action}.
type CompleteRequest struct {
	Error *Error `json:"error,omitempty"`
}

// ReportRequest is the body of POST /hypervisors/{hypervisor}/servers/{server}.
type ReportRequest struct {
	Running *bool `json:"running"`
}
