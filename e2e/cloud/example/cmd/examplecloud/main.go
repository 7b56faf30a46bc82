// Command examplecloud is the example cloud as a program: the API is that of the package example. It prints where it is in one line of
// JSON, and ends when it is interrupted, or with --until-stdin-closes when its standard input ends.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud/example"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "examplecloud: %v\n", err)
		os.Exit(1)
	}
}

// run runs a cloud until the context ends.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("examplecloud", flag.ContinueOnError)
	flags.SetOutput(stderr)
	o := example.Options{}
	listen := flags.String("listen", "127.0.0.1:0", "address of the API; port 0 chooses a free one")
	untilEnd := flags.Bool("until-stdin-closes", false, "end when the standard input ends, such as with the program that started this one")
	flags.StringVar(&o.Token, "token", "example-token", "token of the account")
	flags.DurationVar(&o.Provisioning, "provisioning", 50*time.Millisecond, "how long a load balancer is pending")
	flags.TextVar(&o.Instances, "instances", netip.MustParsePrefix("127.40.0.0/16"), "addresses of this host that instances get")
	flags.TextVar(&o.LoadBalancers, "load-balancers", netip.MustParsePrefix("127.41.0.0/16"),
		"addresses of this host that load balancers get")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%q: is not a flag; see --help", flags.Arg(0))
	}
	cloud, err := example.New(o)
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", *listen)
	if err != nil {
		return fmt.Errorf("cannot serve the API: %w; choose another --listen", err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if *untilEnd {
		go func() {
			_, _ = io.Copy(io.Discard, stdin)
			stop()
		}()
	}
	api, control := cloud.Handler(), cloud.ControlHandler()
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, example.ControlPath+"/") {
			control.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	})}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	where := map[string]string{
		"endpoint": example.Endpoint(l.Addr().String()), "control": "http://" + l.Addr().String() + example.ControlPath, "token": o.Token,
	}
	if err := json.NewEncoder(stdout).Encode(where); err != nil {
		return err
	}
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return errors.Join(err, cloud.Close())
	}
	return cloud.Close()
}
