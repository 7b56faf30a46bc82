package ccm

import (
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/ccmtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// An ID that looks wrong is confirmed at most once in maxNetworkAge: a server that is not attached is asked about often.
func TestTheNetworkIsAskedForAgainWhenItLooksWrong(t *testing.T) {
	t.Parallel()
	id := int64(5)
	api := ccmtest.NewAPI(t, func(w http.ResponseWriter, _ *http.Request) {
		if id == 0 {
			ccmtest.Reply(w, 200, `{"networks":[]}`)
			return
		}
		ccmtest.Reply(w, 200, fmt.Sprintf(`{"networks":[{"id":%d,"name":"internal"}]}`, id))
	})
	cloud, clk := cloudOf(api, Config{Network: "internal"})
	expect := func(when string, want int64, calls int, resolve func() (int64, error)) {
		t.Helper()
		before := len(api.Recorded())
		got, err := resolve()
		if n := len(api.Recorded()) - before; got != want || (err != nil) != (want == 0) || n != calls {
			t.Errorf("%s: %d with %d calls, want %d with %d; %v", when, got, n, want, calls, err)
		}
	}
	known := func() (int64, error) { return cloud.network.ID(t.Context()) }
	confirmed := func() (int64, error) { return cloud.network.confirm(t.Context()) }
	expect("the first time", 5, 1, known)
	id = 6
	clk.Step(maxNetworkAge - time.Second)
	expect("it looks wrong soon after", 5, 0, confirmed)
	clk.Step(time.Second)
	expect("it does not look wrong", 5, 0, known)
	expect("it looks wrong later", 6, 1, confirmed)
	expect("after that", 6, 0, known)
	cloud.network.forget()
	expect("it is forgotten", 6, 1, known)
	id = 0
	clk.Step(time.Hour)
	expect("it is gone", 0, 1, confirmed)
	expect("it is still gone", 0, 1, known)
}

func TestTheAddressesOfAServer(t *testing.T) {
	t.Parallel()
	attached := func(id int64, ip net.IP) hcloud.ServerPrivateNet {
		return hcloud.ServerPrivateNet{Network: &hcloud.Network{ID: id}, IP: ip}
	}
	server := &hcloud.Server{PrivateNet: []hcloud.ServerPrivateNet{{IP: net.ParseIP("10.0.0.9")}, attached(6, net.ParseIP("10.6.0.1")), attached(5, nil), attached(5, net.ParseIP("10.5.0.1"))}}
	for id, want := range map[int64]string{5: "10.5.0.1", 6: "10.6.0.1", 7: "invalid IP"} {
		if got := nodeinfo.PrivateIP(server, id); got.String() != want {
			t.Errorf("network %d: %s, want %s", id, got, want)
		}
	}
	if v4, v6 := nodeinfo.PublicIPv4(server), nodeinfo.PublicIPv6(server); v4.IsValid() || v6.IsValid() {
		t.Errorf("a server without a public interface has %s, %s", v4, v6)
	}
}
