package dataplane

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
)

// service is a running listen port.
type service struct {
	lb   *balancer
	port uint16
	conf atomic.Pointer[serviceConf]
	turn atomic.Uint64 // round robin

	// web and webTLS are the HTTP servers for clients. They are created when first needed. Both can
	// exist, because the protocol of a service can change while clients of the old one are connected.
	mu      sync.Mutex
	retired bool
	web     *webServer
	webTLS  *webServer
	proxy   *httpProxy
}

func newService(lb *balancer, port uint16) *service {
	s := &service{lb: lb, port: port}
	s.conf.Store(&serviceConf{})
	s.proxy = newHTTPProxy(s)
	return s
}

// apply makes conf, with a backend for each target, the configuration for new connections and requests.
func (s *service) apply(conf *serviceConf, targets []Target) {
	old := s.conf.Load()
	if conf.Protocol != redirect {
		conf.backends = s.reconcile(old, conf, targets)
	}
	s.conf.Store(conf)
	if old.Protocol != "" && old.mode() != conf.mode() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.retireWebLocked()
	}
}

// reconcile returns the backends for targets. It keeps the backends of unchanged targets, creates those
// of new or moved targets, and ends the probing of removed ones.
func (s *service) reconcile(old, conf *serviceConf, targets []Target) []*backend {
	gone := slices.Clone(old.backends)
	backends := make([]*backend, 0, len(targets))
	for _, t := range targets {
		i := slices.IndexFunc(gone, func(b *backend) bool { return b.target == t })
		if i >= 0 {
			b := gone[i]
			gone = slices.Delete(gone, i, i+1)
			backends = append(backends, b)
			if checkChanged(old, conf) {
				b.watch(conf)
			}
			continue
		}
		b := newBackend(s, t)
		backends = append(backends, b)
		b.watch(conf)
	}
	for _, b := range gone {
		b.unwatch()
		s.lb.spare.drop(b)
	}
	return backends
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
	for _, b := range s.conf.Load().backends {
		b.unwatch()
		s.lb.spare.drop(b)
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
	for _, b := range s.conf.Load().backends {
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

// pick chooses a healthy backend that is not in tried, by the algorithm. It returns nil if there is
// none.
func (s *service) pick(conf *serviceConf, tried []*backend) *backend {
	n := len(conf.backends)
	if n == 0 {
		return nil
	}
	start := int(s.turn.Add(1)-1) % n
	var best *backend
	for i := range n {
		b := conf.backends[(start+i)%n]
		if !b.healthy() || slices.Contains(tried, b) {
			continue
		}
		if conf.algorithm != LeastConnections {
			// Skip to the position after the chosen backend: otherwise the backend after an unhealthy
			// one would also get its share.
			s.turn.Add(uint64(i))
			return b
		}
		if best == nil || b.active.Load() < best.active.Load() {
			best = b
		}
	}
	return best
}
