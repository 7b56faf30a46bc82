package cloudtest

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
)

func recorded(t *testing.T, s *suite) {
	g, c := NewWithT(t), s.start(t)
	recorder := optional[cloud.Recorder](t, c)
	ctx := t.Context()
	server(t, c, "node-1")
	g.Expect(recorder.Requests(ctx, 0)).To(BeEmpty(), "what the driver does is recorded as if the CCM had done it")
	if s.config.ListServers == nil {
		t.Skip("Config.ListServers is nil: no request can be sent")
	}
	g.Expect(s.config.ListServers(ctx, c, "someone-else/1")).To(Succeed())
	g.Expect(recorder.Requests(ctx, 0)).To(BeEmpty(), "requests of other clients are recorded")
	before := time.Now()
	for range 2 {
		g.Expect(s.config.ListServers(ctx, c, UserAgent+"/1")).To(Succeed())
	}
	all, err := recorder.Requests(ctx, 0)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(all).To(HaveLen(2))
	g.Expect(all[0]).To(And(HaveField("Write", false), HaveField("About", cloud.AboutServers), HaveField("ID", "")))
	g.Expect(all[0].Text).NotTo(BeEmpty())
	g.Expect(all[0].Kind).To(And(Not(BeEmpty()), Equal(all[1].Kind)))
	g.Expect(all[0].Time).To(BeTemporally("~", before, time.Minute))
	g.Expect(all[1].Seq).To(BeNumerically(">", all[0].Seq))
	g.Expect(recorder.Requests(ctx, all[0].Seq)).To(Equal(all[1:]))
	g.Expect(recorder.Requests(ctx, all[1].Seq)).To(BeEmpty())
}

func faulty(t *testing.T, s *suite) {
	g, c := NewWithT(t), s.start(t)
	faults := optional[cloud.Faulty](t, c)
	if s.config.ListServers == nil {
		t.Skip("Config.ListServers is nil: no request can be sent")
	}
	ctx := t.Context()
	list := func(agent string) error { return s.config.ListServers(ctx, c, agent) }
	name, err := faults.AddFault(ctx, cloud.Fault{Calls: cloud.Reads, About: cloud.AboutServers, First: 2, Effect: cloud.Unavailable})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(faults.Met(ctx, name)).To(Equal(0))
	g.Expect(list("someone-else/1")).To(Succeed(), "the fault affects other clients")
	server(t, c, "node-1") // nor does it affect the driver
	g.Expect(list(UserAgent + "/1")).NotTo(Succeed())
	g.Expect(list(UserAgent + "/1")).NotTo(Succeed())
	g.Expect(list(UserAgent+"/1")).To(Succeed(), "First says that two calls fail")
	g.Expect(faults.Met(ctx, name)).To(Equal(2))
	g.Expect(faults.RemoveFault(ctx, name)).To(Succeed())

	name, err = faults.AddFault(ctx, cloud.Fault{Calls: cloud.Reads, Pass: 1, First: 1, Effect: cloud.Unavailable})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(list(UserAgent+"/1")).To(Succeed(), "Pass says that a call does not fail")
	g.Expect(list(UserAgent + "/1")).NotTo(Succeed())
	g.Expect(list(UserAgent + "/1")).To(Succeed())
	g.Expect(faults.Met(ctx, name)).To(Equal(1))
	g.Expect(faults.RemoveFault(ctx, name)).To(Succeed())

	for _, other := range []cloud.Fault{{Calls: cloud.Writes, Effect: cloud.Internal}, {About: cloud.AboutRoutes, Effect: cloud.Internal}} {
		name, err := faults.AddFault(ctx, other)
		if errors.Is(err, errors.ErrUnsupported) {
			continue
		}
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(list(UserAgent+"/1")).To(Succeed(), "%+v affects a read of servers", other)
		g.Expect(faults.Met(ctx, name)).To(Equal(0))
	}
	name, err = faults.AddFault(ctx, cloud.Fault{Effect: cloud.Internal})
	g.Expect(err).NotTo(HaveOccurred())
	for range 3 {
		g.Expect(list(UserAgent+"/1")).NotTo(Succeed(), "a fault without First lasts until it is removed")
	}
	g.Expect(faults.RemoveFault(ctx, name)).To(Succeed())
	g.Expect(list(UserAgent + "/1")).To(Succeed())
	g.Expect(faults.RemoveFault(ctx, name)).NotTo(Succeed(), "the fault was removed already")
}

func unknownEffect(t *testing.T, s *suite) {
	g, c := NewWithT(t), s.start(t)
	faults := optional[cloud.Faulty](t, c)
	_, err := faults.AddFault(t.Context(), cloud.Fault{Effect: "no-such-effect"})
	g.Expect(err).To(MatchError(errors.ErrUnsupported))
}
