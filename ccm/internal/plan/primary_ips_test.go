package plan

import (
	"errors"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

func TestAPrimaryIPIsNamedByItsIDOrItsName(t *testing.T) {
	t.Parallel()
	all := []*hcloud.PrimaryIP{{ID: 7, Name: "edge"}, {ID: 8, Name: "7"}, {ID: 9, Name: "spare"}}
	for name, want := range map[string]int64{"7": 7, "8": 8, "edge": 7, "spare": 9, "10": 0, "": 0} {
		if got := FindPrimaryIP(all, name); (got == nil) != (want == 0) || got != nil && got.ID != want {
			t.Errorf("%q: %+v, want %d", name, got, want)
		}
	}
}

func TestAPrimaryIPThatDoesNotFit(t *testing.T) {
	t.Parallel()
	fsn, nbg := &hcloud.Location{Name: "fsn1"}, &hcloud.Location{Name: "nbg1"}
	ok := hcloud.PrimaryIP{Type: hcloud.PrimaryIPTypeIPv4, Location: fsn}
	for want, tc := range map[string]struct {
		change   func(*hcloud.PrimaryIP)
		settings Settings
	}{
		"":                                   {func(*hcloud.PrimaryIP) {}, Settings{Location: "fsn1"}},
		"is of type ipv6":                    {func(p *hcloud.PrimaryIP) { p.Type = hcloud.PrimaryIPTypeIPv6 }, Settings{}},
		"is assigned to server 7":            {func(p *hcloud.PrimaryIP) { p.AssigneeID, p.AssigneeType = 7, "server" }, Settings{}},
		"is blocked":                         {func(p *hcloud.PrimaryIP) { p.Blocked = true }, Settings{}},
		"is in location nbg1":                {func(p *hcloud.PrimaryIP) { p.Location = nbg }, Settings{Location: "fsn1"}},
		"contradicts disable-public-network": {func(*hcloud.PrimaryIP) {}, Settings{DisablePublicNetwork: true}},
	} {
		ip := ok
		tc.change(&ip)
		got := UnfitPrimaryIP(&ip, hcloud.PrimaryIPTypeIPv4, &tc.settings)
		if !strings.HasPrefix(got, want) || (want == "") != (got == "") {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// public-net-ipv4 and -ipv6 are the names of the production CCM, since its version 1.39.
func TestAnAnnotationWithTwoNames(t *testing.T) {
	t.Parallel()
	const ours, theirs = AnnotationPrefix + "primary-ipv4", AnnotationPrefix + "public-net-ipv4"
	for name, tc := range map[string]struct {
		set          map[string]string
		want, source string
	}{
		"ours":          {map[string]string{ours: "7"}, "7", ""},
		"theirs":        {map[string]string{theirs: "7"}, "7", ""},
		"both, equal":   {map[string]string{ours: "7", theirs: "7"}, "7", ""},
		"both, unequal": {map[string]string{ours: "7", theirs: "8"}, "7", theirs},
		"a wrong value": {map[string]string{theirs: ""}, "", theirs},
	} {
		s, unknown, mistakes := ParseAnnotations(tc.set, nil)
		if s.PrimaryIPv4 != tc.want || len(unknown) > 0 || (len(mistakes) == 0) != (tc.source == "") {
			t.Errorf("%s: got %q, unknown %v, %v", name, s.PrimaryIPv4, unknown, mistakes)
		}
		for _, m := range mistakes {
			if e, _ := errors.AsType[AnnotationError](m); e.Source != tc.source || e.Setting() != "primary-ipv4" {
				t.Errorf("%s: the mistake is that of %s, setting %s", name, e.Source, e.Setting())
			}
		}
	}
}
