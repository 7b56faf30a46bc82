package node

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/apicall"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/ccmtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/event"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/inventory"
)

// instancesOf returns the instances of an API's servers, on a ccmtest.AutoClock and without randomness. known tells that the project is
// the cluster's.
func instancesOf(a *ccmtest.API, network string, ttl time.Duration, known bool) (*Instances, *ccmtest.AutoClock) {
	clk, reg, token := ccmtest.NewAutoClock(), prometheus.NewRegistry(), apicall.NewTokenSource("secret", "")
	client := apicall.NewClient(apicall.ClientSettings{Endpoint: a.URL, RequestTimeout: 10 * time.Second}, token, clk, reg,
		http.DefaultTransport, func() float64 { return 1 }, func(context.Context) error { return nil })
	evidence := inventory.NewEvidence(clk, reg, false, token.Token)
	if known {
		evidence.SawOne("secret")
	}
	events := event.NewRecorder()
	events.Clock, events.Sink = clk, record.NewFakeRecorder(100)
	return NewInstances(inventory.NewServers(client, clk, ttl, evidence), inventory.NewNetwork(client, clk, network), Settings{}, nil, nil,
		events, func() bool { return false }), clk
}

// eventsOf returns the events of the instances.
func eventsOf(instances *Instances) chan string {
	return instances.events.Sink.(*record.FakeRecorder).Events
}

func TestAnErrorIsNoProofThatAServerDoesNotExist(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(http.ResponseWriter){
		"401": ccmtest.Status(401, "unauthorized"), "403": ccmtest.Status(403, "forbidden"), "404 of a proxy": ccmtest.Bare(404),
		"404 with another code": ccmtest.Status(404, "firewall_resource_not_found"), "405": ccmtest.Status(405, "method_not_allowed"),
		"410": ccmtest.Status(410, "deprecated_api_endpoint"), "423": ccmtest.Status(423, "locked"),
		"429":      ccmtest.Status(429, "rate_limit_exceeded"),
		"429 bare": ccmtest.Bare(429), "500": ccmtest.Status(500, "server_error"), "502": ccmtest.Bare(502),
		"503": ccmtest.Status(503, "unavailable"), "504": ccmtest.Bare(504),
		"dropped connection": ccmtest.Abort, "body cut off": ccmtest.CutOff,
		"not JSON":       func(w http.ResponseWriter) { ccmtest.Reply(w, 200, `<html>`) },
		"empty":          func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK) },
		"404 of no JSON": func(w http.ResponseWriter) { ccmtest.Reply(w, 404, `not_found`) },

		"not_found for every path": ccmtest.Status(404, "not_found"),
		"empty object":             func(w http.ResponseWriter) { ccmtest.Reply(w, 200, `{}`) },
		"null":                     func(w http.ResponseWriter) { ccmtest.Reply(w, 200, `null`) },
		"a list without pages":     func(w http.ResponseWriter) { ccmtest.Reply(w, 200, `{"servers":[]}`) },
		"a server without an ID": func(w http.ResponseWriter) {
			ccmtest.Reply(w, 200, `{"servers":[{}],"meta":{"pagination":{"page":1}}}`)
		},
		"pages without an end": func(w http.ResponseWriter) {
			ccmtest.Reply(w, 200, `{"servers":[],"meta":{"pagination":{"page":1,"next_page":1}}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := ccmtest.NewAPI(t, func(w http.ResponseWriter, _ *http.Request) { answer(w) })
			instances, _ := instancesOf(api, "", time.Second, false)
			for _, node := range []*corev1.Node{ccmtest.Node("node-1", ccmtest.ProviderID(1)), ccmtest.Node("node-1", "")} {
				if exists, err := instances.InstanceExists(t.Context(), node); err == nil {
					t.Errorf("InstanceExists with provider ID %q: %v and no error", node.Spec.ProviderID, exists)
				}
				if shutdown, err := instances.InstanceShutdown(t.Context(), node); err == nil {
					t.Errorf("InstanceShutdown with provider ID %q: %v and no error", node.Spec.ProviderID, shutdown)
				}
				if _, err := instances.InstanceMetadata(t.Context(), node); err == nil || errors.Is(err, cloudprovider.InstanceNotFound) {
					t.Errorf("InstanceMetadata with provider ID %q: %v", node.Spec.ProviderID, err)
				}
			}
		})
	}
}

func TestInstanceExistsFollowsTheProviderID(t *testing.T) {
	t.Parallel()
	api := ccmtest.ServersAPI(t, 2, ccmtest.Running)
	instances, _ := instancesOf(api, "", time.Minute, false)
	for _, tc := range []struct {
		name, providerID string
		exists           bool
		err              string
	}{
		{"node-1", ccmtest.ProviderID(1), true, ""},
		{"renamed", ccmtest.ProviderID(1), true, ""},
		{"node-2", "", true, ""},
		{"node-1", ccmtest.ProviderID(99), false, ""},
		{"node-1", "aws:///eu-central-1a/i-0", false,
			`provider ID "aws:///eu-central-1a/i-0" starts neither with "ccm-from-scratch://" nor with "hcloud://"`},
		{"node-1", "hcloud://1", true, ""},
		{"node-1", "hcloud://99", false, ""},
		{"node-1", "hcloud://one", false, "malformed"},
		{"node-1", "hrobot://1", false, "another provider"},
		{"node-1", "ccm-from-scratch://one", false, "malformed"},
		{"node-1", "ccm-from-scratch://-1", false, "malformed"},
		{"node-1", "ccm-from-scratch://99999999999999999999", false, "malformed"},
		{"unknown", "", false, "never a server of this project"},
	} {
		exists, err := instances.InstanceExists(t.Context(), ccmtest.Node(tc.name, tc.providerID))
		if exists != tc.exists || (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s with %q: %v, %v", tc.name, tc.providerID, exists, err)
		}
	}
}

func TestOnlyAServerThatIsOffIsShutDown(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"initializing", "starting", "running", "stopping", "off", "deleting", "migrating", "rebuilding",
		"unknown"} {
		api := ccmtest.ServersAPI(t, 1, func(int) string { return status })
		instances, _ := instancesOf(api, "", 0, false)
		node := ccmtest.Node("node-1", ccmtest.ProviderID(1))
		shutdown, err := instances.InstanceShutdown(t.Context(), node)
		if err != nil || shutdown != (status == "off") {
			t.Errorf("%s: %v, %v", status, shutdown, err)
		}
		if exists, err := instances.InstanceExists(t.Context(), node); err != nil || !exists {
			t.Errorf("%s exists: %v, %v", status, exists, err)
		}
	}
}

func TestAnUnknownServerLeavesTheNodeUninitialized(t *testing.T) {
	t.Parallel()
	api := ccmtest.ServersAPI(t, 1, ccmtest.Running)
	instances, _ := instancesOf(api, "", time.Minute, true)
	for range 20 {
		_, err := instances.InstanceMetadata(t.Context(), ccmtest.Node("unknown", ""))
		if !errors.Is(err, cloudprovider.InstanceNotFound) || !strings.Contains(err.Error(), "unknown") {
			t.Fatalf("got %v", err)
		}
	}
	if n := len(api.Recorded()); n > 2 {
		t.Errorf("asking 20 times for an unknown name cost %d calls", n)
	}
	if _, err := instances.InstanceMetadata(t.Context(), ccmtest.Node("x", ccmtest.ProviderID(77))); !errors.Is(err,
		cloudprovider.InstanceNotFound) {
		t.Errorf("got %v", err)
	}
}

func TestTheErrorNamesANetworkThatDoesNotExist(t *testing.T) {
	t.Parallel()
	api := ccmtest.NewAPI(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/networks") {
			ccmtest.Reply(w, 200, `{"networks":[]}`)
			return
		}
		ccmtest.Reply(w, 200, `{"server":`+ccmtest.ServerJSON(3, "node-3", "running")+`}`)
	})
	instances, _ := instancesOf(api, "intrenal", 0, false)
	if _, err := instances.InstanceMetadata(t.Context(), ccmtest.Node("node-3", ccmtest.ProviderID(3))); err == nil ||
		!strings.Contains(err.Error(), `HCLOUD_NETWORK="intrenal"`) {
		t.Errorf("got %v", err)
	}
}

func TestADeletedServerIsNoticedWithinTheTTL(t *testing.T) {
	t.Parallel()
	var deleted atomic.Bool
	api := ccmtest.ServersAPI(t, 2, func(id int) string {
		if id == 2 && deleted.Load() {
			return ""
		}
		return "running"
	})
	instances, clk := instancesOf(api, "", 10*time.Second, false)
	node := ccmtest.Node("node-2", ccmtest.ProviderID(2))
	if exists, err := instances.InstanceExists(t.Context(), node); !exists || err != nil {
		t.Fatal(exists, err)
	}
	deleted.Store(true)
	clk.Step(10 * time.Second)
	if exists, err := instances.InstanceExists(t.Context(), node); exists || err != nil {
		t.Errorf("after the TTL: %v, %v", exists, err)
	}
	last := api.Recorded()[len(api.Recorded())-1]
	if last.Path != "/servers/2" {
		t.Errorf("concluded from %s, want a direct question", last.Path)
	}
}

func TestTheListMustConfirmThatAServerDoesNotExist(t *testing.T) {
	t.Parallel()
	list := func(servers string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			ccmtest.Reply(w, 200, `{"servers":[`+servers+`],"meta":{"pagination":{"page":1}}}`)
		}
	}
	for name, tc := range map[string]struct {
		list   func(http.ResponseWriter)
		exists bool
		err    string
	}{
		"not there":             {list(ccmtest.ServerJSON(2, "node-2", "running")), false, ""},
		"there":                 {list(ccmtest.ServerJSON(1, "node-1", "running")), true, ""},
		"not_found for it, too": {ccmtest.Status(404, "not_found"), false, "listing servers"},
		"no list":               {ccmtest.Bare(503), false, "503"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := ccmtest.NewAPI(t, func(w http.ResponseWriter, r *http.Request) {
				if strings.HasPrefix(r.URL.Path, "/servers/") {
					ccmtest.ReplyError(w, 404, "not_found")
					return
				}
				tc.list(w)
			})
			instances, _ := instancesOf(api, "", 0, true) // without a cache the server is requested before the list
			exists, err := instances.InstanceExists(t.Context(), ccmtest.Node("node-1", ccmtest.ProviderID(1)))
			if exists != tc.exists || (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%v, %v", exists, err)
			}
		})
	}
}

func TestAnAnswerAboutAnotherServerIsAnError(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{"server":` + ccmtest.ServerJSON(2, "node-2", "off") + `}`, `{}`, `{"servers":[]}`} {
		api := ccmtest.NewAPI(t, func(w http.ResponseWriter, _ *http.Request) { ccmtest.Reply(w, 200, body) })
		instances, _ := instancesOf(api, "", 0, false)
		if shutdown, err := instances.InstanceShutdown(t.Context(), ccmtest.Node("node-1", ccmtest.ProviderID(1))); err == nil {
			t.Errorf("%s: %v and no error", body, shutdown)
		}
	}
}

func TestWarningsAboutANodeAreEventsOnIt(t *testing.T) {
	t.Parallel()
	api := ccmtest.NewAPI(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/networks"):
			ccmtest.Reply(w, 200, `{"networks":[{"id":6,"name":"other"}],"meta":{"pagination":{"page":1}}}`)
		case r.URL.Path == "/servers":
			ccmtest.Reply(w, 200, `{"servers":[`+ccmtest.ServerJSON(1, "node-1", "running")+`],"meta":{"pagination":{"page":1}}}`)
		default:
			ccmtest.ReplyError(w, 404, "not_found")
		}
	})
	instances, clk := instancesOf(api, "other", time.Minute, true)
	ask := func(node *corev1.Node) {
		for range 100 {
			_, _ = instances.InstanceMetadata(t.Context(), node)
			_, _ = instances.InstanceExists(t.Context(), node)
			clk.Step(5 * time.Second)
		}
	}
	for name, tc := range map[string]struct {
		node *corev1.Node
		want string
	}{
		"of another provider": {ccmtest.Node("robot", "robot://1"),
			`Warning ForeignProviderID The node is ignored: provider ID "robot://1"`},
		"without a server": {ccmtest.Node("unknown", ""), `Warning ServerNotFound node "unknown": no server has this name`},
		"whose server is gone": {ccmtest.Node("gone", ccmtest.ProviderID(99)),
			`Warning ServerNotFound node "gone": no server for provider ID`},
		"outside of the network": {ccmtest.Node("node-1", ccmtest.ProviderID(1)),
			`Warning ServerNotAttachedToNetwork Server 1 (node-1) is not attached to network 6 (HCLOUD_NETWORK="other")`},
	} {
		ask(tc.node)
		if len(eventsOf(instances)) != 1 {
			t.Errorf("a node %s: %d events in 8 minutes, want 1", name, len(eventsOf(instances)))
			continue
		}
		if event := <-eventsOf(instances); !strings.HasPrefix(event, tc.want) {
			t.Errorf("a node %s: got %s\nwant %s", name, event, tc.want)
		}
	}
}

// Without HCLOUD_NETWORK, no server has to be attached to one.
func TestANodeWithoutANetworkIsNoReasonForAWarning(t *testing.T) {
	t.Parallel()
	instances, _ := instancesOf(ccmtest.ServersAPI(t, 1, ccmtest.Running), "", 0, false)
	if _, err := instances.InstanceMetadata(t.Context(), ccmtest.Node("node-1", ccmtest.ProviderID(1))); err != nil ||
		len(eventsOf(instances)) > 0 {
		t.Errorf("%v, %d events", err, len(eventsOf(instances)))
	}
}

// A server is made again under its name shortly after the cache saw the former one: the provider ID of a Node cannot be
// changed, so data that are older than the Node must not decide it.
func TestANewNodeIsNotTakenForTheFormerServerOfItsName(t *testing.T) {
	t.Parallel()
	id := 1
	api := ccmtest.NewAPI(t, func(w http.ResponseWriter, _ *http.Request) {
		ccmtest.Reply(w, 200, `{"servers":[`+ccmtest.ServerJSON(id, "node-1", "running")+`],"meta":{"pagination":{"page":1}}}`)
	})
	instances, clk := instancesOf(api, "", 10*time.Second, false)
	register := func() *corev1.Node {
		n := ccmtest.Node("node-1", "")
		n.CreationTimestamp = metav1.NewTime(clk.Now().Truncate(time.Second)) // as the API server writes it
		n.Spec.Taints = []corev1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider}}
		return n
	}
	providerIDOf := func(n *corev1.Node) string {
		t.Helper()
		meta, err := instances.InstanceMetadata(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		return meta.ProviderID
	}
	if got := providerIDOf(register()); got != ccmtest.ProviderID(1) {
		t.Fatal(got)
	}
	id = 2
	clk.Step(200 * time.Millisecond)
	n := register()
	if got := providerIDOf(n); got != ccmtest.ProviderID(2) {
		t.Errorf("the Node has the provider ID %s, want that of the server that there is now", got)
	}
	calls := len(api.Recorded())
	clk.Step(10 * time.Second) // the largest difference between two clocks
	providerIDOf(n)
	clk.Step(time.Minute)
	if providerIDOf(n); len(api.Recorded()) != calls+1 {
		t.Errorf("%d calls, want that data from after the creation serve", len(api.Recorded())-calls)
	}
}

func TestRequestsAboutNodesGetTwoAttempts(t *testing.T) {
	t.Parallel()
	api := ccmtest.NewAPI(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })
	instances, _ := instancesOf(api, "", time.Second, false)
	for _, node := range []string{ccmtest.ProviderID(1), ""} {
		before := len(api.Recorded())
		if _, err := instances.InstanceExists(t.Context(), ccmtest.Node("node-1", node)); err == nil {
			t.Error("no error")
		}
		if n := len(api.Recorded()) - before; n != 2 {
			t.Errorf("provider ID %q: %d requests, want 2", node, n)
		}
	}
}
