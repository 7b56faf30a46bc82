package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// planeAttempts is how often the control plane is started before giving up.
// Ports are free when they are chosen and could be taken a moment later.
const planeAttempts = 3

// startPlane starts etcd and kube-apiserver and makes the administrator.
func (c *Cluster) startPlane(ctx context.Context, options Options) (err error) {
	etcd, err := c.janitor.wrap("etcd", filepath.Join(options.Programs, "etcd"))
	if err != nil {
		return err
	}
	apiServer, err := c.janitor.wrap("kube-apiserver", filepath.Join(options.Programs, "kube-apiserver"))
	if err != nil {
		return err
	}
	// envtest takes no context: a cancelled start kills the programs, so that the attempt under way fails.
	defer context.AfterFunc(ctx, func() { _ = c.janitor.end("kube-apiserver", "etcd") })()
	for attempt := 1; ; attempt++ {
		var plane *envtest.ControlPlane
		if plane, err = c.newPlane(attempt, etcd, apiServer, options); err != nil {
			return err
		}
		if err = plane.Start(); err == nil {
			c.plane = plane
			break
		}
		// A program that hangs was told to end, but no code waited for it.
		err = errors.Join(err, c.janitor.end("kube-apiserver", "etcd"))
		if ctx.Err() != nil {
			return fmt.Errorf("cannot start the control plane: %w", ctx.Err())
		}
		if attempt == planeAttempts {
			return fmt.Errorf("cannot start the control plane: %w\n%s\n%s", err,
				tail(filepath.Join(c.LogDir, "etcd.log")), tail(filepath.Join(c.LogDir, "kube-apiserver.log")))
		}
	}
	admin, err := c.plane.AddUser(envtest.User{Name: "e2e-admin", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		return fmt.Errorf("cannot create the administrator: %w", err)
	}
	c.RESTConfig = unlimited(admin.Config())
	c.Kubeconfig, err = c.KubeconfigFor("e2e-admin", "system:masters")
	return err
}

// newPlane describes the two programs to envtest, with everything they write below the cluster's folder.
func (c *Cluster) newPlane(attempt int, etcdPath, apiServerPath string, options Options) (*envtest.ControlPlane, error) {
	folder := func(name string) (string, error) {
		path := filepath.Join(c.dir, name+"-"+strconv.Itoa(attempt))
		return path, os.MkdirAll(path, 0o700)
	}
	data, err1 := folder("etcd")
	keys, err2 := folder("kube-apiserver")
	etcdLog, err3 := c.openLog("etcd")
	apiServerLog, err4 := c.openLog("kube-apiserver")
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	etcd := &envtest.Etcd{Path: etcdPath, DataDir: data, Out: etcdLog, Err: etcdLog, StartTimeout: startTimeout}
	apiServer := &envtest.APIServer{Path: apiServerPath, CertDir: keys, Out: apiServerLog, Err: apiServerLog, StartTimeout: startTimeout}
	apiServer.Configure().
		Set("service-cluster-ip-range", serviceCIDR).
		Set("authorization-mode", "Node", "RBAC").
		// envtest switches the ServiceAccount plug-in off because it has no controller manager that makes the accounts. We have one.
		Disable("disable-admission-plugins").
		// It would fail each 10 s: endpoints may not be loopback addresses.
		Set("endpoint-reconciler-type", "none")
	return &envtest.ControlPlane{Etcd: etcd, APIServer: apiServer, KubectlPath: filepath.Join(options.Programs, "kubectl")}, nil
}

// openLog opens a program's log file for more output.
func (c *Cluster) openLog(name string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(c.LogDir, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err == nil {
		c.outputs = append(c.outputs, file)
	}
	return file, err
}

// controllers are the ones that a cloud-controller-manager's work depends on or
// shows in. Controllers that make pods are left out, since no pod would run.
var controllers = []string{
	"serviceaccount-controller",
	"namespace-controller",
	"garbage-collector-controller",
	"node-ipam-controller",
	"node-lifecycle-controller",
	"taint-eviction-controller",
	"endpoints-controller",
	"endpointslice-controller",
	"root-ca-certificate-publisher-controller",
}

// startControllers starts kube-controller-manager and waits until it works.
func (c *Cluster) startControllers(ctx context.Context, options Options) error {
	kubeconfig, err := c.KubeconfigFor("system:kube-controller-manager")
	if err != nil {
		return err
	}
	keys := c.plane.APIServer.CertDir
	c.controller, err = c.Run(Command{
		Name: "kube-controller-manager",
		Path: filepath.Join(options.Programs, "kube-controller-manager"),
		Args: []string{
			"--kubeconfig=" + kubeconfig,
			"--secure-port=0", // its metrics are not used
			"--leader-elect=false",
			"--controllers=" + strings.Join(controllers, ","),
			// As kubeadm does: each controller has its account and RBAC rules.
			"--use-service-account-credentials=true",
			"--service-account-private-key-file=" + filepath.Join(keys, "sa-signer.key"),
			// The flag of a cluster with a cloud-controller-manager. The controller manager has no
			// cloud controllers any more, and ignores it.
			"--cloud-provider=external",
			"--allocate-node-cidrs=true",
			"--cluster-cidr=" + options.PodCIDR.Masked().String(),
			"--service-cluster-ip-range=" + serviceCIDR,
			"--node-monitor-period=1s", // default 5 s: the maximum age of a node's status
			"--node-monitor-grace-period=" + options.NodeMonitorGracePeriod.String(),
			"--kube-api-qps=200", "--kube-api-burst=400",
			"--concurrent-gc-syncs=5", // default 20 goroutines; clusters here are small
		},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return c.awaitControllers(ctx)
}

// tail returns the last lines of the log file at path for an error message.
func tail(path string) string {
	const bytes, lines = 16 << 10, 15
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	text := strings.TrimSpace(string(data[max(0, len(data)-bytes):]))
	all := strings.Split(text, "\n")
	return fmt.Sprintf("--- last lines of %s\n%s", filepath.Base(path), strings.Join(all[max(0, len(all)-lines):], "\n"))
}

// killGrace is how long a killed process may take to be gone from the system.
const killGrace = 10 * time.Second
