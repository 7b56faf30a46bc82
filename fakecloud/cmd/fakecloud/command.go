package main

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// envPrefix begins the names of the variables that set flags: FAKECLOUD_RATE_LIMIT is --rate-limit.
const envPrefix = "FAKECLOUD_"

// off switches a listener off.
const off = "off"

// settings are the flags.
type settings struct {
	listen, control string
	allowedHosts    []string
	actions         string
	rateLimit       int
	apiDate         string
	dataPlane       bool
	publicIPv4      string
	lbIPv4          string
	reserved        []string
	lbInterface     string
	routerInterface string
	routerNetwork   string
	metadata        string
	tokens          []string
	seed            string
	speed           float64
	logFormat       string
	logLevel        slog.Level
	tls             bool
	tlsCert, tlsKey string
	tlsCAOut        string
	newIDs          bool
}

// newCommand returns the program. lookup and environ are os.LookupEnv and os.Environ.
func newCommand(lookup func(string) (string, bool), environ []string) *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "fakecloud",
		Short: "A simulated Hetzner Cloud with a local API",
		Long: `A simulated Hetzner Cloud with a local API.

It prints the lines to paste into a shell, then serves until it gets SIGINT, SIGTERM or SIGHUP (a closed terminal). Each flag can also
be set by a variable: FAKECLOUD_RATE_LIMIT is --rate-limit. The control API (GET / on its address lists
what it can do) has no authentication: keep it on a loopback address.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version(),
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return fromEnvironment(cmd.Flags(), lookup)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := s.logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			warnUnknown(log, cmd, environ)
			return serve(cmd.Context(), &s, cmd.OutOrStdout(), log)
		},
	}
	cmd.CompletionOptions.HiddenDefaultCmd = true
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&s.listen, "listen", "127.0.0.1:4242", "address of the API, `host:port`; port 0 is any free one")
	f.StringVar(&s.control, "control", "127.0.0.1:4243", "address of the control API, `host:port`, or off")
	f.StringSliceVar(&s.allowedHosts, "allowed-hosts", nil, "`names` that clients may use for the API and the control API, separated by commas, in addition to\nlocalhost and the addresses that they listen on (the API accepts any on an address that is not a loopback one)")
	f.StringVar(&s.actions, "actions", "realistic", "how long actions take: instant, realistic, or a `duration` such as 250ms")
	f.IntVar(&s.rateLimit, "rate-limit", fakecloud.RealRateLimit, "requests per hour and project; 0 is no limit")
	f.BoolVar(&s.dataPlane, "data-plane", false, "make load balancers listen on this machine and forward to their targets; on Linux servers\nget addresses in 127.65.0.0/16 and load balancers in 127.66.0.0/16, unless told otherwise")
	f.StringVar(&s.publicIPv4, "public-ipv4", "", "`range` that public IPv4 addresses are taken from (default 198.18.0.0/15)")
	f.StringVar(&s.lbIPv4, "load-balancer-ipv4", "", "`range` that load balancers' IPv4 addresses are taken from (default that of --public-ipv4)")
	f.StringArrayVar(&s.reserved, "reserved", nil, "`range` or address that the cloud gives to nobody who does not ask for it; may be repeated")
	f.StringVar(&s.lbInterface, "data-plane-interface", "", "`name` of the network interface that gets load balancers' addresses, as eth0; implies --data-plane and\nneeds --load-balancer-ipv4 (Linux, CAP_NET_ADMIN)")
	f.StringVar(&s.routerInterface, "router-interface", "", "`name` of the network interface on which the cloud's routes are what routes, as eth0 (Linux, CAP_NET_ADMIN)")
	f.StringVar(&s.routerNetwork, "router-network", "", "`name or id` of the network that is routed (default the only one)")
	f.StringVar(&s.metadata, "metadata", off, "address of the servers' metadata service, `host:port`, as 169.254.169.254:80, or off; a link-local one is\ngiven to lo (Linux, CAP_NET_ADMIN)")
	f.StringVar(&s.apiDate, "api-date", "", "`day` such as 2026-06-01: show the API as it was then")
	f.StringArrayVar(&s.tokens, "token", nil, "`[project=]token[:ro]` that is valid; may be repeated, :ro makes it read-only (in the variable: separated by commas)")
	f.StringVar(&s.seed, "seed", "", "YAML `file` with what exists at the start")
	f.Float64Var(&s.speed, "speed", 1, "how fast the cloud's clock runs: 60 makes a minute pass in a second, 0 stops it")
	f.BoolVar(&s.newIDs, "new-ids", false, "begin with ids that depend on the time of the start, so that a cloud that starts again gives out none twice")
	f.StringVar(&s.logFormat, "log-format", "text", "text or json, on stderr")
	f.TextVar(&s.logLevel, "log-level", slog.LevelInfo, "`level`: debug (every request), info, warn or error")
	f.BoolVar(&s.tls, "tls", false, "serve the API over HTTPS with a self-signed certificate")
	f.StringVar(&s.tlsCAOut, "tls-ca-out", "", "`file` to write that certificate to, so that clients can trust it")
	f.StringVar(&s.tlsCert, "tls-cert", "", "serve the API over HTTPS with the certificate in this `file`")
	f.StringVar(&s.tlsKey, "tls-key", "", "`file` with the certificate's key")
	cmd.AddCommand(newHealthCommand())
	return cmd
}

func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 && (v == "" || v == "(devel)") {
			v = s.Value[:12]
		}
	}
	return v
}

// envName returns the variable of a flag.
func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnvironment sets the flags that were not given from their variables. An empty variable is
// none.
func fromEnvironment(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		v, ok := lookup(envName(f.Name))
		if !ok || v == "" || f.Changed || f.Name == "help" || f.Name == "version" {
			return
		}
		values := []string{v}
		if f.Value.Type() == "stringArray" {
			values = strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == ' ' })
		}
		for _, v := range values {
			if err := flags.Set(f.Name, v); err != nil {
				errs = append(errs, fmt.Errorf("variable %s=%q: %w", envName(f.Name), v, err))
			}
		}
	})
	return errors.Join(errs...)
}

// warnUnknown tells of variables that look like settings and are none, except those that Kubernetes makes
// for a Service of the name fakecloud.
func warnUnknown(log *slog.Logger, cmd *cobra.Command, environ []string) {
	known := map[string]bool{}
	for _, c := range append([]*cobra.Command{cmd}, cmd.Commands()...) {
		c.Flags().VisitAll(func(f *pflag.Flag) { known[envName(f.Name)] = true })
	}
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, envPrefix) || known[name] ||
			strings.HasPrefix(name, envPrefix+"PORT") || strings.HasPrefix(name, envPrefix+"SERVICE_") {
			continue
		}
		log.Warn("variable is not a setting", "name", name, "see", "fakecloud --help")
	}
}

// token is one --token.
type token struct {
	project, text string
	readOnly      bool
}

// defaultProject is the name of the project that every cloud begins with.
const defaultProject = "default"

func (s *settings) parseTokens() ([]token, error) {
	var out []token
	for _, v := range s.tokens {
		t := token{project: defaultProject, text: v}
		if project, rest, ok := strings.Cut(v, "="); ok {
			t.project, t.text = project, rest
		}
		t.text, t.readOnly = strings.CutSuffix(t.text, ":ro")
		if t.project == "" || t.text == "" {
			return nil, fmt.Errorf("--token %q: want [project=]token[:ro]", v)
		}
		if slices.ContainsFunc(out, func(o token) bool { return o.text == t.text }) {
			return nil, fmt.Errorf("--token %q: the token is there twice", v)
		}
		out = append(out, t)
	}
	return out, nil
}
