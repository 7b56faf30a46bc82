// Command stress repeats tests with 1, 2 and 4 processors, in turns in random order and each one alone, and prints each test that does not
// end the same each time. scripts/test.sh --stress calls it with a line for each package: its folder, its path, and the value of GOWORK.
// Settings:
//
//	PACKAGES  folders, such as "ccm/internal/apicall fakecloud/..."; without, all
//	CHANGED   1 leaves out packages that do not differ from the base of the branch, or else the last release, or else the commit before
//	BUDGET    how long tests run, and how long they are compiled at most (default 10m); packages take turns until then
//	COUNT     so many turns of each package at most
//	SHORT     1 gives tests -test.short, and leaves out scripts, as make test does: each package has a turn within half an hour
//	RACE      -race
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := stress(ctx, os.Stdout, os.Args[1], os.Getenv)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "stress:", err)
		os.Exit(1)
	}
}

// pkg is a package with tests, and the program of these.
type pkg struct{ folder, path, work, program string }

// result counts how a test ended, and has what it printed when it first failed.
type result struct {
	pkg     *pkg
	ends    map[string]int
	printed string
}

func stress(ctx context.Context, out io.Writer, lines string, setting func(string) string) error {
	budget, err := time.ParseDuration(cmp.Or(setting("BUDGET"), "10m"))
	if err != nil {
		return fmt.Errorf("BUDGET=%s: must be a duration, such as 10m: %w", setting("BUDGET"), err)
	}
	count, err := strconv.Atoi(cmp.Or(setting("COUNT"), "1000000"))
	if err != nil {
		return fmt.Errorf("COUNT=%s: must be a number: %w", setting("COUNT"), err)
	}
	packages := choose(ctx, out, lines, setting)
	temporary, err := os.MkdirTemp("", "stress")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temporary) }()
	results, turns, broken := map[string]*result{}, 0, 0
	var ran, compiled time.Duration
	for round, before := 0, -1; round < count && ran < budget && turns > before && ctx.Err() == nil; round++ {
		before = turns
		for i, p := range packages {
			if ctx.Err() != nil {
				break
			}
			begin := time.Now()
			if p.program == "" && compiled < budget && ran < budget {
				p.program = filepath.Join(temporary, strconv.Itoa(i)+".test")
				if err := p.compile(ctx, setting("RACE")); err != nil {
					broken++
					fmt.Fprintln(out, err)
				}
				compiled += time.Since(begin)
			}
			if _, err := os.Stat(p.program); err != nil || ran >= budget {
				continue
			}
			turns++
			fmt.Fprintf(out, "%v of %v of tests: %s\n", ran.Round(time.Second), budget, p.path)
			patterns := []string{"."}
			if round%2 == 1 { // some fail only alone: nothing that ran before has made them slow, or fast
				patterns = p.alone(results)
			}
			for _, pattern := range patterns {
				begin = time.Now()
				p.run(ctx, temporary, pattern, setting("SHORT") != "", budget-ran, results)
				ran += time.Since(begin)
			}
		}
	}
	differ, all := report(out, setting("RACE"), results), len(packages)
	had := len(slices.DeleteFunc(packages, func(p *pkg) bool { return p.program == "" }))
	fmt.Fprintf(out, "stress: %d passed, %d failed; %d turns of %d of %d packages, %s of tests, %s of compiling\n", len(results)-differ,
		differ+broken, turns, had, all, ran.Round(time.Second), compiled.Round(time.Second))
	if differ+broken > 0 {
		return fmt.Errorf("%d tests do not end the same each time, or always fail; %d packages do not compile: see above", differ, broken)
	}
	return ctx.Err()
}

func (p *pkg) compile(ctx context.Context, race string) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-C", p.folder, "-vet=off", "-c", "-o", p.program)
	cmd.Env = append(os.Environ(), "GOWORK="+p.work, "CGO_ENABLED=0")
	if race != "" {
		cmd.Args, cmd.Env = append(cmd.Args, race), append(cmd.Env, "CGO_ENABLED=1")
	}
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: its tests do not compile: %w\n%s", p.path, err, text)
	}
	return nil
}

// alone returns a pattern for each known test.
func (p *pkg) alone(results map[string]*result) (patterns []string) {
	for name, r := range results {
		if _, test, _ := strings.Cut(name, " "); r.pkg == p && !strings.Contains(test, "/") {
			patterns = append(patterns, "^"+test+"$")
		}
	}
	return patterns
}

// run runs the tests of a pattern once with each number of processors. A test that runs when the budget ends does not count.
func (p *pkg) run(ctx context.Context, temporary, pattern string, short bool, budget time.Duration, results map[string]*result) {
	limited, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	cmd := exec.CommandContext(limited, "go", "tool", "test2json", p.program, "-test.v=test2json", "-test.shuffle=on", "-test.cpu=1,2,4",
		"-test.timeout=30m", "-test.run="+pattern, "-test.short="+strconv.FormatBool(short))
	cmd.Dir, cmd.Env = p.folder, append(os.Environ(), "TMPDIR="+temporary)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	text, _ := cmd.Output() // with an error, a test has not ended: see below
	printed, running := map[string]string{}, map[string]bool{}
	end := func(name, how string) {
		r := results[p.path+" "+name]
		if r == nil {
			r = &result{pkg: p, ends: map[string]int{}}
			results[p.path+" "+name] = r
		}
		if r.ends[how]++; how == "fail" {
			r.printed = cmp.Or(r.printed, printed[name])
		}
		delete(running, name)
		delete(printed, name)
	}
	for events := json.NewDecoder(bytes.NewReader(text)); ; {
		var e struct{ Action, Test, Output string }
		if events.Decode(&e) != nil {
			break
		}
		switch {
		case e.Test == "":
		case e.Action == "run":
			running[e.Test] = true
		case e.Action == "output" && len(printed[e.Test]) < 4000:
			printed[e.Test] += "    " + e.Output
		case e.Action == "pass" || e.Action == "fail" || e.Action == "skip":
			end(e.Test, e.Action)
		}
	}
	if limited.Err() != nil {
		fmt.Fprintf(os.Stderr, "the time was over in %s, during %s\n", p.path, strings.Join(slices.Sorted(maps.Keys(running)), ", "))
		return
	}
	for name := range maps.Clone(running) { // it has panicked, or called os.Exit
		end(name, "fail")
	}
}
