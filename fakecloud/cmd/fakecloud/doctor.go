package main

import (
	"context"
	"fmt"
	goversion "go/version"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/remote"
)

// doctor says what is missing on this machine.
type doctor struct {
	out    io.Writer
	failed bool // something is missing that each cloud needs
}

func (d *doctor) ok(format string, args ...any)   { d.line("ok     ", format, args) }
func (d *doctor) note(format string, args ...any) { d.line("note   ", format, args) }
func (d *doctor) bad(format string, args ...any) {
	d.failed = true
	d.line("fix    ", format, args)
}

func (d *doctor) line(level, format string, args []any) {
	fmt.Fprintf(d.out, "%s  %s\n", level, fmt.Sprintf(format, args...))
}

// newDoctorCommand returns the command that says why something does not work on a machine.
func newDoctorCommand(lookup func(string) (string, bool)) *cobra.Command {
	var s settings
	var flags clientFlags
	cmd := &cobra.Command{
		Use: "doctor", Short: "Say what is missing on this machine; exit with 1 if no cloud can start", Args: arguments(0, 0),
	}
	s.addAddresses(cmd.Flags())
	flags.addStateFile(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := s.checkAddresses(); err != nil {
			return wrongUsage(named(cmd, err))
		}
		d := doctor{out: cmd.OutOrStdout()}
		d.stateFile(&flags)
		d.ports(cmd.Context(), &s, &flags)
		if token, _ := lookup("HCLOUD_TOKEN"); looksReal(token) {
			d.note("HCLOUD_TOKEN looks like a token of the real cloud: a program that ignores HCLOUD_ENDPOINT would use it there; unset it")
		} else {
			d.ok("HCLOUD_TOKEN has no token of the real cloud, which a program could use by mistake")
		}
		d.loopback(cmd.Context())
		d.docker(cmd.Context())
		for _, t := range tools {
			d.tool(cmd.Context(), t)
		}
		if d.failed {
			return errSilent
		}
		return nil
	}
	return cmd
}

// stateFile looks whether fakecloud start can keep what runs.
func (d *doctor) stateFile(flags *clientFlags) {
	path, err := flags.path()
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		var f *os.File
		if f, err = os.CreateTemp(filepath.Dir(path), "doctor.*"); err == nil {
			_ = f.Close()
			err = os.Remove(f.Name())
		}
	}
	if err != nil {
		d.bad("the folder of the state file, for fakecloud start, cannot be written; name another one with --state-file: %v", err)
		return
	}
	d.ok("%s can be written, for fakecloud start", filepath.Dir(path))
}

// ports looks whether a cloud could listen.
func (d *doctor) ports(ctx context.Context, s *settings, flags *clientFlags) {
	if running, err := flags.server(); err == nil && running != nil {
		d.ok("a server of fakecloud start runs; its page is %s", running.Control)
		return
	}
	for _, p := range [][2]string{{"control", s.control}, {"listen", s.listen}} {
		if p[1] == off {
			continue
		}
		socket, err := new(net.ListenConfig).Listen(ctx, "tcp", p[1])
		if err == nil {
			_ = socket.Close()
			d.ok("%s is free, for --%s", p[1], p[0])
			continue
		}
		url, _ := controlURL(p[1])
		short, cancel := context.WithTimeout(ctx, healthTimeout)
		defer cancel()
		if remote.New(url).Ready(short) == nil {
			d.ok("a cloud runs already; its page is %s. A second one needs another --listen and --control", url)
			return
		}
		d.bad("%s, for --%s, cannot be used; end the program that has it, or name another address (port 0 is any free one): %v",
			p[1], p[0], err)
	}
}

// loopback looks for the addresses of servers and load balancers with --data-plane. Only Linux has them by itself.
func (d *doctor) loopback(ctx context.Context) {
	for _, address := range []string{"127.65.0.1", "127.66.0.1"} {
		socket, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(address, "0"))
		if err != nil {
			d.note("%s is not on this machine: with --data-plane, load balancers listen on ports of 127.0.0.1, which the log names",
				address)
			continue
		}
		_ = socket.Close()
		d.ok("%s is on this machine, as all addresses of servers and load balancers with --data-plane", address)
	}
}

// tool is a program that commands of the pages use.
type tool struct {
	name, args, use string
	least           string // the oldest version, of Go
}

var tools = []tool{
	{"curl", "--version", "to send requests by hand", ""},
	{"jq", "--version", "to read answers, as the pages do", ""},
	{"go", "version", "to compile a checkout, and for make", "go1.26"},
	{"kubectl", "version --client", "to look at the cluster of make up", ""},
}

// output returns what a program prints.
func output(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout+2*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

var number = regexp.MustCompile(`\d+\.\d+(\.\d+)?`)

func (d *doctor) tool(ctx context.Context, t tool) {
	out, err := output(ctx, t.name, strings.Fields(t.args)...)
	found := number.FindString(out)
	switch {
	case err != nil:
		d.note("%s, %s, is not there: install it (%v)", t.name, t.use, err)
	case t.least != "" && goversion.Compare("go"+found, t.least) < 0:
		d.note("%s %s, %s, is too old: install %s or later", t.name, found, t.use, t.least)
	default:
		d.ok("%s %s, %s", t.name, found, t.use)
	}
}

// docker looks for Docker Engine.
func (d *doctor) docker(ctx context.Context) {
	out, err := output(ctx, "docker", "version", "--format", "{{.Server.Version}}")
	switch use := "for images, containers and the cluster of make up"; {
	case err == nil:
		d.ok("Docker Engine %s answers, %s", out, use)
	case strings.Contains(out, "permission denied"):
		d.note("Docker Engine, %s, refuses this user: add it to the group docker, and log in again", use)
	case out == "":
		d.note("Docker Engine, %s, is not there: install it (%v)", use, err)
	default:
		d.note("Docker Engine, %s, does not answer: start it", use)
	}
}
