// Command speclist merges the results of all runs in a folder, by default out, into its specs.md and specs.json.
package main

import (
	"fmt"
	"os"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
)

func main() {
	folder := "out"
	if len(os.Args) > 1 {
		folder = os.Args[1]
	}
	if err := speclist.Merge(folder); err != nil {
		fmt.Fprintln(os.Stderr, "speclist:", err)
		os.Exit(1)
	}
}
