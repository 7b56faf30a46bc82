package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	neturl "net/url"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/doors/guests"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/wire"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/remote"
)

// newGuestCommand returns the command that shows guests.
func newGuestCommand() *cobra.Command {
	const short = "Print where the guests of --guests answer SSH, or what that of a server was told"
	return newClientCommand("guest [SERVER]", short, arguments(0, 1),
		func(cmd *cobra.Command, cloud *remote.Client, args []string) error {
			text, err := cloud.Door(cmd.Context(), "guests", neturl.Values{"server": args})
			if e, ok := errors.AsType[*remote.Error](err); ok && e.Status == http.StatusNotFound && !e.Foreign {
				return errors.New("the server has no guests; start it with fakecloud start --guests")
			}
			var shown struct {
				Guests []guests.Guest `json:"guests"`
			}
			if err == nil {
				err = json.Unmarshal(text, &shown)
			}
			if err == nil && len(args) > 0 && len(shown.Guests) == 0 {
				err = fmt.Errorf("%q: no server with this name or id has a guest; fakecloud guest lists all", args[0])
			}
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			for _, g := range shown.Guests {
				showGuest(w, g)
			}
			return w.Flush()
		})
}

// showGuest writes a line about a guest, and a line for each command.
func showGuest(w *tabwriter.Writer, g guests.Guest) {
	connect := "does not answer: the server does not run, or boots"
	if host, port, err := net.SplitHostPort(g.Address); err == nil {
		connect = fmt.Sprintf("ssh -p %s root@%s", port, host)
	}
	if g.Rescue {
		connect += " (rescue system)"
	}
	fmt.Fprintf(w, "%d\t%s\t%s\n", g.Server, wire.Printable(g.Name), connect)
	for _, e := range g.Log {
		fmt.Fprintf(w, "%s\t%s\texit %d\t%s\n", e.Time.Format(time.RFC3339), e.Kind, e.ExitCode, wire.Printable(e.Command))
	}
}
