package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/whoami"
)

// fetchTimeout is how long /fetch waits for an answer.
const fetchTimeout = 3 * time.Second

// answerLimit is how much of an answer /fetch returns, in bytes.
const answerLimit = 1 << 20

// settings of a pod.
type settings struct {
	pod, node, service string
	ports              []int
	grace              time.Duration
}

func settingsOf(getenv func(string) string) (settings, error) {
	s := settings{pod: getenv("POD_NAME"), node: getenv("NODE_NAME"), service: getenv("SERVICE")}
	var err error
	if s.ports, err = parsePorts(cmp.Or(getenv("PORTS"), "80,8080-8099,9000-9099")); err != nil {
		return s, fmt.Errorf("PORTS: %w", err)
	}
	if s.grace, err = time.ParseDuration(cmp.Or(getenv("GRACE"), "5s")); err != nil {
		return s, fmt.Errorf("GRACE: %w", err)
	}
	return s, nil
}

func (s settings) addresses() []string {
	var all []string
	for _, p := range s.ports {
		all = append(all, ":"+strconv.Itoa(p))
	}
	return all
}

// parsePorts reads a list of ports and ranges of ports.
func parsePorts(text string) ([]int, error) {
	var ports []int
	for part := range strings.SplitSeq(text, ",") {
		low, high, isRange := strings.Cut(part, "-")
		first, err := strconv.ParseUint(low, 10, 16)
		last := first
		if err == nil && isRange {
			last, err = strconv.ParseUint(high, 10, 16)
		}
		if err != nil || first == 0 || last < first {
			return nil, fmt.Errorf("%q: must be a port or a range such as 80 or 8080-8099", part)
		}
		for p := first; p <= last; p++ {
			ports = append(ports, int(p))
		}
	}
	return ports, nil
}

// pod answers requests.
type pod struct {
	settings
	client *http.Client
	ready  atomic.Int64 // the status of /ready
	ending atomic.Bool
}

func newPod(s settings) *pod {
	// No connection outlives its request, so that each request is balanced.
	p := &pod{settings: s, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	p.ready.Store(http.StatusOK)
	return p
}

// end makes the pod close each connection after its request.
func (p *pod) end() { p.ending.Store(true) }

func (p *pod) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", p.answer)
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(p.ready.Load()))
	})
	mux.HandleFunc("PUT /ready", func(w http.ResponseWriter, r *http.Request) {
		status, err := strconv.Atoi(r.FormValue("status"))
		if err != nil || status < 200 || status > 599 {
			http.Error(w, "status: must be a number from 200 to 599", http.StatusBadRequest)
			return
		}
		p.ready.Store(int64(status))
	})
	mux.HandleFunc("GET /fetch", p.fetch)
	return mux
}

// answer describes the pod and the request that arrived.
func (p *pod) answer(w http.ResponseWriter, r *http.Request) {
	a := whoami.To(r)
	a.Node, a.Pod, a.Service = p.node, p.pod, p.service
	if port := whoami.LocalPort(r); port != 0 {
		a.Port, a.PortName = int32(port), "p"+strconv.Itoa(port)
	}
	if p.ending.Load() {
		w.Header().Set("Connection", "close") // the next request is for another pod
	}
	a.Write(w)
}

func (p *pod) fetch(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), fetchTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.FormValue("url"), nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	response, err := p.client.Do(request)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer func() { _ = response.Body.Close() }()
	w.WriteHeader(response.StatusCode)
	_, _ = io.Copy(w, io.LimitReader(response.Body, answerLimit))
}
