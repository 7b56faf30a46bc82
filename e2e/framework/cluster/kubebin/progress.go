package kubebin

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// progress counts what the go command says on its standard error and tells a
// person about it. It is an io.Writer for that standard error.
//
// `go build -v` names each package that it compiles on a line of its own, and
// says nothing about packages that its cache has; modules that are fetched are
// lines "go: downloading …". Everything else is a complaint, kept for the error.
type progress struct {
	clock clock.WithTicker
	out   io.Writer
	live  bool // out is a terminal: rewrite one line instead of adding lines
	start time.Time

	mu         sync.Mutex
	partial    []byte
	downloaded int
	compiled   int
	total      int
	complaints []string
	width      int // of the line on the terminal
}

// maxComplaints bounds how many lines of compiler output an error carries.
const maxComplaints = 40

func newProgress(out io.Writer, live bool, c clock.WithTicker) *progress {
	if out == nil {
		out = io.Discard
	}
	return &progress{clock: c, out: out, live: live, start: c.Now()}
}

// Write takes a piece of the go command's standard error. It never fails.
func (p *progress) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.partial = append(p.partial, data...)
	for {
		line, rest, found := strings.Cut(string(p.partial), "\n")
		if !found {
			return len(data), nil
		}
		p.partial = []byte(rest)
		p.line(strings.TrimRight(line, "\r"))
	}
}

// line sorts one line into its counter. A package path has no blanks and no
// colon; a first element without a dot is the standard library.
func (p *progress) line(line string) {
	switch {
	case line == "":
	case strings.HasPrefix(line, "go: downloading "):
		p.downloaded++
	case !strings.ContainsAny(line, " \t:#"):
		p.compiled++
	case len(p.complaints) < maxComplaints:
		p.complaints = append(p.complaints, line)
	}
}

// setTotal sets how many packages there are to compile when nothing is cached.
func (p *progress) setTotal(packages int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total = packages
}

// complaint returns what the go command said beside its progress.
func (p *progress) complaint() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.complaints
	if rest := strings.TrimSpace(string(p.partial)); rest != "" {
		all = append(all, rest)
	}
	return strings.Join(all, "\n")
}

// String says how far it is: elapsed time, modules fetched, packages compiled.
func (p *progress) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	elapsed := p.clock.Since(p.start).Round(time.Second)
	switch {
	case p.total == 0:
		return fmt.Sprintf("%4s  reading the module graph, %d modules downloaded", elapsed, p.downloaded)
	case p.compiled == 0:
		return fmt.Sprintf("%4s  looking for compiled packages in Go's build cache", elapsed)
	case p.compiled >= p.total:
		return fmt.Sprintf("%4s  %d packages compiled, linking", elapsed, p.compiled)
	default:
		return fmt.Sprintf("%4s  %d packages compiled, of at most %d, then linking", elapsed, p.compiled, p.total)
	}
}

// say prints a sentence of its own.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprintf(p.out, format+"\n", args...)
}

// show prints the state: over the last one on a terminal, below it elsewhere.
func (p *progress) show() {
	text := p.String()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.live {
		fmt.Fprintln(p.out, "  "+text)
		return
	}
	fmt.Fprintf(p.out, "\r  %-*s", p.width, text)
	p.width = len(text)
}

// clear removes the line that show left on a terminal.
func (p *progress) clear() {
	if p.live && p.width > 0 {
		fmt.Fprintf(p.out, "\r%*s\r", p.width+2, "")
		p.width = 0
	}
}

// during shows the state again and again while work runs: each second on a
// terminal, each 15 seconds in a log. It returns work's error.
func (p *progress) during(work func() error) error {
	interval := 15 * time.Second
	if p.live {
		interval = time.Second
	}
	ticker := p.clock.NewTicker(interval)
	defer ticker.Stop()
	done := make(chan error, 1)
	go func() { done <- work() }()
	for {
		select {
		case err := <-done:
			p.mu.Lock()
			p.clear()
			p.mu.Unlock()
			return err
		case <-ticker.C():
			p.show()
		}
	}
}

// countLines returns how many lines r has.
func countLines(r io.Reader) (int, error) {
	n, scanner := 0, bufio.NewScanner(r)
	for scanner.Scan() {
		n++
	}
	return n, scanner.Err()
}
