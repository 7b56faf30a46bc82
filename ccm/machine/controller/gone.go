package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/gone"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/v1alpha1"
)

// annotationAccount of a Machine stands for the credentials with which its server was ordered or seen. They belong to the right
// project, even with nothing left in it that could show that. A person writes it to confirm a new token.
const annotationAccount = "machine.ccm-from-scratch.dev/account"

// reasonDoubtful is the reason of a Machine with a server that is neither there nor proven to be gone.
const reasonDoubtful = "Doubtful"

// doubtError says that something was not done because the absence of a server is not proven.
type doubtError struct {
	what string // that was not done
	gone.Finding
}

func (e *doubtError) Error() string { return fmt.Sprintf("cannot %s: %s", e.what, e.Evidence) }

// absences is what find remembers.
type absences struct {
	// since is the time.Time of the first answer that lacked the server of a Machine, by UID. All answers since then have lacked it.
	since sync.Map
	// asked holds the UIDs of Machines with servers that the cloud was asked to remove, or may have removed, and that are expected to be
	// missing.
	asked sync.Map
	// recognised are the accounts of the cluster's project.
	recognised sync.Map
	// looks holds the last *look at each account. It serves all Machines that are missing at the same time.
	looks sync.Map
}

// look is the last look at an account, also one that failed.
type look struct {
	mu  sync.Mutex // held during a look: others that miss a server of the account wait for it, and nobody else does
	at  time.Time
	ids map[string]bool // whether it is there, by provider ID
	err error
}

// find answers whether the server of a Machine exists, is gone, or whether that is doubtful; nothing else asks. It returns the
// server if it exists. To order a server, the project must be the right one, and nothing must be proven about time: a name is
// unique in a project.
func (c *common) find(ctx context.Context, p machine.Provider, m *v1alpha1.Machine) (machine.Instance, gone.Finding, error) {
	found, err := p.Get(ctx, m)
	if err == nil {
		c.absent.since.Delete(m.UID)
		return found, gone.Finding{Answer: gone.Answer{Verdict: gone.Exists, Evidence: "the API shows server " + found.ID()}}, nil
	}
	var v gone.Finding
	if errors.Is(err, machine.ErrInstanceNotFound) {
		v, err = c.judge(ctx, p, m)
	}
	if err != nil || v.Verdict == gone.Exists {
		c.absent.since.Delete(m.UID) // the time for which it has been missing begins again
	}
	return nil, v, err
}

// judge weighs the evidence about a server that was not found. A Node that is ready has one.
func (c *common) judge(ctx context.Context, p machine.Provider, m *v1alpha1.Machine) (v gone.Finding, err error) {
	node, err := c.node(ctx, m)
	if err != nil {
		return v, err
	}
	if node != nil && nodeinfo.IsReady(node) {
		c.absent.since.Delete(m.UID)
		return gone.Finding{Wait: time.Minute, Answer: gone.Answer{Evidence: fmt.Sprintf("the API does not show server %s, but Node %s "+
			"is ready: check whether the token is of the right project", m.Spec.ProviderID, node.Name)}}, nil
	}
	account, err := p.Account(ctx, m.Spec)
	if err != nil {
		return v, err
	}
	order := m.Spec.ProviderID == "" && m.DeletionTimestamp == nil
	if _, recognised := c.absent.recognised.Load(account); order && recognised {
		return gone.Finding{Answer: gone.Answer{Verdict: gone.Gone, Evidence: "no server has been ordered"}}, nil
	}
	known, err := c.known(ctx, m, account)
	if err != nil {
		return v, err
	}
	there, err := c.shows(ctx, p, m, account, known)
	if err != nil || there[m.Spec.ProviderID] {
		return gone.Finding{Answer: gone.Answer{Verdict: gone.Exists, Evidence: "a list shows " + m.Spec.ProviderID}}, err
	}
	_, asked := c.absent.asked.Load(m.UID)
	_, recognised := c.absent.recognised.Load(account)
	facts := gone.Case{Name: m.Spec.ProviderID, Kind: "servers", Known: len(there), Recognised: recognised, Asked: asked, For: gone.Hold,
		Confirm: fmt.Sprintf("confirm the token: kubectl annotate --overwrite machines.%s -n %s %s %s=%s", v1alpha1.GroupVersion.Group,
			m.Namespace, m.Name, annotationAccount, account)}
	if m.Spec.ProviderID == "" {
		facts.Name = "one of Machine " + m.Name
	}
	for _, is := range there {
		if !is {
			facts.Missing++
		}
	}
	if facts.Missing < facts.Known || facts.Known == 0 {
		c.absent.recognised.Store(account, true)
	}
	if !order {
		now := c.clock.Now()
		since, _ := c.absent.since.LoadOrStore(m.UID, now)
		facts.For = now.Sub(since.(time.Time))
	}
	return facts.Judge(), nil
}

// known returns the provider IDs of the cluster's Nodes and Machines. It recognises the account if a Machine names it.
func (c *common) known(ctx context.Context, m *v1alpha1.Machine, account string) (ids []string, err error) {
	var machines v1alpha1.MachineList
	var nodes corev1.NodeList
	if err := errors.Join(c.List(ctx, &machines), c.List(ctx, &nodes)); err != nil {
		return nil, fmt.Errorf("cannot list Machines and Nodes: %w", err)
	}
	all := map[string]bool{m.Spec.ProviderID: true}
	for _, other := range append(machines.Items, *m) {
		if other.Annotations[annotationAccount] == account {
			c.absent.recognised.Store(account, true)
		}
		if other.Spec.ProviderSpec.CloudProvider == m.Spec.ProviderSpec.CloudProvider {
			all[other.Spec.ProviderID] = true
		}
	}
	for _, n := range nodes.Items {
		all[n.Spec.ProviderID] = true
	}
	delete(all, "")
	return slices.Sorted(maps.Keys(all)), nil
}

// shows tells for each of the servers whether it is there. One list, or its error, serves all looks within one Poll.
func (c *common) shows(ctx context.Context, p machine.Provider, m *v1alpha1.Machine, account string,
	known []string) (map[string]bool, error) {
	stored, _ := c.absent.looks.LoadOrStore(account, &look{})
	last := stored.(*look)
	last.mu.Lock()
	defer last.mu.Unlock()
	now := c.clock.Now()
	_, has := last.ids[m.Spec.ProviderID]
	if now.Sub(last.at) < c.Poll && (has || m.Spec.ProviderID == "" || last.err != nil) {
		return last.ids, last.err
	}
	last.at = now
	if last.ids, last.err = p.Shows(ctx, m.Spec, known); last.err != nil {
		last.at = c.clock.Now() // it may have taken long
	}
	return last.ids, last.err
}
