// Package netlab creates networks for tests. A bridge connects network namespaces like the containers of
// a Docker network. All packets stay inside the namespaces. Only the test's process holds the
// namespaces, so the network disappears with it. It needs Linux and root; New skips the test without
// root.
package netlab
