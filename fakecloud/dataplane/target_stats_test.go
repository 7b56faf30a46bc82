package dataplane

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"
)

// awaitGets waits until a target serves as many connections and requests as open, and got taken of
// them in total.
func (l *lab) awaitGets(what, key string, open, taken int64) {
	l.t.Helper()
	want := TargetStats{Target: key, Open: open, Taken: taken}
	var all []TargetStats
	defer func() {
		if l.t.Failed() {
			l.t.Logf("%s: %+v, want %+v", what, all, want)
		}
	}()
	await(l.t, what, func() bool {
		all, _ = l.TargetStats(lbID)
		return slices.Contains(all, want)
	})
}

func TestATargetCountsItsConnections(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{})
	target := l.place("a", newTCPTarget(t, "a").at())
	l.apply(balance([]Service{tcpService(80)}, target))
	l.awaitHealth(Healthy, 80, target)
	l.awaitGets("a probe does not count", "a", 0, 0)
	first, second := l.dial(80), l.dial(80)
	greeting(t, first)
	greeting(t, second)
	l.awaitGets("both are open", "a", 2, 2)
	closeQuietly(first)
	l.awaitGets("one has ended", "a", 1, 2)
}

func TestATargetCountsItsRequests(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{})
	arrived, leave := make(chan struct{}), make(chan struct{})
	server := newHTTPTarget(t, "a", func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			arrived <- struct{}{}
			<-leave
		}
	})
	target := l.place("a", at(server))
	l.apply(balance([]Service{httpService(80)}, target))
	l.awaitHealth(Healthy, 80, target)
	client := l.client()
	for range 3 { // on one connection
		get(t, client, lbURL)
	}
	l.awaitGets("three requests were answered", "a", 0, 3)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		if resp, err := client.Get(lbURL + "wait"); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			closeQuietly(resp.Body)
		}
	}()
	<-arrived
	l.awaitGets("one is being served", "a", 1, 3)
	close(leave)
	<-answered
	l.awaitGets("it was answered", "a", 0, 4)
}

func TestATargetCountsOverAllServices(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{})
	server := newHTTPTarget(t, "a", nil)
	target := l.place("a", at(server))
	services := []Service{httpService(80), tcpService(81)}
	l.apply(balance(services, target))
	l.awaitHealth(Healthy, 80, target)
	l.awaitHealth(Healthy, 81, target)
	get(t, l.client(oneShot), lbURL)
	l.dial(81)
	l.awaitGets("the request of one service and the connection of the other count", "a", 1, 2)
	if all, _ := l.TargetStats(lbID); len(all) != 1 {
		t.Errorf("%+v, want one target", all)
	}
	l.apply(balance(services[1:], target))
	l.awaitGets("the counters stay when a service goes", "a", 1, 2)
}

func TestATargetThatCannotBeReachedHasTakenNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{})
	gone := newTCPTarget(t, "gone")
	targets := []Target{l.place("gone", gone.at()), l.place("a", at(newHTTPTarget(t, "a", nil)))}
	l.apply(balance([]Service{httpService(80), tcpService(81)}, targets...))
	l.awaitHealth(Healthy, 81, targets...)
	l.awaitHealth(Healthy, 80, targets[1])
	closeQuietly(gone)
	for range 2 {
		closeQuietly(l.dial(81))
		get(t, l.client(oneShot), lbURL)
	}
	l.awaitGets("the other one gets all", "a", 0, 4)
	l.awaitGets("this one gets nothing", "gone", 0, 0)
}

func TestTheCountersOfATargetEndWithIt(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{})
	a, b := l.place("a", newTCPTarget(t, "a").at()), l.place("b", newTCPTarget(t, "b").at())
	l.apply(balance([]Service{tcpService(80)}, a))
	l.awaitHealth(Healthy, 80, a)
	greeting(t, l.dial(80))
	l.awaitGets("a has a connection", "a", 1, 1)
	if err := l.Retarget(lbID, []Target{b}, []string{"a"}); err != nil {
		t.Fatal(err)
	}
	l.awaitHealth(Healthy, 80, b)
	if all, _ := l.TargetStats(lbID); len(all) != 1 || all[0].Target != "b" {
		t.Errorf("%+v, want b alone", all)
	}
	l.apply(balance([]Service{tcpService(80)}, a))
	l.awaitGets("a begins again", "a", 0, 0)
	if all, _ := l.TargetStats(lbID); len(all) != 1 {
		t.Errorf("%+v, want a alone", all)
	}
	if _, err := l.TargetStats(8); !errors.Is(err, ErrUnknownLoadBalancer) {
		t.Error(err)
	}
}
