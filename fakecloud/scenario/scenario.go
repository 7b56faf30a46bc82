// Package scenario describes rehearsals of what breaks clients of the real cloud: a server type is sold out, a token is revoked for a
// while, answers are lost. A scenario is a file of changes in time, and ends without a trace.
//
//	running, err := cloud.Scenarios().Start(ctx, "sold-out=cx23@fsn1")
//	…
//	err = cloud.Scenarios().End(ctx, running.ID)
//
// INCIDENTS.md lists the built-in ones, with what happened in reality.
package scenario

import (
	"context"
	"errors"
	"time"
)

// ErrNotFound is the error if a scenario does not run, or if there is no built-in one of that name.
var ErrNotFound = errors.New("does not exist")

// Scenarios are the scenarios of a cloud, in its own process (fakecloud.Cloud.Scenarios) or another one (remote.Client.Scenarios).
// The methods may be called from several goroutines.
type Scenarios interface {
	// Start starts a scenario: the name of a built-in one, or the path of a YAML file, which has a slash or ends with .yaml. After an
	// equals sign come the values of its parameters, in their order, with @ between them: "sold-out=cx23@fsn1". A value may name its
	// parameter: "sold-out=location=fsn1". The others have their defaults. Several scenarios may run at a time, also of one name.
	//
	// The error says what is wrong, with the line of a file; then nothing has changed. It is ErrNotFound if there is no built-in one.
	Start(ctx context.Context, scenario string) (Running, error)
	// List returns what runs, in the order of the starts.
	List(ctx context.Context) ([]Running, error)
	// Available returns the built-in scenarios, by name.
	Available(ctx context.Context) ([]Available, error)
	// End ends a scenario: what it has changed is as before. What someone else has changed meanwhile stays. The error is ErrNotFound
	// if no scenario of that id runs.
	End(ctx context.Context, id int64) error
}

// Running is a scenario that was started. It runs until it is ended, or until all its changes are over.
type Running struct {
	ID          int64  `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description"`
	// Parameters are the values of all parameters.
	Parameters map[string]string `json:"parameters"`
	Started    time.Time         `json:"started"`
	// Next is when the next change begins or ends, on the cloud's clock; the zero value if there is none.
	Next time.Time `json:"next,omitzero"`
	// InForce is the number of changes that are in force now.
	InForce int `json:"in_force"`
	// Error is why a later change could not be made, such as a server type that was removed meanwhile.
	Error string `json:"error,omitempty"`
}

// Available is a built-in scenario.
type Available struct {
	Name        string      `json:"name"`
	Description string      `json:"description"`
	Parameters  []Parameter `json:"parameters"`
}

// Parameter is a value that a start of a scenario may set.
type Parameter struct {
	Name        string `json:"name"`
	Default     string `json:"default"`
	Description string `json:"description"`
}
