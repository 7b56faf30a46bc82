// Package cloud is the simulated Hetzner Cloud itself: its state, its rules and its asynchronous
// actions, without any HTTP.
//
// # How state is kept
//
// Everything that a project owns is in one [State]. A State that has been published is never
// changed again: a reader loads the current one with a single atomic read and sees a consistent
// picture for as long as it likes, and neither waits for a writer nor makes one wait.
//
// Writers are serialized. A write is a function that gets a [Tx], a private copy of the state
// (copy-on-write B-trees, so that a copy costs nothing until it is changed). When the function
// returns an error the copy is dropped and nothing has happened; when it returns nil the copy
// becomes the published state and the changes go out as [Event]s. There is no way to apply half a
// request.
//
// # What is shown inside something else
//
// A resource is encoded once per change (see [Entry.Encoded]), so whatever a resource shows of
// another one (a server's placement group, a network's list of servers) has to be written to, or
// touched in, the resource that shows it: [Table.Touch].
//
// # Time
//
// All time comes from the clock in [Options]. Work that is due later sits in a queue ordered by its
// due time. Due work runs before any read or write looks at the state, with the time at which
// it was due, so that after a test steps its clock the next call sees everything done that should
// be done by then; a goroutine does the same for those who only listen to events.
package cloud
