// Command testsummary reads what `go test -json` prints and shows a person what matters: each
// package when it has ended, the output of tests that failed, every test that was skipped with its
// reason, and the counts.
//
//	go test -json ./... | go run ./scripts/testsummary -name unit
//
// It ends with status 1 if anything failed or nothing ran.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// event is one line of `go test -json` (see `go doc test2json`).
type event struct {
	Action  string
	Package string
	// ImportPath is the package whose build a build-output event is about.
	ImportPath string
	Test       string
	Elapsed    float64 // seconds
	Output     string
}

// heartbeat is how often a person is told that it works.
const heartbeat = 20 * time.Second

type test struct{ pkg, name string }

// summary is what has been read so far.
type summary struct {
	out                     io.Writer
	output                  map[test][]string
	passed, failed, skipped int
	ended                   int // packages
	skips                   []string
	broken                  bool // a package failed without a test that did
}

func main() {
	name := flag.String("name", "tests", "what the counts are called")
	flag.Parse()
	s := &summary{out: os.Stdout, output: map[test][]string{}}
	if err := s.read(os.Stdin, time.Tick(heartbeat)); err != nil {
		fmt.Fprintln(os.Stderr, "testsummary:", err)
		os.Exit(1)
	}
	if !s.finish(*name) {
		os.Exit(1)
	}
}

// read reads events until the input ends, and shows that it waits whenever tick does. A line that is not an event is shown as it
// is.
func (s *summary) read(r io.Reader, tick <-chan time.Time) error {
	lines := make(chan []byte)
	failed := make(chan error, 1)
	go func() {
		defer close(lines)
		for in := bufio.NewReader(r); ; {
			line, err := in.ReadBytes('\n')
			if len(line) > 0 {
				lines <- line
			}
			if err != nil {
				failed <- err
				return
			}
		}
	}()
	for begin := time.Now(); ; {
		select {
		case line, more := <-lines:
			if !more {
				if err := <-failed; !errors.Is(err, io.EOF) {
					return err
				}
				return nil
			}
			var e event
			if json.Unmarshal(line, &e) == nil && e.Action != "" {
				s.add(e)
			} else {
				fmt.Fprintf(s.out, "%s", line)
			}
		case <-tick:
			fmt.Fprintf(s.out, "      %s so far: %d packages have ended, others are compiled or tested\n", time.Since(begin).Round(time.Second), s.ended)
		}
	}
}

func (s *summary) add(e event) {
	key := test{e.Package, e.Test}
	switch e.Action {
	case "output":
		s.output[key] = append(s.output[key], e.Output)
	case "build-output":
		fmt.Fprint(s.out, e.Output)
	case "build-fail":
		s.broken = true
	case "pass", "fail", "skip":
		if e.Test == "" {
			s.packageEnded(e)
			return
		}
		s.testEnded(e, key)
	}
}

func (s *summary) testEnded(e event, key test) {
	switch e.Action {
	case "pass":
		s.passed++
	case "skip":
		s.skipped++
		s.skips = append(s.skips, fmt.Sprintf("%s %s: %s", e.Package, e.Test, reason(s.output[key])))
	case "fail":
		s.failed++
		fmt.Fprint(s.out, strings.Join(s.output[key], ""))
	}
	delete(s.output, key)
}

func (s *summary) packageEnded(e event) {
	s.ended++
	took := time.Duration(e.Elapsed * float64(time.Second)).Round(100 * time.Millisecond)
	switch e.Action {
	case "pass":
		fmt.Fprintf(s.out, "ok    %-8s %s\n", took, e.Package)
	case "fail":
		s.broken = true
		for key, output := range s.output { // the package's own, and that of tests which a panic has kept from ending
			if key.pkg == e.Package {
				fmt.Fprint(s.out, strings.Join(output, ""))
			}
		}
		fmt.Fprintf(s.out, "FAIL  %-8s %s\n", took, e.Package)
	}
	maps.DeleteFunc(s.output, func(key test, _ []string) bool { return key.pkg == e.Package })
}

// reason returns what a skipped test said, without the lines that go test adds.
func reason(output []string) string {
	var said []string
	for _, line := range output {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			said = append(said, line)
		}
	}
	return strings.Join(said, " ")
}

// finish prints the end and reports whether all tests passed.
func (s *summary) finish(name string) bool {
	if len(s.skips) > 0 {
		slices.Sort(s.skips)
		fmt.Fprintln(s.out, "skipped:")
		for _, line := range s.skips {
			fmt.Fprintln(s.out, "  "+line)
		}
	}
	fmt.Fprintf(s.out, "%s: %d passed, %d failed, %d skipped\n", name, s.passed, s.failed, s.skipped)
	return s.failed == 0 && !s.broken && s.passed > 0
}
