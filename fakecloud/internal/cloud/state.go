package cloud

// State is everything that one project owns at one moment. See the package documentation for who
// may change it.
type State struct {
	Servers         Table[*Server]
	Networks        Table[*Network]
	LoadBalancers   Table[*LoadBalancer]
	Certificates    Table[*Certificate]
	PrimaryIPs      Table[*PrimaryIP]
	PlacementGroups Table[*PlacementGroup]
	SSHKeys         Table[*SSHKey]
	// Images holds the project's own snapshots and backups. System images are in the Catalogue.
	Images  Table[*Image]
	Actions ActionTable
	// Catalogue is what Hetzner offers: the same for all projects.
	Catalogue *Catalogue
}

func newState(c *Catalogue) *State {
	return &State{
		Servers:         newTable[*Server](KindServer),
		Networks:        newTable[*Network](KindNetwork),
		LoadBalancers:   newTable[*LoadBalancer](KindLoadBalancer),
		Certificates:    newTable[*Certificate](KindCertificate),
		PrimaryIPs:      newTable[*PrimaryIP](KindPrimaryIP),
		PlacementGroups: newTable[*PlacementGroup](KindPlacementGroup),
		SSHKeys:         newTable[*SSHKey](KindSSHKey),
		Images:          newTable[*Image](KindImage),
		Actions:         newActionTable(),
		Catalogue:       c,
	}
}

// table is what a transaction does to every table, whatever it holds.
type table interface {
	begin(*changeLog)
	publish()
}

// tables lists every table. A new resource is added to State, newState and here.
func (st *State) tables() [9]table {
	return [...]table{
		&st.Servers, &st.Networks, &st.LoadBalancers, &st.Certificates, &st.PrimaryIPs,
		&st.PlacementGroups, &st.SSHKeys, &st.Images, &st.Actions,
	}
}
