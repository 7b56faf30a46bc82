package nodes

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
	"github.com/ccm-from-scratch/ccm-from-scratch/kind/cluster"
	"github.com/ccm-from-scratch/ccm-from-scratch/kind/nodes/cloudinit"
)

// labelServer is the label of a container that was made for a server: its id.
const labelServer = "ccm-from-scratch.server"

// Docker is the Driver of a Docker daemon, by its command line: on a host that needs
// scripts/with-docker.sh, a program that uses it must be run through that.
type Docker struct {
	Cluster *cluster.Cluster
	// Room is how many containers there may be in the cluster, with those that kind made; 0 is any
	// number.
	Room int
	// Logger logs attempts to join that fail. If nil, it is slog.Default.
	Logger *slog.Logger
	// RetryJoin is the time between two attempts to join, or to prepare that. Default: 5 s.
	RetryJoin time.Duration
}

// docker runs a command.
func docker(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "docker", args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("docker %s: %w: %s", args[0], cmp.Or(ctx.Err(), err), strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(stdout.String()), nil
}

// List implements Driver.
func (d *Docker) List(ctx context.Context) ([]Container, error) {
	nodes, err := d.Cluster.Containers(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Container, 0, len(nodes))
	for _, n := range nodes {
		c := Container{Name: n.Name, Address: n.Address, Running: n.Running, Started: n.Started,
			ControlPlane: n.Name == d.Cluster.ControlPlane()}
		if text := n.Labels[labelServer]; text != "" {
			if c.Server, err = strconv.ParseInt(text, 10, 64); err != nil {
				return nil, fmt.Errorf("the label %s of the container %s: %w", labelServer, n.Name, err)
			}
		}
		out = append(out, c)
	}
	return out, nil
}

// Create implements Driver.
func (d *Docker) Create(ctx context.Context, m hypervisor.Guest) error {
	all, err := d.List(ctx)
	if err != nil {
		return err
	}
	address, ok := d.Address(m)
	if !ok {
		return unavailable(fmt.Sprintf("the server has no address in the cluster's network %s: attach it to the network with this range",
			d.Cluster.Subnet))
	}
	if err := checkFree(address, all); err != nil {
		return err
	}
	if d.Room > 0 && len(all) >= d.Room {
		return unavailable(fmt.Sprintf("the cluster has room for %d nodes, and has %d", d.Room, len(all)))
	}
	if _, err := docker(ctx, nil, "image", "inspect", "--format", "{{.Id}}", d.Cluster.Image); err != nil {
		return unavailable(fmt.Sprintf("there is no image %s to make nodes of: %v", d.Cluster.Image, err))
	}
	err = d.Cluster.Define(ctx, m.Name, address, labelServer+"="+strconv.FormatInt(m.Server, 10))
	if err != nil && ctx.Err() == nil {
		return unavailable(err.Error())
	}
	return err
}

// Address implements Driver: the private address in the cluster's network, else the public one if it is in there.
func (d *Docker) Address(m hypervisor.Guest) (netip.Addr, bool) {
	for _, n := range m.Networks {
		if d.Cluster.Subnet.Contains(n.IP) {
			return n.IP, true
		}
	}
	return m.PublicIPv4, d.Cluster.Subnet.Contains(m.PublicIPv4)
}

// checkFree returns an error if a container has the address.
func checkFree(a netip.Addr, all []Container) error {
	for _, c := range all {
		if c.Address == a {
			return unavailable(fmt.Sprintf("the address %s is that of the container %s", a, c.Name))
		}
	}
	return nil
}

// Move implements Driver.
func (d *Docker) Move(ctx context.Context, name string, to netip.Addr) error {
	all, err := d.List(ctx)
	if err != nil {
		return err
	}
	if err := checkFree(to, all); err != nil {
		return err
	}
	return d.Cluster.Move(ctx, name, to)
}

// Start implements Driver. It returns when systemd listens. A node that does not fit on this host therefore does not count as running.
func (d *Docker) Start(ctx context.Context, name string) error {
	if err := d.Cluster.PowerOn(ctx, name); err != nil {
		return err
	}
	return d.awaitSystemd(ctx, name)
}

// Kill implements Driver.
func (d *Docker) Kill(ctx context.Context, name string) error {
	err := d.Cluster.PowerOff(ctx, name)
	if err != nil && strings.Contains(err.Error(), "is not running") {
		return nil
	}
	return err
}

// Shutdown implements Driver. systemd shuts down on this signal: kind's image names it as the one to stop it. Before systemd listens the
// signal would be lost, and the server would never be off.
func (d *Docker) Shutdown(ctx context.Context, name string) error {
	if err := d.awaitSystemd(ctx, name); err != nil {
		return ctx.Err() // it is off already, or the caller has stopped waiting
	}
	_, err := docker(ctx, nil, "kill", "--signal=SIGRTMIN+3", name)
	return err
}

// systemdTimeout is how long systemd may take to begin to listen. A node that takes longer
// counts as slow, not as broken.
const systemdTimeout = 20 * time.Second

// awaitSystemd waits until systemd listens. It returns an error if the container ends before.
func (d *Docker) awaitSystemd(ctx context.Context, name string) error {
	limited, cancel := context.WithTimeout(ctx, systemdTimeout)
	defer cancel()
	for {
		_, err := d.run(limited, nil, name, "systemctl", "show", "--property=Version")
		if err == nil || limited.Err() != nil {
			return ctx.Err()
		}
		state, err := docker(limited, nil, "inspect", "--format={{.State.Status}}", name)
		if err == nil && (state == "exited" || state == "dead") {
			return d.died(ctx, name)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-limited.Done():
		}
	}
}

// died says why a container exited right after its start.
func (d *Docker) died(ctx context.Context, name string) error {
	log, _ := docker(ctx, nil, "logs", "--tail=5", name)
	if strings.Contains(log, "Too many open files") {
		return unavailable("this host has no room for one more node: fs.inotify.max_user_instances is used up; " +
			"raise it (sysctl -w fs.inotify.max_user_instances=1024) or remove other nodes")
	}
	return fmt.Errorf("the container %s has ended right after it was started; its log ends with\n%s", name, log)
}

// restartTimeout is how long systemd has to shut down before a reboot becomes a reset.
const restartTimeout = 30

// Restart implements Driver.
func (d *Docker) Restart(ctx context.Context, name string) error {
	if err := d.awaitSystemd(ctx, name); err != nil {
		return d.Start(ctx, name) // it has ended by itself
	}
	// Not --time: newer Dockers call it --timeout.
	if _, err := docker(ctx, nil, "restart", "-t", strconv.Itoa(restartTimeout), name); err != nil {
		return err
	}
	return d.awaitSystemd(ctx, name)
}

// Remove implements Driver.
func (d *Docker) Remove(ctx context.Context, name string) error { return d.Cluster.Remove(ctx, name) }

// The files that show that a node booted before.
const (
	joinedFile = "/etc/kubernetes/kubelet.conf"
	onceFolder = "/var/lib/cloud/instance/started"
	logFile    = "/var/log/cloud-init-output.log"
)

// Boot implements Driver.
func (d *Docker) Boot(ctx context.Context, name string, m hypervisor.Guest) ([]string, error) {
	blank := strings.TrimSpace(m.UserData) == ""
	marker := onceFolder
	if blank {
		marker = joinedFile
	}
	// At later boots, the services from the first boot start by themselves.
	if _, err := d.run(ctx, nil, name, "test", "-e", marker); err == nil {
		return nil, d.catchUp(ctx, name)
	}
	if err := d.Cluster.AwaitBooted(ctx, name); err != nil {
		return nil, err
	}
	if blank {
		return nil, d.join(ctx, name)
	}
	script, err := cloudinit.Compile(m.UserData, cloudinit.Instance{
		ID: m.Server, Hostname: m.Name, Region: m.NetworkZone, AvailabilityZone: m.Location, Log: logFile,
	})
	if err != nil {
		return nil, err
	}
	// User data may bring all that it needs to join, so it runs even if this fails.
	if err := d.prepareSoon(ctx, name); err != nil {
		script.Notes = append(script.Notes, fmt.Sprintf("there is no %s: %v", cluster.JoinConfigurationPath, err))
	}
	if _, err := d.run(ctx, bytes.NewReader(script.Text), name, "sh"); err != nil {
		return script.Notes, d.explain(ctx, name, err)
	}
	return script.Notes, nil
}

// catchUp loads the images that were loaded into the cluster while the node was off.
func (d *Docker) catchUp(ctx context.Context, name string) error {
	if err := d.Cluster.AwaitBooted(ctx, name); err != nil {
		return err
	}
	return d.Cluster.CopyImages(ctx, name)
}

// join joins the cluster. It tries again for as long as the node runs: the control plane may be
// off, or a Node of the same name not deleted yet.
func (d *Docker) join(ctx context.Context, name string) error {
	log := d.Logger
	if log == nil {
		log = slog.Default()
	}
	for {
		err := d.prepare(ctx, name)
		if err == nil {
			if _, err = d.run(ctx, nil, name, "sh", "-c", "exec kubeadm join --config="+cluster.JoinConfigurationPath+" >>"+logFile+
				" 2>&1"); err == nil {
				return nil
			}
			err = d.explain(ctx, name, err)
		}
		if ctx.Err() != nil {
			return err
		}
		log.Warn("cannot join a node to the cluster, trying again", "container", name, "in", d.retryJoin(), "error", err)
		if !d.pause(ctx) {
			return err
		}
	}
}

func (d *Docker) retryJoin() time.Duration { return cmp.Or(d.RetryJoin, 5*time.Second) }

// pause waits before another attempt. It returns false if the context is done.
func (d *Docker) pause(ctx context.Context) bool {
	select {
	case <-time.After(d.retryJoin()):
		return true
	case <-ctx.Done():
		return false
	}
}

// prepareAttempts is how often prepareSoon tries.
const prepareAttempts = 5

// prepareSoon is prepare, tried again for a short time: a busy control plane may not answer at once.
func (d *Docker) prepareSoon(ctx context.Context, name string) error {
	for attempt := 1; ; attempt++ {
		err := d.prepare(ctx, name)
		if err == nil || attempt == prepareAttempts || !d.pause(ctx) {
			return err
		}
	}
}

// prepare leaves the files for joining in a container.
func (d *Docker) prepare(ctx context.Context, name string) error {
	all, err := d.List(ctx)
	if err != nil {
		return err
	}
	for _, c := range all {
		if c.Name == name {
			return d.Cluster.PrepareJoin(ctx, name, c.Address)
		}
	}
	return fmt.Errorf("the container %s is gone", name)
}

// explain adds the last output of user data to an error.
func (d *Docker) explain(ctx context.Context, name string, err error) error {
	if ctx.Err() != nil {
		return err
	}
	if said, failed := d.run(ctx, nil, name, "tail", "-n5", logFile); failed == nil && said != "" {
		return fmt.Errorf("%w; %s ends with\n%s", err, logFile, said)
	}
	return err
}

// run runs a command in a container.
func (d *Docker) run(ctx context.Context, stdin io.Reader, name string, args ...string) (string, error) {
	return docker(ctx, stdin, append([]string{"exec", "--privileged", "-i", name}, args...)...)
}

// Watch implements Driver.
func (d *Docker) Watch(ctx context.Context, changed func(string)) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	// Since now, so that nothing is missed until Docker listens.
	cmd := exec.CommandContext(ctx, "docker", "events", "--since="+strconv.FormatInt(time.Now().Unix(), 10), "--format={{json .}}",
		"--filter=type=container", "--filter=label=io.x-k8s.kind.cluster="+d.Cluster.Name,
		"--filter=event=create", "--filter=event=start", "--filter=event=die", "--filter=event=destroy")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("docker events: %w", err)
	}
	changed("")
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, err := eventName(lines.Bytes())
		if err != nil {
			stop()
			return errors.Join(err, cmd.Wait())
		}
		changed(name)
	}
	return fmt.Errorf("docker events has ended: %w: %s", errors.Join(cmd.Wait(), lines.Err()), strings.TrimSpace(stderr.String()))
}

// eventName returns the name of the container that an event is about.
func eventName(line []byte) (string, error) {
	var e struct {
		Actor struct{ Attributes map[string]string }
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return "", fmt.Errorf("an event of Docker's: %w: %.200s", err, line)
	}
	name := e.Actor.Attributes["name"]
	if name == "" {
		return "", fmt.Errorf("an event of Docker's names no container: %.200s", line)
	}
	return name, nil
}
