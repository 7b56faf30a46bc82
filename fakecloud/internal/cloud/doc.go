// Package cloud is the simulated Hetzner Cloud itself: its state, its rules and its asynchronous
// actions, without any HTTP.
//
// # How state is kept
//
// Everything that a project owns is in one [State]. A published State never changes. A reader
// loads the current one with a single atomic read and sees a consistent picture. Readers and
// writers do not wait for each other.
//
// Writers are serialized. A write is a function that gets a [Tx], a private copy of the state
// (copy-on-write B-trees, see package store: a copy costs nothing until it is changed). If the function
// returns an error, the copy is dropped. If it returns nil, the copy becomes the published state
// and the changes go out as [Event]s. A request is never applied by half.
//
// # Resources that show parts of others
//
// A resource is encoded once per change (see [store.Entry.Encoded]). A server shows its placement group,
// a network shows its servers. Such a part must be written to the resource that shows it, or that
// resource must be touched when the part changes: [store.Table.Touch].
//
// # Time
//
// All time comes from the clock in [Options]. Work for later is in a queue ordered by its due time.
// Work sees its due time as the current time. The cloud's goroutine runs it when it is due, and a
// write runs due work first, but not more than a batch: if more is due, the write happens at the time of the next job, before it.
// A read runs due work only if a test steps the clock: see [Project.View].
//
// Work for later is a value, not a function: a timer in the queue, and the effect of each running action in its [Action]. The
// tables timers and commands have their types. So a cloud can be copied while actions run ([Cloud.Fork]), and its future can be
// shown ([Cloud.Timeline]) and stored.
//
// # Projects
//
// A project can be emptied ([Project.Reset]) and dropped ([Cloud.DropProject]) while its actions run. What it has in the queue is
// then void: it is removed later, so that a drop costs what the project owns. With automatic projects, the cloud makes them for
// unknown tokens ([Cloud.Enter]), and its goroutine drops those that are not used.
package cloud
