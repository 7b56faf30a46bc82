package environment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/kind/cluster"
	"github.com/ccm-from-scratch/ccm-from-scratch/kind/nodes"
)

// Options describe the environment for Up. Cluster.Name must be set.
type Options struct {
	// Cluster is the cluster; its Image may be left empty, see NodeImage. Its
	// Progress is that of Options.
	Cluster cluster.Options
	// NodeImage says where Cluster.Image comes from if that is empty, as in cluster.EnsureImage.
	NodeImage string
	// CloudArchive is an image of fakecloud with the name fakecloud:kind, ProbeArchive one of kind/cmd/probe with the name ProbeImage,
	// CCMArchive one of the CCM with the name ccm-from-scratch:kind, as `docker save` writes them. Empty ones are built of this module. The
	// working directory must then be in its checkout.
	CloudArchive, ProbeArchive, CCMArchive string
	// Actions is how long the cloud's actions take, like fakecloud's flag. Default: realistic.
	Actions string
	// RateLimit is the cloud's, in requests per hour; 0 means none.
	RateLimit int
	// APIPort and ControlPort are the ports on 127.0.0.1 that the cloud is published at; 0 is
	// any free one.
	APIPort, ControlPort uint16
	// WithoutCCM leaves the nodes uninitialized.
	WithoutCCM bool
	// Timeout bounds the time from when all images are there until the environment can be used. 0 means no limit. Images take
	// as long as they take.
	Timeout time.Duration
	// Hypervisor is a command that runs RunHypervisor for the cluster, to be started in the
	// background. Empty: no hypervisor; the caller may run one.
	Hypervisor []string
	// Progress gets a line for each step. If nil, nothing is shown.
	Progress io.Writer
}

// Environment is a cluster with its cloud.
type Environment struct {
	*cluster.Cluster
	// Endpoint and Control are the URLs of the cloud's APIs for this host, InnerEndpoint that
	// for nodes, and pods in a node's network.
	Endpoint, Control, InnerEndpoint string
	// Token is valid for all of these.
	Token string
	// Cloud is a client of the API.
	Cloud *hcloud.Client
	// OutsideProxy is an HTTP proxy on this host that knows the method CONNECT, and connects from
	// OutsideAddress: a client on the network that is not of the cluster, whatever host Docker runs on.
	OutsideProxy   *url.URL
	OutsideAddress netip.Addr
	// CloudNetwork is the cloud's network that the nodes are in. Set by Up.
	CloudNetwork *hcloud.Network
	// NodeServers are the servers of the nodes that kind made, by name. Set by Up.
	NodeServers map[string]*hcloud.Server
	// Progress gets the progress of compiling for the environment. If nil, nothing is shown.
	Progress io.Writer
	// Steps are the steps of Up, and how long each took.
	Steps []Step
}

// ErrNoCloud says that a cluster exists, but without a cloud around it.
var ErrNoCloud = errors.New("the cluster has no cloud")

// Up makes an environment and returns when it can be used: each node is initialized by the CCM, the cluster's DNS runs, and the cloud has a
// route to each node's pods. If it fails, it removes the parts that it made, unless Cluster.Retain is set.
//
// If an environment of the name exists, Up repairs it: it makes missing parts, starts dead ones, and keeps the working ones. A failure then
// removes nothing.
func Up(ctx context.Context, o Options) (_ *Environment, err error) {
	o.Actions = cmp.Or(o.Actions, "realistic")
	if err := o.Check(); err != nil {
		return nil, err
	}
	unlock, err := lock(o.Cluster.Name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	s := &steps{out: o.Progress, begin: time.Now()}
	o.Cluster.Progress = o.Progress
	there, err := o.there(ctx, s)
	if err != nil {
		return nil, err
	}
	undo := func(context.Context, string) error { return removeFolder(o.Cluster.Name) }
	caller := ctx
	defer func() {
		if err == nil {
			return
		}
		after, left := "make up continues with what is there, make down removes it", error(nil)
		if !there && !o.Cluster.Retain {
			if left = undo(context.WithoutCancel(ctx), o.Cluster.Name); left == nil { // also if the error is that ctx has ended
				after = "what it had made is removed"
			}
		}
		if errors.Is(caller.Err(), context.Canceled) { // no step knows more than that
			err = fmt.Errorf("stopped (%w): %s", context.Cause(caller), after)
		}
		err = errors.Join(err, left)
	}()
	if err := o.images(ctx, s); err != nil {
		return nil, err
	}
	if o.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Timeout)
		defer cancel()
	}
	e := &Environment{Progress: o.Progress}
	if err := s.step("cluster", func() (err error) {
		if there {
			e.Cluster, err = cluster.Revive(ctx, o.Cluster.Name)
			return err
		}
		e.Cluster, err = cluster.Create(ctx, o.Cluster)
		return err
	}); err != nil {
		return nil, err
	}
	undo = down
	for _, next := range []struct {
		name string
		work func() error
	}{
		{"cloud", func() error { return o.cloud(ctx, e) }},
		{"outside", func() error { return o.outside(ctx, e) }},
		{"servers", func() error { return o.adopt(ctx, e) }},
		{"hypervisor", func() error { return o.hypervisor(ctx, e) }},
		{"cloud-controller-manager", func() error { return o.deployCCM(ctx, e) }},
		{"nodes initialized, DNS, routes", func() error { return o.awaitUsable(ctx, e) }},
	} {
		if err := s.step(next.name, next.work); err != nil {
			return nil, err
		}
	}
	e.Steps = s.done
	return e, nil
}

// there reports whether an environment of the name exists and can be repaired. It removes the half-made remains of a killed Up.
func (o Options) there(ctx context.Context, s *steps) (bool, error) {
	state, err := cluster.Look(ctx, o.Cluster.Name)
	switch {
	case err != nil:
		return false, err
	case state == cluster.HalfMade:
		s.say("the cluster %s is half-made: it is removed and made again", o.Cluster.Name)
		return false, down(ctx, o.Cluster.Name)
	case state == cluster.Whole:
		s.say("the cluster %s is there: what is missing or dead is repaired (make down removes it)", o.Cluster.Name)
		return true, nil
	}
	// Create finds that out, too, but only after the build of the images. That may take minutes.
	if err := o.Cluster.CheckFree(ctx); err != nil {
		return false, err
	}
	return false, o.checkPorts(ctx)
}

// images makes sure that all images exist.
func (o *Options) images(ctx context.Context, s *steps) error {
	if o.Cluster.Image == "" {
		if err := s.step("node image", func() (err error) {
			o.Cluster.Image, err = cluster.EnsureImage(ctx, o.NodeImage, o.Progress)
			return err
		}); err != nil {
			return err
		}
	}
	for _, p := range []struct {
		program program
		archive *string
		skip    bool
	}{{cloudProgram, &o.CloudArchive, false}, {probeProgram, &o.ProbeArchive, false}, {ccmProgram, &o.CCMArchive, o.WithoutCCM}} {
		if *p.archive != "" || p.skip {
			continue
		}
		if err := s.step("image "+p.program.image, func() (err error) {
			*p.archive, err = p.program.build(ctx, o.Cluster.Name, o.Progress)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// cloud makes sure that the cloud runs and answers.
func (o Options) cloud(ctx context.Context, e *Environment) error {
	state, err := containerState(ctx, cloudContainer(e.Name))
	switch {
	case err != nil:
		return err
	case state == absent:
		err = o.startCloud(ctx, e.Cluster)
	case state == stopped:
		_, err = docker(ctx, "start", cloudContainer(e.Name))
	}
	if err != nil {
		return err
	}
	if err := e.connect(ctx); err != nil {
		return err
	}
	return e.awaitCloud(ctx)
}

// Open finds an environment that Up made, in this process or another. The error wraps cluster.ErrNotFound if no cluster has the name, and
// ErrNoCloud if the cluster has no cloud.
func Open(ctx context.Context, name string) (*Environment, error) {
	c, err := cluster.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	e := &Environment{Cluster: c}
	return e, errors.Join(e.connect(ctx), e.connectOutside(ctx))
}

// Down removes the environment: the hypervisor, all containers, the network, the images that Docker was given for it, unless another
// environment uses them, the cloud's volume, and the folder on disk. The nodes' image stays. It succeeds if none of them exists.
func Down(ctx context.Context, name string) error {
	unlock, err := lock(name)
	if err != nil {
		return err
	}
	defer unlock()
	return down(ctx, name)
}

// down is Down for a caller that has the lock.
func down(ctx context.Context, name string) error {
	// The hypervisor goes first: it would try to bring back removed containers.
	if err := stopHypervisor(ctx, name); err != nil {
		return err
	}
	err := cluster.Delete(ctx, name)
	_, volumeErr := docker(ctx, "volume", "rm", "--force", cloudVolume(name))
	return errors.Join(err, volumeErr, removeImages(ctx), removeFolder(name))
}

// Exec runs a command on a node.
func (e *Environment) Exec(ctx context.Context, node string, command ...string) error {
	_, err := docker(ctx, append([]string{"exec", node}, command...)...)
	return err
}

// Exports returns lines for a shell that make clients use the environment.
func (e *Environment) Exports() string {
	return fmt.Sprintf("export KUBECONFIG=%s\nexport HCLOUD_ENDPOINT=%s HCLOUD_TOKEN=%s\nexport HCLOUD_NETWORK=%s "+
		"FAKECLOUD_CONTROL_URL=%s\n",
		e.Kubeconfig, e.Endpoint, e.Token, NetworkName, e.Control)
}

// DefaultRateLimit is that of the real cloud.
const DefaultRateLimit = fakecloud.RealRateLimit

func (e *Environment) driver() *nodes.Docker {
	return &nodes.Docker{Cluster: e.Cluster}
}
