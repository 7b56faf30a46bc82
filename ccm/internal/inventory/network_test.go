package inventory

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/apicall"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/ccmtest"
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
	clk := ccmtest.NewAutoClock()
	network := NewNetwork(testClientOf(api, apicall.NewTokenSource("secret", ""), clk, prometheus.NewRegistry()), clk, "internal")
	expect := func(when string, want int64, calls int, resolve func() (int64, error)) {
		t.Helper()
		before := len(api.Recorded())
		got, err := resolve()
		if n := len(api.Recorded()) - before; got != want || (err != nil) != (want == 0) || n != calls {
			t.Errorf("%s: %d with %d calls, want %d with %d; %v", when, got, n, want, calls, err)
		}
	}
	known := func() (int64, error) { return network.ID(t.Context()) }
	confirmed := func() (int64, error) { return network.Confirm(t.Context()) }
	expect("the first time", 5, 1, known)
	id = 6
	clk.Step(maxNetworkAge - time.Second)
	expect("it looks wrong soon after", 5, 0, confirmed)
	clk.Step(time.Second)
	expect("it does not look wrong", 5, 0, known)
	expect("it looks wrong later", 6, 1, confirmed)
	expect("after that", 6, 0, known)
	network.Forget()
	expect("it is forgotten", 6, 1, known)
	id = 0
	clk.Step(time.Hour)
	expect("it is gone", 0, 1, confirmed)
	expect("it is still gone", 0, 1, known)
}
