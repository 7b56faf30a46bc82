// Command machine-controller makes servers for Machines, and keeps MachineSets and MachineDeployments: see ccm/machine/README.md.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	_ "golang.org/x/crypto/x509roots/fallback" // an image FROM scratch has no certificate authorities; a system's own take precedence
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/apicall"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/controller"
	_ "github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/hetzner"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/v1alpha1"
)

// settings are the flags.
type settings struct {
	metrics, health string
	elect, version  bool
	namespace       string
	workers         int
	interval, poll  time.Duration
	kubeQPS         float64
}

func main() {
	s, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil && s.version {
		fmt.Println("machine-controller", ccm.Version())
		return
	}
	if err == nil {
		err = run(s)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "machine-controller:", err)
		os.Exit(1)
	}
}

func parse(args []string) (s settings, err error) {
	f := flag.NewFlagSet("machine-controller", flag.ContinueOnError)
	f.StringVar(&s.metrics, "metrics-bind-address", ":8080", "`address` of the metrics; 0 switches them off")
	f.StringVar(&s.health, "health-probe-bind-address", ":8081", "`address` of /healthz and /readyz; 0 switches them off")
	f.BoolVar(&s.elect, "leader-elect", true, "elect a leader, so that several replicas may run")
	f.BoolVar(&s.version, "version", false, "print the version")
	f.StringVar(&s.namespace, "namespace", ownNamespace(),
		"`namespace` of the Lease, and of Secrets and ConfigMaps whose reference names none")
	f.IntVar(&s.workers, "workers", 10, "`number` of Machines that are worked on at the same time")
	f.DurationVar(&s.interval, "interval", 15*time.Minute,
		"`time` between two looks at a server of which nothing is heard; each is one request to the cloud")
	f.DurationVar(&s.poll, "poll", 5*time.Second, "`time` between two looks at a server that is on its way")
	f.Float64Var(&s.kubeQPS, "kube-api-qps", 50, "requests to Kubernetes per second")
	config.RegisterFlags(f)
	f.Usage = func() {
		fmt.Fprintf(f.Output(), "machine-controller makes servers for Machines, and keeps MachineSets and MachineDeployments.\n"+
			"HCLOUD_TOKEN and HCLOUD_ENDPOINT are used where a Machine names none. Flags:\n")
		f.PrintDefaults()
	}
	if err := f.Parse(args); err != nil {
		return s, err
	}
	if f.NArg() > 0 {
		return s, fmt.Errorf("unknown argument %q: --help lists the flags", f.Arg(0))
	}
	return s, nil
}

// ownNamespace returns the namespace of this pod, else kube-system.
func ownNamespace() string {
	if text, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace"); err == nil {
		return strings.TrimSpace(string(text))
	}
	return "kube-system"
}

func run(s settings) error {
	ctrl.SetLogger(textlogger.NewLogger(textlogger.NewConfig()))
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("cannot find the cluster: set --kubeconfig: %w", err)
	}
	cfg.QPS, cfg.Burst = float32(s.kubeQPS), int(2*s.kubeQPS)
	apicall.LimitRequests(cfg)
	mgr, err := newManager(cfg, s)
	if err != nil {
		return err
	}
	klog.InfoS("Starting machine-controller", "version", ccm.Version())
	return mgr.Start(ctrl.SetupSignalHandler())
}

func newManager(cfg *rest.Config, s settings) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: s.metrics}, HealthProbeBindAddress: s.health,
		LeaderElection: s.elect, LeaderElectionID: "machine-controller", LeaderElectionNamespace: s.namespace,
		LeaderElectionReleaseOnCancel: true, // nothing runs after Start
	})
	if err != nil {
		return nil, err
	}
	resolver := &machine.Resolver{Client: mgr.GetAPIReader(), Namespace: s.namespace}
	if err := controller.Add(mgr, controller.Options{Resolver: resolver, Workers: s.workers, Interval: s.interval,
		Poll: s.poll}); err != nil {
		return nil, err
	}
	return mgr, errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping))
}
