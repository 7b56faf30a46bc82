package dataplane

import (
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/tidwall/btree"
)

// service is a running listen port.
type service struct {
	lb   *balancer
	port uint16
	conf atomic.Pointer[serviceConf]
	turn atomic.Uint64 // round robin

	// backends are in the order of their turns. The tree does not change. The next tree shares the equal parts.
	backends atomic.Pointer[btree.BTreeG[placed]]
	byKey    map[string]placed // by the target's key; the engine's lock guards it
	places   uint64            // how many were given out; the engine's lock guards it

	// web and webTLS are the HTTP servers for clients. They are created when first needed. Both can
	// exist, because the protocol of a service can change while clients of the old one are connected.
	mu      sync.Mutex
	retired bool
	web     *webServer
	webTLS  *webServer
	proxy   *httpProxy
}

// placed is a backend with its place in the order of turns.
type placed struct {
	*backend
	place uint64
}

// newBackends returns an empty tree. Its nodes are small because a change copies those on its way.
func newBackends() *btree.BTreeG[placed] {
	return btree.NewBTreeGOptions(func(a, b placed) bool { return a.place < b.place }, btree.Options{NoLocks: true, Degree: 8})
}

func newService(lb *balancer, port uint16) *service {
	s := &service{lb: lb, port: port}
	s.conf.Store(&serviceConf{})
	s.backends.Store(newBackends())
	s.proxy = &httpProxy{service: s, port: []string{strconv.Itoa(int(s.port))}}
	return s
}

// apply makes conf, with a backend for each target, the configuration for new connections and requests.
func (s *service) apply(conf *serviceConf, targets []Target) {
	old := s.conf.Load()
	if conf.Protocol == redirect {
		targets = nil
	}
	s.reconcile(old, conf, targets)
	s.conf.Store(conf)
	if old.Protocol != "" && old.mode() != conf.mode() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.retireWebLocked()
	}
}

// reconcile makes a backend for each target. It keeps the backends of unchanged targets, creates those of new or moved
// targets, and ends the probing of removed ones.
func (s *service) reconcile(old, conf *serviceConf, targets []Target) {
	gone, again := s.byKey, checkChanged(old, conf)
	s.byKey, s.places = make(map[string]placed, len(targets)), uint64(len(targets))
	next := newBackends()
	for i, t := range targets {
		b, known := gone[t.Key]
		if known && b.target == t {
			delete(gone, t.Key)
			if again {
				b.watch(conf)
			}
		} else {
			b.backend = newBackend(s, t)
			b.watch(conf)
		}
		b.place = uint64(i)
		s.byKey[t.Key] = b
		next.Set(b)
	}
	s.backends.Store(next)
	for _, b := range gone {
		s.end(b.backend)
	}
}

// retarget is reconcile for a few targets.
func (s *service) retarget(conf *serviceConf, add []Target, remove []string) {
	next := s.backends.Load().Copy()
	for _, key := range remove {
		if b, known := s.byKey[key]; known {
			delete(s.byKey, key)
			next.Delete(b)
			s.end(b.backend)
		}
	}
	for _, t := range add {
		b, known := s.byKey[t.Key]
		switch {
		case known && b.target == t:
			continue
		case known:
			s.end(b.backend)
		default:
			b.place = s.places
			s.places++
		}
		b.backend = newBackend(s, t)
		b.watch(conf)
		s.byKey[t.Key] = b
		next.Set(b)
	}
	s.backends.Store(next)
}

// end ends the use of a backend. Its connections stay.
func (s *service) end(b *backend) {
	b.unwatch()
	s.lb.spare.drop(b)
}

// serve starts to handle a connection with the service's protocol and returns at once.
func (s *service) serve(c *clientConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	conf := s.conf.Load()
	switch {
	case s.retired: // the service was removed while the connection waited in admit
		closeQuietly(c)
	case conf.mode() == TCP:
		c.tunnel.Store(true)
		s.lb.engine.tasks.run(func() { s.serveTCP(c, conf) })
	default:
		s.webForLocked(conf).take(c)
	}
}

// webForLocked returns the HTTP server for conf's protocol.
func (s *service) webForLocked(conf *serviceConf) *webServer {
	if conf.mode() == HTTPS {
		if s.webTLS == nil {
			s.webTLS = newWebServer(s, true)
		}
		return s.webTLS
	}
	if s.web == nil {
		s.web = newWebServer(s, false)
	}
	return s.web
}

// retire ends a removed service. Running requests are answered, TCP connections stay.
func (s *service) retire() {
	for _, b := range s.byKey {
		s.end(b.backend)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = true
	s.retireWebLocked()
}

func (s *service) retireWebLocked() {
	for _, w := range []*webServer{s.web, s.webTLS} {
		if w != nil {
			w.retire()
		}
	}
	s.web, s.webTLS = nil, nil
}

// close ends a service and closes its HTTP connections.
func (s *service) close() {
	for _, b := range s.byKey {
		b.unwatch()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = true
	for _, w := range []*webServer{s.web, s.webTLS} {
		if w != nil {
			w.close()
		}
	}
}

// errNoTarget means that no healthy target is reachable.
var errNoTarget = errors.New("no healthy target is reachable")

// maxTries is how many targets a connection or a request tries: one, and as many again as HAProxy's option retries has by default.
const maxTries = 4

// pick chooses a healthy backend that is not in tried, by the algorithm. It returns nil if there is none, or if enough were tried.
func (s *service) pick(conf *serviceConf, tried []*backend) (best *backend) {
	all := s.backends.Load()
	n := all.Len()
	if n == 0 || len(tried) == maxTries {
		return nil
	}
	first, _ := all.GetAt(int((s.turn.Add(1) - 1) % uint64(n)))
	seen := 0
	visit := func(b placed) bool {
		seen++
		if b.healthy() && !slices.Contains(tried, b.backend) {
			if conf.algorithm != LeastConnections {
				// Skip to the position after the chosen backend: otherwise the backend after an unhealthy
				// one would also get its share.
				s.turn.Add(uint64(seen - 1))
				best = b.backend
				return false
			}
			if best == nil || b.active.Load() < best.active.Load() {
				best = b.backend
			}
		}
		return seen < n
	}
	all.Ascend(first, visit)
	if seen < n && (best == nil || conf.algorithm == LeastConnections) {
		all.Scan(visit)
	}
	return best
}
