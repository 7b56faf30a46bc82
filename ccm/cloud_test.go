package ccm_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/ccmtest"
)

func TestSupportedInterfaces(t *testing.T) {
	t.Parallel()
	cloud := ccm.New(ccm.Config{Network: "x"})
	if cloud.ProviderName() != "ccm-from-scratch" || !cloud.HasClusterID() {
		t.Error("name or cluster ID")
	}
	_, v2 := cloud.InstancesV2()
	_, lb := cloud.LoadBalancer()
	_, routes := cloud.Routes()
	_, v1 := cloud.Instances()
	_, zones := cloud.Zones()
	_, clusters := cloud.Clusters()
	if !v2 || lb || routes || v1 || zones || clusters {
		t.Error(v2, lb, routes, v1, zones, clusters)
	}
}

func TestCheckReportsThatThisNodeIsNotAttachedToTheNetwork(t *testing.T) {
	t.Parallel()
	api := ccmtest.NewAPI(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("name") == "none" {
			ccmtest.Reply(w, 200, `{"networks":[]}`)
			return
		}
		if strings.HasPrefix(r.URL.Path, "/networks") {
			ccmtest.Reply(w, 200, `{"networks":[{"id":`+strings.TrimPrefix(r.URL.Query().Get("name"), "n")+`,"name":"`+
				r.URL.Query().Get("name")+`"}],"meta":{"pagination":{"page":1}}}`)
			return
		}
		ccmtest.Reply(w, 200, `{"servers":[`+ccmtest.ServerJSON(1, "node-1", "running")+`],"meta":{"pagination":{"page":1}}}`)
	})
	for name, tc := range map[string]struct {
		cfg ccm.Config
		bad bool
	}{
		"attached":       {ccm.Config{Network: "n5", NodeName: "node-1"}, false},
		"not attached":   {ccm.Config{Network: "n6", NodeName: "node-1"}, true},
		"not there":      {ccm.Config{Network: "none"}, true},
		"switched off":   {ccm.Config{Network: "n6", NodeName: "node-1", NetworkCheckDisabled: true}, false},
		"node not known": {ccm.Config{Network: "n6"}, false},
		"not a server":   {ccm.Config{Network: "n6", NodeName: "laptop"}, false},
	} {
		tc.cfg.Token, tc.cfg.Endpoint, tc.cfg.RequestTimeout = "secret", api.URL, 10*time.Second
		err := ccm.New(tc.cfg, ccm.WithClock(ccmtest.NewAutoClock())).Check(t.Context())
		if (err != nil) != tc.bad || tc.bad && !strings.Contains(err.Error(), fmt.Sprintf("HCLOUD_NETWORK=%q", tc.cfg.Network)) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
