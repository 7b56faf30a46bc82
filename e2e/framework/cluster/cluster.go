// Package cluster gives specs a Kubernetes API to talk to: an embedded control plane of real programs without Docker, or a cluster that
// exists.
//
// The embedded control plane is etcd, kube-apiserver and kube-controller-manager of one release. It reproduces the services that a
// cloud-controller-manager depends on: authentication and RBAC, admission of service accounts, node IPAM (pod CIDRs), node lifecycle
// (NotReady, taints), endpoint slices, namespaces, garbage collection.
//
// NOT modelled: a scheduler and a container runtime, so no pod ever runs; nodes are simulated by the package node. Service addresses do not
// route. etcd does not sync to disk. The API server's own endpoints are not maintained, since it listens on loopback only.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// Options describes an embedded control plane. The zero value is good.
type Options struct {
	// Programs is the folder with the programs to run. If empty, FindPrograms finds it.
	Programs string
	// LogDir keeps the programs' output in <program>.log files after Stop. Empty means a temporary folder that Stop deletes.
	LogDir string
	// PodCIDR is the range of all pod CIDRs. Zero means 10.244.0.0/16.
	PodCIDR netip.Prefix
	// NodeMonitorGracePeriod is how long a node may be silent before it is NotReady. Zero means 8 s: eight heartbeats of a simulated node,
	// enough for a busy host. (A real cluster waits 50 s, five heartbeats.)
	NodeMonitorGracePeriod time.Duration
}

// serviceCIDR is the range of cluster IPs.
const serviceCIDR = "10.96.0.0/16"

// startTimeout bounds the wait for each program: while twelve control planes work, a slow host needs more than one minute.
const startTimeout = 3 * time.Minute

func (o Options) complete() (_ Options, err error) {
	o.PodCIDR = cmp.Or(o.PodCIDR, netip.MustParsePrefix("10.244.0.0/16"))
	o.NodeMonitorGracePeriod = cmp.Or(o.NodeMonitorGracePeriod, 8*time.Second)
	if o.Programs == "" {
		o.Programs, err = FindPrograms()
	}
	return o, err
}

// Cluster is the Kubernetes API that specs use. Its fields do not change.
type Cluster struct {
	// RESTConfig is an administrator's, practically without a client-side limit.
	RESTConfig *rest.Config
	// Client uses RESTConfig.
	Client kubernetes.Interface
	// Kubeconfig is the path of a file with an administrator's access, for other processes.
	Kubeconfig string
	// Version is the API server's release, such as "v1.37.1".
	Version string
	// LogDir has the output of the control plane and of the programs that Run started. Empty for a cluster that exists.
	LogDir string
	// PodCIDR is the range of all pod CIDRs. Zero for a cluster that exists.
	PodCIDR netip.Prefix

	dir        string // temporary: keys, data, kubeconfigs, process numbers
	janitor    *janitor
	plane      *envtest.ControlPlane
	controller *Process
	outputs    []*os.File

	mu        sync.Mutex
	processes []*Process
	stop      func() error
}

// Existing uses the cluster that the kubeconfig file at path leads to. Stop leaves that cluster alone.
func Existing(path string) (*Cluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("cannot use the cluster of kubeconfig %s: %w", path, err)
	}
	c := &Cluster{RESTConfig: unlimited(config), Kubeconfig: path, stop: func() error { return nil }}
	return c, c.connect()
}

// Start brings up an embedded control plane. It returns when its API answers and its controllers work, a few seconds later. It starts
// processes and creates a temporary folder. Stop removes them. Start also starts a janitor that removes them if the calling process ends
// without Stop, for whatever reason.
func Start(ctx context.Context, options Options) (_ *Cluster, err error) {
	options, err = options.complete()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "ccm-from-scratch-cluster-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir, LogDir: options.LogDir, PodCIDR: options.PodCIDR.Masked()}
	c.stop = sync.OnceValue(c.tearDown)
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	if c.LogDir == "" {
		c.LogDir = filepath.Join(dir, "logs")
	}
	if err := os.MkdirAll(c.LogDir, 0o755); err != nil {
		return nil, err
	}
	if c.janitor, err = hireJanitor(dir); err != nil {
		return nil, err
	}
	if err := c.startPlane(ctx, options); err != nil {
		return nil, err
	}
	if err := c.connect(); err != nil {
		return nil, err
	}
	if err := c.startControllers(ctx, options); err != nil {
		return nil, err
	}
	return c, nil
}

// connect makes the client and asks for the version.
func (c *Cluster) connect() (err error) {
	if c.Client, err = kubernetes.NewForConfig(c.RESTConfig); err != nil {
		return err
	}
	info, err := c.Client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("cannot reach the cluster: %w", err)
	}
	c.Version = info.GitVersion
	return nil
}

// Stop ends the processes of Start and Run and deletes their files, except a LogDir that the caller named. Calling it again returns the
// first result.
func (c *Cluster) Stop() error { return c.stop() }

func (c *Cluster) tearDown() error {
	var errs []error
	c.mu.Lock()
	processes := c.processes
	c.mu.Unlock()
	for _, process := range processes {
		errs = append(errs, process.Kill())
	}
	if c.plane != nil {
		errs = append(errs, c.janitor.end("kube-apiserver", "etcd"))
		// envtest may find a process gone that it is about to send a signal.
		if err := c.plane.Stop(); !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, err)
		}
	}
	for _, file := range c.outputs {
		errs = append(errs, file.Close())
	}
	if c.janitor != nil {
		errs = append(errs, c.janitor.dismiss())
	} else {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	return errors.Join(errs...)
}

// KubeconfigFor writes a kubeconfig for a user that the API server will know under the name and groups, by a client certificate, and
// returns the file's path. RBAC grants that user's rights: like a cloud-controller-manager's service account in a cluster, it starts with
// next to nothing.
func (c *Cluster) KubeconfigFor(name string, groups ...string) (string, error) {
	if c.plane == nil {
		return "", errors.New("users can only be made for an embedded control plane")
	}
	user, err := c.plane.AddUser(envtest.User{Name: name, Groups: groups}, nil)
	if err != nil {
		return "", fmt.Errorf("cannot create the user %s: %w", name, err)
	}
	data, err := user.KubeConfig()
	if err != nil {
		return "", fmt.Errorf("cannot create the user %s: %w", name, err)
	}
	file, err := os.CreateTemp(c.dir, "*.kubeconfig") // readable by us alone
	if err != nil {
		return "", err
	}
	_, err = file.Write(data)
	return file.Name(), errors.Join(err, file.Close())
}

// awaitControllers waits for the default service account of the default namespace. The controller manager creates it once it has the API,
// credentials, and running controllers.
func (c *Cluster) awaitControllers(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		if exited(c.controller) {
			return false, c.controller.exitError()
		}
		_, err := c.Client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, nil // the API may be busy in its first second: look again
	})
	if err != nil {
		return fmt.Errorf("kube-controller-manager does not work: %w\n%s", err, tail(c.controller.LogPath()))
	}
	return nil
}

// unlimited returns a copy of config without a limit that a test would notice.
func unlimited(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 1000, 2000
	return config
}
