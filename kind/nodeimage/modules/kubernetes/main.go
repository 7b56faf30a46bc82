// Command kubernetes is a whole Kubernetes distribution in one program: the
// command that runs is the one whose name the program was started under, as with
// busybox. Eight commands that share most of their packages are linked once,
// which is a quarter of their size and build time apart.
//
//	kube-apiserver -> kubernetes     a symbolic link, the usual way
//	kubernetes kube-apiserver …      or named as first argument
//
// It exists because the project's machines reach the Go module proxy and
// nothing else: no container registry, no dl.k8s.io. Nothing in here changes
// what the commands do. The release is named in go.mod beside this file, and
// only there; package kind/nodeimage/kubernetes reads it from there.
//
// This is a module of its own so that k8s.io/kubernetes and etcd stay out of the
// dependencies of whoever imports the project's packages.
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// command runs one of the programs to its end with os.Args as its command line
// and returns the exit code.
type command func() int

func main() {
	name, args, ok := choose(os.Args)
	if !ok {
		names := slices.Sorted(maps.Keys(commands))
		fmt.Fprintf(os.Stderr, "kubernetes: no command %q; there are: %s\n", name, strings.Join(names, ", "))
		os.Exit(2)
	}
	os.Args = args
	os.Exit(commands[name]())
}

// choose returns which command a command line asks for, and the command line
// that this command is to see. The name the program runs under decides; where
// that is none of the commands, the first argument does.
func choose(argv []string) (name string, args []string, ok bool) {
	if len(argv) == 0 {
		return "", nil, false
	}
	name = filepath.Base(argv[0])
	if _, ok = commands[name]; ok {
		return name, argv, true
	}
	if len(argv) < 2 {
		return "", nil, false
	}
	name = argv[1]
	_, ok = commands[name]
	return name, argv[1:], ok
}
