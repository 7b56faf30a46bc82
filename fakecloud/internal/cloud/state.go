package cloud

import (
	"slices"

	"github.com/tidwall/btree"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// State is everything that one project owns at one moment. Only a [Tx] changes it. A new resource needs
// a field here, a line in resources and one in codecs.
type State struct {
	Servers         store.Table[*Server]
	Networks        store.Table[*Network]
	LoadBalancers   store.Table[*LoadBalancer]
	Certificates    store.Table[*Certificate]
	PrimaryIPs      PrimaryIPTable
	FloatingIPs     store.Table[*FloatingIP]
	Volumes         store.Table[*Volume]
	Firewalls       store.Table[*Firewall]
	Zones           store.Table[*Zone]
	PlacementGroups store.Table[*PlacementGroup]
	SSHKeys         SSHKeyTable
	// Images holds the project's own snapshots and backups. System images are in the Catalogue.
	Images  store.Table[*Image]
	Actions ActionTable
	// Catalogue is what Hetzner offers. All projects share it.
	Catalogue *Catalogue
	// Limits are the project's. They are replaced, never changed.
	Limits Limits

	selectors   *btree.BTreeG[selectorTerm] // from labels to load balancers and firewalls
	memberships *btree.BTreeG[membership]   // from servers and load balancers to networks
}

// resources lists all kinds of resources. Reset, locks, limits and transactions use it. A test compares
// it with the fields of State.
var resources = [...]resourceKind{
	{KindServer, func(st *State) table { return &st.Servers }},
	{KindNetwork, func(st *State) table { return &st.Networks }},
	{KindLoadBalancer, func(st *State) table { return &st.LoadBalancers }},
	{KindCertificate, func(st *State) table { return &st.Certificates }},
	{KindPrimaryIP, func(st *State) table { return &st.PrimaryIPs }},
	{KindFloatingIP, func(st *State) table { return &st.FloatingIPs }},
	{KindVolume, func(st *State) table { return &st.Volumes }},
	{KindFirewall, func(st *State) table { return &st.Firewalls }},
	{KindZone, func(st *State) table { return &st.Zones }},
	{KindPlacementGroup, func(st *State) table { return &st.PlacementGroups }},
	{KindSSHKey, func(st *State) table { return &st.SSHKeys }},
	{KindImage, func(st *State) table { return &st.Images }},
	{KindAction, func(st *State) table { return &st.Actions }},
}

// The tables of resources that actions change, for generic functions.
func inServers(st *State) *store.Table[*Server]                 { return &st.Servers }
func inNetworks(st *State) *store.Table[*Network]               { return &st.Networks }
func inLoadBalancers(st *State) *store.Table[*LoadBalancer]     { return &st.LoadBalancers }
func inCertificates(st *State) *store.Table[*Certificate]       { return &st.Certificates }
func inPrimaryIPs(st *State) *store.Table[*PrimaryIP]           { return &st.PrimaryIPs.Table }
func inFloatingIPs(st *State) *store.Table[*FloatingIP]         { return &st.FloatingIPs }
func inVolumes(st *State) *store.Table[*Volume]                 { return &st.Volumes }
func inFirewalls(st *State) *store.Table[*Firewall]             { return &st.Firewalls }
func inPlacementGroups(st *State) *store.Table[*PlacementGroup] { return &st.PlacementGroups }
func inSSHKeys(st *State) *store.Table[*SSHKey]                 { return &st.SSHKeys.Table }

type resourceKind struct {
	kind  store.Kind
	table func(*State) table
}

// table has the methods of a Table that do not depend on its type parameter.
type table interface {
	Kind() store.Kind
	Len() int
	Has(id int64) bool
	Touch(id int64)
	Init(store.Kind)
	Begin(*store.ChangeLog)
	Publish()
	RecordAll(log *store.ChangeLog, created bool)
}

func newState(c *Catalogue, l Limits) *State {
	st := &State{Catalogue: c, Limits: l, selectors: newSelectorIndex(), memberships: newMembershipIndex()}
	for i, t := range st.tables() {
		t.Init(resources[i].kind)
	}
	return st
}

// tables returns every table, in the order of resources.
func (st *State) tables() (all [len(resources)]table) {
	for i, r := range resources {
		all[i] = r.table(st)
	}
	return all
}

// place returns the place of a kind in resources, or -1 for an unknown kind.
func place(kind store.Kind) int {
	return slices.IndexFunc(resources[:], func(d resourceKind) bool { return d.kind == kind })
}

// Kinds returns all kinds of resources.
func Kinds() []store.Kind {
	all := make([]store.Kind, len(resources))
	for i, r := range resources {
		all[i] = r.kind
	}
	return all
}
