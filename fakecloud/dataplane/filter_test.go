package dataplane

import (
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// wall is a firewall for the ports of targets. It counts the packets that it drops.
type wall struct {
	mu      sync.Mutex
	closed  map[string][]uint16 // by target key
	off     map[string]bool     // by target key
	dropped map[uint16]int
}

func newWall() *wall {
	return &wall{closed: map[string][]uint16{}, off: map[string]bool{}, dropped: map[uint16]int{}}
}

func (w *wall) filter(loadBalancer int64, t Target, port uint16) HealthDetail {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.off[t.Key] {
		return DetailNoConnection
	}
	if loadBalancer == lbID && !slices.Contains(w.closed[t.Key], port) {
		return ""
	}
	w.dropped[port]++
	return DetailConnectTimeout
}

// power switches a target on or off.
func (w *wall) power(key string, on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.off[key] = !on
}

// close makes the wall drop the packets to some ports of a target, and to no other ports of it.
func (w *wall) close(key string, ports ...uint16) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed[key] = ports
}

func (w *wall) drops(port uint16) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dropped[port]
}

func TestADroppedProbeTimesOut(t *testing.T) {
	t.Parallel()
	for name, place := range map[string]func(*lab) Target{
		"a program listens": func(l *lab) Target { return l.place("a", newTCPTarget(l.t, "a").at()) },
		"no program":        func(*lab) Target { return Target{Key: "a"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWall()
			w.close("a", 10256)
			l := newLab(t, Options{Filter: w.filter})
			s := tcpService(80)
			s.HealthCheck.Port = 10256
			tg := place(l)
			l.apply(balance([]Service{s}, tg))
			await(t, "a probe is dropped", func() bool { return w.drops(10256) == 1 })
			l.clock.Step(defaultCheckTimeout - time.Nanosecond)
			if f := failures(l, 80); f != 0 {
				t.Errorf("%d probes failed before their timeout", f)
			}
			l.clock.Step(time.Nanosecond)
			await(t, "the probe timed out", func() bool { return failures(l, 80) == 1 })
			l.clock.Step(defaultCheckInterval - defaultCheckTimeout)
			await(t, "another probe is dropped", func() bool { return w.drops(10256) == 2 })
			l.clock.Step(defaultCheckTimeout)
			l.awaitHealth(Unhealthy, 80, tg)
			if r := l.last("a", 80); r.Detail != DetailConnectTimeout {
				t.Errorf("the report is %+v, want %s", r, DetailConnectTimeout)
			}
		})
	}
}

func TestATargetIsHealthyAgainAfterItsPortIsPermitted(t *testing.T) {
	t.Parallel()
	w := newWall()
	w.close("a", 80)
	l := newLab(t, Options{Filter: w.filter})
	tg := l.place("a", newTCPTarget(t, "a").at())
	l.apply(balance([]Service{tcpService(80)}, tg))
	l.stepUntil(time.Second, "the target is unhealthy", func() bool { return l.last("a", 80).Status == Unhealthy })
	w.close("a", 81)
	l.stepUntil(time.Second, "the target is healthy", func() bool { return l.last("a", 80).Status == Healthy })
}

// A target stays healthy if its health check is permitted and its traffic is dropped. Clients wait for the connect timeout, and get another
// target.
func TestADroppedConnectionTimesOutAndGoesToAnotherTarget(t *testing.T) {
	t.Parallel()
	for _, protocol := range []Protocol{TCP, HTTP} {
		t.Run(string(protocol), func(t *testing.T) {
			t.Parallel()
			w := newWall()
			l := newLab(t, Options{Filter: w.filter})
			var targets []Target
			for _, name := range []string{"a", "b"} {
				at := at(newHTTPTarget(t, name, nil))
				if protocol == TCP {
					at = newTCPTarget(t, name).at()
				}
				targets = append(targets, l.place(name, at))
			}
			s := tcpService(80)
			s.Protocol, s.HealthCheck.Port = protocol, 10256
			l.apply(balance([]Service{s}, targets...))
			l.awaitHealth(Healthy, 80, targets...)
			w.close("a", 80)
			answers := make(chan string, 1)
			ask := func() {
				go func() {
					if protocol == TCP {
						answers <- greeting(t, l.dial(80))
						return
					}
					resp, _ := get(t, l.client(oneShot), "http://"+lbAddr.String()+":80/")
					answers <- resp.Header.Get("Target")
				}()
			}
			for range 2 { // at least one of two connections is for a
				before := w.drops(80)
				ask()
				await(t, "the connection waits or has an answer", func() bool { return w.drops(80) > before || len(answers) == 1 })
				if w.drops(80) > before && len(answers) == 0 {
					l.clock.Step(defaultConnectTimeout)
				}
				await(t, "the connection has an answer", func() bool { return len(answers) == 1 })
				if got := <-answers; got != "b" {
					t.Errorf("target %s answers, want b", got)
				}
			}
			if w.drops(80) == 0 {
				t.Error("no connection is dropped")
			}
			if h := l.last("a", 80); h.Status != Healthy {
				t.Errorf("the health is %+v, want healthy", h)
			}
		})
	}
}

func TestEstablishedConnectionsContinueWhenTheirPortIsClosed(t *testing.T) {
	t.Parallel()
	w := newWall()
	l := newLab(t, Options{Filter: w.filter})
	tcp := l.place("tcp", newTCPTarget(t, "tcp").at())
	l.apply(balance([]Service{tcpService(80)}, tcp))
	l.awaitHealth(Healthy, 80, tcp)
	c := l.dial(80)
	greeting(t, c)
	w.close("tcp", 80)
	echo(t, c, "after the port was closed")
	l.stepUntil(time.Second, "the target is unhealthy", func() bool { return l.last("tcp", 80).Status == Unhealthy })
	echo(t, c, "after the target became unhealthy")
}

func TestARequestUsesAnEstablishedConnectionWhenItsPortIsClosed(t *testing.T) {
	t.Parallel()
	w := newWall()
	l := newLab(t, Options{Filter: w.filter})
	tg := l.place("web", at(newHTTPTarget(t, "web", nil)))
	s := tcpService(80)
	s.Protocol = HTTP
	l.apply(balance([]Service{s}, tg))
	l.awaitHealth(Healthy, 80, tg)
	client := l.client()
	for range 2 {
		if resp, _ := get(t, client, "http://"+lbAddr.String()+":80/"); resp.StatusCode != http.StatusOK {
			t.Errorf("status %d, want 200", resp.StatusCode)
		}
		w.close("web", 80)
	}
}

func TestRemovingALoadBalancerEndsDroppedAttempts(t *testing.T) {
	t.Parallel()
	for _, protocol := range []Protocol{TCP, HTTP} {
		w := newWall()
		l := newLab(t, Options{Filter: w.filter})
		tg := l.place("a", newTCPTarget(t, "a").at())
		s := tcpService(80)
		s.Protocol, s.HealthCheck.Port = protocol, 10256
		l.apply(balance([]Service{s}, tg))
		l.awaitHealth(Healthy, 80, tg)
		w.close("a", 80, 10256)
		c := l.dial(80)
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		await(t, "the connection waits", func() bool { return w.drops(80) == 1 })
		l.Remove(lbID)
		if _, err := io.ReadAll(c); err != nil && isTimeout(err) {
			t.Errorf("%s: the connection is still open", protocol)
		}
	}
}

func isTimeout(err error) bool {
	ne, ok := errors.AsType[net.Error](err)
	return ok && ne.Timeout()
}

// A target that is off refuses at once what is new. Disconnect ends what is open, and no request is lost that another target can answer.
func TestATargetThatIsOffEndsItsConnections(t *testing.T) {
	t.Parallel()
	for _, protocol := range []Protocol{TCP, HTTP} {
		t.Run(string(protocol), func(t *testing.T) {
			t.Parallel()
			w := newWall()
			l := newLab(t, Options{Filter: w.filter})
			a, b := l.place("a", at(newHTTPTarget(t, "a", nil))), l.place("b", at(newHTTPTarget(t, "b", nil)))
			s := tcpService(80)
			s.Protocol = protocol
			l.apply(balance([]Service{s}, a))
			l.awaitHealth(Healthy, 80, a)
			client := l.client()
			ask := func() string {
				resp, err := client.Get("http://" + lbAddr.String() + ":80/")
				if err != nil {
					return err.Error()
				}
				defer closeQuietly(resp.Body)
				return resp.Header.Get("Target")
			}
			if got := ask(); got != "a" {
				t.Fatalf("target %q answers, want a", got)
			}
			l.apply(balance([]Service{s}, a, b))
			l.awaitHealth(Healthy, 80, b)
			w.power("a", false)
			l.Disconnect(lbID, "a")
			lb, _ := l.balancer(lbID)
			await(t, "no connection to a is left", func() bool {
				lb.mu.Lock()
				defer lb.mu.Unlock()
				return len(lb.links["a"]) == 0
			})
			for range 4 {
				if got := ask(); got != "b" {
					t.Errorf("target %q answers, want b", got)
				}
			}
		})
	}
}

// A connection that begins while the target goes off, after the filter has let it through, does not stay.
func TestAConnectionThatMissesDisconnectIsClosed(t *testing.T) {
	t.Parallel()
	w := newWall()
	var l *lab
	l = newLab(t, Options{Filter: w.filter, Resolver: func(tg Target, port uint16) (string, error) {
		if port == 80 { // between the filter and the connection
			w.power("a", false)
			l.Disconnect(lbID, "a")
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.places[tg.Key], nil
	}})
	tg := l.place("a", newTCPTarget(t, "a").at())
	s := tcpService(80)
	s.HealthCheck.Port = 10256
	l.apply(balance([]Service{s}, tg))
	l.awaitHealth(Healthy, 80, tg)
	awaitClosed(t, l.dial(80))
}
