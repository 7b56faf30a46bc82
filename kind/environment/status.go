package environment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/remote"
	"github.com/ccm-from-scratch/ccm-from-scratch/kind/cluster"
	"github.com/ccm-from-scratch/ccm-from-scratch/kind/nodes"
)

// statusTimeout bounds the question to one part of an environment.
const statusTimeout = 10 * time.Second

// part is the status of one part of an environment.
type part struct {
	name, state string
	dead        string // why it does not work, and how to restart it; "" if it works
}

// Status describes an environment: the cluster, the cloud, the hypervisor, the CCM, the nodes and the endpoints. A dead part is shown with
// the way to restart it, and makes Status return an error.
func Status(ctx context.Context, name string, out io.Writer) error {
	state, err := cluster.Look(ctx, name)
	if err != nil {
		return err
	}
	if state == cluster.None {
		return fmt.Errorf("there is no cluster %s: make up makes it", name)
	}
	if state == cluster.HalfMade {
		return fmt.Errorf("the cluster %s is half-made: make up makes it again", name)
	}
	c, err := cluster.Open(ctx, name)
	if err != nil {
		return fmt.Errorf("%w; make up starts what is off", err)
	}
	e := &Environment{Cluster: c}
	connected := e.connect(ctx)
	var servers []*hcloud.Server
	nodes, nodesErr := e.listNodes(ctx)
	var cloudErr error
	if connected == nil {
		servers, cloudErr = e.listServers(ctx)
	}
	parts := []part{
		e.clusterPart(nodes, nodesErr),
		e.cloudPart(errors.Join(connected, cloudErr), servers),
		e.hypervisorPart(ctx),
		e.ccmPart(ctx),
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	dead := 0
	for _, p := range parts {
		if p.dead != "" {
			dead++
			p.state = "DEAD: " + p.dead
		}
		fmt.Fprintf(w, "%s\t%s\n", p.name, p.state)
	}
	fmt.Fprintln(w)
	showNodes(w, nodes, servers)
	if connected == nil && cloudErr == nil {
		e.showLoadBalancers(ctx, w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if dead > 0 {
		return fmt.Errorf("%d of %d parts do not work", dead, len(parts))
	}
	return nil
}

func (e *Environment) listNodes(ctx context.Context) ([]corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	nodes, err := e.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return nodes.Items, nil
}

func (e *Environment) listServers(ctx context.Context) ([]*hcloud.Server, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	return e.Cloud.Server.All(ctx)
}

func (e *Environment) clusterPart(nodes []corev1.Node, err error) part {
	p := part{name: "cluster", state: fmt.Sprintf("%s: %d nodes, KUBECONFIG=%s", e.Name, len(nodes), e.Kubeconfig)}
	if err != nil {
		p.dead = fmt.Sprintf("the Kubernetes API does not answer (%v); make up starts it", err)
	}
	return p
}

func (e *Environment) cloudPart(err error, servers []*hcloud.Server) part {
	p := part{name: "cloud", state: fmt.Sprintf("%d servers, HCLOUD_ENDPOINT=%s, control API %s", len(servers), e.Endpoint, e.Control)}
	if err != nil {
		p.dead = fmt.Sprintf("the container %s does not answer (%v); its log: docker logs %[1]s; make up starts it",
			cloudContainer(e.Name), err)
	}
	return p
}

func (e *Environment) hypervisorPart(ctx context.Context) part {
	p := part{name: "hypervisor"}
	log, _, err := hypervisorFiles(e.Name)
	if err != nil {
		p.dead = err.Error()
		return p
	}
	pid, err := hypervisorProcess(ctx, e.Name)
	if err != nil || pid == 0 {
		p.dead = "its process does not run, so no server gets, starts or stops its node; make up starts it; its log: " + log
		return p
	}
	p.state = fmt.Sprintf("process %d, log %s", pid, log)
	if e.Control == "" {
		return p // the cloud is dead, which is said already
	}
	control := remote.New(e.Control, remote.WithHTTPClient(&http.Client{Timeout: statusTimeout}))
	attached, err := control.Hypervisors(ctx)
	if err == nil && !slices.ContainsFunc(attached, func(h remote.HypervisorStatus) bool {
		return h.Name == hypervisorName &&
			h.Connected
	}) {
		p.dead = fmt.Sprintf("process %d runs, but is not attached to the cloud; its log: %s; to start another: kill %[1]d; make up", pid,
			log)
	}
	return p
}

func (e *Environment) ccmPart(ctx context.Context) part {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	p := part{name: "CCM", state: ccmNamespace + "/" + ccmName + " is available"}
	missing, err := e.deploymentMissing(ctx, ccmNamespace, ccmName)
	if err != nil {
		missing = err.Error()
	}
	if missing != "" {
		p.dead = missing + "; its log: kubectl -n " + ccmNamespace + " logs deployment/" + ccmName + "; make dev deploys it again"
	}
	return p
}

// showNodes writes each node with its server, then the servers without a node.
func showNodes(w io.Writer, all []corev1.Node, servers []*hcloud.Server) {
	fmt.Fprintln(w, "NODE\tREADY\tINITIALIZED\tSERVER\tSTATUS\tPRIVATE IP")
	rest := slices.Clone(servers)
	for _, n := range all {
		ready, initialized := "no", "no"
		if cluster.Ready(&n) {
			ready = "yes"
		}
		if n.Spec.ProviderID != "" {
			initialized = "yes"
		}
		server := "none\t-\t-"
		if i := slices.IndexFunc(rest, func(s *hcloud.Server) bool { return s.Name == n.Name }); i >= 0 {
			server = serverColumns(rest[i])
			rest = slices.Delete(rest, i, i+1)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", n.Name, ready, initialized, server)
	}
	for _, s := range rest {
		if _, none := s.Labels[nodes.NoNodeLabel]; !none {
			fmt.Fprintf(w, "-\t-\t-\t%s\n", serverColumns(s))
		}
	}
}

func serverColumns(s *hcloud.Server) string {
	addresses := make([]string, 0, len(s.PrivateNet))
	for _, n := range s.PrivateNet {
		addresses = append(addresses, n.IP.String())
	}
	return fmt.Sprintf("%s (%d)\t%s\t%s", s.Name, s.ID, s.Status, strings.Join(addresses, " "))
}

// showLoadBalancers writes where load balancers are reached.
func (e *Environment) showLoadBalancers(ctx context.Context, w io.Writer) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	all, err := e.Cloud.LoadBalancer.All(ctx)
	if err != nil || len(all) == 0 {
		return
	}
	fmt.Fprintln(w, "\nLOAD BALANCER\tENDPOINT\tTARGETS")
	for _, lb := range all {
		for _, s := range lb.Services {
			fmt.Fprintf(w, "%s\t%s\t%d\n", lb.Name, endpoint(lb, s.ListenPort), len(lb.Targets))
		}
	}
}

// endpoint returns where a port of a load balancer is reached: its public address, or its first private one. A load balancer
// that is being created has no address yet.
func endpoint(lb *hcloud.LoadBalancer, port int) string {
	ip := lb.PublicNet.IPv4.IP
	if len(lb.PrivateNet) > 0 && !lb.PublicNet.Enabled {
		ip = lb.PrivateNet[0].IP
	}
	if ip == nil {
		return fmt.Sprintf("no address yet, port %d", port)
	}
	return net.JoinHostPort(ip.String(), strconv.Itoa(port))
}
