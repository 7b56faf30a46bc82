// Package fakecloud is a simulated Hetzner Cloud with a local API.
//
//	cloud := fakecloud.New(fakecloud.Options{})
//	defer cloud.Close()
//	client := cloud.Client() // an *hcloud.Client, ready to use, without a listener
//
// The zero Options work: actions end at once, there is no rate limit, one project exists whose token is
// [DefaultToken], and nothing listens until [Cloud.Start] is called.
//
// What a client did is in the [Cloud.Journal], how the cloud misbehaves in its [Cloud.Faults], and
// its time moves as [Cloud.Step] and [Cloud.SetSpeed] say. Programs in other languages have the same
// as HTTP: [Cloud.StartControl].
package fakecloud

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/api"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/control"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/requestlog"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/simclock"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/testhook"
)

// DefaultToken is the token of the project that every cloud begins with. It has the 64 characters that
// clients check for.
const DefaultToken = "fakecloudfakecloudfakecloudfakecloudfakecloudfakecloudfakecloud0"

// RealRateLimit is the rate limit of the real API, in requests per hour and project.
const RealRateLimit = 3600

// Options configure a Cloud. The zero value works.
type Options struct {
	// Clock is where all time comes from. nil is a clock of its own that shows the machine's time
	// until it is moved by Step or SetSpeed.
	Clock clock.WithTicker
	// Actions says how long actions take: "instant", "realistic", or a duration such as "250ms".
	// "" is instant.
	Actions string
	// RateLimit is the number of requests per hour and project; 0 is no limit. The real API's is
	// RealRateLimit.
	RateLimit int
	// APIDate is a day such as "2026-06-01", to see the API as it was then; "" is today's.
	APIDate string
	// Tokens are the tokens of the default project; nil is DefaultToken. The first is Client's.
	Tokens []string
	// Limits is the number of resources of a kind that a project may own, by kind: {"server": 10}. A kind that is
	// missing, or 0, has no limit.
	Limits map[string]int
	// FirstID: all ids that the cloud gives out are greater. 0, and what is below it, is 1,000,000. A cloud that
	// takes the place of another can avoid giving out the same ids again.
	FirstID int64
	// JournalSize is how many requests the journal keeps; 0 is 10,000.
	JournalSize int
	// JournalBytes is how much memory the journal's entries take at most; 0 is 64 MiB. The oldest go first.
	JournalBytes int64
	// AllowedHosts are names that clients may use in addition to loopback names and the address that a
	// listener has. A listener of the API on an address that is not a loopback one accepts any name; the
	// control API, which has no authentication, accepts these names and any address.
	AllowedHosts []string
	// RandomSeed makes generated values (passwords, MAC addresses) reproducible.
	RandomSeed uint64
	// PublicIPv4 and PublicIPv6 are the ranges that public addresses are taken from. The zero values are
	// 198.18.0.0/15 and 2001:db8::/32, which exist nowhere on the internet.
	PublicIPv4, PublicIPv6 netip.Prefix
	// LoadBalancerIPv4, if valid, is the range for load balancers, so that a data plane can listen
	// on their addresses: 127.0.0.0/8, for example.
	LoadBalancerIPv4 netip.Prefix
	// Reserved are ranges whose addresses somebody else has, for a cloud whose addresses are those of a
	// network that it shares, such as Docker's: they are given to nobody as a public address, nor in a
	// network to a member that does not ask for the very address. PublicIPv4 and LoadBalancerIPv4 are
	// reserved in networks, too, and of two ranges one of which is a part of the other, the part is left
	// to those it is meant for.
	Reserved []netip.Prefix
	// DataPlane, if set, makes load balancers listen on this machine and forward to their targets. On
	// Linux it changes the default ranges of public addresses: 127.65.0.0/16 for servers, 127.66.0.0/16
	// for load balancers.
	DataPlane *DataPlaneOptions
	// Router, if set, makes this machine the router of one of the cloud's networks.
	Router *RouterOptions
}

// Cloud is a simulated Hetzner Cloud. Close it when it is no longer used. All its methods may be
// called from several goroutines.
type Cloud struct {
	cloud      *cloud.Cloud
	api        *api.API
	journal    *requestlog.Log
	controller *control.Controller
	dataPlane  *DataPlane // nil without one
	router     *router    // nil without one
	network    string     // Options.Router.Network
	token      string
	ready      atomic.Bool
	// readTimeout is how long a request may take to arrive, in the machine's time; it is set before the
	// first listener.
	readTimeout time.Duration

	mu         sync.Mutex // guards what follows
	listeners  []*listener
	endpoint   string
	controlURL string
	closed     bool
}

// New returns an empty cloud. It panics on options that are wrong, as those of a test are written
// by hand; [Open] returns the error.
func New(o Options) *Cloud {
	c, err := Open(o)
	if err != nil {
		panic("fakecloud.New: " + err.Error())
	}
	return c
}

// Open is New for options that come from outside.
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
		limits[cloud.Kind(kind)] = n
	}
	if err := errors.Join(limits.Check(), checkRanges(&o)); err != nil {
		return nil, err
	}
	if o.Clock == nil {
		o.Clock = simclock.New()
	}
	if o.Tokens == nil {
		o.Tokens = []string{DefaultToken}
	}
	for _, t := range o.Tokens {
		if err := control.CheckToken(t); err != nil {
			return nil, err
		}
	}
	c := &Cloud{readTimeout: readTimeout, journal: &requestlog.Log{Capacity: o.JournalSize, MaxBytes: o.JournalBytes}}
	c.cloud = cloud.New(cloud.Options{
		Clock: o.Clock, Profile: profile, Limits: limits, Seed: o.RandomSeed, FirstID: o.FirstID,
		PublicIPv4: o.PublicIPv4, PublicIPv6: o.PublicIPv6, LoadBalancerIPv4: o.LoadBalancerIPv4,
		Reserved: o.Reserved,
	})
	for i, t := range o.Tokens {
		if i == 0 {
			c.token = t
		}
		c.cloud.AddToken(t, cloud.Token{Project: 1})
	}
	c.api = api.New(api.Options{Cloud: c.cloud, Journal: c.journal, Date: date, AllowedHosts: o.AllowedHosts})
	c.controller = control.New(c.cloud, c.api, c.journal, o.Actions, 0)
	c.controller.Ready, c.controller.AllowedHosts = c.ready.Load, o.AllowedHosts
	if err := c.controller.SetRateLimit(o.RateLimit); err != nil {
		c.Close()
		return nil, err
	}
	if err := c.startPackets(&o); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// startPackets starts what moves packets.
func (c *Cloud) startPackets(o *Options) (err error) {
	if o.DataPlane != nil {
		c.dataPlane = startDataPlane(c.cloud, *o.DataPlane)
		c.controller.Endpoints = c.dataPlane.endpoints
	}
	if o.Router != nil {
		c.network = o.Router.Network
		c.router, err = startRouter(c.cloud, *o.Router)
	}
	return err
}

// checkRanges makes sure that addresses can be taken from the ranges.
func checkRanges(o *Options) error {
	for _, r := range o.Reserved {
		if !r.IsValid() {
			return errors.New("one of the ranges in Reserved is not valid")
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
			return fmt.Errorf("%s %v: want a range of that family of at most /%d", r.name, r.prefix, r.bits)
		}
	}
	return nil
}

// Handler returns the API as an http.Handler. Its base path is /v1.
func (c *Cloud) Handler() http.Handler { return c.api }

// ControlHandler returns the control API as an http.Handler, without the protection that
// StartControl's loopback address is.
func (c *Cloud) ControlHandler() http.Handler { return c.controller.Handler() }

// DataPlane returns the data plane, or nil if Options.DataPlane was not set.
func (c *Cloud) DataPlane() *DataPlane { return c.dataPlane }

func init() { testhook.Core = func(fake any) *cloud.Cloud { return fake.(*Cloud).cloud } }
