package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/url"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/doors/dns"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/doors/guests"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/doors/proxy"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
)

// doors are the flags of the ways to a cloud other than its API.
type doors struct {
	proxy string
	allow []string
	dns   string

	guests, guestsPublic bool
	guestsRules          string
	guestsBoot           fault.Duration
}

func (d *doors) add(f *pflag.FlagSet) {
	f.StringVar(&d.proxy, "proxy", off,
		"address of a proxy that answers for "+proxy.APIHost+" and refuses other hosts, `host:port` of a loopback address such as "+
			"127.0.0.1:4245, or off; fakecloud env --as-hetzner prints how programs use it")
	f.StringArrayVar(&d.allow, "proxy-allow", nil, "`host` that the proxy lets pass, with or without a port; may be repeated")
	f.StringVar(&d.dns, "dns", off, "address of a name server for the cloud's zones, over UDP and TCP, `host:port` such as "+
		"127.0.0.1:5300, or off")
	f.BoolVar(&d.guests, "guests", false, "let each running server answer SSH, at port 22 of its address if that is a loopback address "+
		"and the port is free, else at a port that fakecloud guest prints; nothing is executed")
	f.BoolVar(&d.guestsPublic, "guests-public", false,
		"let guests listen at other addresses of their servers, too, where this machine has them; implies --guests")
	f.StringVar(&d.guestsRules, "guests-rules", "", "YAML `file` that says what commands answer (DOORS.md); implies --guests")
	f.TextVar(&d.guestsBoot, "guests-boot", fault.Duration(0), "`duration` for which a server runs before it answers, on the cloud's clock")
}

// open opens the doors of a cloud. The caller calls shut in the end. access is nil without a proxy.
func (d *doors) open(ctx context.Context, cloud *fakecloud.Cloud, token string, log *slog.Logger) (access *proxy.Access, shut func(),
	err error) {
	var all devices
	shut = func() { all.close(log) }
	if d.proxy != off {
		p, err := proxy.Start(ctx, proxy.Options{API: cloud.Handler(), Token: token, Address: d.proxy, Allow: d.allow,
			Refused: func(message string) { log.Warn("the proxy: " + message) }})
		if err != nil {
			return nil, shut, wrongUsage(fmt.Errorf("--proxy: %w", err))
		}
		all.add(p.Close)
		a := p.Access()
		access = &a
		log.Info("serving a proxy", "url", a.Proxy, "files", a.Dir)
	}
	if d.dns != off {
		s, err := dns.Start(ctx, cloud, d.dns)
		if err != nil {
			return nil, shut, wrongUsage(fmt.Errorf("--dns: %w", err))
		}
		all.add(s.Close)
		warnExposed(log, d.dns, "the name server answers other machines, and whoever they pretend to be", "--dns")
		log.Info("serving DNS", "address", s.Address())
	}
	if d.guests || d.guestsPublic || d.guestsRules != "" {
		door, err := d.startGuests(ctx, cloud, log)
		if err != nil {
			return nil, shut, err
		}
		all.add(door.Close)
	}
	return access, shut, nil
}

func (d *doors) startGuests(ctx context.Context, cloud *fakecloud.Cloud, log *slog.Logger) (*guests.Door, error) {
	o := guests.Options{BootTime: time.Duration(d.guestsBoot), Public: d.guestsPublic, Logger: log}
	if d.guestsRules != "" {
		text, err := os.ReadFile(d.guestsRules)
		if err == nil {
			o.Rules, err = guests.ParseRules(text)
		}
		if err != nil {
			return nil, wrongUsage(fmt.Errorf("--guests-rules %s: %w", d.guestsRules, err))
		}
	}
	door, err := guests.Start(ctx, cloud, o)
	if err != nil {
		return nil, wrongUsage(fmt.Errorf("--guests: %w", err))
	}
	return door, nil
}

// errCommand is of a command that has failed and has said why. It has its status, after an interrupt, too.
var errCommand = fmt.Errorf("the command: %w", errSilent)

// newExecCommand returns the command that runs another program.
func newExecCommand(lookup func(string) (string, bool)) *cobra.Command {
	var flags clientFlags
	var allow []string
	cmd := &cobra.Command{
		Use:   "exec [flags] [--] COMMAND [ARGUMENT]...",
		Short: "Run a program that knows only " + proxy.APIHost + ", so that it reaches this one",
		Long: `Run a program that knows only ` + proxy.APIHost + `, so that it reaches the simulated cloud.

The program gets a proxy on a loopback address, which answers for ` + proxy.APIHost + ` and refuses
every other host but those of --allow, the authority of the proxy's certificate, and a token of the
cloud. It finds all of them in variables of its environment. The proxy ends with the program.

The cloud is the one that the variable HCLOUD_ENDPOINT names, with the token of HCLOUD_TOKEN. If
it is not set, the cloud is that of fakecloud start, or else the one at ` + defaultListen + `; without
a token, it is the default one. The exit status is that of the program: 128 and its number after
a signal, 127 if there is no such program, 126 if it cannot be run.`,
		Args: arguments(1, math.MaxInt),
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().StringArrayVar(&allow, "allow", nil, "`host` that the proxy lets pass, with or without a port; may be repeated")
	flags.addStateFile(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := flags.server()
		endpoint, _ := lookup("HCLOUD_ENDPOINT") // without it, the token may be one of the real cloud
		if s == nil || endpoint != "" && endpoint != s.Endpoint {
			s = &server{Endpoint: cmp.Or(endpoint, "http://"+defaultListen+"/v1"), Token: fakecloud.DefaultToken}
			err = cmp.Or(err, s.answers(cmd.Context()))
		}
		if token, _ := lookup("HCLOUD_TOKEN"); endpoint != "" && token != "" {
			s.warnRealToken(cmd.ErrOrStderr(), lookup, "The program gets it in seven variables, and one that ignores the proxy talks to "+
				"the real cloud. Unset the token: without one, it is that of the simulated cloud.")
			s.Token = token
		}
		if err != nil {
			return named(cmd, err)
		}
		status, err := s.run(cmd, allow, args)
		switch {
		case err != nil:
			return statusError{named(cmd, err), max(status, 1)}
		case status != 0:
			return statusError{errCommand, status}
		}
		return nil
	}
	return cmd
}

// answers returns an error if nothing listens at the endpoint. A program would only see that the proxy cuts its connection.
func (s *server) answers(ctx context.Context) error {
	at, err := url.Parse(s.Endpoint)
	if err != nil || at.Port() == "" {
		return nil //nolint:nilerr // proxy.To refuses what is wrong
	}
	c, err := new(net.Dialer).DialContext(ctx, "tcp", at.Host)
	if err != nil {
		return fmt.Errorf("no cloud answers at %s: start one with fakecloud start and unset HCLOUD_ENDPOINT, or name another "+
			"one with it (%w)", s.Endpoint, err)
	}
	return c.Close()
}

// run runs a program with a proxy to the server, and returns its exit status.
func (s *server) run(cmd *cobra.Command, allow, args []string) (status int, err error) {
	api, err := proxy.To(s.Endpoint, s.CA)
	if err != nil {
		return usageStatus, err
	}
	p, err := proxy.Start(cmd.Context(), proxy.Options{API: api, Token: s.Token, Allow: allow,
		Refused: func(message string) { fmt.Fprintln(cmd.ErrOrStderr(), "fakecloud: exec:", message) }})
	if err != nil {
		return usageStatus, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	child := exec.CommandContext(context.WithoutCancel(cmd.Context()), args[0], args[1:]...) // its end is its own decision
	child.Stdin, child.Stdout, child.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	child.Env = p.Access().Environ(os.Environ())
	return proxy.Exec(child)
}
