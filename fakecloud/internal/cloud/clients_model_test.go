package cloud

import (
	"crypto/ed25519"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/dns"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/longtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// checkOthers is checkInvariants for what that leaves out: names, certificates, zones, images and the catalogue's references.
func checkOthers(t *testing.T, st *State) {
	t.Helper()
	checkNames(t, &st.Servers)
	checkNames(t, &st.Networks)
	checkNames(t, &st.LoadBalancers)
	checkNames(t, &st.Certificates)
	checkNames(t, &st.PrimaryIPs.Table)
	checkNames(t, &st.FloatingIPs)
	checkNames(t, &st.Volumes)
	checkNames(t, &st.Firewalls)
	checkNames(t, &st.Zones)
	checkNames(t, &st.PlacementGroups)
	checkNames(t, &st.SSHKeys.Table)
	uses := map[int64][]int64{}
	for lb := range st.LoadBalancers.All() {
		for _, s := range lb.Services {
			if s.HTTP == nil {
				continue
			}
			for _, id := range s.HTTP.Certificates {
				if !slices.Contains(uses[id], lb.ID) {
					uses[id] = append(uses[id], lb.ID)
				}
			}
		}
	}
	for c := range st.Certificates.All() {
		var shown []int64
		for _, r := range c.UsedBy {
			shown = append(shown, r.ID)
		}
		if used := slices.Sorted(slices.Values(uses[c.ID])); !slices.Equal(shown, used) {
			t.Errorf("certificate %d shows %v, and the load balancers %v use it", c.ID, shown, used)
		}
		delete(uses, c.ID)
	}
	if len(uses) > 0 {
		t.Errorf("load balancers use certificates that do not exist: %v", uses)
	}
	fingerprints := map[string]int64{}
	for k := range st.SSHKeys.All() {
		if other, twice := fingerprints[k.Fingerprint]; twice {
			t.Errorf("SSH keys %d and %d are the same", other, k.ID)
		}
		fingerprints[k.Fingerprint] = k.ID
	}
	for i := range st.Images.All() {
		if i.Status == "creating" && !st.Actions.Locked(i.Ref()) {
			t.Errorf("image %d is created without an action", i.ID)
		}
	}
}

// checkNames fails the test if a table lists a resource twice, or two that have the same name.
func checkNames[T store.Object[T]](t *testing.T, all *store.Table[T]) {
	t.Helper()
	last, names := int64(0), map[string]int64{}
	for v := range all.All() {
		h := v.Header()
		if h.ID <= last {
			t.Errorf("%s %d is listed after %d", all.Kind(), h.ID, last)
		}
		last = h.ID
		if other, twice := names[h.Name]; twice {
			t.Errorf("%s %d and %d have the name %s", all.Kind(), other, h.ID, h.Name)
		}
		names[h.Name] = h.ID
	}
	if all.Len() != len(names) {
		t.Errorf("%d of %s are listed, there are %d", len(names), all.Kind(), all.Len())
	}
}

// otherOperations are the operations of the model on resources that no other list has.
func (m *model) otherOperations() []func() {
	few := func(prefix string) string { return fmt.Sprintf("%s%d", prefix, m.rnd.IntN(6)) } // so that names collide
	cert := func() int64 { st := m.View(); return m.one(idsOf(&st.Certificates)) }
	key := func() int64 { st := m.View(); return m.one(idsOf(&st.SSHKeys.Table)) }
	image := func() int64 { st := m.View(); return m.one(idsOf(&st.Images)) }
	zone := func() string { return few("zone-") + ".example" }
	port := func() *int { return new(80 + m.rnd.IntN(3)) }
	records := func() []dns.Record { return []dns.Record{{Value: fmt.Sprintf("198.51.100.%d", m.rnd.IntN(4))}} }
	subnet := func() netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, byte(m.rnd.IntN(4)), 0}), 24)
	}
	route := func() Route {
		return Route{Destination: netip.MustParsePrefix(few("172.16.") + ".0/24"),
			Gateway: netip.AddrFrom4([4]byte{10, 0, 0, byte(2 + m.rnd.IntN(6))})}
	}
	service := func() ServiceInput {
		in := ServiceInput{Protocol: new("tcp"), ListenPort: port(), DestinationPort: new(30000)}
		if m.coin() {
			in.Protocol, in.HTTP = new("https"), &ServiceHTTPInput{Certificates: []int64{cert()}}
		}
		return in
	}
	p := m.project
	return []func(){
		func() {
			_, _, _ = p().CreateSSHKey(CreateSSHKey{Name: few("key-"), PublicKey: publicKey(m.rnd.IntN(8))})
		},
		func() { _ = p().DeleteSSHKey(key()) },
		func() {
			_, _, _, _ = p().CreateManagedCertificate(CreateManagedCertificate{Name: few("cert-"),
				DomainNames: []string{few("www") + ".example.com"}})
		},
		func() { _ = p().DeleteCertificate(cert()) },
		func() { _, _, _ = p().RetryCertificate(cert()) },
		func() { _, _, _ = p().AddLoadBalancerService(m.lb(), service()) },
		func() { _, _, _ = p().UpdateLoadBalancerService(m.lb(), service()) },
		func() { _, _, _ = p().DeleteLoadBalancerService(m.lb(), *port()) },
		func() { _, _, _, _ = p().CreateServerImage(m.server(), CreateServerImage{Type: "snapshot"}) },
		func() { _ = p().DeleteImage(image()) },
		func() {
			_, _, _ = p().CreateNetwork(CreateNetwork{Name: few("net-"), IPRange: netip.MustParsePrefix("10.9.0.0/16")})
		},
		func() { _ = p().DeleteNetwork(m.net()) },
		func() {
			_, _, _ = p().AddSubnet(m.net(), Subnet{Type: SubnetCloud, IPRange: subnet(), NetworkZone: "eu-central"})
		},
		func() { _, _, _ = p().DeleteSubnet(m.net(), subnet()) },
		func() { _, _, _ = p().AddRoute(m.net(), route()) },
		func() { _, _, _ = p().DeleteRoute(m.net(), route()) },
		func() { _, _, _, _ = p().CreateZone(CreateZone{Name: zone(), Mode: ZonePrimary}) },
		func() { _, _, _ = p().DeleteZone(zone()) },
		func() { _, _, _ = p().CreateRRSet(zone(), RRSet{Name: few("host"), Type: "A", Records: records()}) },
		func() { _, _, _ = p().AddRecords(zone(), few("host"), "A", nil, records()) },
		func() { _, _, _ = p().RemoveRecords(zone(), few("host"), "A", records()) },
		func() { _, _, _ = p().DeleteRRSet(zone(), few("host"), "A") },
	}
}

// certificateOperations are the operations of the model on uploaded certificates.
func (m *model) certificateOperations() []func() {
	return []func(){
		func() { // a certificate that a service uses as soon as the action ends
			uploaded, _, err := m.UploadCertificate(m.uploads[m.rnd.IntN(len(m.uploads))])
			if err != nil {
				return // there is one of that name
			}
			https := ServiceInput{Protocol: new("https"), ListenPort: new(80 + m.rnd.IntN(3)), DestinationPort: new(30000)}
			https.HTTP = &ServiceHTTPInput{Certificates: []int64{uploaded.ID}}
			_, _, _ = m.project().AddLoadBalancerService(m.lb(), https)
		},
		func() { _ = m.project().DeleteCertificate(m.usedCertificate()) },
	}
}

// usedCertificate returns a certificate that a load balancer uses, or any if none is used.
func (m *model) usedCertificate() int64 {
	st := m.View()
	for c := range st.Certificates.All() {
		if len(c.UsedBy) > 0 && m.coin() {
			return c.ID
		}
	}
	return m.one(idsOf(&st.Certificates))
}

// uploads returns certificates to upload, which clients share because making them takes long.
func uploads(t *testing.T) []UploadCertificate {
	t.Helper()
	var all []UploadCertificate
	for i := range 6 {
		name := fmt.Sprintf("uploaded-%d", i)
		ca := newTestCA(t)
		all = append(all, UploadCertificate{Name: name, Certificate: ca.pem(), PrivateKey: ca.keyPEM(t)})
	}
	return all
}

// publicKey returns the n-th SSH key.
func publicKey(n int) string {
	seed := make([]byte, ed25519.SeedSize)
	seed[0] = byte(n)
	key, err := ssh.NewPublicKey(ed25519.NewKeyFromSeed(seed).Public())
	if err != nil {
		panic(err) // it is of a known kind
	}
	return string(ssh.MarshalAuthorizedKey(key))
}

// TestReferencesAgreeWhileManyClientsWrite lets 16 clients send random operations on all resources at the same time, while readers
// check what they see.
func TestReferencesAgreeWhileManyClientsWrite(t *testing.T) {
	t.Parallel()
	const clients, operations = 16, 150
	rounds := longtest.Share(t, 10, 2)
	p, clk := serverCloud(t, Options{PublicIPv4: netip.MustParsePrefix("203.0.113.0/24")})
	testNetwork(t, p, "one", "10.0.0.0/24")
	testNetwork(t, p, "two", "10.1.0.0/24")
	certificates := uploads(t)
	var lists [][]func()
	var models []*model
	for i := range clients {
		m := &model{Project: p, clk: clk, rnd: rand.New(rand.NewPCG(uint64(i), 16+rounds[0])), n: i * 1_000_000, uploads: certificates}
		models = append(models, m)
		lists = append(lists, slices.Concat(m.operations(), m.floatingIPOperations(), m.volumeOperations(), m.firewallOperations(),
			m.certificateOperations(), m.otherOperations()))
	}
	seen, used := map[store.Kind]bool{}, false
	for round := range rounds {
		var writers, readers sync.WaitGroup
		ended := make(chan struct{})
		readers.Go(func() { // what is read at one time agrees, whatever is written
			for {
				st := p.View()
				for lb := range st.LoadBalancers.All() {
					checkLoadBalancer(t, st, lb)
				}
				for s := range st.Servers.All() {
					checkServer(t, st, s)
				}
				for n := range st.Networks.All() {
					checkNetwork(t, st, n)
				}
				checkOthers(t, st)
				select {
				case <-ended:
					return
				default:
				}
			}
		})
		for i, m := range models {
			writers.Go(func() {
				for range operations {
					lists[i][m.rnd.IntN(len(lists[i]))]()
				}
			})
		}
		writers.Wait()
		close(ended)
		readers.Wait()
		checkInvariants(t, p.View(), p.cloud)
		checkOthers(t, p.View())
		if t.Failed() {
			t.Fatalf("after round %d", round+1)
		}
		for c := range p.View().Certificates.All() {
			used = used || len(c.UsedBy) > 0
		}
		for _, table := range p.View().tables() {
			seen[table.Kind()] = seen[table.Kind()] || table.Len() > 0
		}
	}
	for _, r := range resources {
		if !seen[r.kind] && !testing.Short() {
			t.Errorf("no %s was there after any round: the model tests nothing of it", r.kind)
		}
	}
	if !used && !testing.Short() {
		t.Error("no load balancer used a certificate after any round: the model tests nothing of it")
	}
	clk.Step(time.Hour)
	for a := range p.View().Actions.All() {
		if a.Status == ActionRunning {
			t.Errorf("action %d %s never ends", a.ID, a.Command)
		}
	}
}
