package framework

import (
	"cmp"
	"fmt"
	"os"
	"slices"

	. "github.com/onsi/ginkgo/v2"
)

// ClusterKind is a kind of cluster that the specs can run on.
type ClusterKind string

// The kinds of clusters. The environment variable EnvCluster selects one.
const (
	// Embedded is a control plane of real programs on this host, with simulated nodes. Each spec has a
	// cloud, nodes and a CCM process for itself.
	Embedded ClusterKind = "embedded"
	// KindCluster is a kind cluster. Its nodes are the servers of a simulated cloud in a container. All specs share it, the cloud and the
	// CCM. The CCM runs in pods.
	KindCluster ClusterKind = "kind"
	// Existing is any cluster on servers of a cloud that the driver can open, a real one included. All specs share it and the CCM that runs
	// in it.
	Existing ClusterKind = "existing"
)

// EnvCluster is the environment variable with the kind of the cluster.
const EnvCluster = "E2E_CLUSTER"

// CurrentKind returns the kind of the cluster of this run. It is known before the specs run.
func CurrentKind() ClusterKind {
	if configured.Kubeconfig != "" {
		return cmp.Or(ClusterKind(os.Getenv(EnvCluster)), Existing)
	}
	return cmp.Or(ClusterKind(os.Getenv(EnvCluster)), Embedded)
}

// The labels that say where a spec can run. Without one of these, it runs everywhere. scripts/e2e.sh and NewEnv leave out specs that cannot
// run.
const (
	// OwnCloud is for specs that need a cloud, nodes or a CCM for themselves: they run on the embedded cluster only.
	OwnCloud = "own-cloud"
	// FakeOnly is for specs that only a simulated cloud can serve: they use its journal or its faults.
	FakeOnly = "fake-only"
	// RealNodes is for specs that need kubelets, pods and a network between them: they do not run on the embedded cluster.
	RealNodes = "real-nodes"
	// Dataplane is for specs that send traffic. On a cluster with real nodes, Services have pods only in these.
	Dataplane = "dataplane"
	// Hour is for specs that take an hour. They run only if LABELS names this label.
	Hour = "hour"
)

// Alone is for specs that change a common part of a shared cluster, such as its nodes, the CCM or the answers of the cloud: there they run
// one at a time, and no other spec runs meanwhile.
func Alone() []any {
	if CurrentKind() == Embedded {
		return nil
	}
	return []any{Serial}
}

// Long is for specs that take the longest: they begin before the others, so that a run does not end with one of them.
const Long = SpecPriority(1)

// BringsNodes is for specs that create servers, and so nodes of the cluster. On a kind cluster, these run alone if the CCM lacks the node
// selector. With it, they run at the same time as others: the load balancers and pods of a spec use only the nodes that the cluster had at
// first and those of the spec.
func BringsNodes() []any {
	if ccm, err := LoadCCM(); err == nil && ccm.Has(NodeSelector) { // Prepare reports an error
		return nil
	}
	return Alone()
}

// notHere returns why a spec with these labels cannot run on a kind of cluster, "" if it can. simulated says
// that the cloud is a simulated one that can be asked for its journal.
func notHere(labels []string, kind ClusterKind, simulated bool) string {
	has := func(label string) bool { return slices.Contains(labels, label) }
	switch {
	case has(OwnCloud) && kind != Embedded:
		return "needs a cloud, nodes or a CCM of its own: runs with E2E_CLUSTER=embedded"
	case has(RealNodes) && kind == Embedded:
		return "needs real nodes: runs with E2E_CLUSTER=kind"
	case has(FakeOnly) && !simulated:
		return "needs the journal or the faults of a simulated cloud: runs with E2E_CLUSTER=kind"
	}
	return ""
}

// skipUnlessHere ends the running spec if it cannot run here: on this kind of cluster, or with a CCM that lacks a feature.
func (s *Suite) skipUnlessHere() {
	GinkgoHelper()
	labels := CurrentSpecReport().Labels()
	if reason := notHere(labels, s.Kind, s.simulated()); reason != "" {
		Skip(reason)
	}
	if s.shared != nil && s.shared.PodImage == "" && slices.Contains(labels, Dataplane) {
		Skip("needs pods: put kind/cmd/probe into an image that the nodes can pull, and its name into " + EnvPodImage + " (e2e/README.md)")
	}
	if missing := s.CCM.missing(labels); len(missing) > 0 {
		Skip(unsupportedPrefix + fmt.Sprintf("the CCM has no %v", missing))
	}
}

// unsupportedPrefix begins the reason of a skipped spec that needs a feature that the CCM, or the driver of its cloud, lacks.
const unsupportedPrefix = "unsupported: "
