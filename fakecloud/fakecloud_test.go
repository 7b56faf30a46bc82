package fakecloud_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

const testKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl test"

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func TestWrongOptionsAreErrors(t *testing.T) {
	t.Parallel()
	for say, o := range map[string]fakecloud.Options{
		"must be instant": {Actions: "fast"},
		"must be a day":   {APIDate: "yesterday"},
		"rate limit -1":   {RateLimit: -1},
		"token":           {Tokens: []string{"a b"}},
		"PublicIPv4":      {PublicIPv4: prefix("2001:db8::/32")},
		"PublicIPv6":      {PublicIPv6: prefix("2001:db8::/96")},
		"LoadBalancerIPv": {LoadBalancerIPv4: prefix("127.0.0.1/32")},

		"Router.Table is required":       {Router: &fakecloud.RouterOptions{}},
		"Reserved: a range is not valid": {Reserved: []netip.Prefix{{}}},
		"ProjectTTL -1ns: must":          {ProjectTTL: -1},
	} {
		if c, err := fakecloud.Open(o); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%+v: %v, want %q", o, err, say)
			c.Close()
		}
	}
}

func TestAClientSeesARunningActionProgress(t *testing.T) {
	t.Parallel()
	c := newCloud(t, fakecloud.Options{Actions: "60s"})
	check(t, c.SetSpeed(t.Context(), 0))
	client := c.Client()
	server, _, err := client.Server.Create(t.Context(), serverOpts("one"))
	if err != nil || server.Action.Progress != 0 {
		t.Fatalf("%+v, %v", server.Action, err)
	}
	for _, want := range []int{0, 25, 50, 75, 100} {
		one, _, err := client.Server.Action.GetByID(t.Context(), server.Action.ID)
		if err != nil || one.Progress != want {
			t.Errorf("an action at %d %%: %+v, %v", want, one, err)
		}
		all, err := client.Server.Action.All(t.Context(), hcloud.ActionListOpts{})
		if err != nil || len(all) == 0 || all[0].Progress != want {
			t.Errorf("a list at %d %%: %+v, %v", want, all, err)
		}
		check(t, c.Step(t.Context(), 15*time.Second))
	}
}
