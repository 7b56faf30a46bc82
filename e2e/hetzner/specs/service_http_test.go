package specs

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/netip"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/hetzner"
)

// authority is a certificate authority of the spec's own.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority() *authority {
	GinkgoHelper()
	a := &authority{key: newKey()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "spec"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert = a.sign(template, template, a.key)
	return a
}

func newKey() *ecdsa.PrivateKey {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	return key
}

func (a *authority) sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	GinkgoHelper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, a.key)
	Expect(err).NotTo(HaveOccurred())
	cert, err := x509.ParseCertificate(der)
	Expect(err).NotTo(HaveOccurred())
	return cert
}

// roots returns the authorities that a client has to trust.
func (a *authority) roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// upload makes a certificate for a domain and uploads it to the cloud.
func (a *authority) upload(ctx context.Context, env *hetzner.Env, name, domain string) *hcloud.Certificate {
	GinkgoHelper()
	key := newKey()
	cert := a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: domain}, DNSNames: []string{domain},
		NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a.cert, key)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	Expect(err).NotTo(HaveOccurred())
	return env.Cloud.UploadCertificate(ctx, hcloud.CertificateCreateOpts{
		Name: name, Type: hcloud.CertificateTypeUploaded,
		Certificate: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})),
		PrivateKey:  string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	})
}

// https makes a Service serve only HTTPS on port 443.
func https(values map[string]string) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Spec.Ports = []corev1.ServicePort{framework.ServicePort(443)}
		annotate(map[string]string{"protocol": "https"})(s)
		annotate(values)(s)
	}
}

// awaitHTTPS waits until the Service's address serves the domain with a certificate that the roots have signed.
func awaitHTTPS(ctx SpecContext, env *hetzner.Env, service, domain string, roots *x509.CertPool) {
	GinkgoHelper()
	client := env.Traffic.Client(framework.ClientOptions{Address: env.Services.AwaitIngress(ctx, service), Roots: roots})
	Eventually(func(g Gomega) {
		answer, err := env.Traffic.GetURL(ctx, client, "https://"+domain+"/")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(answer.Host).To(Equal(domain))
		g.Expect(answer.Service).To(Equal(env.Services.Namespace + "/" + service))
		g.Expect(answer.Headers.Get("X-Forwarded-Proto")).To(Equal("https"))
	}).WithContext(ctx).Should(Succeed())
}

var _ = Describe("A Service with HTTP or HTTPS", Label("service", "dataplane"), func() {
	const domain = "shop.example.com"

	var (
		env   *hetzner.Env
		names []string
	)

	BeforeEach(func(ctx SpecContext) {
		env = hetzner.NewEnv(ctx, hetzner.Options{})
		names = env.Nodes.Workers(ctx, 2).Names()
	})

	It("is served with an uploaded certificate", framework.Needs(framework.UploadedCertificates), func(ctx SpecContext) {
		ca := newAuthority()
		ca.upload(ctx, env, env.Unique("shop"), domain)
		env.Services.Create(ctx, "web", https(map[string]string{"certificate-type": "uploaded", "http-certificates": env.Unique("shop")}))
		awaitHTTPS(ctx, env, "web", domain, ca.roots())
	})

	It("redirects HTTP to HTTPS, and follows a change of its uploaded certificate, which outlives it",
		framework.Needs(framework.UploadedCertificates, framework.HTTP, framework.SettingUpdates), func(ctx SpecContext) {
			ca := newAuthority()
			first := ca.upload(ctx, env, env.Unique("shop"), domain)
			env.Services.Create(ctx, "web", https(map[string]string{"http-certificates": env.Unique("shop"), "http-redirect-http": "true"}))
			awaitHTTPS(ctx, env, "web", domain, ca.roots())

			By("asking without TLS")
			address := env.Services.AwaitIngress(ctx, "web")
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+domain+"/cart?id=1", nil)
			Expect(err).NotTo(HaveOccurred())
			response, err := env.Traffic.Client(framework.ClientOptions{Address: address}).Do(request)
			Expect(err).NotTo(HaveOccurred())
			Expect(response.Body.Close()).To(Succeed())
			Expect(response.StatusCode).To(BeNumerically("~", 305, 4))
			Expect(response.Header.Get("Location")).To(Equal("https://" + domain + "/cart?id=1"))

			By("replacing the certificate by one of another authority")
			other := newAuthority()
			second := other.upload(ctx, env, env.Unique("shop-2"), domain)
			env.Services.Update(ctx, "web",
				annotate(map[string]string{"http-certificates": env.Unique("shop-2"), "http-redirect-http": ""}))
			awaitHTTPS(ctx, env, "web", domain, other.roots())
			Eventually(env.Traffic.Closed).WithArguments(ctx, address, 80).Should(BeTrue())

			By("deleting the Service, which leaves the uploaded certificates")
			env.Services.Delete(ctx, "web")
			env.Services.AwaitGone(ctx, "web")
			Expect(env.Cloud.Certificates(ctx)).To(ConsistOf(HaveField("ID", first.ID), HaveField("ID", second.ID)))
		})

	It("is served on one port with HTTPS and on another with TCP", framework.Needs(framework.UploadedCertificates, framework.PortSettings,
		framework.SettingEvents), func(ctx SpecContext) {
		ca := newAuthority()
		ca.upload(ctx, env, env.Unique("shop"), domain)
		env.Services.Create(ctx, "web", func(s *corev1.Service) {
			s.Spec.Ports = append(s.Spec.Ports, framework.ServicePort(443))
			annotate(map[string]string{"protocol.443": "https", "http-certificates.443": env.Unique("shop"), "protocol.444": "http"})(s)
		})
		awaitHTTPS(ctx, env, "web", domain, ca.roots())
		address := env.Services.AwaitIngress(ctx, "web")
		Expect(env.Traffic.AwaitAnswer(ctx, "web", address, framework.Port).Headers).NotTo(HaveKey("X-Forwarded-Proto"))
		env.Services.AwaitEvent(ctx, "web", "IgnoredSetting", And(ContainSubstring("protocol.444"), ContainSubstring("8080, 443")))

		By("mistyping the settings of the HTTPS port while a port is added")
		env.Services.Update(ctx, "web", func(s *corev1.Service) {
			s.Spec.Ports = append(s.Spec.Ports, framework.ServicePort(8081))
			annotate(map[string]string{"protocol.443": "htps"})(s)
		})
		env.Traffic.AwaitAnswer(ctx, "web", address, 8081)
		env.Services.AwaitEvent(ctx, "web", "InvalidSettings", And(ContainSubstring("protocol.443"), ContainSubstring(`"htps"`)))
		awaitHTTPS(ctx, env, "web", domain, ca.roots())
	})

	It("is served with several certificates, chosen by the client's server name", framework.Needs(framework.UploadedCertificates),
		func(ctx SpecContext) {
			ca := newAuthority()
			ca.upload(ctx, env, env.Unique("shop"), domain)
			ca.upload(ctx, env, env.Unique("blog"), "blog.example.com")
			env.Services.Create(ctx, "web", https(map[string]string{"http-certificates": env.Unique("shop") + ", " + env.Unique("blog")}))
			awaitHTTPS(ctx, env, "web", domain, ca.roots())
			awaitHTTPS(ctx, env, "web", "blog.example.com", ca.roots())
		})

	It("waits for a certificate that does not exist yet, and says so", framework.Needs(framework.UploadedCertificates,
		framework.SettingEvents), func(ctx SpecContext) {
		env.Services.Create(ctx, "web", https(map[string]string{"http-certificates": env.Unique("shop")}))
		env.Services.AwaitEvent(ctx, "web", "InvalidSettings",
			And(ContainSubstring("http-certificates"), ContainSubstring(`"`+env.Unique("shop")+`"`),
				ContainSubstring("does not exist")))
		Expect(env.LoadBalancers.List(ctx)).To(BeEmpty())
		ca := newAuthority()
		ca.upload(ctx, env, env.Unique("shop"), domain)
		awaitHTTPS(ctx, env, "web", domain, ca.roots())
	})

	// FakeOnly: a real authority would check that these domains point to the load balancer.
	It("is served with a managed certificate, which is deleted with the Service", Label(framework.FakeOnly),
		framework.Needs(framework.ManagedCertificates), func(ctx SpecContext) {
			env.Services.Create(ctx, "web", https(map[string]string{
				"certificate-type": "managed", "http-managed-certificate-domains": domain + ",www." + domain,
			}))
			awaitHTTPS(ctx, env, "web", "www."+domain, env.Cloud.Roots(ctx))
			Expect(env.Cloud.Certificates(ctx)).To(HaveExactElements(And(
				HaveField("Type", hcloud.CertificateTypeManaged), HaveField("DomainNames", ConsistOf(domain, "www."+domain)))))
			env.CCM.ExpectNoServiceWrites(ctx)

			By("asking for other domains")
			env.Services.Update(ctx, "web", annotate(map[string]string{"http-managed-certificate-domains": "new." + domain}))
			awaitHTTPS(ctx, env, "web", "new."+domain, env.Cloud.Roots(ctx))
			Eventually(env.Cloud.Certificates).WithArguments(ctx).
				Should(HaveExactElements(HaveField("DomainNames", ConsistOf("new."+domain))), "the replaced certificate is still there")

			By("deleting the Service")
			env.Services.Delete(ctx, "web")
			env.Services.AwaitGone(ctx, "web")
			Expect(env.Cloud.Certificates(ctx)).To(BeEmpty())
			Expect(env.LoadBalancers.List(ctx)).To(BeEmpty())
		})

	It("loses the managed certificate when it no longer has HTTPS", Label(framework.FakeOnly),
		framework.Needs(framework.ManagedCertificates), func(ctx SpecContext) {
			env.Services.Create(ctx, "web",
				https(map[string]string{"certificate-type": "managed", "http-managed-certificate-domains": domain}))
			awaitHTTPS(ctx, env, "web", domain, env.Cloud.Roots(ctx))
			env.Services.Update(ctx, "web", annotate(map[string]string{"protocol": "tcp"}))
			env.Traffic.AwaitAnswer(ctx, "web", env.Services.AwaitIngress(ctx, "web"), 443)
			Eventually(env.Cloud.Certificates).WithArguments(ctx).Should(BeEmpty())
		})

	It("says why a managed certificate is not issued, and is served when the domains are corrected",
		framework.Needs(framework.ManagedCertificates, framework.Events), Label("fake-only"), func(ctx SpecContext) {
			env.Services.Create(ctx, "web", https(map[string]string{
				"certificate-type": "managed", "http-managed-certificate-domains": "www.caa-record-does-not-allow-ca.invalid",
			}))
			event := env.Services.AwaitEvent(ctx, "web", "ManagedCertificate",
				And(ContainSubstring("was not issued"), ContainSubstring("caa_record_does_not_allow_ca")))
			Expect(event.Type).To(Equal(corev1.EventTypeWarning))
			Expect(env.LoadBalancers.List(ctx)).To(BeEmpty())
			env.Services.Update(ctx, "web", annotate(map[string]string{"http-managed-certificate-domains": domain}))
			awaitHTTPS(ctx, env, "web", domain, env.Cloud.Roots(ctx))
			Eventually(env.Cloud.Certificates).WithArguments(ctx).
				Should(HaveExactElements(HaveField("DomainNames", ConsistOf(domain))), "the failed certificate is still there")
		})

	It("keeps a client on its node with sticky sessions", framework.Needs(framework.HTTP), func(ctx SpecContext) {
		// With the policy Cluster, a node may forward a connection to a pod on another node.
		env.Services.Create(ctx, "web", local, annotate(map[string]string{
			"protocol": "http", "http-sticky-sessions": "true", "http-cookie-name": "SHOPCART", "http-cookie-lifetime": "10m",
		}))
		address := env.Traffic.AwaitServed(ctx, "web")
		lb := env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy(names...))
		Expect(hetzner.ServiceOn(lb, framework.Port).HTTP).To(And(
			HaveField("CookieName", "SHOPCART"), HaveField("CookieLifetime", 10*time.Minute)))
		url := framework.URL("http", address, framework.Port)
		client := env.Traffic.Client(framework.ClientOptions{Cookies: true})
		first, err := env.Traffic.GetURL(ctx, client, url)
		Expect(err).NotTo(HaveOccurred())
		for range 6 {
			again, err := env.Traffic.GetURL(ctx, client, url)
			Expect(err).NotTo(HaveOccurred())
			Expect(again.Node).To(Equal(first.Node))
			Expect(again.Headers.Get("Cookie")).To(ContainSubstring("SHOPCART="))
		}
		// Clients without the cookie are balanced.
		env.Traffic.AwaitAnsweringNodes(ctx, address, framework.Port, names...)

		By("switching them off")
		env.Services.Update(ctx, "web", annotate(map[string]string{"http-sticky-sessions": ""}))
		Eventually(func(g Gomega) {
			nodes := map[string]bool{}
			for range 4 {
				answer, err := env.Traffic.GetURL(ctx, client, url)
				g.Expect(err).NotTo(HaveOccurred())
				nodes[answer.Node] = true
			}
			g.Expect(nodes).To(HaveLen(2))
		}).WithContext(ctx).Should(Succeed())
	})

	It("changes from TCP with the same address, and shows pods the client in a header", framework.Needs(framework.HTTP),
		func(ctx SpecContext) {
			env.Services.Create(ctx, "web")
			address := env.Traffic.AwaitServed(ctx, "web")
			answer, err := env.Traffic.Get(ctx, address, framework.Port)
			Expect(err).NotTo(HaveOccurred())
			Expect(answer.Headers).NotTo(HaveKey("X-Forwarded-For"))
			env.Services.Update(ctx, "web", annotate(map[string]string{"protocol": "http", "http-timeout-idle": "90s"}))
			from := netip.MustParseAddr(env.Traffic.OutsideAddress())
			client := env.Traffic.Client(framework.ClientOptions{From: from})
			Eventually(func(g Gomega) {
				answer, err := env.Traffic.GetURL(ctx, client, framework.URL("http", address, framework.Port))
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(answer.Headers.Get("X-Forwarded-For")).To(Equal(from.String()))
			}).WithContext(ctx).Should(Succeed())
			Expect(hetzner.ServiceOn(env.LoadBalancers.Of(ctx, "web"), framework.Port).HTTP.TimeoutIdle).To(Equal(90 * time.Second))
			Expect(env.Services.AwaitIngress(ctx, "web")).To(Equal(address))
		})
})
