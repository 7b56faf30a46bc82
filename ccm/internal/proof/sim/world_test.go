//go:build sim

package sim

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/utils/clock"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

const networkName = "internal"

// world is a cloud, a cluster and the CCM processes that connect them.
type world struct {
	random     *rand.Rand // decides the order of requests, and how long answers take
	fake       *fakecloud.Cloud
	api        *hcloud.Client // what people use
	kube       *kube
	guard      *guard
	tokenFile  string
	configured string // HCLOUD_NETWORK
	processes  int
	current    *process // the leader
	ticker     *time.Ticker
	joins      []join               // servers that will have a Node
	notReady   map[string]time.Time // since when a Node's server does not run
	uids       int
	clusterID  string       // HCLOUD_CLUSTER_ID of the next process
	podRange   netip.Prefix // --cluster-cidr
	log        []string     // what happened, for the report
	requests   int          // of the CCM, so far
	writes     atomic.Int64 // of the CCM that the cloud has accepted, so far

	// second is another cluster in the same project; host is the first one, in the second. Both are nil if there is one.
	second, host *world
	// crash: the leader dies at a request.
	crash *crash
	// away: the token is one of another project, otherToken.
	away       bool
	otherToken string

	mu      sync.Mutex
	waiting []*call
	arrived chan struct{} // a call waits, or has had its effect
}

// join is a server that gets a Node at a time.
type join struct {
	at           time.Time
	server, node string
}

// crash is the death of the leader at its request number in, or after it.
type crash struct {
	in    int
	after bool
	rest  time.Duration // until another one leads
	back  time.Time     // when another one leads; zero: it has not died yet
}

// call is a request of the CCM that waits to be granted.
type call struct {
	process      *process
	method, path string
	body         []byte
	granted      chan grant
}

// grant is what becomes of a request.
type grant struct {
	dead  bool          // the process has died before
	lost  bool          // the process dies after
	delay time.Duration // until the answer
}

var errDead = errors.New("the process is dead")

// wire is the network between a process and the cloud.
type wire struct{ *process }

// RoundTrip implements http.RoundTripper.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	c := &call{process: w.process, method: r.Method, path: strings.TrimPrefix(r.URL.RequestURI(), "/v1"), granted: make(chan grant, 1)}
	if r.Body != nil {
		var err error
		if c.body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(c.body))
	}
	if w.dead.Load() {
		return nil, errDead
	}
	w.world.add(c)
	var g grant
	select {
	case g = <-c.granted:
	case <-r.Context().Done():
		w.world.remove(c)
		return nil, r.Context().Err()
	}
	if g.dead {
		return nil, errDead
	}
	resp, fails := w.world.refuses(c)
	var err error
	if resp == nil {
		resp, err = w.world.fake.Transport().RoundTrip(r)
	}
	if err == nil && r.Method != http.MethodGet && resp.StatusCode < http.StatusBadRequest && !fails {
		w.world.writes.Add(1)
	}
	w.world.poke()
	if g.lost {
		return nil, errDead
	}
	select {
	case <-time.After(g.delay):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	return resp, err
}

func (w *world) poke() {
	select {
	case w.arrived <- struct{}{}:
	default:
	}
}

func (w *world) add(c *call) {
	w = w.first()
	w.mu.Lock()
	w.waiting = append(w.waiting, c)
	w.mu.Unlock()
	w.poke()
}

func (w *world) remove(c *call) {
	w = w.first()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = slices.DeleteFunc(w.waiting, func(o *call) bool { return o == c })
}

// next returns one of the waiting requests, or nil. It is called when everything is blocked.
func (w *world) next() *call {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) == 0 {
		return nil
	}
	slices.SortFunc(w.waiting, func(a, b *call) int {
		return cmp.Or(a.process.id-b.process.id, cmp.Compare(a.method, b.method), cmp.Compare(a.path, b.path),
			bytes.Compare(a.body, b.body))
	})
	i := w.random.IntN(len(w.waiting))
	c := w.waiting[i]
	w.waiting = slices.Delete(w.waiting, i, i+1)
	return c
}

// newWorld makes a cloud with a network and n servers, and a cluster with their Nodes.
func newWorld(seed uint64, n int, folder string) *world {
	w := &world{random: rand.New(rand.NewPCG(seed, 1)), kube: newKube(), arrived: make(chan struct{}, 1), notReady: map[string]time.Time{},
		ticker: time.NewTicker(10 * time.Second), tokenFile: folder + "/token", configured: networkName,
		podRange: netip.MustParsePrefix("10.244.0.0/16")}
	w.fake = fakecloud.New(fakecloud.Options{Clock: clock.RealClock{}, Actions: "realistic", RandomSeed: seed})
	w.api = w.fake.Client()
	w.useToken(w.fake.Token())
	var err error
	_, w.otherToken, err = w.fake.AddProject(ctx, "other", "")
	must(err)
	w.guard = newGuard(w)
	w.kube.written = w.guard.kubeWrite
	w.watch()
	_, _, err = w.api.Network.Create(context.Background(), networkOpts())
	must(err)
	synctest.Wait() // the guard knows the network
	for i := range n {
		w.addServer(fmt.Sprintf("n%d", i+1), 0)
	}
	w.quietly(2 * time.Minute)
	return w
}

// watch tells the guard of each change in the cloud from now on.
func (w *world) watch() {
	sub := w.fake.Subscribe()
	go func() {
		for {
			e, err := sub.Next(ctx)
			if err != nil {
				return
			}
			w.guard.event(e)
		}
	}()
}

func networkOpts() hcloud.NetworkCreateOpts {
	return hcloud.NetworkCreateOpts{Name: networkName, IPRange: cidr("10.0.0.0/8"),
		Subnets: []hcloud.NetworkSubnet{{Type: hcloud.NetworkSubnetTypeCloud, NetworkZone: hcloud.NetworkZoneEUCentral,
			IPRange: cidr("10.0.0.0/16")}}}
}

func cidr(s string) *net.IPNet {
	_, n, err := net.ParseCIDR(s)
	must(err)
	return n
}

// tokens counts the changes of the token file, which need different times: the machine's clock is not
// that of the bubble.
func (w *world) useToken(token string) {
	must(os.WriteFile(w.tokenFile, []byte(token), 0o600))
	now := time.Now()
	must(os.Chtimes(w.tokenFile, now, now))
}

// close ends everything, so that the bubble can end.
func (w *world) close() {
	if w.second != nil {
		w.second.current.die()
	}
	w.current.die()
	w.ticker.Stop()
	w.fake.Close()
	time.Sleep(time.Hour)
}

// quietly lets time pass without a CCM.
func (w *world) quietly(d time.Duration) { w.pass(d, 0) }

// pass lets time pass, but at most until some requests have been granted; 0 means without a limit.
func (w *world) pass(d time.Duration, requests int) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for w.guard.ok() {
		synctest.Wait()
		if c := w.next(); c != nil {
			c.process.world.grant(c)
			if requests--; requests == 0 {
				synctest.Wait()
				return
			}
			continue
		}
		select {
		case <-w.arrived:
		case <-w.ticker.C:
			w.tick()
		case <-timer.C:
			return
		}
	}
}

// grant lets one request go on.
func (w *world) grant(c *call) {
	if c.process.dead.Load() {
		c.granted <- grant{dead: true}
		return
	}
	w.requests++
	// To the nanosecond: two answers that come at the same instant would be handled in any order.
	g := grant{delay: 5*time.Millisecond + time.Duration(w.random.Int64N(int64(120*time.Millisecond)))}
	if c.process == w.current && w.crash != nil && w.crash.back.IsZero() {
		if w.crash.in--; w.crash.in <= 0 {
			g.dead, g.lost = !w.crash.after, w.crash.after
			w.crash.back = time.Now().Add(w.crash.rest)
			w.say("the CCM dies at %s %s (done: %t)", c.method, c.path, g.lost)
		}
	}
	if !g.dead {
		if c.method != http.MethodGet {
			w.guard.request(c)
		}
		w.say("  ccm %d: %s %s %s", c.process.id, c.method, c.path, bytes.TrimSpace(c.body))
	}
	c.granted <- g
	if g.dead || g.lost {
		synctest.Wait()
		c.process.die()
	}
}

func (w *world) say(format string, args ...any) {
	w = w.first()
	w.log = append(w.log, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// tick does what happens by itself: machines join, kubelets report, and a dead leader is replaced.
func (w *world) tick() {
	if w.second != nil {
		w.second.tick()
	}
	now := time.Now()
	w.joins = slices.DeleteFunc(w.joins, func(j join) bool {
		server := w.guard.serverNamed(j.server)
		if server != nil && (j.at.After(now) || server.Status != hcloud.ServerStatusRunning) {
			return false
		}
		w.register(j.server, j.node)
		return true
	})
	w.kubelets(now)
	if w.crash != nil && !w.crash.back.IsZero() && !w.crash.back.After(now) {
		w.crash = nil
		w.current = w.startProcess(false)
		w.say("ccm %d leads", w.current.id)
	}
	if w.current != nil {
		w.current.client.ClearActions()
	}
}
