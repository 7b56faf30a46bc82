// Command ccm-from-scratch is a cloud-controller-manager for the Hetzner Cloud. It takes the flags
// of every cloud-controller-manager (see --help). It reads its own settings, such as HCLOUD_TOKEN,
// HCLOUD_ENDPOINT and HCLOUD_NETWORK, from the environment (see the package ccm).
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	_ "golang.org/x/crypto/x509roots/fallback" // an image FROM scratch has no certificate authorities; a system's own take precedence
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	ccmconfig "k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // metrics of the Kubernetes client
	_ "k8s.io/component-base/metrics/prometheus/version"  // metric of the version
	"k8s.io/component-base/version"
	"k8s.io/controller-manager/pkg/features"
	"k8s.io/klog/v2"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/apicall"
)

// workers is the default of --concurrent-service-syncs and --concurrent-node-syncs; that of k8s.io/cloud-provider is 1.
const workers = 10

// kubeQPS and kubeBurst are the defaults of --kube-api-qps and --kube-api-burst. A new Node costs three requests to the
// Kubernetes API, so that the 20 per second of k8s.io/cloud-provider are 7 Nodes. The API server protects itself by
// priority and fairness.
const kubeQPS, kubeBurst = 100, 200

func main() {
	os.Exit(cli.Run(newCommand(genericapiserver.SetupSignalHandler())))
}

// newCommand returns the command. It ends when stop is closed.
func newCommand(stop <-chan struct{}) *cobra.Command {
	opts, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		exit(err)
	}
	opts.KubeCloudShared.CloudProvider.Name = ccm.ProviderName
	// With the default of 1, one Service with a locked load balancer delays all others.
	opts.ServiceController.ConcurrentServiceSyncs = workers
	opts.NodeController.ConcurrentNodeSyncs = workers
	opts.Generic.ClientConnection.QPS, opts.Generic.ClientConnection.Burst = kubeQPS, kubeBurst
	opts.NodeStatusUpdateFrequency.Duration = ccm.NodeRefresh
	// Reconcile routes when nodes change, not every ten seconds. --feature-gates can change this.
	if err := utilfeature.DefaultMutableFeatureGate.OverrideDefault(features.CloudControllerManagerWatchBasedRoutesReconciliation,
		true); err != nil {
		exit(err)
	}
	command := app.NewCloudControllerManagerCommand(opts, newCloud, app.DefaultInitFuncConstructors,
		names.CCMControllerAliases(), cliflag.NamedFlagSets{}, stop)
	reportVersion()
	command.Use = ccm.ProviderName
	command.Long = "ccm-from-scratch is a cloud-controller-manager for the Hetzner Cloud. Its flags are those of every\n" +
		"cloud-controller-manager. Its own settings, such as HCLOUD_TOKEN and HCLOUD_NETWORK, are environment\n" +
		"variables: see ccm/README.md."
	run := command.RunE
	command.RunE = func(cmd *cobra.Command, args []string) error {
		// The flag is that of k8s.io/component-base. It would print the version of that library.
		if v := cmd.Flags().Lookup("version").Value.String(); v == "true" || v == "raw" {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), ccm.ProviderName, versions())
			return err
		}
		return run(cmd, args)
	}
	return command
}

// versions returns the versions of this program, of its libraries and of Go.
func versions() string {
	libraries := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == "k8s.io/cloud-provider" {
				libraries = dep.Version
			}
		}
	}
	return fmt.Sprintf("%s (k8s.io/cloud-provider %s, %s, %s/%s)", ccm.Version(), libraries, runtime.Version(), runtime.GOOS,
		runtime.GOARCH)
}

// reportVersion makes the libraries of Kubernetes report this program's version too, in their log line and
// in the metric of the build. They accept only a version that starts with their own, v0.0.0.
func reportVersion() {
	own := strings.TrimPrefix(ccm.Version(), "v")
	if err := version.SetDynamicVersion("v" + own); err != nil {
		if err := version.SetDynamicVersion("v0.0.0-" + own); err != nil {
			klog.V(2).InfoS("Could not set the version that the libraries of Kubernetes report", "version", own, "reason", err)
		}
	}
}

// logStart logs the version and the variables of the environment that have no effect.
func logStart(environ []string) {
	klog.InfoS("Starting "+ccm.ProviderName, "version", versions())
	for _, sentence := range ccm.UnknownVariables(environ) {
		klog.Warning(sentence)
	}
}

func exit(err error) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", ccm.ProviderName, err)
	os.Exit(1)
}

// newCloud builds the provider from the environment and the command line. If settings are invalid it
// reports all mistakes together and ends the process.
func newCloud(config *ccmconfig.CompletedConfig) cloudprovider.Interface {
	logStart(os.Environ())
	apicall.LimitRequests(config.Kubeconfig) // of the clients that controllers make from now on
	shared := config.ComponentConfig.KubeCloudShared
	cfg, err := ccm.ConfigFromEnv(os.LookupEnv)
	cfg.NodeName = os.Getenv("NODE_NAME")
	errs := []error{err}
	// Manifests of the production CCM have its name.
	if name := shared.CloudProvider.Name; name != ccm.ProviderName && name != string(ccm.ConventionHcloud) {
		errs = append(errs, fmt.Errorf("--cloud-provider=%q: must be %q; you can also omit the flag", name, ccm.ProviderName))
	}
	cfg.ClusterCIDRs, err = parseCIDRs(shared.ClusterCIDR)
	errs = append(errs, err)
	if cfg.RoutesEnabled && shared.ConfigureCloudRoutes && shared.ClusterCIDR == "" {
		errs = append(errs, errors.New("--cluster-cidr is not set: routes need the pod range of the cluster, for example "+
			"--cluster-cidr=10.244.0.0/16; "+
			"to disable routes set HCLOUD_NETWORK_ROUTES_ENABLED=false or --configure-cloud-routes=false"))
	}
	if err := errors.Join(errs...); err != nil {
		exit(fmt.Errorf("invalid settings:\n  %s", strings.ReplaceAll(err.Error(), "\n", "\n  ")))
	}

	var opts []ccm.Option
	if election := config.ComponentConfig.Generic.LeaderElection; election.LeaderElect {
		// The process's client may read the Lease; with --use-service-account-credentials the provider's client may not.
		opts = append(opts, ccm.WithLeaderLease(config.VersionedClient.CoordinationV1().Leases(election.ResourceNamespace),
			election.ResourceName))
	}
	cloud := ccm.New(cfg, opts...)
	if cfg.MetricsEnabled {
		go serveMetrics(cfg.MetricsAddress, cloud)
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := cloud.Check(ctx); err != nil {
			klog.ErrorS(err, "Could not reach the Hetzner Cloud API with these settings; each later request tries again; check "+
				"HCLOUD_ENDPOINT, HCLOUD_TOKEN and HCLOUD_NETWORK", "endpoint", cfg.Endpoint)
		}
	}()
	return cloud
}

func parseCIDRs(list string) ([]netip.Prefix, error) {
	var prefixes []netip.Prefix
	var errs []error
	for text := range strings.SplitSeq(list, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		p, err := netip.ParsePrefix(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--cluster-cidr=%q: must be an IP range, for example 10.244.0.0/16", text))
			continue
		}
		prefixes = append(prefixes, p.Masked())
	}
	return prefixes, errors.Join(errs...)
}

// metricsOf returns the metrics of API calls and those of the controllers. The secure port serves only the
// latter, and only to clients that RBAC allows.
func metricsOf(cloud *ccm.Cloud) prometheus.Gatherer {
	return prometheus.Gatherers{cloud.Metrics(), legacyregistry.DefaultGatherer}
}

// serveMetrics serves metrics and readiness. If it fails, the process continues without them.
func serveMetrics(address string, cloud *ccm.Cloud) {
	server := &http.Server{Addr: address, Handler: handler(cloud), ReadHeaderTimeout: 5 * time.Second}
	klog.ErrorS(server.ListenAndServe(), "Could not serve metrics; continuing without them; set HCLOUD_METRICS_ADDRESS to a free address",
		"HCLOUD_METRICS_ADDRESS", address)
}

// handler serves /metrics and /readyz. The latter answers 503 while the provider does not believe the API's
// answers.
func handler(cloud *ccm.Cloud) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metricsOf(cloud), promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := cloud.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	return mux
}
