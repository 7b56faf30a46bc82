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
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
)

// envPrefix begins the names of the variables that set flags: FAKECLOUD_RATE_LIMIT is --rate-limit.
const envPrefix = "FAKECLOUD_"

// listSeparator separates the values of a variable that fakecloud start makes, because they may have commas and spaces.
const listSeparator = "\x1f"

// off switches a listener off.
const off = "off"

// The values of --projects.
const (
	projectsFixed = "fixed"
	projectsAuto  = "auto"
)

// settings are the flags.
type settings struct {
	listen, control string
	allowedHosts    []string
	webOrigins      []string
	unknownFields   string
	actions         string
	keepActions     fault.Duration
	rateLimit       int
	projects        string
	projectTTL      fault.Duration
	apiDate         string
	dataPlane       bool
	publicIPv4      string
	lbIPv4          string
	reserved        []string
	lbInterface     string
	routerInterface string
	routerNetwork   string
	metadata        string
	doors           doors
	tokens          []string
	seed            string
	snapshot        string
	state           string
	stateSync       bool
	scenarios       []string
	speed           float64
	logFormat       string
	logLevel        slog.Level
	tls             bool
	tlsCert, tlsKey string
	tlsCAOut        string
	newIDs          bool
	background      string // the state file, if fakecloud start has started the server
}

// newCommand returns the program. lookup and environ are os.LookupEnv and os.Environ.
func newCommand(lookup func(string) (string, bool), environ []string) *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "fakecloud",
		Short: "A simulated Hetzner Cloud with a local API",
		Long: `A simulated Hetzner Cloud with a local API.

It prints the lines to paste into a shell, and the address of the page that shows the cloud in a
browser: http://127.0.0.1:4243. Then it serves until it gets SIGINT, SIGTERM or SIGHUP (a closed
terminal). A variable can set each flag: FAKECLOUD_RATE_LIMIT sets --rate-limit.

The page's address is that of the control API, too: curl lists what it can do. It has no
authentication: keep it on a loopback address.

The exit status is 2 if the command line or a file that it names is wrong, 1 if something else
failed, and 130 after an interrupt.`,
		Args:          arguments(0, 0),
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version(),
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return fromEnvironment(cmd.Flags(), lookup)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := s.logger(cmd.ErrOrStderr())
			if err != nil {
				return wrongUsage(err)
			}
			warnUnknown(log, cmd, environ)
			release, err := s.claim(cmd.Context())
			if err != nil {
				return err
			}
			defer release()
			return serve(cmd.Context(), &s, cmd.OutOrStdout(), log)
		},
	}
	s.add(cmd.Flags())
	cmd.Flags().StringVar(&s.background, backgroundFlag, "", "state `file`")
	_ = cmd.Flags().MarkHidden(backgroundFlag)
	cmd.AddCommand(newStartCommand(lookup), newStopCommand(), newStatusCommand(), newEnvCommand(lookup), newWaitCommand(),
		newExecCommand(lookup))
	cmd.AddCommand(newHealthCommand(), newJournalCommand(), newStepCommand(), newSpeedCommand(), newFaultCommand(),
		newGuestCommand())
	cmd.AddCommand(newScenarioCommand(), newResetCommand(), newSnapshotCommand())
	cmd.AddCommand(newLogsCommand(), newUICommand(), newDoctorCommand(lookup), newVersionCommand())
	cmd.AddCommand(newRecordCommand(), newVerifyCommand())
	addHelp(cmd)
	return cmd
}

// tokenFlag sets secrets.
const tokenFlag = "token"

// backgroundFlag is how fakecloud start tells the server where its state file is.
const backgroundFlag = "background-state-file"

// add adds the flags of a server.
func (s *settings) add(f *pflag.FlagSet) {
	f.SortFlags = false
	s.addAPI(f)
	s.addPackets(f)
	s.addContents(f)
}

func (s *settings) addAddresses(f *pflag.FlagSet) {
	f.StringVar(&s.listen, "listen", defaultListen, "address of the API, `host:port`; port 0 is any free port")
	f.StringVar(&s.control, "control", defaultControl, "address of the page and of the control API, `host:port`, or off")
}

func (s *settings) addAPI(f *pflag.FlagSet) {
	s.addAddresses(f)
	f.StringSliceVar(&s.allowedHosts, "allowed-hosts", nil,
		"host `names` that the API and the control API accept, separated by commas, in addition to localhost and their own addresses "+
			"(on an address that is not a loopback address, the API accepts every name)")
	f.StringSliceVar(&s.webOrigins, "web-origins", nil,
		"`origins` of web pages that may call the API, separated by commas, such as http://localhost:3000 (the real API lets every page)")
	f.StringVar(&s.unknownFields, "unknown-fields", "accept",
		"fields of requests that nothing reads: accept names them in the journal, the log and a header of the answer; refuse answers 422")
	f.StringVar(&s.actions, "actions", "realistic", "how long actions take: instant, realistic, or a `duration` such as 250ms")
	f.TextVar(&s.keepActions, "keep-actions", fault.Duration(fakecloud.DefaultKeepActions),
		"`duration` for which actions are kept after their end, on the cloud's clock; at most the latest 100,000 are kept")
	f.IntVar(&s.rateLimit, "rate-limit", fakecloud.RealRateLimit,
		"requests per hour and project; 0 means no limit, and no RateLimit headers")
	f.StringVar(&s.projects, "projects", projectsFixed,
		"what an unknown token is: fixed refuses it with 401, as the real API does; auto makes it the token of a new, empty project")
	f.TextVar(&s.projectTTL, "project-ttl", fault.Duration(fakecloud.DefaultProjectTTL),
		"`duration` without a request after which a project of --projects auto is dropped, in the machine's time")
}

func (s *settings) addPackets(f *pflag.FlagSet) {
	f.BoolVar(&s.dataPlane, "data-plane", false,
		"make load balancers listen on this machine and forward to their targets; on Linux, this changes the default address ranges: "+
			"127.65.0.0/16 for servers, 127.66.0.0/16 for load balancers")
	f.StringVar(&s.publicIPv4, "public-ipv4", "", "address `range` for public IPv4 addresses (default 198.18.0.0/15)")
	f.StringVar(&s.lbIPv4, "load-balancer-ipv4", "",
		"address `range` for the IPv4 addresses of load balancers (default: the range of --public-ipv4)")
	f.StringArrayVar(&s.reserved, "reserved", nil, "`range` or address that the cloud does not give out by itself; may be repeated")
	f.StringVar(&s.lbInterface, "data-plane-interface", "",
		"`name` of the network interface that gets the load balancers' addresses, such as eth0; implies --data-plane and needs "+
			"--load-balancer-ipv4 (Linux, CAP_NET_ADMIN)")
	f.StringVar(&s.routerInterface, "router-interface", "",
		"`name` of a network interface, such as eth0: make this machine the router of the cloud's network on it, and of Floating IPs "+
			"(Linux, CAP_NET_ADMIN)")
	f.StringVar(&s.routerNetwork, "router-network", "", "`name or id` of the network to route (default: the oldest)")
	f.StringVar(&s.metadata, "metadata", off,
		"address of the servers' metadata service, `host:port` such as 169.254.169.254:80, or off; a link-local address is given to the "+
			"interface lo (Linux, CAP_NET_ADMIN)")
	s.doors.add(f)
}

func (s *settings) addContents(f *pflag.FlagSet) {
	f.StringVar(&s.apiDate, "api-date", "", "`day` such as 2026-06-01: show the API as it was then, to tokens without a day of their own")
	f.StringArrayVar(&s.tokens, tokenFlag, nil,
		"valid token, `[project=]token[:ro][:day]`; :ro makes it read-only, a day such as :2026-06-01 shows it the API as it was then; "+
			"may be repeated (in the variable, separate them by commas)")
	f.StringVar(&s.seed, "seed", "", "YAML `file` with the resources that exist at the start")
	f.StringArrayVar(&s.scenarios, "scenario", nil,
		"`scenario` to start with: the name of a built-in one or the path of a file, and the values of its parameters, such as "+
			"sold-out=cx23@fsn1; may be repeated (GET /scenarios of the control API lists all)")
	f.StringVar(&s.snapshot, "snapshot", "",
		"`file` of fakecloud snapshot save: start with what that cloud had, at its time; its tokens are valid, too")
	f.StringVar(&s.state, "state", "",
		"`directory` that keeps the cloud over a restart: it begins with what the last one had, also if that was killed; time has passed "+
			"meanwhile")
	f.BoolVar(&s.stateSync, "state-sync", false,
		"with --state: answer when changes are on the medium, so that they survive a power failure")
	f.Float64Var(&s.speed, "speed", 1, "how fast the cloud's clock runs: 60 makes a minute pass in a second, 0 stops it")
	f.BoolVar(&s.newIDs, "new-ids", false, "take the first id from the time of the start, so that a restarted cloud does not give out an "+
		"id twice")
	f.StringVar(&s.logFormat, "log-format", "text", "`format` of the log on stderr: text or json")
	f.TextVar(&s.logLevel, "log-level", slog.LevelInfo, "`level`: debug (every request), info, warn or error")
	f.BoolVar(&s.tls, "tls", false, "serve the API over HTTPS with a self-signed certificate")
	f.StringVar(&s.tlsCAOut, "tls-ca-out", "", "`file` to write the certificate of --tls to, for clients to trust")
	f.StringVar(&s.tlsCert, "tls-cert", "", "serve the API over HTTPS with the certificate in this `file`")
	f.StringVar(&s.tlsKey, "tls-key", "", "`file` with the key of --tls-cert")
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

// fromEnvironment sets each flag that was not given from its variable. It ignores empty variables.
func fromEnvironment(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		v, ok := lookup(envName(f.Name))
		if !ok || v == "" || f.Changed || f.Name == "help" || f.Name == "version" {
			return
		}
		values := []string{v}
		if f.Value.Type() == "stringArray" {
			separators := ", "
			if strings.Contains(v, listSeparator) {
				separators = listSeparator
			}
			values = strings.FieldsFunc(v, func(r rune) bool { return strings.ContainsRune(separators, r) })
		}
		for _, v := range values {
			if err := flags.Set(f.Name, v); err != nil {
				errs = append(errs, wrongValue("variable "+envName(f.Name), "=", f, v, err))
			}
		}
	})
	return wrongUsage(errors.Join(errs...))
}

// warnUnknown warns of variables that look like settings but are not. It ignores those that Kubernetes makes for a
// Service named fakecloud.
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
		log.Warn("ignoring a variable: it is not a setting", "name", name, "see", "fakecloud --help")
	}
}

// token is one --token.
type token struct {
	project, text string
	readOnly      bool
	apiDate       string
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
		var suffix string
		t.text, suffix, _ = strings.Cut(t.text, ":")
		if suffix == "ro" || strings.HasPrefix(suffix, "ro:") {
			t.readOnly, suffix = true, strings.TrimPrefix(suffix[len("ro"):], ":")
		}
		t.apiDate = suffix
		if t.project == "" || t.text == "" {
			return nil, fmt.Errorf("--token %q: must have the form [project=]token[:ro][:day]", v)
		}
		if slices.ContainsFunc(out, func(o token) bool { return o.text == t.text }) {
			return nil, fmt.Errorf("--token %q: another --token has the same token; remove one", v)
		}
		out = append(out, t)
	}
	return out, nil
}
