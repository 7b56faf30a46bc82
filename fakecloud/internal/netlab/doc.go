// Package netlab creates networks for tests. A bridge connects network namespaces like the containers of
// a Docker network. All packets stay inside the namespaces. The network disappears with the test's
// process, which alone holds the namespaces. It needs Linux and root; New skips the test without root.
package netlab
