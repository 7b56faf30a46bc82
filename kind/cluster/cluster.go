package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	kind "sigs.k8s.io/kind/pkg/cluster"

	"github.com/ccm-from-scratch/ccm-from-scratch/kind/wholefile"
)

// Options describe the cluster for Create. Name and Image must be set.
type Options struct {
	// Name of the cluster and of its Docker network; nodes' names begin with it.
	// Lower-case letters, digits and hyphens, at most 40.
	Name string
	// Image of the nodes. Docker must have it: see EnsureImage.
	Image string
	// Workers is the number of nodes in addition to the control plane's.
	Workers int
	// Subnet of the Docker network, a /16. Zero means DefaultSubnet.
	Subnet netip.Prefix
	// PodCIDR is the pods' range; each node gets a /24 of it. Zero means DefaultPodCIDR.
	PodCIDR netip.Prefix
	// NodeMonitorGracePeriod is how long a Node may be silent before it is called
	// NotReady, in whole seconds. Zero means Kubernetes' own 50 s.
	NodeMonitorGracePeriod time.Duration
	// Kubeconfig is the file to write. Empty means KubeconfigPath(Name). The
	// user's own kubeconfig is never touched.
	Kubeconfig string
	// Retain keeps the remains of a cluster if its creation fails.
	Retain bool
	// Progress gets a line for each step. If nil, nothing is shown.
	Progress io.Writer
}

var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)

// CheckName returns an error if a cluster cannot have the name. Files that go with the cluster have the name, too.
func CheckName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("KIND_NAME=%q: must be at most 40 lower-case letters, digits and hyphens, such as team-2", name)
	}
	return nil
}

// Check returns the mistakes in the options, apart from the image. It does not ask Docker.
func (o Options) Check() error {
	_, err := o.complete()
	return err
}

// complete sets the defaults, and validates.
func (o Options) complete() (Options, error) {
	o.Subnet = cmp.Or(o.Subnet, DefaultSubnet)
	o.PodCIDR = cmp.Or(o.PodCIDR, DefaultPodCIDR)
	if err := CheckName(o.Name); err != nil {
		return o, err
	}
	if o.Kubeconfig == "" {
		path, err := KubeconfigPath(o.Name)
		if err != nil {
			return o, err
		}
		o.Kubeconfig = path
	}
	switch {
	case o.Workers < 0 || o.Workers >= maxServers:
		return o, fmt.Errorf("--workers=%d: must be from 0 to %d", o.Workers, maxServers-1)
	case o.NodeMonitorGracePeriod < 0 || o.NodeMonitorGracePeriod%time.Second != 0:
		return o, fmt.Errorf("--node-monitor-grace-period=%s: must be whole seconds, or 0 for Kubernetes' own 50s",
			o.NodeMonitorGracePeriod)
	}
	if err := o.network().validate(); err != nil {
		return o, err
	}
	if serviceCIDR.Overlaps(o.PodCIDR) || serviceCIDR.Overlaps(o.Subnet) {
		return o, fmt.Errorf("KIND_SUBNET=%s or the pods' range %s overlaps that of Services, %s: choose another one, such as %s",
			o.Subnet, o.PodCIDR, serviceCIDR, DefaultSubnet)
	}
	return o, nil
}

func (o Options) network() Network {
	return Network{Name: o.Name, Subnet: o.Subnet, PodCIDR: o.PodCIDR}
}

// KubeconfigPath is the file that a cluster's kubeconfig is written to by default.
func KubeconfigPath(cluster string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no place for a kubeconfig: %w", err)
	}
	return filepath.Join(cache, "ccm-from-scratch", "kind", cluster+".kubeconfig"), nil
}

// Cluster is a running cluster. Its methods may be called by several goroutines.
type Cluster struct {
	Network
	// Image of the nodes.
	Image string
	// Kubeconfig is a file for clients on this host.
	Kubeconfig string
	// Client of the cluster's API, for clients on this host.
	Client kubernetes.Interface
}

// ControlPlane is the name of the control plane's node.
func (c *Cluster) ControlPlane() string { return nodeNames(c.Name, 0)[0] }

// Create makes the network and the cluster on it, and returns when all nodes are Ready. The i-th node (the control plane's, then workers)
// has the address Network.Server(i). If it fails, it removes the remains, unless told to retain them. kind itself cannot be interrupted:
// after the end of ctx, Create may take half a minute to return.
func Create(ctx context.Context, o Options) (_ *Cluster, err error) {
	o, err = o.complete()
	if err != nil {
		return nil, err
	}
	if o.Image == "" {
		return nil, errors.New("a cluster needs an image for its nodes")
	}
	if _, err := docker(ctx, "image", "inspect", o.Image); err != nil {
		return nil, fmt.Errorf("the image of the nodes: %w", err)
	}
	// A cluster that kind's own command made may have the name. Look before anything is made here: a failure would remove
	// that cluster.
	if err := o.CheckFree(ctx); err != nil {
		return nil, err
	}
	host, err := inspectHost(ctx)
	if err != nil {
		return nil, err
	}
	config, err := o.kindConfig(host.CgroupVersion == "1")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(o.Kubeconfig), 0o755); err != nil {
		return nil, err
	}
	if err := o.createNetwork(ctx, host.mtu); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil && !o.Retain {
			// The cleanup must run even if ctx is done.
			err = errors.Join(err, Delete(context.WithoutCancel(ctx), o.Name))
		}
	}()
	names := nodeNames(o.Name, o.Workers)
	addresses := map[string]netip.Addr{}
	for i, name := range names {
		addresses[name] = o.network().Server(i)
	}
	log := &logger{out: o.Progress}
	defer context.AfterFunc(ctx, func() { log.silence("stopping; kind has to end its step first, which may take half a minute") })()
	err = withAddresses(o.Name, host.snapshotter(), addresses, func() error {
		return kind.NewProvider(kind.ProviderWithDocker(), kind.ProviderWithLogger(log)).Create(o.Name,
			kind.CreateWithV1Alpha4Config(config), kind.CreateWithKubeconfigPath(o.Kubeconfig), kind.CreateWithRetain(true),
			kind.CreateWithDisplayUsage(false), kind.CreateWithDisplaySalutation(false))
	})
	if ctx.Err() != nil {
		// kind's error says only that a step has failed, not why.
		return nil, fmt.Errorf("creating the cluster was stopped: %w", ctx.Err())
	}
	if err != nil {
		return nil, fmt.Errorf("creating the cluster: %w", explain(err))
	}
	c, err := o.open()
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := each(names, func(name string) error { return c.installPodNetwork(ctx, name) }); err != nil {
		return nil, err
	}
	// kubeadm has succeeded, so this takes about a second. The limit is for a hang.
	ready, cancel := context.WithTimeout(ctx, readyPatience)
	defer cancel()
	for _, name := range names {
		if err := c.AwaitReady(ready, name); err != nil {
			return nil, fmt.Errorf("%w%s", err, inotifyHint("/proc"))
		}
	}
	log.printf(" ✓ Nodes ready after another %s", time.Since(begin).Round(100*time.Millisecond))
	return c, nil
}

// createNetwork makes the cluster's network, with fixed ranges.
func (o Options) createNetwork(ctx context.Context, mtu string) error {
	n := o.network()
	args := []string{"network", "create", "--driver=bridge", "--subnet=" + n.Subnet.String(), "--gateway=" + n.Host().String(),
		"--ip-range=" + n.Anonymous().String(), "--label=" + LabelCluster + "=" + n.Name,
		"--label=" + labelPodCIDR + "=" + n.PodCIDR.String(), "--label=" + labelImage + "=" + o.Image}
	if mtu != "" {
		args = append(args, "--opt="+optionMTU+"="+mtu)
	}
	if _, err := docker(ctx, append(args, n.Name)...); err != nil {
		return fmt.Errorf("making the network %s (%s): %w", n.Name, n.Subnet, err)
	}
	return nil
}

// open connects to the cluster that the options describe.
func (o Options) open() (*Cluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("the cluster's kubeconfig: %w", err)
	}
	// Joins and waits, not a controller's traffic: no limit of our own.
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &Cluster{Network: o.network(), Image: o.Image, Kubeconfig: o.Kubeconfig, Client: client}, nil
}

// CheckFree returns an error if nodes of a kind cluster of that name exist, or if another network of Docker has addresses of the subnet.
// The error says how to correct that.
func (o Options) CheckFree(ctx context.Context) error {
	nodes, err := containersWith(ctx, labelKindCluster, o.Name)
	if err != nil {
		return err
	}
	if len(nodes) > 0 {
		return fmt.Errorf("there are %d nodes of a kind cluster %s already: remove it (KIND_NAME=%[2]s make down), or choose another "+
			"KIND_NAME and KIND_SUBNET", len(nodes), o.Name)
	}
	names, err := docker(ctx, "network", "ls", "--format", "{{.Name}}")
	if err != nil || names == "" {
		return err
	}
	// Networks may go meanwhile. Docker checks again when it makes the cluster's.
	out, _ := docker(ctx, append([]string{"network", "inspect", "--format", "{{.Name}}{{range .IPAM.Config}} {{.Subnet}}{{end}}"},
		strings.Fields(names)...)...)
	used := map[netip.Prefix]string{}
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		for _, text := range fields[min(1, len(fields)):] {
			if p, err := netip.ParsePrefix(text); err == nil {
				used[p] = fields[0]
			}
		}
	}
	subnet := cmp.Or(o.Subnet, DefaultSubnet)
	taken, network := overlapping(used, subnet)
	if network == "" {
		return nil
	}
	free := subnet
	for n := 0; n < offsets && network != ""; n++ {
		free = Offset(n)
		_, network = overlapping(used, free)
	}
	return fmt.Errorf("KIND_SUBNET=%s: Docker's network %s has %s: choose another one, such as %s", subnet, used[taken],
		taken, free)
}

// overlapping returns a network's range that overlaps p, and the network's name, or "" without one.
func overlapping(used map[netip.Prefix]string, p netip.Prefix) (netip.Prefix, string) {
	for u, name := range used {
		if u.Overlaps(p) {
			return u, name
		}
	}
	return netip.Prefix{}, ""
}

// State says how much of a cluster exists.
type State string

// The states of a cluster.
const (
	// None: no cluster of Create has the name.
	None State = "none"
	// HalfMade: Create was killed before all of its nodes ran.
	HalfMade State = "half-made"
	// Whole: Create completed it. It may be switched off.
	Whole State = "whole"
)

// Look returns how much exists of a cluster that Create made.
func Look(ctx context.Context, name string) (State, error) {
	out, err := docker(ctx, "network", "ls", "--quiet", "--filter", "label="+LabelCluster+"="+name)
	if err != nil || out == "" {
		return None, err
	}
	controlPlane := nodeNames(name, 0)[0]
	nodes, err := docker(ctx, "ps", "--all", "--quiet", "--filter", "name=^"+controlPlane+"$", "--filter", "label="+labelKindCluster+"="+
		name)
	if err != nil || nodes == "" {
		return HalfMade, err
	}
	// The pod network is the last that Create installs, and a node that is off has its files, too.
	if _, err := docker(ctx, "cp", controlPlane+":/etc/systemd/system/"+podNetworkService, "-"); err != nil {
		return HalfMade, ctx.Err()
	}
	return Whole, nil
}

// Revive finds a cluster as Open does, and starts its control plane if it is off. It returns when the API answers. Workers that are off
// stay so: they are servers, and the cloud switches them on.
func Revive(ctx context.Context, name string) (*Cluster, error) {
	if _, err := docker(ctx, "start", nodeNames(name, 0)[0]); err != nil { // one that runs keeps running
		return nil, err
	}
	var c *Cluster
	err := await(ctx, "the API of "+name+" answers", func(ctx context.Context) (err error) {
		if c, err = Open(ctx, name); err != nil {
			return err
		}
		_, err = c.Client.CoreV1().Nodes().Get(ctx, c.ControlPlane(), metav1.GetOptions{})
		return err
	})
	return c, err
}

// ErrNotFound says that a cluster does not exist.
var ErrNotFound = errors.New("there is no such cluster")

// noSuchNetwork matches Docker's message about a network that does not exist.
var noSuchNetwork = regexp.MustCompile(`(?i)no such network|network .* not found`)

// Open finds a cluster that Create made, in this process or another. It writes the kubeconfig again, since Docker publishes the API on
// another port after a restart. The error wraps ErrNotFound if the cluster does not exist.
func Open(ctx context.Context, name string) (*Cluster, error) {
	path, err := KubeconfigPath(name)
	if err != nil {
		return nil, err
	}
	o := Options{Name: name, Kubeconfig: path}
	const format = `{{index .Labels "` + LabelCluster + `"}} {{index .Labels "` + labelPodCIDR + `"}} {{index .Labels "` + labelImage +
		`"}} {{(index .IPAM.Config 0).Subnet}}`
	out, err := docker(ctx, "network", "inspect", "--format", format, name)
	if err != nil && !noSuchNetwork.MatchString(err.Error()) {
		return nil, err
	}
	fields := strings.Fields(out)
	if len(fields) != 4 || fields[0] != name {
		return nil, fmt.Errorf("%w: %s (make up makes it)", ErrNotFound, name)
	}
	o.Image = fields[2]
	for _, parse := range []struct {
		text string
		to   *netip.Prefix
	}{{fields[1], &o.PodCIDR}, {fields[3], &o.Subnet}} {
		if *parse.to, err = netip.ParsePrefix(parse.text); err != nil {
			return nil, fmt.Errorf("the labels of the network %s: %w", name, err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	provider := kind.NewProvider(kind.ProviderWithDocker(), kind.ProviderWithLogger(&logger{}))
	text, err := provider.KubeConfig(name, false)
	if err == nil {
		err = wholefile.Replace(path, 0o600, func(w io.Writer) error {
			_, err := io.WriteString(w, text)
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig of %s: %w", name, err)
	}
	return o.open()
}

// containersWith returns the containers, running or not, with the label.
func containersWith(ctx context.Context, label, value string) ([]string, error) {
	out, err := docker(ctx, "ps", "--all", "--quiet", "--filter", "label="+label+"="+value)
	return strings.Fields(out), err
}

// Delete removes a cluster that Create made: its nodes, those that joined later,
// every other container with LabelCluster, the network, and the kubeconfig
// in its default place. It succeeds if none of them exists. A cluster that
// kind's own command made is left alone, whatever its name.
func Delete(ctx context.Context, name string) error {
	out, err := docker(ctx, "network", "ls", "--quiet", "--filter", "label="+LabelCluster+"="+name)
	if err != nil {
		return err
	}
	networks := strings.Fields(out)
	labels := []string{LabelCluster}
	if len(networks) > 0 {
		labels = append(labels, labelKindCluster)
	}
	for _, label := range labels {
		ids, err := containersWith(ctx, label, name)
		if err != nil {
			return err
		}
		if len(ids) == 0 {
			continue
		}
		// With their volumes: each node's /var is in an anonymous volume.
		if _, err := docker(ctx, append([]string{"rm", "--force", "--volumes"}, ids...)...); err != nil {
			return fmt.Errorf("removing the containers of %s: %w", name, err)
		}
	}
	for _, id := range networks {
		if _, err := docker(ctx, "network", "rm", id); err != nil {
			return fmt.Errorf("removing the network %s (docker network inspect %s says who is on it): %w", name, name, err)
		}
	}
	path, err := KubeconfigPath(name)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Names returns the names of all clusters, sorted.
func Names(ctx context.Context) ([]string, error) {
	out, err := docker(ctx, "network", "ls", "--filter", "label="+LabelCluster, "--format", `{{.Label "`+LabelCluster+`"}}`)
	return slices.Sorted(strings.FieldsSeq(out)), err
}

// readyPatience bounds how long Create waits for its nodes to be Ready.
const readyPatience = 3 * time.Minute

// pollInterval is how often a wait looks again. A wait ends with its context.
const pollInterval = 200 * time.Millisecond

// hopeless marks an error that waiting cannot change.
type hopeless struct{ error }

func (h hopeless) Unwrap() error { return h.error }

// await calls try until it returns nil or a hopeless error, or until ctx ends. Other errors are not final: an API server that just started
// refuses things that it allows a second later. The error says what was awaited, and holds the last error of try.
func await(ctx context.Context, what string, try func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		err := try(ctx)
		if errors.As(err, &hopeless{}) {
			return false, err
		}
		if last == nil || ctx.Err() == nil { // otherwise it may only say that ctx has ended
			last = err
		}
		return err == nil, nil
	})
	if err != nil && last != nil {
		return fmt.Errorf("waiting until %s: %w: %w", what, err, last)
	}
	if err != nil {
		return fmt.Errorf("waiting until %s: %w", what, err)
	}
	return nil
}

// each calls work for all names at once and returns all errors.
func each(names []string, work func(string) error) error {
	errs := make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() { errs[i] = work(name) })
	}
	all.Wait()
	return errors.Join(errs...)
}
