package e2e

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
)

var _ = Describe("Deployment", framework.Needs(framework.LeastPrivilege), Label(framework.OwnCloud, "process"), func() {
	// deployed starts the CCM as a container of the manifest's Deployment would start it, but on an
	// address of its own and with its access to the cluster in a file. It returns that address.
	deployed := func(ctx context.Context, env *framework.Env) string {
		address := env.CCM.UnusedAddress()
		host, port, err := net.SplitHostPort(address)
		Expect(err).NotTo(HaveOccurred())
		containers := suite.Deployment.Spec.Template.Spec.Containers
		Expect(containers).To(HaveLen(1))
		env.CCM.Start(ctx, framework.CCMOptions{LeaderElect: true, Args: append(containers[0].Args,
			"--bind-address="+host, "--secure-port="+port,
			"--authentication-kubeconfig="+suite.Kubeconfig, "--authorization-kubeconfig="+suite.Kubeconfig)})
		return address
	}

	It("works with the arguments and the permissions of the manifest", func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{NoCCM: true})
		address := deployed(ctx, env)
		server := env.Nodes.Create(ctx, "node-1")[0]
		env.Services.Create(ctx, "web")
		env.Traffic.AwaitServed(ctx, "web")
		env.Routes.Await(ctx, env.Routes.Of(ctx, "node-1", server))

		lease, err := env.Kube.CoordinationV1().Leases("kube-system").Get(ctx, "cloud-controller-manager", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(lease.Spec.HolderIdentity).To(HaveValue(Not(BeEmpty())))

		By("asking for health as a kubelet does, without credentials")
		Eventually(func() (int, error) { return status(ctx, address, "/healthz", "") }).
			WithContext(ctx).WithTimeout(framework.Timeout).Should(Equal(http.StatusOK))
	})

	It("shows its metrics to those only whom RBAC allows it", func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{NoCCM: true})
		address := deployed(ctx, env)
		Eventually(func() (int, error) { return status(ctx, address, "/healthz", "") }).
			WithContext(ctx).WithTimeout(framework.Timeout).Should(Equal(http.StatusOK))

		reader, stranger := account(ctx, env, "reader"), account(ctx, env, "stranger")
		allow(ctx, env, "reader", rbacv1.PolicyRule{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}})
		// The verdict on an account may be a few seconds old.
		Eventually(func() (int, error) { return status(ctx, address, "/metrics", reader) }).
			WithContext(ctx).WithTimeout(framework.Timeout).WithPolling(framework.Polling).Should(Equal(http.StatusOK))
		Expect(status(ctx, address, "/metrics", stranger)).To(Equal(http.StatusForbidden))
		Expect(status(ctx, address, "/metrics", "")).To(Equal(http.StatusForbidden))
		Expect(status(ctx, address, "/metrics", "no token of this cluster")).To(Equal(http.StatusUnauthorized))
	})

	It("is admitted as a pod that may do nothing to its node", func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{NoCCM: true})
		template := suite.Deployment.Spec.Template
		pod := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
		pod.Name = "dry-run"
		dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
		admitted, err := env.Kube.CoreV1().Pods(suite.Deployment.Namespace).Create(ctx, pod, dryRun)
		Expect(err).NotTo(HaveOccurred())
		Expect(admitted.Spec.Priority).To(HaveValue(BeNumerically(">=", 2_000_000_000)), "system-cluster-critical")

		By("holding it to Kubernetes' restricted profile, but for the node's network")
		_, err = env.Kube.CoreV1().Namespaces().Patch(ctx, env.Services.Namespace, "application/merge-patch+json",
			[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		pod.Spec.ServiceAccountName = "default"
		_, err = env.Kube.CoreV1().Pods(env.Services.Namespace).Create(ctx, pod, dryRun)
		Expect(err).To(MatchError(And(ContainSubstring("restricted"), ContainSubstring("host"))), "the profile is not enforced")
		pod.Spec.HostNetwork = false
		for i := range pod.Spec.Containers {
			c := &pod.Spec.Containers[i]
			for p := range c.Ports {
				c.Ports[p].HostPort = 0
			}
			for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
				probe.HTTPGet.Host = "" // the node's loopback address is its business only
			}
		}
		_, err = env.Kube.CoreV1().Pods(env.Services.Namespace).Create(ctx, pod, dryRun)
		Expect(err).NotTo(HaveOccurred())
	})
})

// account makes a service account in the spec's namespace and returns a token of it.
func account(ctx context.Context, env *framework.Env, name string) string {
	GinkgoHelper()
	accounts := env.Kube.CoreV1().ServiceAccounts(env.Services.Namespace)
	_, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	request, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return request.Status.Token
}

// allow gives a service account of the spec's namespace a right in the whole cluster, as long as the
// spec runs.
func allow(ctx context.Context, env *framework.Env, name string, rule rbacv1.PolicyRule) {
	GinkgoHelper()
	meta := metav1.ObjectMeta{Name: env.Services.Namespace + "-" + name}
	rbac := env.Kube.RbacV1()
	_, err := rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
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

// status returns the status of a GET on a CCM's secure port, whose certificate it makes itself.
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
