package example_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud/example"
)

func TestEffectsOfFaults(t *testing.T) {
	t.Parallel()
	for effect, tc := range map[string]struct {
		status int
		answer string
		// created says that the instance is there afterwards.
		created bool
	}{
		example.Unavailable:  {503, `"code":"unavailable"`, false},
		example.Internal:     {500, `"code":"internal"`, false},
		example.Unauthorized: {401, `"code":"unauthorized"`, false},
		example.Forbidden:    {403, `"code":"forbidden"`, false},
		example.RateLimited:  {429, `"code":"rate_limited"`, false},
		example.Busy:         {409, `"code":"busy"`, false},
		example.Garbage:      {200, "<html>", false},
		example.Drop:         {0, "EOF", false},
		example.LoseAnswer:   {0, "EOF", true},
		example.NothingFound: {201, `"instance":`, true}, // it has no ID
		example.EmptyLists:   {201, `"instance":`, true},
	} {
		t.Run(effect, func(t *testing.T) {
			t.Parallel()
			c, s := newCloud(t, example.Options{})
			if _, err := c.AddFault(example.Fault{UserAgent: "my-ccm", Effect: effect}); err != nil {
				t.Fatal(err)
			}
			status, answer := send(t, s, "POST", example.Path+"/instances", `{"name": "node-1"}`, "User-Agent", "my-ccm/1")
			if status != tc.status || !strings.Contains(answer, tc.answer) {
				t.Errorf("got %d %s, want %d %s", status, answer, tc.status, tc.answer)
			}
			if all := c.Instances(); (len(all) == 1) != tc.created {
				t.Errorf("there are the instances %v", all)
			}
		})
	}
}

func TestNothingFoundAndEmptyLists(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	c, s := newCloud(t, example.Options{})
	i, err := c.CreateInstance("node-1")
	g.Expect(err).NotTo(HaveOccurred())
	get := func(path string) string {
		_, answer := send(t, s, "GET", example.Path+path, "", "User-Agent", "my-ccm/1")
		return strings.TrimSpace(answer)
	}
	name, err := c.AddFault(example.Fault{UserAgent: "my-ccm", Effect: example.NothingFound})
	g.Expect(err).NotTo(HaveOccurred())
	if one, all := get("/instances/"+i.ID), get("/instances"); !strings.Contains(one, `"instance_not_found"`) || !strings.Contains(all, i.ID) {
		t.Errorf("nothing found: %s and %s", one, all)
	}
	if !c.RemoveFault(name) || c.RemoveFault(name) {
		t.Error("a fault is there once")
	}
	_, err = c.AddFault(example.Fault{UserAgent: "my-ccm", Effect: example.EmptyLists})
	g.Expect(err).NotTo(HaveOccurred())
	for _, list := range []string{"instances", "load_balancers", "listeners", "routes"} {
		if got, want := get("/"+strings.ReplaceAll(list, "_", "-")), `{"`+list+`":[]}`; got != want {
			t.Errorf("empty lists: got %s, want %s", got, want)
		}
	}
	if one := get("/instances/" + i.ID); !strings.Contains(one, "node-1") {
		t.Errorf("empty lists: %s", one)
	}
}

func TestAFaultSelectsRequests(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fault             example.Fault
		method, path      string
		agent             string
		first, then, last bool
	}{
		"all":             {example.Fault{}, "GET", "/instances", "my-ccm", true, true, true},
		"two":             {example.Fault{First: 2}, "GET", "/instances", "my-ccm", true, true, false},
		"another client":  {example.Fault{}, "GET", "/instances", "other", false, false, false},
		"reads":           {example.Fault{Reads: true}, "GET", "/routes", "my-ccm", true, true, true},
		"no writes":       {example.Fault{Reads: true}, "POST", "/instances", "my-ccm", false, false, false},
		"writes":          {example.Fault{Writes: true}, "POST", "/load-balancers", "my-ccm", true, true, true},
		"no reads":        {example.Fault{Writes: true}, "GET", "/load-balancers", "my-ccm", false, false, false},
		"both":            {example.Fault{Reads: true, Writes: true}, "GET", "/load-balancers", "my-ccm", true, true, true},
		"listeners":       {example.Fault{About: example.AboutLoadBalancers}, "GET", "/listeners", "my-ccm", true, true, true},
		"about others":    {example.Fault{About: example.AboutRoutes}, "GET", "/instances", "my-ccm", false, false, false},
		"an unknown path": {example.Fault{}, "GET", "/nothing", "my-ccm", true, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, s := newCloud(t, example.Options{})
			tc.fault.UserAgent, tc.fault.Effect = "my-ccm", example.Internal
			if _, err := c.AddFault(tc.fault); err != nil {
				t.Fatal(err)
			}
			met := 0
			for i, want := range []bool{tc.first, tc.then, tc.last} {
				status, answer := send(t, s, tc.method, example.Path+tc.path, "", "User-Agent", tc.agent+"/1")
				if (status == 500) != want {
					t.Errorf("request %d: %d %s, want a fault: %v", i, status, answer, want)
				}
				if want {
					met++
				}
			}
			if got := c.Faults()[0].Met; got != met {
				t.Errorf("%d requests have met the fault, want %d", got, met)
			}
		})
	}
}

func TestWrongFaultsAreRefused(t *testing.T) {
	t.Parallel()
	c, _ := newCloud(t, example.Options{})
	for want, f := range map[string]example.Fault{
		"user_agent": {Effect: example.Hang},
		"effect":     {UserAgent: "x", Effect: "slow"},
		"about":      {UserAgent: "x", Effect: example.Hang, About: "pods"},
	} {
		if name, err := c.AddFault(f); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %s, %v", f, name, err)
		}
	}
}

// TestARequestThatHangsIsSeen shows that a request is recorded when it arrives, and that it ends with the cloud.
func TestARequestThatHangsIsSeen(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	c, s := newCloud(t, example.Options{})
	g.Expect(c.AddFault(example.Fault{UserAgent: "my-ccm", Effect: example.Hang, First: 1})).Error().NotTo(HaveOccurred())
	status := make(chan int)
	go func() { status <- first(send(t, s, "GET", example.Path+"/instances", "", "User-Agent", "my-ccm/1")) }()
	g.Eventually(func() []example.Request { return c.Requests(0) }, 5*time.Second, time.Millisecond).Should(HaveLen(1))
	g.Expect(c.Requests(0)[0].String()).To(Equal("GET /instances → no answer"))
	g.Consistently(status, 50*time.Millisecond).ShouldNot(Receive())
	g.Expect(c.Close()).To(Succeed())
	g.Eventually(status, 5*time.Second).Should(Receive(Equal(0)))
	g.Expect(c.Requests(0)[0].String()).To(Equal("GET /instances → no answer, fault hang"))
}

func first(status int, _ string) int { return status }

func TestRequestsSayWhatTheyAreAbout(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	c, s := newCloud(t, example.Options{})
	i, err := c.CreateInstance("node-1")
	g.Expect(err).NotTo(HaveOccurred())
	b, err := c.CreateLoadBalancer("web", example.Region)
	g.Expect(err).NotTo(HaveOccurred())
	l, err := c.CreateListener("web", 8080, nil)
	g.Expect(err).NotTo(HaveOccurred())
	for _, tc := range []struct{ method, path, body, kind, about, id, text string }{
		{"GET", "/instances/" + i.ID, "", "GET /instances/{id}", "instances", i.ID, "GET /instances/" + i.ID + " → 200"},
		{"GET", "/load-balancers/web", "", "GET /load-balancers/{name}", "load-balancers", b.ID, "GET /load-balancers/web → 200"},
		{"DELETE", "/listeners/" + l.ID, "", "DELETE /listeners/{listener}", "load-balancers", b.ID,
			"DELETE /listeners/" + l.ID + " → 200"},
		{"DELETE", "/load-balancers/web", "", "DELETE /load-balancers/{name}", "load-balancers", b.ID, "DELETE /load-balancers/web → 200"},
		{"PUT", "/routes/10.244.1.0/24", `{"instance": "` + i.ID + `"}`, "PUT /routes/{prefix...}", "routes", "", "PUT /routes/10.244.1.0/24 → 200"},
		{"GET", "/pods", "", "unknown path", "", "", "GET /pods → 404"},
	} {
		send(t, s, tc.method, example.Path+tc.path, tc.body)
		all := c.Requests(0)
		last := all[len(all)-1]
		if last.Kind != tc.kind || last.About != tc.about || last.ID != tc.id || last.String() != tc.text ||
			last.Write() != (tc.method != "GET") {
			t.Errorf("got %+v %s, want %+v", last, last, tc)
		}
	}
}

func TestTheJournalForgets(t *testing.T) {
	t.Parallel()
	c, _ := newCloud(t, example.Options{})
	handler := c.Handler()
	const sent = 45_000
	for range sent {
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/x", nil))
	}
	all := c.Requests(0)
	if len(all) < 10_000 || len(all) > 20_000 || all[len(all)-1].Seq != sent || all[0].Seq != sent-uint64(len(all))+1 ||
		all[0].Status != 401 {
		t.Errorf("%d requests, from %+v to %+v", len(all), all[0], all[len(all)-1])
	}
	if after := c.Requests(sent - 3); len(after) != 3 || after[0].Seq != sent-2 {
		t.Errorf("after: %v", after)
	}
}
