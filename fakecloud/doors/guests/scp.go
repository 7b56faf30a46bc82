package guests

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"syscall"
)

// copier speaks the protocol of scp: what "scp -t" and "scp -f" do. It knows files only: for -r, clients use SFTP. It keeps no times.
type copier struct {
	disk *disk
	in   *bufio.Reader
	out  io.Writer
}

func (p *process) scp(args []string) {
	options, names := "", args
	for ; len(names) > 0 && strings.HasPrefix(names[0], "-"); names = names[1:] {
		options += names[0]
	}
	c := &copier{p.run.disk, bufio.NewReader(p.in), p.out}
	var err error
	switch {
	case strings.Contains(options, "t") && len(names) == 1:
		err = c.receive(names[0], strings.Contains(options, "d"))
	case strings.Contains(options, "f"):
		err = c.accepted()
		for _, name := range names {
			if err == nil {
				err = c.send(name)
			}
		}
	default:
		p.complain(1, "scp: only -t and -f, which another scp sends, are known; use SFTP")
	}
	if err != nil { // the client knows it
		p.status = 1
	}
}

// reply tells the client an error, or that there is none, and returns it.
func (c *copier) reply(name string, err error) error {
	text := "\x00"
	if err != nil {
		text = fmt.Sprintf("\x01scp: %q: %s\n", name, capital(err))
	}
	_, write := io.WriteString(c.out, text)
	return errors.Join(err, write)
}

// accepted reads the reply of the client.
func (c *copier) accepted() error {
	code, err := c.in.ReadByte()
	if err == nil && code != 0 {
		line, _ := c.in.ReadSlice('\n')
		err = fmt.Errorf("the client refuses: %.100q", line)
	}
	return err
}

// header is a line that announces a file: C0644 5 name.
type header struct {
	mode fs.FileMode
	size int64
	name string
}

func parseHeader(line string) (h header, err error) {
	var mode uint32
	_, err = fmt.Sscanf(line, "C%04o %d", &mode, &h.size)
	if parts := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 3); len(parts) == 3 {
		h.name = parts[2]
	}
	h.mode = fs.FileMode(mode).Perm()
	if err != nil || h.size < 0 || h.name == "" || h.name == "." || h.name == ".." || strings.ContainsAny(h.name, "/\x00") {
		return h, syscall.EINVAL
	}
	return h, nil
}

// receive takes files to a path until the end of the input. directory is set if it has to be a directory.
func (c *copier) receive(to string, directory bool) error {
	i, err := c.disk.stat(to)
	inside := err == nil && i.IsDir()
	if err = nil; directory && !inside {
		err = syscall.ENOTDIR
	}
	for err = c.reply(to, err); err == nil; {
		line, read := c.in.ReadSlice('\n')
		if len(line) == 0 {
			return nil
		}
		if line[0] == 'T' {
			err = c.reply("", nil)
			continue
		}
		h, parse := parseHeader(string(line))
		if read != nil || parse != nil {
			return c.reply(string(line), syscall.EINVAL)
		}
		name := to
		if inside {
			name = path.Join(absolute(to), h.name)
		}
		err = c.take(name, h)
	}
	return err
}

// take receives a file. The client does not send the contents of one that is refused.
func (c *copier) take(name string, h header) error {
	f, err := c.disk.open(name, true, true)
	if err == nil {
		err = c.disk.change(name, func(_ string, f *file) error { f.mode = h.mode; return f.resize(h.size) })
	}
	if err = c.reply(name, err); err == nil {
		_, err = io.CopyN(io.NewOffsetWriter(f, 0), c.in, h.size)
	}
	if err == nil {
		err = c.accepted()
	}
	if err == nil {
		err = c.reply("", nil)
	}
	return err
}

func (c *copier) send(name string) error {
	text, err := c.disk.read(name)
	if err != nil {
		return c.reply(name, err)
	}
	i, err := c.disk.stat(name)
	if err == nil {
		err = c.say("C%04o %d %s\n", i.Mode().Perm(), len(text), i.Name())
	}
	if err == nil {
		err = c.say("%s\x00", text)
	}
	return err
}

// say sends a part, and waits for the reply.
func (c *copier) say(format string, a ...any) error {
	if _, err := fmt.Fprintf(c.out, format, a...); err != nil {
		return err
	}
	return c.accepted()
}
