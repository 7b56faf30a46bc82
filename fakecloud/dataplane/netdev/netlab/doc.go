// Package netlab makes networks for tests, of network namespaces that are connected by a bridge, as
// the containers of a Docker network are. All packets stay inside of them, and everything is gone when
// the test has ended, because nothing but the test's process holds the namespaces. Linux and root only; other
// tests are skipped.
package netlab
