package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

var _ = Describe("Process", Label(framework.OwnCloud, "process"), func() {
	It("catches up with what came, changed and went while it was down, through which traffic went on", Label("dataplane", "node", "service", "route"), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{CCM: watchful})
		servers := env.CreateNodes(ctx, "leaves", "remains")
		for _, name := range []string{"stays", "goes", "becomes-internal"} {
			env.CreateService(ctx, name)
		}
		address := env.AwaitServed(ctx, "stays")
		env.AwaitServed(ctx, "goes")
		env.AwaitServed(ctx, "becomes-internal")
		stays := env.LoadBalancerOf(ctx, "stays").ID
		env.AwaitExactRoutes(ctx, servers...)
		env.CCM.Crash(ctx)

		seen := env.CCMRequests()
		env.DeleteService(ctx, "goes")
		env.UpdateService(ctx, "becomes-internal", func(svc *corev1.Service) { svc.Spec.Type = corev1.ServiceTypeClusterIP })
		env.CreateService(ctx, "comes")
		env.UpdateService(ctx, "stays", func(svc *corev1.Service) {
			svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "p9090", Port: 9090, TargetPort: intstr.FromInt32(80)})
		})
		env.DeleteServer(ctx, servers[0])
		comes := env.CreateServer(ctx, "comes")
		By("nobody manages the load balancer, and it serves")
		for range 20 {
			Expect(env.AwaitAnswer(ctx, "stays", address, framework.Port).Node).To(Equal("remains"))
		}
		Expect(env.CCMRequests()).To(Equal(seen), "a CCM is still at work")

		env.StartCCM(ctx, framework.CCMOptions{})
		env.AwaitInitialized(ctx, "comes")
		env.AwaitAnswer(ctx, "stays", address, 9090)
		env.AwaitServed(ctx, "comes")
		env.AwaitGone(ctx, "goes")
		Eventually(func() *corev1.Node { return env.Node(ctx, "leaves") }).WithContext(ctx).
			WithTimeout(framework.Timeout).WithPolling(framework.Polling).Should(BeNil())
		env.AwaitExactRoutes(ctx, servers[1], comes)
		Eventually(func(g Gomega) {
			all := env.LoadBalancers(ctx)
			g.Expect(all).To(HaveLen(2))
			for _, lb := range all {
				g.Expect(framework.TargetIDs(lb)).To(Equal(framework.IDs(servers[1], comes)))
			}
		}).WithContext(ctx).WithTimeout(framework.Timeout).WithPolling(framework.Polling).Should(Succeed())
		env.AwaitStill(ctx, 2)
		lb := env.LoadBalancerOf(ctx, "stays")
		Expect(lb.ID).To(Equal(stays))
		Expect(framework.ListenPorts(lb)).To(Equal([]int{8080, 9090}))
		internal := env.Service(ctx, "becomes-internal")
		Expect(internal.Finalizers).To(BeEmpty())
		Expect(internal.Status.LoadBalancer.Ingress).To(BeEmpty())
	})

	It("comes back without a single write when nothing has changed", framework.Needs(framework.CallBudgets), Label("node", "service", "route"), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{CCM: watchful})
		env.CreateNodes(ctx, "node-1", "node-2")
		env.CreateService(ctx, "web")
		env.AwaitServed(ctx, "web")
		env.AwaitStill(ctx, 2)
		env.CCM.Crash(ctx)

		writes, from := env.CCMWrites(), env.Journal.Last()
		env.StartCCM(ctx, framework.CCMOptions{})
		Eventually(func() int {
			return env.Journal.Count(fakecloud.JournalFilter{Client: env.Subject.UserAgent, Operation: "list_load_balancers", Since: from})
		}).WithContext(ctx).WithTimeout(framework.Timeout).WithPolling(framework.Polling).Should(BeNumerically(">=", 1))
		env.AwaitStill(ctx, 2)
		Expect(env.CCMWrites()).To(Equal(writes))
	})

	It("ends at once when it is told to, though the cloud keeps it waiting, and its successor goes on", framework.Needs(framework.CrashSafety), Label("service", "fake-only"), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{NoCCM: true, CCM: watchful})
		ccm := env.StartCCM(ctx, patient)
		env.CreateNodes(ctx, "node-1")
		arrived := env.Hold(creatingLoadBalancer, 1, true)
		env.CreateService(ctx, "web")
		arrived(ctx)
		Expect(ccm.Signal(syscall.SIGTERM)).To(Succeed())
		Expect(ccm.ExpectEnd(ctx)).To(Equal(0))

		env.StartCCM(ctx, framework.CCMOptions{})
		env.AwaitServed(ctx, "web")
		env.AwaitStill(ctx, 2)
		Expect(env.LoadBalancers(ctx)).To(HaveLen(1))
		Expect(creations(env)).To(Equal(1))
	})
})

var _ = Describe("Process with a second replica", framework.Needs(framework.LeaderFence, framework.Repair), Label(framework.OwnCloud, "process", "fake-only"), func() {
	var (
		env            *framework.Env
		leader, second *framework.CCM
		// The replicas have tokens of their own, so that their writes can be told apart.
		leaderWrites, secondWrites func() int
	)
	BeforeEach(func(ctx SpecContext) {
		env = framework.NewEnv(ctx, suite, framework.Options{NoCCM: true, CCM: watchful})
		replica := func() (*framework.CCM, func() int) {
			token, err := env.Cloud.AddToken(fakecloud.DefaultProject, "", false)
			Expect(err).NotTo(HaveOccurred())
			count := env.CountWrites(token)
			return env.StartCCM(ctx, framework.CCMOptions{LeaderElect: true, Env: map[string]string{"HCLOUD_TOKEN": token}}), count
		}
		leader, leaderWrites = replica()
		env.CreateNodes(ctx, "node-1", "node-2")
		second, secondWrites = replica()
		Eventually(second.Log).WithContext(ctx).WithTimeout(framework.Timeout).WithPolling(framework.Polling).
			Should(ContainSubstring("to acquire leader lease"))
		env.CreateService(ctx, "web")
		env.AwaitServed(ctx, "web")
		env.AwaitStill(ctx, 2)
	})
	holder := func(ctx SpecContext) string {
		GinkgoHelper()
		lease, err := env.Kube.CoordinationV1().Leases("kube-system").Get(ctx, "cloud-controller-manager", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(lease.Spec.HolderIdentity).NotTo(BeNil())
		return *lease.Spec.HolderIdentity
	}

	It("leaves all writing to the leader, and takes over when the leader dies in the middle of a change", Label("service"), func(ctx SpecContext) {
		Expect(leaderWrites()).To(BeNumerically(">", 0))
		Expect(secondWrites()).To(Equal(0))
		first := holder(ctx)
		address, id := env.AwaitIngress(ctx, "web"), env.LoadBalancerOf(ctx, "web").ID

		arrived := env.Hold(fakecloud.Fault{Operation: "add_load_balancer_service"}, 1, true)
		env.UpdateService(ctx, "web", func(svc *corev1.Service) {
			svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "p9090", Port: 9090, TargetPort: intstr.FromInt32(80)})
			svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "p9091", Port: 9091, TargetPort: intstr.FromInt32(80)})
		})
		arrived(ctx)
		leader.Crash(ctx)
		env.AwaitAnswer(ctx, "web", address, 8080)
		env.AwaitAnswer(ctx, "web", address, 9090)
		env.AwaitAnswer(ctx, "web", address, 9091)
		env.AwaitStill(ctx, 2)
		Expect(holder(ctx)).NotTo(Equal(first))
		Expect(secondWrites()).To(BeNumerically(">", 0))
		Expect(env.LoadBalancers(ctx)).To(HaveLen(1))
		lb := env.LoadBalancerOf(ctx, "web")
		Expect(lb.ID).To(Equal(id))
		Expect(framework.ListenPorts(lb)).To(Equal([]int{8080, 9090, 9091}))
	})

	It("takes over from a leader that is frozen, which writes no more when it wakes up", Label("service"), func(ctx SpecContext) {
		first := holder(ctx)
		address := env.AwaitIngress(ctx, "web")
		Expect(leader.Signal(syscall.SIGSTOP)).To(Succeed())
		before := leaderWrites()
		env.UpdateService(ctx, "web", func(svc *corev1.Service) { svc.Spec.Ports[0].Port = 9090 })
		env.AwaitAnswer(ctx, "web", address, 9090)
		Expect(holder(ctx)).NotTo(Equal(first))
		Expect(leader.Signal(syscall.SIGCONT)).To(Succeed())
		Expect(leader.ExpectEnd(ctx)).NotTo(Equal(0))
		Expect(leaderWrites()).To(Equal(before))
		Expect(secondWrites()).To(BeNumerically(">", 0))
	})
})

var _ = Describe("Process with its settings", Label(framework.OwnCloud, "process"), func() {
	It("ends, and names every mistake at once, before it asks the cloud for anything", framework.Needs(framework.SettingsCheck), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{NoCCM: true})
		mistakes := map[string]string{
			"HCLOUD_TOKEN":                         "a token with spaces",
			"HCLOUD_NETWORK":                       "",
			"HCLOUD_NETWORK_ROUTES_ENABLED":        "true",
			"HCLOUD_INSTANCES_ADDRESS_FAMILY":      "ipv5",
			"HCLOUD_REQUEST_TIMEOUT":               "soon",
			"HCLOUD_DEBUG":                         "perhaps",
			"HCLOUD_LOAD_BALANCERS_ALGORITHM_TYPE": "fair",
			"HCLOUD_LOAD_BALANCERS_NETWORK_ZONE":   "eu-central", // a location is set, too
		}
		ccm := env.StartCCM(ctx, framework.CCMOptions{Env: mistakes, Args: []string{"--cluster-cidr=10.244.0.0", "--cloud-provider=another"}})
		Expect(ccm.ExpectEnd(ctx)).To(BeNumerically(">", 0))
		log := ccm.Log()
		delete(mistakes, "HCLOUD_NETWORK") // is missing, which is why routes are impossible
		for name := range mistakes {
			Expect(log).To(ContainSubstring(name))
		}
		Expect(log).To(ContainSubstring("--cluster-cidr"))
		Expect(log).To(ContainSubstring("--cloud-provider"))
		Expect(log).NotTo(ContainSubstring("a token with spaces"))
		Expect(log).NotTo(ContainSubstring("goroutine "), "it panicked")
		Expect(env.CCMRequests()).To(Equal(0))
	})

	It("ends without a token, and says which variables take one", framework.Needs(framework.SettingsCheck), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{NoCCM: true})
		ccm := env.StartCCM(ctx, framework.CCMOptions{Env: map[string]string{"HCLOUD_TOKEN": ""}})
		Expect(ccm.ExpectEnd(ctx)).To(BeNumerically(">", 0))
		Expect(ccm.Log()).To(And(ContainSubstring("HCLOUD_TOKEN is not set"), ContainSubstring("HCLOUD_TOKEN_FILE")))
	})

	It("starts before the cloud answers, says so, and works when it does", framework.Needs(framework.SettingsCheck), Label("node", "service"), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{NoCCM: true, CCM: impatient})
		env.CreateServer(ctx, "node-1")
		env.CreateService(ctx, "web")
		before := env.AwaitNode(ctx, "node-1", func(Gomega, *corev1.Node) {})
		address := env.UnusedAddress()
		ccm := env.StartCCM(ctx, framework.CCMOptions{Env: map[string]string{"HCLOUD_ENDPOINT": "http://" + address + "/v1"}})
		Eventually(ccm.Log).WithContext(ctx).WithTimeout(framework.Timeout).WithPolling(framework.Polling).
			Should(And(ContainSubstring("connection refused"), ContainSubstring(address)))
		Expect(ccm.Err()).NotTo(HaveOccurred())
		Expect(env.Node(ctx, "node-1")).To(framework.HaveTaint(cloudproviderapi.TaintExternalCloudProvider))

		_, err := env.Cloud.Start(ctx, address)
		Expect(err).NotTo(HaveOccurred())
		Expect(env.AwaitInitialized(ctx, "node-1").UID).To(Equal(before.UID))
		env.AwaitServed(ctx, "web")
		Expect(env.LoadBalancers(ctx)).To(HaveLen(1))
		Expect(ccm.Done()).NotTo(BeClosed())
	})

	It("goes on when the network does not exist, names it, and works when it is there", framework.Needs(framework.SettingsCheck), Label("node"), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{NoCCM: true, CCM: impatient})
		env.CreateServer(ctx, "node-1")
		ccm := env.StartCCM(ctx, framework.CCMOptions{Env: map[string]string{"HCLOUD_NETWORK": "not-yet"}})
		Eventually(ccm.Log).WithContext(ctx).WithTimeout(framework.Timeout).WithPolling(framework.Polling).
			Should(ContainSubstring(`HCLOUD_NETWORK="not-yet"`))
		Expect(env.Node(ctx, "node-1")).To(framework.HaveTaint(cloudproviderapi.TaintExternalCloudProvider))

		_, _, err := env.HCloud.Network.Update(ctx, env.Network, hcloud.NetworkUpdateOpts{Name: "not-yet"})
		Expect(err).NotTo(HaveOccurred())
		env.AwaitInitialized(ctx, "node-1")
	})

	It("takes a rotated token from its file without a restart, and deletes no node while its token is refused", framework.Needs(framework.TokenFile, framework.CarefulDeletion), Label("node", "service", "fake-only"), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{NoCCM: true, CCM: impatient})
		secret := mountSecret(env.Cloud.Token())
		ccm := env.StartCCM(ctx, framework.CCMOptions{Env: map[string]string{"HCLOUD_TOKEN": "", "HCLOUD_TOKEN_FILE": secret.path}})
		server := env.CreateNodes(ctx, "node-1")[0]
		before := env.Node(ctx, "node-1")

		replaced, err := env.Cloud.AddToken(fakecloud.DefaultProject, "", false)
		Expect(err).NotTo(HaveOccurred())
		old := env.Cloud.Token()
		env.HCloud = env.Cloud.Client(hcloud.WithToken(replaced))
		Expect(env.Cloud.RevokeToken(old)).To(Succeed())
		env.Started(ctx)(env.HCloud.Server.Poweroff(ctx, server))
		env.AwaitReady(ctx, "node-1", false)
		env.CreateService(ctx, "web")
		env.AwaitCCMRequests(ctx, 5, fakecloud.JournalFilter{ErrorCode: "unauthorized"})
		Expect(env.LoadBalancers(ctx)).To(BeEmpty())
		Expect(env.Node(ctx, "node-1")).To(HaveField("UID", before.UID), "a node was deleted on the word of an API that refused to answer")

		secret.replace(replaced)
		env.AwaitIngress(ctx, "web")
		env.Started(ctx)(env.HCloud.Server.Poweron(ctx, server))
		env.AwaitServed(ctx, "web")
		Expect(env.Node(ctx, "node-1").UID).To(Equal(before.UID))
		Expect(ccm.Done()).NotTo(BeClosed())
	})
})

// secretVolume is a file of a mounted Secret, which kubelet replaces as a whole by turning a symbolic
// link.
type secretVolume struct {
	folder, path string
	versions     int
}

func mountSecret(token string) *secretVolume {
	GinkgoHelper()
	s := &secretVolume{folder: GinkgoT().TempDir()}
	s.path = filepath.Join(s.folder, "token")
	s.replace(token)
	Expect(os.Symlink(filepath.Join("..data", "token"), s.path)).To(Succeed())
	return s
}

func (s *secretVolume) replace(token string) {
	GinkgoHelper()
	s.versions++
	version := fmt.Sprintf("..version-%d", s.versions)
	Expect(os.Mkdir(filepath.Join(s.folder, version), 0o700)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(s.folder, version, "token"), []byte(token+"\n"), 0o600)).To(Succeed())
	link := filepath.Join(s.folder, "..data_tmp")
	Expect(os.Symlink(version, link)).To(Succeed())
	Expect(os.Rename(link, filepath.Join(s.folder, "..data"))).To(Succeed())
}
