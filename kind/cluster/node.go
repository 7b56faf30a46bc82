package cluster

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// tokenLifetime is how long a bootstrap token for one node lives.
const tokenLifetime = 15 * time.Minute

// NodeContainer is a container that is a node of the cluster, running or not.
type NodeContainer struct {
	// Name of the container, of its host and of its Node.
	Name string
	// Role is "control-plane" or "worker".
	Role string
	// Address in the cluster's network. A stopped container keeps it. It is zero if Move was interrupted.
	Address netip.Addr
	// Running reports whether it runs.
	Running bool
	// Started is when it was started last.
	Started time.Time
	// Labels of the container.
	Labels map[string]string
}

// Containers returns the cluster's node containers, by name, also those that
// have not joined.
func (c *Cluster) Containers(ctx context.Context) ([]NodeContainer, error) {
	ids, err := containersWith(ctx, labelKindCluster, c.Name)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	out, err := docker(ctx, append([]string{"inspect"}, ids...)...)
	if err == nil {
		return parseContainers([]byte(out), c.Name)
	}
	if !isGone(err) {
		return nil, err
	}
	// One is being removed: Docker may still list it, but can no longer inspect it. Inspect the others one by one.
	var containers []NodeContainer
	for _, id := range ids {
		out, err := docker(ctx, "inspect", id)
		if isGone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		one, err := parseContainers([]byte(out), c.Name)
		if err != nil {
			return nil, err
		}
		containers = append(containers, one...)
	}
	slices.SortFunc(containers, byName)
	return containers, nil
}

func byName(a, b NodeContainer) int { return strings.Compare(a.Name, b.Name) }

// isGone reports whether Docker says that the container does not exist.
func isGone(err error) bool {
	if err == nil {
		return false
	}
	said := strings.ToLower(err.Error())
	return strings.Contains(said, "no such container") || strings.Contains(said, "no such object")
}

// parseContainers reads what docker inspect says of node containers.
func parseContainers(text []byte, network string) ([]NodeContainer, error) {
	var found []struct {
		Name  string
		State struct {
			Running   bool
			StartedAt time.Time
		}
		Config          struct{ Labels map[string]string }
		NetworkSettings struct {
			Networks map[string]struct{ IPAMConfig struct{ IPv4Address string } }
		}
	}
	if err := json.Unmarshal(text, &found); err != nil {
		return nil, fmt.Errorf("docker inspect: %w", err)
	}
	containers := make([]NodeContainer, 0, len(found))
	for _, f := range found {
		n := NodeContainer{Name: strings.TrimPrefix(f.Name, "/"), Role: f.Config.Labels[labelKindRole], Running: f.State.Running,
			Started: f.State.StartedAt, Labels: f.Config.Labels}
		// The address that was asked for: the one in use is empty while it is stopped.
		if in, connected := f.NetworkSettings.Networks[network]; connected {
			address, err := netip.ParseAddr(in.IPAMConfig.IPv4Address)
			if err != nil {
				return nil, fmt.Errorf("the container %s has no fixed address in the network %s", n.Name, network)
			}
			n.Address = address
		}
		containers = append(containers, n)
	}
	slices.SortFunc(containers, byName)
	return containers, nil
}

// Join makes one more node with that name and address and returns when its Node
// is registered; AwaitReady waits for more. The address must be one of
// Network.Servers that no container has. A Node that still has the name must be
// deleted before. If it fails, nothing is left of the container.
func (c *Cluster) Join(ctx context.Context, name string, address netip.Addr) (err error) {
	if err := c.Launch(ctx, name, address); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Remove(context.WithoutCancel(ctx), name))
		}
	}()
	if err := c.PrepareJoin(ctx, name, address); err != nil {
		return err
	}
	if _, err := onNode(ctx, name, "kubeadm", "join", "--config="+JoinConfigurationPath); err != nil {
		return fmt.Errorf("%s cannot join: %w", name, err)
	}
	return await(ctx, "the Node "+name+" is registered", func(ctx context.Context) error {
		_, err := c.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		return err
	})
}

// JoinConfigurationPath is where PrepareJoin leaves the configuration in a node, as kind does.
const JoinConfigurationPath = "/kind/kubeadm.conf"

// PrepareJoin makes a node that was launched ready for `kubeadm join`: it loads
// what LoadImage has loaded into the others, and leaves a JoinConfiguration at
// JoinConfigurationPath.
func (c *Cluster) PrepareJoin(ctx context.Context, name string, address netip.Addr) error {
	if err := c.CopyImages(ctx, name); err != nil {
		return err
	}
	config, err := c.JoinConfiguration(ctx, name, address)
	if err != nil {
		return err
	}
	_, err = onNodeIn(ctx, strings.NewReader(config), name, "cp", "/dev/stdin", JoinConfigurationPath)
	return err
}

// Launch starts a container that can become a node. It is like a server before kubeadm ran: it runs systemd and containerd, and the pod
// network's service waits. Launch returns when containerd answers.
func (c *Cluster) Launch(ctx context.Context, name string, address netip.Addr) (err error) {
	if !c.Servers().Contains(address) {
		return fmt.Errorf("the address %s is not one of %s, where servers' are", address, c.Servers())
	}
	if err := c.Define(ctx, name, address); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Remove(context.WithoutCancel(ctx), name))
		}
	}()
	if err := c.PowerOn(ctx, name); err != nil {
		return fmt.Errorf("starting %s: %w", name, err)
	}
	return c.AwaitBooted(ctx, name)
}

// Define makes the container that Launch starts, and leaves it powered off. Its
// address must be one of the network's. Labels are "key=value".
func (c *Cluster) Define(ctx context.Context, name string, address netip.Addr, labels ...string) error {
	if !c.Subnet.Contains(address) {
		return fmt.Errorf("the address %s is not in the cluster's network %s", address, c.Subnet)
	}
	environment, err := c.inherited(ctx)
	if err != nil {
		return err
	}
	// What kind passes for a worker.
	args := []string{"create", "--pull=never", "--tty", "--name", name, "--hostname", name,
		"--label", labelKindCluster + "=" + c.Name, "--label", labelKindRole + "=" + roleWorker,
		"--net", c.Name, "--ip", address.String(), "--restart=on-failure:1", "--init=false", "--cgroupns=private",
		"--privileged", "--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined",
		"--tmpfs", "/tmp", "--tmpfs", "/run", "--volume", "/var", "--volume", "/lib/modules:/lib/modules:ro"}
	for _, variable := range environment {
		args = append(args, "--env", variable)
	}
	for _, label := range labels {
		args = append(args, "--label", label)
	}
	if _, err = docker(ctx, append(args, c.Image)...); err != nil {
		return fmt.Errorf("making %s: %w", name, err)
	}
	return nil
}

// Move gives a node's container that is powered off another address of the network. kind's image notices at the next start,
// and changes the kubelet's settings.
func (c *Cluster) Move(ctx context.Context, name string, to netip.Addr) error {
	if _, err := docker(ctx, "network", "disconnect", c.Name, name); err != nil && !strings.Contains(err.Error(), "is not connected") {
		return err
	}
	_, err := docker(ctx, "network", "connect", "--ip", to.String(), c.Name, name)
	return err
}

// AwaitBooted returns when containerd answers in a node that was powered on, and
// has installed the pod network's service. It fails when the container ends.
func (c *Cluster) AwaitBooted(ctx context.Context, name string) error {
	if err := c.awaitContainerd(ctx, name); err != nil {
		return err
	}
	return c.awaitOn(ctx, name, "the pod network's service is installed", func(ctx context.Context) error {
		return c.installPodNetwork(ctx, name)
	})
}

// awaitContainerd returns when containerd answers in a node that was powered on. It fails when the container ends.
func (c *Cluster) awaitContainerd(ctx context.Context, name string) error {
	return c.awaitOn(ctx, name, "containerd runs", func(ctx context.Context) error {
		_, err := onNode(ctx, name, "crictl", "version")
		return err
	})
}

// awaitOn calls try until it succeeds on a node, or the container ends.
func (c *Cluster) awaitOn(ctx context.Context, name, what string, try func(context.Context) error) error {
	return await(ctx, what+" on "+name, func(ctx context.Context) error {
		err := try(ctx)
		if err == nil || c.startOf(ctx, name) != "" {
			return err
		}
		log, _ := docker(ctx, "logs", "--tail=20", name)
		return errors.Join(err, hopeless{fmt.Errorf("%s has ended; its log ends with\n%s", name, log)})
	})
}

// startOf returns when a container was started last, as Docker writes it. It returns "" if Docker says that the container does
// not run, or does not exist, and another text if Docker does not answer.
func (c *Cluster) startOf(ctx context.Context, name string) string {
	started, err := docker(ctx, "inspect", "--format", "{{if .State.Running}}{{.State.StartedAt}}{{end}}", name)
	if err != nil && !isGone(err) {
		return "unknown"
	}
	return strings.TrimSpace(started)
}

// inherited returns the variables that kind gave to the control plane's node and
// every node needs: how to reach registries through a proxy, and the snapshotter.
func (c *Cluster) inherited(ctx context.Context) ([]string, error) {
	out, err := docker(ctx, "inspect", "--format", "{{range .Config.Env}}{{println .}}{{end}}", c.ControlPlane())
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(strings.Fields(out), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return name != snapshotterVariable && !strings.HasSuffix(strings.ToUpper(name), "_PROXY")
	}), nil
}

// JoinConfiguration returns a configuration for `kubeadm join` on a node with
// that name and address, with a token that lives for 15 minutes.
func (c *Cluster) JoinConfiguration(ctx context.Context, name string, address netip.Addr) (string, error) {
	token, err := onNode(ctx, c.ControlPlane(), "kubeadm", "token", "create", "--kubeconfig=/etc/kubernetes/admin.conf",
		"--ttl="+tokenLifetime.String(), "--description=for "+name)
	if err != nil {
		return "", fmt.Errorf("making a token for %s: %w", name, err)
	}
	ca, err := onNode(ctx, c.ControlPlane(), "cat", "/etc/kubernetes/pki/ca.crt")
	if err != nil {
		return "", err
	}
	hash, err := caHash([]byte(ca))
	if err != nil {
		return "", err
	}
	return joinConfiguration(name, address, c.ControlPlane()+":6443", token, hash)
}

// caHash is a certificate's public key as kubeadm pins it.
func caHash(pemText []byte) (string, error) {
	block, _ := pem.Decode(pemText)
	if block == nil {
		return "", errors.New("the cluster's CA certificate must be PEM")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("the cluster's CA certificate: %w", err)
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(certificate.RawSubjectPublicKeyInfo)), nil
}

// joinConfiguration is what kind writes for a worker, with our changes: a CCM
// instead of a provider ID, and a pinned CA.
func joinConfiguration(name string, address netip.Addr, endpoint, token, caHash string) (string, error) {
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "JoinConfiguration",
		"nodeRegistration": map[string]any{
			"name": name, "criSocket": "unix:///run/containerd/containerd.sock",
			"kubeletExtraArgs": []argument{{"node-ip", address.String()}, {"cloud-provider", "external"}},
		},
		"discovery": map[string]any{"bootstrapToken": map[string]any{
			"apiServerEndpoint": endpoint, "token": token, "caCertHashes": []string{caHash},
		}},
		"timeouts": map[string]string{"kubernetesAPICall": apiPatience.String()},
		// A container fails kubeadm's checks of the host, as with kind.
		"skipPhases": []string{"preflight"},
	})
	return string(text), err
}

// AwaitReady returns when the node says that it is Ready, and has a pod CIDR.
func (c *Cluster) AwaitReady(ctx context.Context, name string) error {
	return await(ctx, "the Node "+name+" is Ready", func(ctx context.Context) error {
		node, err := c.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		switch {
		case err != nil:
			return err
		case !Ready(node):
			return fmt.Errorf("its conditions are %v", node.Status.Conditions)
		case node.Spec.PodCIDR == "":
			return errors.New("it has no pod CIDR")
		}
		return nil
	})
}

// Ready reports whether the kubelet says that its node is ready.
func Ready(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
		return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
	})
}

// Remove takes a node's container away, as a server that is deleted. Its Node stays for the CCM to remove. It succeeds if the container
// does not exist.
func (c *Cluster) Remove(ctx context.Context, name string) error {
	_, err := docker(ctx, "rm", "--force", "--volumes", name)
	if isGone(err) {
		return nil
	}
	return err
}

// PowerOn starts a node's container.
func (c *Cluster) PowerOn(ctx context.Context, name string) error {
	_, err := docker(ctx, "start", name)
	return err
}

// PowerOff ends a node's container at once, as pulling the plug does.
func (c *Cluster) PowerOff(ctx context.Context, name string) error {
	_, err := docker(ctx, "kill", name)
	return err
}

// Shutdown asks a node's systemd to end, as an ACPI event does, and ends the
// container after 10 seconds if it has not (an API server that is asked to end
// waits a minute for clients that watch).
func (c *Cluster) Shutdown(ctx context.Context, name string) error {
	_, err := docker(ctx, "stop", "--time=10", name)
	return err
}
