// Package store has the tables of the cloud: resources by id, by name and by label, and their log of changes.
//
// All of it is immutable for readers. A version of a table is a copy of the struct. It shares the unchanged parts (copy-on-write B-trees).
// A writer takes a copy, begins with [Table.Begin], changes it, and ends with [Table.Publish]; readers keep their version. The package does
// not know what a server is.
package store
