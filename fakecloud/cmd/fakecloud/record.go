package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/recording"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/wire"
)

func newRecordCommand() *cobra.Command {
	var target, listen, dir string
	var plain bool
	cmd := &cobra.Command{
		Use:   "record",
		Short: "Record what clients and an API say to each other, without what is private",
		Long: `Record what clients and an API say to each other, without what is private.

It prints the endpoint for clients, passes their requests on to the target, and writes each exchange
as a line of JSON to ` + recording.FileName + ` in the directory. Names, addresses, ids, labels and DNS
records are replaced by pseudonyms; tokens, passwords, keys and user data by a marker. Look at the
file before you send it. It records until it gets SIGINT or SIGTERM.`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			url, err := parseTarget(target, plain)
			if err != nil {
				return wrongUsage(named(cmd, err))
			}
			if dir == "" {
				return wrongUsage(named(cmd, errors.New("--out: is missing; name a directory for the recording")))
			}
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			return named(cmd, recordAPI(cmd.Context(), url, listen, dir, cmd.OutOrStdout(), log))
		},
	}
	f := cmd.Flags()
	f.StringVar(&target, "target", "https://"+recording.RealHost+recording.BasePath, "`URL` of the API, with its base path")
	f.BoolVar(&plain, "plain-http", false, "allow a target with http:// on another machine: all between can read the clients' tokens")
	f.StringVar(&listen, "listen", "127.0.0.1:4244", "address for clients, `host:port`; port 0 is any free port")
	f.StringVar(&dir, "out", "", "`directory` for the recording; it must not have one yet")
	return cmd
}

func parseTarget(target string, plain bool) (*url.URL, error) {
	u, err := url.Parse(target)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.User != nil {
		return nil, fmt.Errorf("--target %q: must be a URL such as https://%s%s", target, recording.RealHost, recording.BasePath)
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	if !strings.HasSuffix(u.Path, recording.BasePath) {
		return nil, fmt.Errorf("--target %q: must end with the base path %s", target, recording.BasePath)
	}
	ip, _ := netip.ParseAddr(u.Hostname())
	if u.Scheme == "http" && !plain && !ip.IsLoopback() && u.Hostname() != "localhost" {
		return nil, fmt.Errorf("--target %q: would send tokens over the network for all to read; use https://, or set --plain-http", target)
	}
	return u, nil
}

// recordAPI passes requests on until the context is done.
func recordAPI(ctx context.Context, target *url.URL, listen, dir string, out io.Writer, log *slog.Logger) error {
	socket, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("--listen: %w; name another address (port 0 is any free port)", err)
	}
	defer func() { _ = socket.Close() }()
	file, err := recording.Create(dir)
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	recorder, err := recording.NewRecorder(file, recording.Options{Target: target, Catalogue: recording.CatalogueNames(), Logger: log})
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	warnExposed(log, listen, "clients on other machines can use the API through this program, with their own tokens", "--listen")
	server := &http.Server{
		Handler: recorder, ReadHeaderTimeout: 30 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(socket) }()
	if _, err := fmt.Fprintf(out, "export HCLOUD_ENDPOINT=http://%s%s\n", wire.Reachable(socket.Addr()), recording.BasePath); err != nil {
		return err
	}
	select {
	case err = <-failed:
	case <-ctx.Done():
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		err = server.Shutdown(end)
	}
	n, closeErr := recorder.Close()
	log.Info("recorded", "exchanges", n, "file", filepath.Join(dir, recording.FileName), "next", "look at it, then fakecloud verify "+dir)
	return errors.Join(err, closeErr)
}

func newVerifyCommand() *cobra.Command {
	var report string
	cmd := &cobra.Command{
		Use:   "verify DIR",
		Short: "Replay a recording against a new simulated cloud; exit with 1 if an answer differs",
		Args:  arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return verify(cmd.Context(), args[0], report, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&report, "json", "", "`file` for the report as JSON")
	return cmd
}

func verify(ctx context.Context, dir, reportFile string, out io.Writer) error {
	path := filepath.Join(dir, recording.FileName)
	file, err := os.Open(path)
	if err != nil {
		return statusError{fmt.Errorf("verify: %w; name the directory that fakecloud record has written", err), 2}
	}
	rec, err := recording.Read(file)
	_ = file.Close()
	if err != nil {
		return statusError{fmt.Errorf("verify: %s: %w", path, err), 2}
	}
	report, failed := recording.Verify(ctx, rec)
	if report == nil {
		return statusError{fmt.Errorf("verify: %s: %w", path, failed), 2}
	}
	if reportFile != "" {
		text, err := json.MarshalIndent(report, "", "  ")
		if err == nil {
			err = os.WriteFile(reportFile, append(text, '\n'), 0o600)
		}
		if err != nil {
			return statusError{fmt.Errorf("--json: %w", err), 2}
		}
	}
	if err := report.Write(out); err != nil {
		return err
	}
	if failed != nil {
		return statusError{fmt.Errorf("verify: %s: %w", path, failed), 2}
	}
	if n := len(report.Differences); n > 0 {
		return fmt.Errorf("verify: the simulation differs in %d places from the recording: open an issue with the recording", n)
	}
	return nil
}
