package api_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

func TestEveryActionOfAServerOverTheWire(t *testing.T) {
	t.Parallel()
	client, w := newWireClient(t, fakecloud.Options{Actions: "1s"})
	ctx := t.Context()
	group := must(client.PlacementGroup.Create(ctx,
		hcloud.PlacementGroupCreateOpts{Name: "g", Type: hcloud.PlacementGroupTypeSpread}))(t).PlacementGroup
	iso := must(client.ISO.List(ctx, hcloud.ISOListOpts{Architecture: []hcloud.Architecture{hcloud.ArchitectureX86}}))(t)[0]
	s := must(client.Server.Create(ctx, serverOpts("a")))(t).Server
	w.clock.Step(time.Minute)
	off := func() {
		must(client.Server.Poweroff(ctx, s))(t)
		w.clock.Step(time.Second)
	}
	yes, no := true, false
	ptr, description := "a.example.com", "my image"
	for _, c := range []struct {
		command string
		before  func()
		do      func() (*hcloud.Action, *hcloud.Response, error)
		done    func(*hcloud.Server) bool
	}{
		{
			"stop_server", nil,
			func() (*hcloud.Action, *hcloud.Response, error) { return client.Server.Poweroff(ctx, s) },
			func(s *hcloud.Server) bool { return s.Status == hcloud.ServerStatusOff },
		},
		{
			"start_server", nil,
			func() (*hcloud.Action, *hcloud.Response, error) { return client.Server.Poweron(ctx, s) },
			func(s *hcloud.Server) bool { return s.Status == hcloud.ServerStatusRunning },
		},
		{
			"reboot_server", nil,
			func() (*hcloud.Action, *hcloud.Response, error) { return client.Server.Reboot(ctx, s) }, nil,
		},
		{
			"reset_server", nil,
			func() (*hcloud.Action, *hcloud.Response, error) { return client.Server.Reset(ctx, s) }, nil,
		},
		{
			"change_server_type", off,
			func() (*hcloud.Action, *hcloud.Response, error) {
				return client.Server.ChangeType(ctx, s, hcloud.ServerChangeTypeOpts{ServerType: &hcloud.ServerType{Name: "cx33"},
					UpgradeDisk: false})
			},
			func(s *hcloud.Server) bool {
				return s.ServerType.Name == "cx33" && s.PrimaryDiskSize < s.ServerType.Disk && s.Status == hcloud.ServerStatusRunning
			},
		},
		{
			"add_to_placement_group", off,
			func() (*hcloud.Action, *hcloud.Response, error) {
				return client.Server.AddToPlacementGroup(ctx, s, group)
			},
			func(s *hcloud.Server) bool { return s.PlacementGroup != nil && s.PlacementGroup.Servers[0] == s.ID },
		},
		{
			"remove_from_placement_group", nil,
			func() (*hcloud.Action, *hcloud.Response, error) {
				return client.Server.RemoveFromPlacementGroup(ctx, s)
			},
			func(s *hcloud.Server) bool { return s.PlacementGroup == nil },
		},
		{
			"rebuild_server", nil,
			func() (*hcloud.Action, *hcloud.Response, error) {
				out, resp, err := client.Server.RebuildWithResult(ctx, s,
					hcloud.ServerRebuildOpts{Image: &hcloud.Image{Name: "ubuntu-24.04"}})
				if err == nil && out.RootPassword == "" {
					err = errors.New("no password")
				}
				return out.Action, resp, err
			},
			func(s *hcloud.Server) bool { return s.Image.Name == "ubuntu-24.04" },
		},
		{
			"enable_backup", nil,
			func() (*hcloud.Action, *hcloud.Response, error) { return client.Server.EnableBackup(ctx, s, "") },
			func(s *hcloud.Server) bool { return s.BackupWindow != "" },
		},
		{
			"create_image", nil,
			func() (*hcloud.Action, *hcloud.Response, error) {
				out, resp, err := client.Server.CreateImage(ctx, s, &hcloud.ServerCreateImageOpts{
					Type: hcloud.ImageTypeBackup, Description: &description, Labels: map[string]string{"a": "b"},
				})
				if err == nil && (out.Image.Status != hcloud.ImageStatusCreating || out.Image.Description != description ||
					out.Image.BoundTo.ID != s.ID) {
					err = fmt.Errorf("image %+v", out.Image)
				}
				return out.Action, resp, err
			},
			nil,
		},
		{
			"disable_backup", nil,
			func() (*hcloud.Action, *hcloud.Response, error) { return client.Server.DisableBackup(ctx, s) },
			func(s *hcloud.Server) bool { return s.BackupWindow == "" },
		},
		{
			"attach_iso", nil,
			func() (*hcloud.Action, *hcloud.Response, error) { return client.Server.AttachISO(ctx, s, iso) },
			func(s *hcloud.Server) bool { return s.ISO != nil && s.ISO.ID == iso.ID },
		},
		{
			"detach_iso", nil,
			func() (*hcloud.Action, *hcloud.Response, error) { return client.Server.DetachISO(ctx, s) },
			func(s *hcloud.Server) bool { return s.ISO == nil },
		},
		{
			"enable_rescue", nil,
			func() (*hcloud.Action, *hcloud.Response, error) {
				out, resp, err := client.Server.EnableRescue(ctx, s, hcloud.ServerEnableRescueOpts{Type: hcloud.ServerRescueTypeLinux64})
				if err == nil && out.RootPassword == "" {
					err = errors.New("no password")
				}
				return out.Action, resp, err
			},
			func(s *hcloud.Server) bool { return s.RescueEnabled },
		},
		{
			"disable_rescue", nil,
			func() (*hcloud.Action, *hcloud.Response, error) { return client.Server.DisableRescue(ctx, s) },
			func(s *hcloud.Server) bool { return !s.RescueEnabled },
		},
		{
			"reset_password", nil,
			func() (*hcloud.Action, *hcloud.Response, error) {
				out, resp, err := client.Server.ResetPassword(ctx, s)
				if err == nil && out.RootPassword == "" {
					err = errors.New("no password")
				}
				return out.Action, resp, err
			},
			nil,
		},
		{
			"request_console", nil,
			func() (*hcloud.Action, *hcloud.Response, error) {
				out, resp, err := client.Server.RequestConsole(ctx, s)
				if err == nil && (!strings.HasPrefix(out.WSSURL, "wss://") || out.Password == "") {
					err = fmt.Errorf("console %+v", out)
				}
				return out.Action, resp, err
			},
			nil,
		},
		{
			"change_dns_ptr", nil,
			func() (*hcloud.Action, *hcloud.Response, error) {
				return client.Server.ChangeDNSPtr(ctx, s, s.PublicNet.IPv4.IP.String(), &ptr)
			},
			func(s *hcloud.Server) bool { return s.PublicNet.IPv4.DNSPtr == ptr },
		},
		{
			"change_protection", nil,
			func() (*hcloud.Action, *hcloud.Response, error) {
				return client.Server.ChangeProtection(ctx, s, hcloud.ServerChangeProtectionOpts{Delete: &yes, Rebuild: &yes})
			},
			func(s *hcloud.Server) bool { return s.Protection.Delete && s.Protection.Rebuild },
		},
	} {
		if c.before != nil {
			c.before()
		}
		action := must(c.do())(t)
		if action.Command != c.command || action.Status != hcloud.ActionStatusRunning || action.Resources[0].ID != s.ID {
			t.Errorf("%s: %+v", c.command, action)
		}
		if locked := getServer(t, client, s.ID).Locked; locked == (c.command == "change_dns_ptr") { // of both addresses at once
			t.Errorf("%s: the server is locked: %t", c.command, locked)
		}
		w.clock.Step(time.Second)
		if action = must(client.Server.Action.GetByID(ctx, action.ID))(t); action.Status != hcloud.ActionStatusSuccess ||
			action.Progress != 100 {
			t.Errorf("%s: %+v", c.command, action)
		}
		if now := getServer(t, client, s.ID); now.Locked || c.done != nil && !c.done(now) {
			t.Errorf("%s has no effect: %+v", c.command, now)
		}
	}
	_, _, err := client.Server.DeleteWithResult(ctx, s)
	wantError(t, "delete", err, http.StatusLocked, hcloud.ErrorCodeProtected)
	must(client.Server.ChangeProtection(ctx, s, hcloud.ServerChangeProtectionOpts{Delete: &no, Rebuild: &no}))(t)
	w.clock.Step(time.Second)
	must(client.Server.DeleteWithResult(ctx, s))(t)
}
