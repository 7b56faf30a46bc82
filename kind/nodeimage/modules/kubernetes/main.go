// Command kubernetes is a whole Kubernetes distribution in one program. Like
// busybox, it runs the command whose name it was started under. The eight
// commands share most of their packages: together they take a quarter of the size
// and build time of eight programs.
//
//	kube-apiserver -> kubernetes     a symbolic link, the usual way
//	kubernetes kube-apiserver …      or named as first argument
//
// It exists for machines that reach only a Go module proxy: no container registry
// and no dl.k8s.io. It does not change the commands. Only go.mod in this folder
// names the release; package kind/nodeimage/kubernetes reads it from there.
//
// This is a separate module, so that programs that import the project's packages
// do not depend on k8s.io/kubernetes and etcd.
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
		fmt.Fprintf(os.Stderr, "kubernetes: command %q: must be one of %s\n", name, strings.Join(names, ", "))
		os.Exit(2)
	}
	os.Args = args
	os.Exit(commands[name]())
}

// choose returns the command that a command line asks for, and the command line
// for that command. The name of the program decides; if no command has that name,
// the first argument decides.
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
