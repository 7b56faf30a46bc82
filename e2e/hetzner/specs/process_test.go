package specs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/hetzner"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

var _ = Describe("A CCM process", Label(framework.OwnCloud, "process"), func() {
	It("ends at once on SIGTERM while it waits for the cloud, and the next CCM continues", framework.Needs(framework.CrashSafety),
		Label("service", "fake-only"), func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{NoCCM: true, CCM: compareSoon})
			ccm := env.CCM.Start(ctx, longTimeout)
			env.Nodes.Create(ctx, "node-1")
			arrived := env.Cloud.Faults.Hold(creatingLoadBalancer, 1, true)
			env.Services.Create(ctx, "web")
			arrived(ctx)
			Expect(ccm.Signal(syscall.SIGTERM)).To(Succeed())
			ccm.ExpectEnd(ctx) // nobody promises a code

			env.CCM.Start(ctx, framework.CCMOptions{})
			env.Traffic.AwaitServed(ctx, "web")
			env.CCM.AwaitIdle(ctx)
			Expect(env.LoadBalancers.List(ctx)).To(HaveLen(1))
		})
})

var _ = Describe("A CCM with a second replica", framework.Needs(framework.LeaderFence), Label(framework.OwnCloud, "process", "fake-only"),
	func() {
		var (
			env            *hetzner.Env
			leader, second *framework.Replica
			// Each replica has another token, so that a spec can tell their writes apart.
			leaderWrites, secondWrites func() int
		)
		BeforeEach(func(ctx SpecContext) {
			env = hetzner.NewEnv(ctx, hetzner.Options{NoCCM: true, CCM: compareSoon})
			replica := func() (*framework.Replica, func() int) {
				token, err := env.Cloud.Fake.AddToken(ctx, fakecloud.DefaultProject, "", false)
				Expect(err).NotTo(HaveOccurred())
				count := env.Cloud.Faults.CountWrites(token)
				return env.CCM.Start(ctx, framework.CCMOptions{
					LeaderElect: true, Env: map[string]string{"HCLOUD_TOKEN": token},
				}), count
			}
			leader, leaderWrites = replica()
			env.Nodes.Create(ctx, "node-1", "node-2")
			second, secondWrites = replica()
			Eventually(second.Log).WithContext(ctx).Should(ContainSubstring("to acquire leader lease"))
			env.Services.Create(ctx, "web")
			env.Traffic.AwaitServed(ctx, "web")
			env.CCM.AwaitIdle(ctx)
			Expect(leader.Done()).NotTo(BeClosed(), "the leader has ended before the spec began: see its log, above")
		})
		holder := func(ctx SpecContext) string {
			GinkgoHelper()
			lease, err := env.Kube.CoordinationV1().Leases("kube-system").Get(ctx, "cloud-controller-manager", metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(lease.Spec.HolderIdentity).NotTo(BeNil())
			return *lease.Spec.HolderIdentity
		}

		It("writes only as the leader, and takes over when the leader dies in the middle of a change", Label("service"),
			func(ctx SpecContext) {
				Expect(leaderWrites()).To(BeNumerically(">", 0))
				Expect(secondWrites()).To(Equal(0))
				first := holder(ctx)
				address, id := env.Services.AwaitIngress(ctx, "web"), env.LoadBalancers.Of(ctx, "web").ID

				arrived := env.Cloud.Faults.Hold(fault.Rule{Operation: "add_load_balancer_service"}, 1, true)
				env.Services.Update(ctx, "web", func(svc *corev1.Service) {
					svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "p9090", Port: 9090, TargetPort: intstr.FromInt32(80)})
					svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "p9091", Port: 9091, TargetPort: intstr.FromInt32(80)})
				})
				arrived(ctx)
				leader.Crash(ctx)
				env.Traffic.AwaitAnswer(ctx, "web", address, 8080)
				env.Traffic.AwaitAnswer(ctx, "web", address, 9090)
				env.Traffic.AwaitAnswer(ctx, "web", address, 9091)
				env.CCM.AwaitIdle(ctx)
				Expect(holder(ctx)).NotTo(Equal(first))
				Expect(secondWrites()).To(BeNumerically(">", 0))
				Expect(env.LoadBalancers.List(ctx)).To(HaveLen(1))
				lb := env.LoadBalancers.Of(ctx, "web")
				Expect(lb.ID).To(Equal(id))
				Expect(hetzner.ListenPorts(lb)).To(Equal([]int{8080, 9090, 9091}))
			})

		It("takes over from a frozen leader, which does not write when it wakes up", Label("service"), func(ctx SpecContext) {
			first := holder(ctx)
			address := env.Services.AwaitIngress(ctx, "web")
			freeze(ctx, leader)
			before := leaderWrites()
			env.Services.Update(ctx, "web", func(svc *corev1.Service) { svc.Spec.Ports[0].Port = 9090 })
			env.Traffic.AwaitAnswer(ctx, "web", address, 9090)
			Expect(holder(ctx)).NotTo(Equal(first))
			Expect(leader.Signal(syscall.SIGCONT)).To(Succeed())
			Expect(leader.ExpectEnd(ctx)).NotTo(Equal(0))
			Expect(leaderWrites()).To(Equal(before))
			Expect(secondWrites()).To(BeNumerically(">", 0))
		})
	})

// freeze stops a process. It waits until all threads have stopped: on a busy host, some still run after the signal. Without
// /proc, it only sends the signal.
func freeze(ctx context.Context, r *framework.Replica) {
	GinkgoHelper()
	Expect(r.Signal(syscall.SIGSTOP)).To(Succeed())
	Eventually(ctx, func() (running []string) {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", r.PID()))
		for _, path := range threads {
			stat, _ := os.ReadFile(path)
			if _, state, ok := strings.Cut(string(stat), ") "); ok && state[0] != 'T' {
				running = append(running, path)
			}
		}
		return running
	}).Should(BeEmpty())
}

var _ = Describe("The settings of a CCM", Label(framework.OwnCloud, "process"), func() {
	It("names every mistake at once and ends before it asks the cloud for anything", framework.Needs(framework.SettingsCheck),
		func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{NoCCM: true})
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
			ccm := env.CCM.Start(ctx,
				framework.CCMOptions{Env: mistakes, Args: []string{"--cluster-cidr=10.244.0.0", "--cloud-provider=another"}})
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
			Expect(env.CCM.Requests()).To(Equal(0))
		})

	It("ends without a token, and says which variables take one", framework.Needs(framework.SettingsCheck), func(ctx SpecContext) {
		env := hetzner.NewEnv(ctx, hetzner.Options{NoCCM: true})
		ccm := env.CCM.Start(ctx, framework.CCMOptions{Env: map[string]string{"HCLOUD_TOKEN": ""}})
		Expect(ccm.ExpectEnd(ctx)).To(BeNumerically(">", 0))
		Expect(ccm.Log()).To(And(ContainSubstring("HCLOUD_TOKEN is not set"), ContainSubstring("HCLOUD_TOKEN_FILE")))
	})

	It("starts before the cloud answers, logs that, and works when it does", framework.Needs(framework.SettingsCheck),
		Label("node", "service"), func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{NoCCM: true, CCM: shortTimeouts})
			env.Servers.Create(ctx, "node-1")
			env.Services.Create(ctx, "web")
			before := env.Nodes.Await(ctx, "node-1", func(Gomega, *corev1.Node) {})
			address := env.CCM.UnusedAddress()
			ccm := env.CCM.Start(ctx, framework.CCMOptions{Env: map[string]string{"HCLOUD_ENDPOINT": "http://" + address + "/v1"}})
			Eventually(ccm.Log).WithContext(ctx).Should(And(ContainSubstring("connection refused"), ContainSubstring(address)))
			Expect(ccm.Err()).NotTo(HaveOccurred())
			Expect(env.Nodes.Get(ctx, "node-1")).To(framework.HaveTaint(cloudproviderapi.TaintExternalCloudProvider))

			Expect(env.Cloud.Fake.Start(ctx, address)).Error().NotTo(HaveOccurred())
			Expect(env.Nodes.AwaitInitialized(ctx, "node-1").UID).To(Equal(before.UID))
			env.Traffic.AwaitServed(ctx, "web")
			Expect(env.LoadBalancers.List(ctx)).To(HaveLen(1))
			Expect(ccm.Done()).NotTo(BeClosed())
		})

	It("does all the work that waits although its first requests fail", Label("node", "service", "fake-only"), func(ctx SpecContext) {
		env := hetzner.NewEnv(ctx, hetzner.Options{NoCCM: true, CCM: shortTimeouts})
		env.Servers.Create(ctx, "node-1")
		env.Services.Create(ctx, "web")
		fault, _ := env.Cloud.Faults.Add(fault.Rule{Effect: fault.DropConnection(), First: 2})
		env.CCM.Start(ctx, framework.CCMOptions{})
		env.Cloud.Faults.Await(ctx, fault, 2)
		env.Nodes.AwaitInitialized(ctx, "node-1")
		env.Traffic.AwaitServed(ctx, "web")
		env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy("node-1"))
	})

	It("continues without the network, names it in the log, and works when it is there", framework.Needs(framework.SettingsCheck),
		Label("node"), func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{NoCCM: true, CCM: shortTimeouts})
			env.Servers.Create(ctx, "node-1")
			ccm := env.CCM.Start(ctx, framework.CCMOptions{Env: map[string]string{"HCLOUD_NETWORK": "not-yet"}})
			Eventually(ccm.Log).WithContext(ctx).Should(ContainSubstring(`HCLOUD_NETWORK="not-yet"`))
			Expect(env.Nodes.Get(ctx, "node-1")).To(framework.HaveTaint(cloudproviderapi.TaintExternalCloudProvider))

			_, _, err := env.Cloud.Client.Network.Update(ctx, env.Cloud.Network, hcloud.NetworkUpdateOpts{Name: "not-yet"})
			Expect(err).NotTo(HaveOccurred())
			env.Nodes.AwaitInitialized(ctx, "node-1")
		})

	It("reads a rotated token from its file without a restart, and deletes no node while its token is refused",
		framework.Needs(framework.TokenFile, framework.CarefulDeletion), Label("node", "service", "fake-only"), func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{NoCCM: true, CCM: shortTimeouts})
			secret := mountSecret(env.Cloud.Fake.Token())
			ccm := env.CCM.Start(ctx, framework.CCMOptions{Env: map[string]string{"HCLOUD_TOKEN": "", "HCLOUD_TOKEN_FILE": secret.path}})
			server := env.Nodes.Create(ctx, "node-1")[0]
			before := env.Nodes.Get(ctx, "node-1")

			replaced, err := env.Cloud.Fake.AddToken(ctx, fakecloud.DefaultProject, "", false)
			Expect(err).NotTo(HaveOccurred())
			old := env.Cloud.Fake.Token()
			env.Cloud.Client = env.Cloud.Fake.Client(hcloud.WithToken(replaced))
			Expect(env.Cloud.Fake.RevokeToken(ctx, old)).To(Succeed())
			env.Cloud.Do(ctx)(env.Cloud.Client.Server.Poweroff(ctx, server))
			env.Nodes.AwaitReady(ctx, "node-1", false)
			env.Services.Create(ctx, "web")
			env.CCM.AwaitRequests(ctx, 5, journal.Filter{ErrorCode: "unauthorized"})
			Expect(env.LoadBalancers.List(ctx)).To(BeEmpty())
			Expect(env.Nodes.Get(ctx, "node-1")).To(HaveField("UID", before.UID), "a node was deleted although the API refused to answer")

			secret.replace(replaced)
			env.Services.AwaitIngress(ctx, "web")
			env.Cloud.Do(ctx)(env.Cloud.Client.Server.Poweron(ctx, server))
			env.Traffic.AwaitServed(ctx, "web")
			Expect(env.Nodes.Get(ctx, "node-1").UID).To(Equal(before.UID))
			Expect(ccm.Done()).NotTo(BeClosed())
		})
})

// secretVolume is a file of a mounted Secret. Kubelet replaces it as a whole by turning a symbolic link.
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
