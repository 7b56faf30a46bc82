package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/dataplane/netdev"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/disk"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/wire"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// stopTimeout is how long requests under way may take when the program is told to stop, in the machine's time. It is
// less than 10 s, after which Docker kills the program.
const stopTimeout = 8 * time.Second

func (s *settings) logger(w io.Writer) (*slog.Logger, error) {
	o := &slog.HandlerOptions{Level: s.logLevel}
	switch s.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return nil, fmt.Errorf("--log-format %q: must be text or json", s.logFormat)
}

// serve runs the cloud until the context is done.
func serve(ctx context.Context, s *settings, out io.Writer, log *slog.Logger) error {
	var devices devices
	defer devices.close(log)
	if err := s.checkAddresses(); err != nil {
		return wrongUsage(err)
	}
	cloud, secret, err := s.open(ctx, &devices, log)
	if err != nil {
		return wrongUsage(err)
	}
	defer cloud.Close()
	if s.seed != "" {
		if err := s.plant(ctx, cloud, log); err != nil {
			return wrongUsage(err)
		}
	}
	for _, scenario := range s.scenarios {
		started, err := cloud.Scenarios().Start(ctx, scenario)
		if err != nil {
			return wrongUsage(ofFlag("--scenario "+scenario, "scenario: ", err))
		}
		log.Info("started a scenario", "id", started.ID, "name", started.Name, "description", started.Description)
	}
	if err := cloud.SetSpeed(ctx, s.speed); err != nil {
		return wrongUsage(ofFlag(fmt.Sprint("--speed ", s.speed), fmt.Sprintf("clock speed %v: ", s.speed), err))
	}
	var controlURL string
	if s.control != off {
		if controlURL, err = cloud.StartControl(ctx, s.control); err != nil {
			return ofFlag("--control "+s.control, "listen on "+s.control+": ", err)
		}
		warnExposed(log, s.control, "the control API has no authentication and is reachable from other machines", "--control")
	}
	if s.metadata != off {
		take, err := netdev.GiveLinkLocal(s.metadata)
		if err != nil {
			return fmt.Errorf("--metadata: %w", err)
		}
		devices.add(take)
		url, err := cloud.StartMetadata(ctx, s.metadata)
		if err != nil {
			return fmt.Errorf("--metadata: %w", err)
		}
		log.Info("serving metadata", "url", url)
	}
	endpoint, ca, err := s.startAPI(ctx, cloud)
	if err != nil {
		return err
	}
	access, shut, err := s.doors.open(ctx, cloud, secret, log)
	defer shut()
	if err != nil {
		return err
	}
	if secret == fakecloud.DefaultToken {
		warnExposed(log, s.listen, "the API is reachable from other machines, and its token is the public default", "--token")
	}
	if err := s.announce(out, server{Endpoint: endpoint, Token: secret, CA: ca, Control: controlURL, Door: access}); err != nil {
		return err
	}
	if s.newIDs && s.snapshot == "" && s.state == "" {
		log.Warn("the cloud starts empty: it keeps nothing of an earlier run")
	}
	log.Info("serving", "endpoint", endpoint, "control", controlURL, "actions", s.actions, "rate_limit", s.rateLimit)
	go saveMemory(ctx)
	if log.Enabled(ctx, slog.LevelDebug) {
		go logRequests(ctx, cloud, log)
	}
	<-ctx.Done()
	log.Info("stopping: waiting for requests under way", "timeout", stopTimeout)
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := cloud.Shutdown(end); err != nil {
		log.Warn("requests were cut off: they took longer than the timeout", "error", err)
	}
	log.Info("stopped")
	return nil
}

// firstID returns the first id for a cloud that starts at a time. It is greater than the ids of clouds that started
// earlier in this way, if these gave out at most 100 ids per second.
func firstID(start time.Time) int64 {
	return start.Sub(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)).Milliseconds() / 10
}

// open makes the cloud of the settings, without listeners, and returns a token of its first project.
func (s *settings) open(ctx context.Context, devices *devices, log *slog.Logger) (*fakecloud.Cloud, string, error) {
	tokens, err := s.parseTokens()
	if err != nil {
		return nil, "", err
	}
	if s.keepActions <= 0 {
		return nil, "", fmt.Errorf("--keep-actions %v: must be more than 0", time.Duration(s.keepActions))
	}
	if s.projects != projectsFixed && s.projects != projectsAuto {
		return nil, "", fmt.Errorf("--projects %q: must be %s or %s", s.projects, projectsFixed, projectsAuto)
	}
	if s.projectTTL <= 0 {
		return nil, "", fmt.Errorf("--project-ttl %v: must be more than 0", time.Duration(s.projectTTL))
	}
	o := fakecloud.Options{
		Actions: s.actions, KeepActions: time.Duration(s.keepActions), RateLimit: s.rateLimit, APIDate: s.apiDate,
		UnknownFields: s.unknownFields, AllowedHosts: s.allowedHosts, WebOrigins: s.webOrigins, Logger: log,
		AutoProjects: s.projects == projectsAuto, ProjectTTL: time.Duration(s.projectTTL),
	}
	if err := s.networkOptions(&o, devices, log); err != nil {
		return nil, "", err
	}
	for _, t := range tokens {
		if t.project == defaultProject && !t.readOnly {
			o.Tokens = append(o.Tokens, t.text)
		}
	}
	if s.newIDs {
		o.FirstID = firstID(time.Now())
	}
	if o.Disk, err = s.disk(); err != nil {
		return nil, "", err
	}
	cloud, err := s.openSnapshot(o)
	if err != nil {
		return nil, "", err
	}
	if s.snapshot != "" {
		log.Info("loaded a snapshot: the clock shows its time", "file", s.snapshot)
	}
	if s.state != "" {
		log.Info("all changes are saved", "directory", s.state)
	}
	if err := addTokens(ctx, cloud, tokens); err != nil {
		cloud.Close()
		return nil, "", fmt.Errorf("--token: %w", err)
	}
	return cloud, cloud.Token(), nil
}

// openSnapshot makes a cloud that is empty, or has what the snapshot of the settings has.
func (s *settings) openSnapshot(o fakecloud.Options) (*fakecloud.Cloud, error) {
	if s.snapshot == "" {
		return fakecloud.Open(o)
	}
	file, err := os.Open(s.snapshot)
	if err != nil {
		return nil, fmt.Errorf("--snapshot: %w", err)
	}
	defer func() { _ = file.Close() }()
	cloud, err := fakecloud.Load(file, o)
	if err != nil {
		return nil, ofFlag("--snapshot "+s.snapshot, "snapshot: ", err)
	}
	return cloud, nil
}

// disk opens the directory of the state. It returns nil without one.
func (s *settings) disk() (fakecloud.Disk, error) {
	switch {
	case s.state == "" && s.stateSync:
		return nil, errors.New("--state-sync: needs --state DIR")
	case s.state == "":
		return nil, nil
	case s.snapshot != "":
		return nil, errors.New("--snapshot and --state: set only one; fakecloud snapshot load replaces what a cloud with a state has")
	}
	return disk.Open(s.state, disk.Options{Sync: s.stateSync})
}

// addTokens makes tokens valid, and adds the projects that they need.
func addTokens(ctx context.Context, cloud *fakecloud.Cloud, tokens []token) error {
	projects := map[string]int64{}
	existing, err := cloud.Projects(ctx)
	if err != nil {
		return err
	}
	for _, p := range existing {
		projects[p.Name] = p.ID
	}
	for _, t := range tokens {
		id, ok := projects[t.project]
		if !ok {
			// AddProject makes the token valid for writes; AddToken makes a read-only one read-only.
			if id, _, err = cloud.AddProject(ctx, t.project, t.text); err != nil {
				return err
			}
			projects[t.project] = id
		}
		if _, err = cloud.AddToken(ctx, id, t.text, t.readOnly); err != nil {
			return err
		}
		if err = cloud.SetTokenDate(ctx, t.text, t.apiDate); err != nil {
			return err
		}
	}
	return nil
}

// plant creates the seed before clients come. Actions end at once, and the journal and the rate limit do not show it.
func (s *settings) plant(ctx context.Context, cloud *fakecloud.Cloud, log *slog.Logger) error {
	if err := errors.Join(cloud.SetProfile(ctx, "instant"), cloud.SetRateLimit(ctx, 0)); err != nil {
		return err
	}
	n, err := cloud.SeedFile(ctx, s.seed)
	if err != nil {
		return ofFlag("--seed", "seed: ", err)
	}
	log.Info("seeded", "file", s.seed, "resources", n)
	// A snapshot may have had faults, limits, scenarios and changes of the catalogue.
	keep := []string{fakecloud.KeepResources, fakecloud.KeepFaults, fakecloud.KeepCatalogue, fakecloud.KeepLimits, fakecloud.KeepScenarios}
	return errors.Join(cloud.Reset(ctx, keep...), cloud.SetProfile(ctx, s.actions), cloud.SetRateLimit(ctx, s.rateLimit))
}

// startAPI listens for clients. It returns in ca the file with the certificate that they have to trust, or "".
func (s *settings) startAPI(ctx context.Context, cloud *fakecloud.Cloud) (endpoint, ca string, err error) {
	var cert tls.Certificate
	switch {
	case s.tlsCert != "" && s.tlsKey != "":
		if cert, err = tls.LoadX509KeyPair(s.tlsCert, s.tlsKey); err != nil {
			return "", "", wrongUsage(fmt.Errorf("--tls-cert and --tls-key: %w", err))
		}
	case s.tlsCert != "" || s.tlsKey != "":
		return "", "", wrongUsage(errors.New("--tls-cert and --tls-key: only one is set; set both or none"))
	case s.tls:
		if cert, err = selfSigned(s.listen, s.tlsCAOut); err != nil {
			return "", "", err
		}
		ca = s.tlsCAOut
	}
	if cert.Certificate == nil {
		endpoint, err = cloud.Start(ctx, s.listen)
	} else {
		endpoint, err = cloud.StartTLS(ctx, s.listen, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12})
	}
	if err != nil {
		err = ofFlag("--listen "+s.listen, "listen on "+s.listen+": ", err)
	}
	return endpoint, ca, err
}

// checkAddresses returns an error if the API and the control API cannot listen at their addresses, on no machine.
func (s *settings) checkAddresses() error {
	api, err := net.ResolveTCPAddr("tcp", s.listen)
	if err != nil {
		return fmt.Errorf("--listen %q: must be host:port, such as %s: %w", s.listen, defaultListen, err)
	}
	if s.control == off {
		return nil
	}
	control, err := net.ResolveTCPAddr("tcp", s.control)
	if err != nil {
		return fmt.Errorf("--control %q: must be host:port, such as %s: %w", s.control, defaultControl, err)
	}
	every := func(ip net.IP) bool { return ip == nil || ip.IsUnspecified() }
	if api.Port == control.Port && api.Port != 0 && (api.IP.Equal(control.IP) || every(api.IP) || every(control.IP)) {
		return fmt.Errorf("--control %s: the API listens there (--listen %s); choose another port (0 is any free one)", s.control, s.listen)
	}
	return nil
}

// warnExposed warns of an address that is not a loopback address.
func warnExposed(log *slog.Logger, address, message, flag string) {
	host, _, _ := net.SplitHostPort(address)
	ip, err := netip.ParseAddr(host)
	if host == "localhost" || err == nil && ip.IsLoopback() {
		return
	}
	log.Warn(message, "address", address, "see", flag)
}

// logRequests logs each entry of the journal until the context is done.
func logRequests(ctx context.Context, cloud *fakecloud.Cloud, log *slog.Logger) {
	var f journal.Filter
	for {
		requests, err := cloud.Journal().Await(ctx, f, 1)
		if err != nil {
			return
		}
		for _, r := range requests {
			log.Debug("request", "method", r.Method, "path", wire.Printable(r.Path), "query", wire.Printable(r.Query), "status", r.Status,
				"code", r.ErrorCode, "fault", r.Fault, "duration", r.Duration, "client", wire.Printable(r.Client),
				"correlation_id", r.CorrelationID)
			f.Since = r.Seq
		}
	}
}
