package specs

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/hetzner"
)

var _ = Describe("Deployment", framework.Needs(framework.LeastPrivilege), Label(framework.OwnCloud, "process"), func() {
	// deployed starts the CCM with the arguments of the manifest's Deployment, except for a free address and a file with its access to the
	// cluster. It returns the address and the manifest's arguments.
	deployed := func(ctx context.Context, env *hetzner.Env) (address string, args []string) {
		address = env.CCM.UnusedAddress()
		host, port, err := net.SplitHostPort(address)
		Expect(err).NotTo(HaveOccurred())
		containers := framework.Current().Deployment.Spec.Template.Spec.Containers
		Expect(containers).To(HaveLen(1), "the manifest must have a Deployment with one container")
		args = containers[0].Args
		env.CCM.Start(ctx, framework.CCMOptions{LeaderElect: true, Args: append(slices.Clone(args),
			"--bind-address="+host, "--secure-port="+port,
			"--authentication-kubeconfig="+framework.Current().Kubeconfig, "--authorization-kubeconfig="+framework.Current().Kubeconfig)})
		return address, args
	}
	BeforeEach(func() {
		if framework.Current().CCM.Manifest == "" && framework.Current().CCM.Name != framework.OurCCM {
			Skip("needs the manifest of the CCM: write it into the CCM's file")
		}
	})

	It("works with the arguments and the permissions of the manifest", func(ctx SpecContext) {
		env := hetzner.NewEnv(ctx, hetzner.Options{NoCCM: true})
		address, args := deployed(ctx, env)
		server := env.Nodes.Create(ctx, "node-1")[0]
		env.Services.Create(ctx, "web")
		env.Traffic.AwaitServed(ctx, "web")
		env.Routes.Await(ctx, env.Routes.Of(ctx, "node-1", server))

		if framework.ElectsLeader(args) {
			lease, err := env.Kube.CoordinationV1().Leases("kube-system").Get(ctx, "cloud-controller-manager", metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(lease.Spec.HolderIdentity).To(HaveValue(Not(BeEmpty())))
		}

		By("asking for health as a kubelet does, without credentials")
		Eventually(func() (int, error) { return status(ctx, address, "/healthz", "") }).WithContext(ctx).Should(Equal(http.StatusOK))
	})

	It("shows its metrics only to accounts that RBAC allows to read them", func(ctx SpecContext) {
		env := hetzner.NewEnv(ctx, hetzner.Options{NoCCM: true})
		address, _ := deployed(ctx, env)
		Eventually(func() (int, error) { return status(ctx, address, "/healthz", "") }).WithContext(ctx).Should(Equal(http.StatusOK))

		reader, stranger := account(ctx, env, "reader"), account(ctx, env, "stranger")
		allow(ctx, env, "reader", rbacv1.PolicyRule{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}})
		// The CCM caches the permissions of an account for a few seconds.
		Eventually(func() (int, error) { return status(ctx, address, "/metrics", reader) }).WithContext(ctx).Should(Equal(http.StatusOK))
		Expect(status(ctx, address, "/metrics", stranger)).To(Equal(http.StatusForbidden))
		Expect(status(ctx, address, "/metrics", "")).To(Equal(http.StatusForbidden))
		Expect(status(ctx, address, "/metrics", "no token of this cluster")).To(Equal(http.StatusUnauthorized))
	})

	It("is admitted as a pod without rights on its node", func(ctx SpecContext) {
		env := hetzner.NewEnv(ctx, hetzner.Options{NoCCM: true})
		pod := framework.PodOf(framework.Current().Deployment, "dry-run")
		dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
		admitted, err := env.Kube.CoreV1().Pods(framework.Current().Deployment.Namespace).Create(ctx, pod, dryRun)
		Expect(err).NotTo(HaveOccurred())
		Expect(admitted.Spec.Priority).To(HaveValue(BeNumerically(">=", 2_000_000_000)), "system-cluster-critical")

		By("enforcing Kubernetes' restricted profile, except for the host network")
		_, err = env.Kube.CoreV1().Namespaces().Patch(ctx, env.Services.Namespace, "application/merge-patch+json",
			[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		onHost := framework.OffHostNetwork(pod, env.Services.Namespace)
		onHost.Spec.HostNetwork = true
		_, err = env.Kube.CoreV1().Pods(env.Services.Namespace).Create(ctx, onHost, dryRun)
		Expect(err).To(MatchError(And(ContainSubstring("restricted"), ContainSubstring("host"))), "the profile is not enforced")
		_, err = env.Kube.CoreV1().Pods(env.Services.Namespace).Create(ctx, framework.OffHostNetwork(pod, env.Services.Namespace), dryRun)
		Expect(err).NotTo(HaveOccurred())
	})
})

// account creates a service account in the spec's namespace and returns a token of it.
func account(ctx context.Context, env *hetzner.Env, name string) string {
	GinkgoHelper()
	accounts := env.Kube.CoreV1().ServiceAccounts(env.Services.Namespace)
	_, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	request, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return request.Status.Token
}

// allow gives a service account of the spec's namespace a right in the whole cluster until the spec ends.
func allow(ctx context.Context, env *hetzner.Env, name string, rule rbacv1.PolicyRule) {
	GinkgoHelper()
	meta := metav1.ObjectMeta{Name: env.Services.Namespace + "-" + name}
	rbac := env.Kube.RbacV1()
	_, err := rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}},
		metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) error { return rbac.ClusterRoles().Delete(ctx, meta.Name, metav1.DeleteOptions{}) })
	_, err = rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: env.Services.Namespace}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) error {
		return rbac.ClusterRoleBindings().Delete(ctx, meta.Name, metav1.DeleteOptions{})
	})
}

// status returns the status of a GET on a CCM's secure port. The CCM has signed the certificate itself.
func status(ctx context.Context, address, path, token string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+path, nil)
	if err != nil {
		return 0, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}
