// Command probe runs inside and outside of the clusters of the e2e suite: as a pod behind Services that describes the requests
// that reach it and, with -proxy, as a way into the cluster's network from outside.
//
// As a pod it answers HTTP on all PORTS ("80,8080-8099,9000-9099"), with a PROXY protocol header before the
// request or without:
//
//	GET /             the pod and the request that arrived: see package e2e/whoami
//	GET /ready        200, or the status of the last PUT /ready?status=503
//	GET /fetch?url=   asks that URL from here, and returns the answer; 502 with the error after 3 s without one
//
// POD_NAME and NODE_NAME come from the Downward API, SERVICE is the namespace/name of the Service in front. When told to end,
// it continues to answer for GRACE (default 5s), so that load balancers notice in time that it ends. It stays ready
// meanwhile: kube-proxy sends requests to a terminating pod only while that pod is ready.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	proxyproto "github.com/pires/go-proxyproto"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/whoami"
)

func main() {
	proxy := flag.String("proxy", "", "`address` to be an HTTP proxy with the method CONNECT at, instead of answering as a pod")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	var err error
	if *proxy != "" {
		err = listenAndServe(ctx, []string{*proxy}, http.HandlerFunc(connect), 0, nil)
	} else {
		err = runPod(ctx)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func runPod(ctx context.Context) error {
	settings, err := settingsOf(os.Getenv)
	if err != nil {
		return err
	}
	p := newPod(settings)
	return listenAndServe(ctx, settings.addresses(), p.handler(), settings.grace, p.end)
}

// listenAndServe is serve at all addresses.
func listenAndServe(ctx context.Context, addresses []string, h http.Handler, grace time.Duration, ending func()) error {
	var listeners []net.Listener
	for _, address := range addresses {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if err != nil {
			return err // the program ends
		}
		listeners = append(listeners, l)
	}
	return serve(ctx, listeners, h, grace, ending)
}

// serve answers all listeners until the context is done, then for the time of grace, and then ends gently. ending is
// called when the context is done.
func serve(ctx context.Context, listeners []net.Listener, h http.Handler, grace time.Duration, ending func()) error {
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute,
		ConnContext: whoami.ConnContext,
	}
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { failed <- server.Serve(&proxyproto.Listener{Listener: l, ConnPolicy: anyHeader}) }()
	}
	select {
	case err := <-failed:
		return errors.Join(err, server.Close())
	case <-ctx.Done():
	}
	if ending != nil {
		ending()
	}
	time.Sleep(grace) // clients may not know yet
	last, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return server.Shutdown(last)
}

// anyHeader takes a PROXY protocol header if there is one.
func anyHeader(proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) { return proxyproto.USE, nil }
