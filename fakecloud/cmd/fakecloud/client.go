package main

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/remote"
)

// defaultControl is where the control API is if nothing says otherwise.
const defaultControl = "127.0.0.1:4243"

// clientFlags say which running cloud a command is about.
type clientFlags struct{ control, stateFile string }

func (c *clientFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.control, "control", "",
		"address of the control API, `host:port` (default: that of the server of fakecloud start, else "+defaultControl+")")
	c.addStateFile(cmd)
}

func (c *clientFlags) addStateFile(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.stateFile, "state-file", "",
		"`file` in which fakecloud start keeps what runs (default: fakecloud/server.json in the user's cache directory)")
}

// client returns a client of the control API.
func (c *clientFlags) client() (*remote.Client, error) {
	url, err := c.url()
	if err != nil {
		return nil, err
	}
	return remote.New(url), nil
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
		return "", fmt.Errorf("the control API is %s; set --control to its address", off)
	}
	host, port, err := net.SplitHostPort(control)
	if err != nil {
		return "", fmt.Errorf("--control: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port), nil
}

// newClientCommand returns a command that does one thing to a running cloud. An error of it begins with the command's name.
func newClientCommand(use, short string, args cobra.PositionalArgs,
	run func(cmd *cobra.Command, cloud *remote.Client, args []string) error) *cobra.Command {
	var flags clientFlags
	cmd := &cobra.Command{Use: use, Short: short, Args: args}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cloud, err := flags.client()
		if err == nil {
			err = run(cmd, cloud, args)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" "), err)
		}
		return nil
	}
	flags.add(cmd)
	return cmd
}
