package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// consoleLines limits the lines of a failure on the console while the suite runs, except those with the name and place of the spec.
// Together with the summary at the end of a run, they fill a screen.
const consoleLines = 10

// Console copies what Ginkgo prints while the suite runs, without what is long: the timeline of a failed spec, with its logs, is
// left out, and its message ends after some lines. The log gets everything.
func Console(out io.Writer, in io.Reader, log io.Writer) error {
	c := &console{out: out}
	buffer := make([]byte, 32*1024)
	for {
		n, err := in.Read(buffer)
		if _, failed := log.Write(buffer[:n]); failed != nil {
			return fmt.Errorf("writing the log of Ginkgo: %w; is the disk full?", failed)
		}
		if failed := c.add(buffer[:n]); failed != nil {
			return failed
		}
		if errors.Is(err, io.EOF) {
			return errors.Join(c.whole(c.line), c.endBlock())
		}
		if err != nil {
			return fmt.Errorf("reading what Ginkgo prints: %w", err)
		}
	}
}

// console knows where in Ginkgo's text it is.
type console struct {
	out io.Writer
	// line is the beginning of an unfinished line. The console shows the first shown bytes of it already.
	line  []byte
	shown int
	// heading says that the next line that is not empty is the first one of a block. Lines of dashes separate blocks.
	heading bool
	// failure marks the block of a spec that failed or hangs. lines counts its shown lines, more the others.
	failure     bool
	lines, more int
	// reset ends a colour, if Ginkgo uses colours.
	reset string
	// section is the last line of the section that is being left out, such as a timeline, or "".
	section string
}

var (
	colours = regexp.MustCompile("\x1b\\[[0-9;]*m")
	// dots are Ginkgo's signs for specs that passed or were skipped.
	dots    = regexp.MustCompile(`^[•SP]+$`)
	failing = regexp.MustCompile(`\[(FAILED|PANICKED|TIMEDOUT|INTERRUPTED|ABORTED)\]|Progress Report for`)
	where   = regexp.MustCompile(`^\s*In \[[A-Za-z() ]+\] at: `)
	begins  = regexp.MustCompile(`^\s*(Timeline|Captured StdOut/StdErr Output|Report Entries) >>$`)
)

const delimiter = "------------------------------"

func (c *console) add(text []byte) error {
	c.line = append(c.line, text...)
	for {
		end := bytes.IndexByte(c.line, '\n')
		if end < 0 {
			break
		}
		if err := c.whole(c.line[:end+1]); err != nil {
			return err
		}
		c.line, c.shown = c.line[end+1:], 0
	}
	// Dots come one by one, to show that the suite is alive.
	if dots.Match(colours.ReplaceAll(c.line, nil)) && c.section == "" {
		n, err := c.out.Write(c.line[c.shown:])
		c.shown += n
		return err
	}
	return nil
}

// whole shows a line, or does not.
func (c *console) whole(line []byte) error {
	text := strings.TrimRight(string(colours.ReplaceAll(line, nil)), "\r\n")
	switch {
	case c.section != "":
		if strings.TrimSpace(text) == c.section {
			c.section = ""
		}
		return nil
	case text == delimiter || text == "  "+delimiter && !c.failure:
		if err := c.endBlock(); err != nil {
			return err
		}
		c.heading, c.failure = true, false
	case c.heading && strings.TrimSpace(text) != "":
		c.heading, c.failure, c.lines = false, failing.MatchString(text), 0
	case c.failure:
		if found := begins.FindStringSubmatch(text); found != nil {
			c.section = "<< " + found[1]
			return nil
		}
		if strings.TrimSpace(text) == "" {
			return nil
		}
		if c.lines++; c.lines > consoleLines && !where.MatchString(text) {
			c.more++
			if colours.Match(line) {
				c.reset = "\x1b[0m"
			}
			return nil
		}
	}
	_, err := c.out.Write(line[c.shown:])
	return err
}

// endBlock reports the lines of a failure that are left out. It ends the colour of a line that is not shown to its end.
func (c *console) endBlock() error {
	if c.more == 0 {
		return nil
	}
	_, err := fmt.Fprintf(c.out, "%s  … %d lines more: they are in the report\n", c.reset, c.more)
	c.more = 0
	return err
}
