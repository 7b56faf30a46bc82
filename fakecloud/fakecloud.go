// Package fakecloud is a simulated Hetzner Cloud with a local API.
//
//	cloud := fakecloud.New(fakecloud.Options{})
//	defer cloud.Close()
//	client := cloud.Client() // an *hcloud.Client, ready to use, without a listener
//
// The zero Options work: actions end at once, there is no rate limit, one project with the token [DefaultToken] exists,
// and nothing listens until [Cloud.Start] is called.
//
// [Cloud.Journal] shows what a client did. [Cloud.Faults] makes the cloud misbehave. [Cloud.Step] and [Cloud.SetSpeed]
// move its time. Programs in other languages do all of this over HTTP: see [Cloud.StartControl].
package fakecloud

import (
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/api"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/control"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/plane"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/requestlog"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/simclock"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/testhook"
)

// DefaultToken is the token of the project that every cloud begins with. It has 64 characters, because some clients
// check that.
const DefaultToken = "fakecloudfakecloudfakecloudfakecloudfakecloudfakecloudfakecloud0"

// RealRateLimit is the rate limit of the real API, in requests per hour and project: one request per second.
const RealRateLimit = api.RealRateLimit

// DefaultKeepActions is the default of Options.KeepActions: 30 days.
const DefaultKeepActions = cloud.DefaultKeepActions

// DefaultProjectTTL is the default of Options.ProjectTTL: one hour.
const DefaultProjectTTL = cloud.DefaultProjectTTL

// Options configure a Cloud. The zero value works.
type Options struct {
	// Clock is where all time comes from. If nil, the cloud has its own clock. It shows the machine's time until Step
	// or SetSpeed changes it.
	Clock clock.WithTicker
	// Actions says how long actions take: "instant", "realistic", or a duration such as "250ms".
	// If empty, they take no time.
	Actions string
	// KeepActions is how long the cloud keeps actions after their end, on its clock. Then they are not found any more, and their
	// events are EventDeleted. 0 means 720h. It keeps at most the latest 100,000, whatever this says; running actions are always
	// kept. The real API forgets actions, too; after which time is not known.
	KeepActions time.Duration
	// RateLimit is the number of requests per hour and project. 0 means no limit. The real API has RealRateLimit.
	RateLimit int
	// APIDate is a day such as "2026-06-01": the cloud shows the API as it was then, and offers the types and images of that day that
	// have retired since. If empty, all changes that the cloud knows are in force. [Cloud.SetTokenDate] gives one token another day,
	// for the API only.
	APIDate string
	// Tokens are the tokens of the default project. If nil, it has DefaultToken. Client uses the first.
	Tokens []string
	// AutoProjects makes each unknown token of 1 to 256 ASCII characters without spaces the token of a new, empty project, at its
	// first request: tests that run at the same time have a cloud of their own each, without set-up. If false, an unknown token is
	// refused with 401, as by the real API. At most 100,000 of these projects exist at a time; then the answer is 403. A token that
	// was revoked stays invalid, unless 10,000 others are revoked later.
	AutoProjects bool
	// ProjectTTL is how long a project of AutoProjects lives without a request, in the machine's time. Then it is dropped within a
	// tenth of that time: see [Cloud.DropProject]. 0 means one hour.
	ProjectTTL time.Duration
	// Limits is how many resources of a kind a project may own, by kind: {"server": 10}. A kind that is missing or 0
	// has no limit. [Cloud.SetLimits] gives one project others.
	Limits map[string]int
	// FirstID makes all ids of the cloud greater than it. If it is not positive, it is 1,000,000. Set it if the cloud
	// replaces another one whose ids must not appear again.
	FirstID int64
	// UnknownFields says how the cloud treats fields and query parameters of a request that nothing reads, such as user-data: "accept"
	// or "refuse". If empty, it accepts them, and names them in the journal, the log, and the header X-Fakecloud-Unknown-Fields of the
	// answer. A field that only APIDate hides is not unknown.
	UnknownFields string
	// JournalSize is how many requests the journal keeps. 0 means 10,000.
	JournalSize int
	// JournalBytes is how much memory the journal's entries take at most. 0 means 64 MiB. The oldest entries go first.
	JournalBytes int64
	// AllowedHosts are host names that clients may use in addition to loopback names and the address of the listener.
	// On an address that is not a loopback address, the API accepts every name. The control API has no authentication:
	// there, it accepts these names and every IP address.
	AllowedHosts []string
	// WebOrigins are the origins of web pages that may call the API from a browser, such as "http://localhost:3000". The real API
	// lets those of every origin. A page of such an origin has all rights of the tokens that it knows.
	WebOrigins []string
	// RandomSeed makes generated values (passwords, MAC addresses) reproducible.
	RandomSeed uint64
	// PublicIPv4 and PublicIPv6 are the ranges of public addresses. Default: 198.18.0.0/15 and 2001:db8::/32, which do
	// not exist on the internet.
	PublicIPv4, PublicIPv6 netip.Prefix
	// LoadBalancerIPv4 is the range of the public IPv4 addresses of load balancers. Set it to addresses on which a data
	// plane can listen, such as 127.0.0.0/8. Default: PublicIPv4. If one of these two ranges contains the other, the
	// larger one gives out no address of the smaller one.
	LoadBalancerIPv4 netip.Prefix
	// Reserved are ranges that other machines use, if the cloud shares a network with them, such as Docker's. The cloud
	// does not take public addresses from them. In networks, it assigns such an address only to a member that asks for
	// it, and treats the addresses of PublicIPv4 and LoadBalancerIPv4 the same way, if these are set.
	Reserved []netip.Prefix
	// Disk, if set, keeps what the cloud has over the end of the program: see package disk, which has one. The cloud begins with what is
	// on it, and closes it. Tokens are then valid in addition to those on the disk, and Restore replaces what is on it. A request is
	// answered when its changes are saved, and nobody sees them earlier. [Cloud.Close] saves the rest, which is up to five minutes old
	// otherwise: reports about traffic and usage, and what is left of the rate limits. Fault rules of [Cloud.Faults] are saved with
	// the next change, or the first request that one selects. If the disk fails, the API refuses changes with 500 server_error until
	// it works again. Not kept: the journal, and what is set while the cloud runs about the speed of the clock, the rate limit and
	// the duration of actions.
	Disk Disk
	// DataPlane, if set, makes load balancers listen on this machine and forward to their targets. On Linux, this
	// changes the defaults of PublicIPv4 and LoadBalancerIPv4 to 127.65.0.0/16 and 127.66.0.0/16.
	DataPlane *DataPlaneOptions
	// Router, if set, makes this machine the router of one of the cloud's networks.
	Router *RouterOptions
	// Logger gets what the listeners report, such as TLS handshakes that fail. If nil, it is slog.Default().
	Logger *slog.Logger
}

// Cloud is a simulated Hetzner Cloud. Close it after use. All its methods may be called from several goroutines.
type Cloud struct {
	options    Options
	cloud      *cloud.Cloud
	api        *api.API
	journal    *requestlog.Log
	controller *control.Controller
	dataPlane  *DataPlane    // nil without one
	router     *plane.Router // nil without one
	network    string        // Options.Router.Network
	token      string
	ready      atomic.Bool
	unsaved    atomic.Pointer[error] // why changes cannot be saved
	// readTimeout is how long a request may take to arrive, in the machine's time. It is constant after the first
	// listener.
	readTimeout time.Duration
	errorLog    *log.Logger // of the listeners

	mu         sync.Mutex // guards what follows
	listeners  []*listener
	endpoint   string
	controlURL string
	closed     bool
}

// New returns an empty cloud. It panics if an option is wrong. [Open] returns an error instead.
func New(o Options) *Cloud {
	c, err := Open(o)
	if err != nil {
		panic("fakecloud.New: " + err.Error())
	}
	return c
}

// Open returns an empty cloud, or an error if an option is wrong. Use it for options that users set.
func Open(o Options) (*Cloud, error) {
	if o.Actions == "" {
		o.Actions = "instant"
	}
	profile, err := cloud.ParseProfile(o.Actions)
	if err != nil {
		return nil, err
	}
	date, err := api.ParseDate(o.APIDate)
	if err != nil {
		return nil, err
	}
	o.useLoopback()
	limits := cloud.Limits{}
	for kind, n := range o.Limits {
		limits[store.Kind(kind)] = n
	}
	if err := errors.Join(limits.Check(), checkDurations(&o), checkRanges(&o)); err != nil {
		return nil, err
	}
	if o.Clock == nil {
		o.Clock = simclock.New()
	}
	if o.Tokens == nil {
		o.Tokens = []string{DefaultToken}
	}
	for _, t := range o.Tokens {
		if err := cloud.CheckToken(t); err != nil {
			return nil, err
		}
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if u := o.UnknownFields; u != "" && u != "accept" && u != "refuse" {
		return nil, fmt.Errorf("unknown fields %.64q: must be accept or refuse", u)
	}
	c := newCloud(o)
	var offered *cloud.Catalogue // the default
	if day := date.Time(); !day.IsZero() {
		offered = cloud.DefaultCatalogue().On(day)
	}
	c.cloud = cloud.New(cloud.Options{
		Clock: o.Clock, Catalogue: offered, Profile: profile, KeepActions: o.KeepActions, Limits: limits, Seed: o.RandomSeed,
		FirstID: o.FirstID, PublicIPv4: o.PublicIPv4, PublicIPv6: o.PublicIPv6, LoadBalancerIPv4: o.LoadBalancerIPv4,
		Reserved: o.Reserved, AutoProjects: o.AutoProjects, ProjectTTL: o.ProjectTTL,
	})
	if len(o.Tokens) > 0 {
		c.token = o.Tokens[0]
	}
	c.addTokens()
	c.api = api.New(api.Options{Cloud: c.cloud, Journal: c.journal, Date: date, AllowedHosts: o.AllowedHosts, Origins: o.WebOrigins,
		RefuseUnknown: o.UnknownFields == "refuse", Logger: o.Logger})
	c.controller = control.New(c.cloud, c.api, c.journal, o.Actions, 0)
	c.controller.AllowedHosts = o.AllowedHosts
	c.setUpControl()
	if err := errors.Join(c.controller.SetRateLimit(o.RateLimit), c.useDisk(o.Disk)); err != nil {
		c.Close()
		return nil, err
	}
	if err := c.startPackets(&o); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// addTokens makes the tokens of the options valid.
func (c *Cloud) addTokens() {
	for _, t := range c.options.Tokens {
		c.cloud.AddToken(t, cloud.Token{Project: DefaultProject})
	}
}

// newCloud returns a cloud that lacks what holds its state.
func newCloud(o Options) *Cloud {
	return &Cloud{
		options: o, readTimeout: readTimeout, errorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn),
		journal: &requestlog.Log{Capacity: o.JournalSize, MaxBytes: o.JournalBytes},
	}
}

// Fork returns a copy of the cloud as it is now: all resources of all projects, their tokens, the actions that run and all else
// that is due later, the fault rules with their counters, and what is left of the rate limits. The copy shows the same time and
// gives out the same ids and addresses next. What happens to one of the two does not change the other. Close the copy, too.
//
// Its cost depends on what is due later, not on the number of resources, so that each subtest can have a copy of a prepared cloud.
//
// The copy has a clock of its own, unless Options.Clock is set: then both use that one. It has an empty journal, and no listener,
// data plane, router or hypervisor. An action that waits for a hypervisor waits for one of the copy until its deadline.
func (c *Cloud) Fork() *Cloud {
	clk := c.cloud.Clock()
	if own, ok := clk.(*simclock.Clock); ok {
		clk = own.Fork()
	}
	f := newCloud(c.options)
	f.cloud, f.token = c.cloud.Fork(clk), c.token
	f.api = c.api.Fork(f.cloud, f.journal)
	f.controller = c.controller.Fork(f.cloud, f.api, f.journal)
	f.setUpControl()
	return f
}

// setUpControl gives the controller what it asks the cloud for.
func (c *Cloud) setUpControl() {
	c.controller.Ready, c.controller.Endpoint, c.controller.PublicToken = c.readiness, c.Endpoint, DefaultToken
	c.journal.Redact = c.cloud.WithoutTokens
	c.controller.NewFork = func() *control.Fork {
		f := c.Fork()
		f.ready.Store(true)
		return &control.Fork{API: f.Handler(), Control: f.ControlHandler(), Close: f.Close}
	}
}

// readiness returns an error if clients cannot use the API.
func (c *Cloud) readiness() error {
	if !c.ready.Load() {
		return errors.New("the API does not listen yet; try again")
	}
	if err := c.unsaved.Load(); err != nil {
		return fmt.Errorf("changes cannot be saved, so that the API refuses them; make room on the disk: %w", *err)
	}
	return nil
}

// startPackets starts the data plane and the router, if the options have them.
func (c *Cloud) startPackets(o *Options) (err error) {
	if o.DataPlane != nil {
		c.dataPlane = &DataPlane{plane.StartBalancers(c.cloud, plane.Options(*o.DataPlane))}
		balancers := c.dataPlane.balancers
		c.controller.Endpoints, c.controller.Traffic = balancers.AllEndpoints, balancers.AllTraffic
		c.controller.StepDataPlane = balancers.Step
	}
	if o.Router != nil {
		c.network = o.Router.Network
		c.router, err = plane.StartRouter(c.cloud, o.Router.Table, o.Router.Network, o.Router.Logger)
	}
	return err
}

// checkDurations returns an error if a duration is negative.
func checkDurations(o *Options) error {
	for _, d := range []struct {
		name         string
		is, standard time.Duration
	}{{"KeepActions", o.KeepActions, DefaultKeepActions}, {"ProjectTTL", o.ProjectTTL, DefaultProjectTTL}} {
		if d.is < 0 {
			return fmt.Errorf("option %s %v: must be more than 0, or 0 for %v", d.name, d.is, d.standard)
		}
	}
	return nil
}

// checkRanges returns an error if a range is not valid, of the wrong family or too small.
func checkRanges(o *Options) error {
	for _, r := range o.Reserved {
		if !r.IsValid() {
			return errors.New("option Reserved: a range is not valid; make it with netip.ParsePrefix")
		}
	}
	for _, r := range []struct {
		name   string
		prefix netip.Prefix
		v4     bool
		bits   int // the longest prefix
	}{
		{"PublicIPv4", o.PublicIPv4, true, 30}, {"LoadBalancerIPv4", o.LoadBalancerIPv4, true, 30}, {"PublicIPv6", o.PublicIPv6, false, 64},
	} {
		if !r.prefix.IsValid() {
			continue
		}
		if r.prefix.Addr().Is4() != r.v4 || r.prefix.Bits() > r.bits {
			family := "IPv6"
			if r.v4 {
				family = "IPv4"
			}
			return fmt.Errorf("%s %v: must be an %s range of /%d or larger", r.name, r.prefix, family, r.bits)
		}
	}
	return nil
}

// Handler returns the API as an http.Handler. Its base path is /v1.
func (c *Cloud) Handler() http.Handler { return c.api }

// ControlHandler returns the control API as an http.Handler. It has no authentication: serve it on a loopback address
// only.
func (c *Cloud) ControlHandler() http.Handler { return c.controller.Handler() }

// DataPlane returns the data plane, or nil if Options.DataPlane was not set.
func (c *Cloud) DataPlane() *DataPlane { return c.dataPlane }

func init() { testhook.Core = func(fake any) *cloud.Cloud { return fake.(*Cloud).cloud } }
