// Command conformance writes the page of what Kubernetes' own specs have shown, and fails if something has become worse:
//
//	conformance REPORT UNSUPPORTED PAGE
//
// REPORT is Ginkgo's JSON report of the run, UNSUPPORTED the list of what cannot pass, with reasons, and PAGE the Markdown page,
// whose earlier version the run is compared with. scripts/conformance.sh calls it.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/conformance"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return errors.New("wrong arguments; give three files: REPORT UNSUPPORTED PAGE")
	}
	return conformance.Update(os.Stdout, args[0], args[1], args[2])
}
