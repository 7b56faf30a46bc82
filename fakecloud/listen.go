package fakecloud

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/api"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/wire"
)

// ErrClosed is the error of a method that cannot work because the cloud, or the subscription, is closed.
var ErrClosed = errors.New("fakecloud: the cloud is closed")

// listener is a running HTTP server.
type listener struct {
	server *http.Server
	stop   context.CancelFunc // ends the contexts of its requests
	done   chan struct{}      // closed when it no longer listens
}

// Limits of a connection. The times are in the machine's time.
const (
	readHeaderTimeout = 30 * time.Second
	readTimeout       = time.Minute // of header and body; it does not limit the answer
	idleTimeout       = 5 * time.Minute
	maxHeaderBytes    = 64 << 10
)

// Start listens on an address and serves the API there until Close. If the address is empty, it is a free port of
// 127.0.0.1. It returns the endpoint for clients, such as "http://127.0.0.1:4242/v1". It may be called several times.
func (c *Cloud) Start(ctx context.Context, address string) (endpoint string, err error) {
	return c.startAPI(ctx, address, nil)
}

// StartTLS is Start with HTTPS.
func (c *Cloud) StartTLS(ctx context.Context, address string, config *tls.Config) (endpoint string, err error) {
	return c.startAPI(ctx, address, config.Clone())
}

func (c *Cloud) startAPI(ctx context.Context, address string, config *tls.Config) (string, error) {
	url, err := c.listen(ctx, address, c.api, config)
	if err != nil {
		return "", err
	}
	endpoint := url + api.Prefix
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.endpoint == "" {
		c.endpoint = endpoint
	}
	c.ready.Store(true)
	return endpoint, nil
}

// StartControl listens on an address and serves the control API there until Close. If the address is empty, it is a
// free port of 127.0.0.1. It returns the URL, such as "http://127.0.0.1:4243". There is no authentication: every program
// that reaches it controls the cloud.
func (c *Cloud) StartControl(ctx context.Context, address string) (url string, err error) {
	url, err = c.listen(ctx, address, c.controller.Handler(), nil)
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.controlURL == "" {
		c.controlURL = url
	}
	return url, nil
}

// Endpoint returns the endpoint of the first listener for clients, or "" before [Cloud.Start].
func (c *Cloud) Endpoint() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.endpoint
}

// ControlURL returns the URL of the control API, or "" before [Cloud.StartControl].
func (c *Cloud) ControlURL() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.controlURL
}

func (c *Cloud) listen(ctx context.Context, address string, h http.Handler, config *tls.Config) (string, error) {
	if address == "" {
		address = "127.0.0.1:0"
	}
	socket, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return "", listenError(address, err)
	}
	base, stop := context.WithCancel(context.Background())
	l := &listener{stop: stop, done: make(chan struct{}), server: &http.Server{
		Handler: h, TLSConfig: config, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: c.readTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       c.errorLog, // without it, lines of another format stand between those of the program's log
		BaseContext:    func(net.Listener) context.Context { return base },
	}}
	if h != http.Handler(c.api) {
		// Streams of events do not end by themselves, and the server waits for them.
		l.server.RegisterOnShutdown(stop)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		stop()
		_ = socket.Close()
		return "", ErrClosed
	}
	c.listeners = append(c.listeners, l)
	go func() {
		defer close(l.done)
		if config != nil {
			_ = l.server.ServeTLS(socket, "", "")
			return
		}
		_ = l.server.Serve(socket)
	}()
	scheme := "http"
	if config != nil {
		scheme = "https"
	}
	return scheme + "://" + wire.Reachable(socket.Addr()), nil
}

// listenError returns an error that says what to do.
func listenError(address string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("listen on %s: another program uses that port; stop it or choose another port (0 is any free one): %w", address,
			err)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("listen on %s: not permitted; ports below 1024 need a privilege; choose a higher one: %w", address, err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("listen on %s: this machine does not have that address; choose another one: %w", address, err)
	}
	return fmt.Errorf("listen on %q: must be host:port, such as 127.0.0.1:4242: %w", address, err)
}

// Shutdown stops listening, waits until the requests under way are answered, and closes the cloud. If the context is
// done first, it cuts the remaining connections and returns the context's error.
func (c *Cloud) Shutdown(ctx context.Context) error {
	var wg sync.WaitGroup
	errs := make(chan error, 16)
	for _, l := range c.takeListeners() {
		wg.Go(func() {
			if err := l.server.Shutdown(ctx); err != nil {
				errs <- err
				_ = l.server.Close()
			}
			l.stop()
			<-l.done
		})
	}
	go func() { wg.Wait(); close(errs) }()
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	c.stop()
	return errors.Join(all...)
}

// Close stops all listeners, cuts their connections, and stops the cloud's goroutines. It may be called several times.
func (c *Cloud) Close() {
	for _, l := range c.takeListeners() {
		_ = l.server.Close()
		l.stop()
		<-l.done
	}
	c.stop()
}

// stop ends everything except the listeners.
func (c *Cloud) stop() {
	c.controller.CloseForks()
	c.dataPlane.Close()
	if c.router != nil {
		c.router.Close()
	}
	c.cloud.Close()
}

func (c *Cloud) takeListeners() []*listener {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.ready.Store(false)
	ls := c.listeners
	c.listeners = nil
	return ls
}
