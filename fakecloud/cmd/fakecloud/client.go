package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	neturl "net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/remote"
)

// The API and the control API are here if nothing says otherwise.
const defaultListen, defaultControl = "127.0.0.1:4242", "127.0.0.1:4243"

// clientFlags say which running cloud a command is about.
type clientFlags struct{ control, stateFile string }

func (c *clientFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.control, "control", "",
		"address of the control API, `host:port` (default: that of fakecloud start, else "+defaultControl+")")
	c.addStateFile(cmd)
}

func (c *clientFlags) addStateFile(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.stateFile, "state-file", "",
		"`file` in which fakecloud start keeps what runs (default: fakecloud/server.json in the user's cache directory)")
}

// errNotStarted is the error of a command that needs a server of fakecloud start.
var errNotStarted = errors.New("no server of fakecloud start runs; start one with fakecloud start")

// url returns the URL of the control API. Port 0, such as of the variable FAKECLOUD_CONTROL, is that which a server has chosen.
// The error is errNotStarted if the state file was named, and its server does not run.
func (c *clientFlags) url() (string, error) {
	control := c.control
	if control == "" || strings.HasSuffix(control, ":0") {
		s, err := c.server()
		switch {
		case err == nil && s != nil:
			return s.Control, nil
		case err == nil && c.stateFile != "":
			return "", errNotStarted
		case err != nil && c.stateFile != "":
			return "", err
		}
		control = defaultControl
	}
	if strings.HasPrefix(control, "http://") {
		return control, nil
	}
	return controlURL(control)
}

// controlURL returns the URL of the control API at an address of the flag --control.
func controlURL(control string) (string, error) {
	if control == off {
		return "", wrongUsage(fmt.Errorf("the control API is %s; set --control to its address", off))
	}
	host, port, err := net.SplitHostPort(control)
	if err != nil {
		return "", wrongUsage(fmt.Errorf("--control %q: must be host:port, such as %s", control, defaultControl))
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port), nil
}

// answered is an error in the words of the cloud.
type answered struct{ error }

// explain returns an error of a request to the control API at a URL without the request: it says what to do.
func explain(url string, err error) error {
	if e, ok := errors.AsType[*remote.Error](err); ok {
		if e.Foreign {
			return fmt.Errorf("%s is not a control API: it answered %d; name its address with --control", url, e.Status)
		}
		err = answered{errors.New(e.Message)}
		if e.Status == http.StatusBadRequest {
			err = wrongUsage(err)
		}
	} else if e, ok := errors.AsType[*neturl.Error](err); ok {
		err = fmt.Errorf("no cloud answers at %s: start one with fakecloud start, or name its control API with --control (%w)", url, e.Err)
	}
	return err
}

// named returns an error that begins with the command's name. The words of the cloud name their subject already.
func named(cmd *cobra.Command, err error) error {
	name, sub := strings.CutPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
	if _, ok := errors.AsType[answered](err); ok || !sub || err == nil {
		return err
	}
	return fmt.Errorf("%s: %w", name, err)
}

// newClientCommand returns a command that does one thing to a running cloud.
func newClientCommand(use, short string, args cobra.PositionalArgs,
	run func(cmd *cobra.Command, cloud *remote.Client, args []string) error) *cobra.Command {
	var flags clientFlags
	cmd := &cobra.Command{Use: use, Short: short, Args: args}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		url, err := flags.url()
		if err == nil {
			err = explain(url, run(cmd, remote.New(url), args))
		}
		return named(cmd, err)
	}
	flags.add(cmd)
	return cmd
}
