package cloud

import (
	"slices"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// command describes the actions of one command of the API. ACTIONS.md says in words what each does.
type command struct {
	// locks are the kinds of the action's resources that refuse other actions while it runs.
	locks []store.Kind
	// shows are the kinds of its resources that it does not lock.
	shows []store.Kind
	// usual is how long it takes with ProfileRealistic. It is 0 for a change of the cloud's database only, if the document's example shows
	// such an action as ended, and no source shows a duration. See clients.tsv for set_firewall_rules.
	usual time.Duration
	// effects are the zero values of the types of its effect.
	effects []effect
}

// locked returns those of an action's resources that it locks.
func (c command) locked(resources []Ref) []Ref {
	if len(c.locks) == 0 {
		return nil
	}
	refs := make([]Ref, 0, len(resources))
	for _, r := range resources {
		if slices.Contains(c.locks, r.Kind) {
			refs = append(refs, r)
		}
	}
	return refs
}

// commands is the table of all actions. The durations are rounded observations of users, not promises.
var commands = map[string]command{
	"create_server": {
		locks: kinds(KindServer), shows: kinds(KindImage), usual: 7 * time.Second, effects: effects(serverCreation{}),
	},
	"start_server":                {locks: kinds(KindServer), usual: 2 * time.Second, effects: effects(powerOn{})},
	"stop_server":                 {locks: kinds(KindServer), usual: 2 * time.Second, effects: effects(powerOff{})},
	"shutdown_server":             {locks: kinds(KindServer), usual: time.Second, effects: effects(shutdown{})},
	"reboot_server":               {locks: kinds(KindServer), usual: 5 * time.Second, effects: effects(reboot{})},
	"reset_server":                {locks: kinds(KindServer), usual: 3 * time.Second, effects: effects(powerCycle{})},
	"delete_server":               {locks: kinds(KindServer), usual: 2 * time.Second, effects: effects(serverRemoval{})},
	"rebuild_server":              {locks: kinds(KindServer), usual: 15 * time.Second, effects: effects(rebuild{})},
	"change_server_type":          {locks: kinds(KindServer), usual: 30 * time.Second, effects: effects(typeChange{})},
	"create_image":                {locks: kinds(KindServer, KindImage), usual: 30 * time.Second, effects: effects(imageCreation{})},
	"enable_backup":               {locks: kinds(KindServer), effects: effects(backupsOn{})},
	"disable_backup":              {locks: kinds(KindServer), effects: effects(backupsOff{})},
	"enable_rescue":               {locks: kinds(KindServer), effects: effects(rescueOn{})},
	"disable_rescue":              {locks: kinds(KindServer), usual: time.Second, effects: effects(rescueOff{})},
	"attach_iso":                  {locks: kinds(KindServer), usual: time.Second, effects: effects(isoChange{})},
	"detach_iso":                  {locks: kinds(KindServer), usual: time.Second, effects: effects(isoChange{})},
	"reset_password":              {locks: kinds(KindServer), usual: 2 * time.Second, effects: effects(passwordReset{})},
	"request_console":             {locks: kinds(KindServer)},
	"add_to_placement_group":      {locks: kinds(KindServer), usual: time.Second, effects: effects(placement{})},
	"remove_from_placement_group": {locks: kinds(KindServer), effects: effects(placementEnd{})},
	"attach_to_network": {
		locks: kinds(KindServer, KindLoadBalancer), shows: kinds(KindNetwork), usual: 3 * time.Second,
		effects: effects(attaching{}),
	},
	"detach_from_network": {
		locks: kinds(KindServer, KindLoadBalancer), shows: kinds(KindNetwork), usual: 2 * time.Second,
		effects: effects(detaching{}),
	},
	"change_alias_ips": {locks: kinds(KindServer), shows: kinds(KindNetwork), usual: time.Second, effects: effects(aliasChange{})},
	"change_protection": {
		locks: kinds(KindServer, KindLoadBalancer, KindVolume, KindFloatingIP, KindPrimaryIP, KindImage),
		shows: kinds(KindNetwork, KindZone), effects: effects(protection{}, publication{}),
	},
	"change_dns_ptr": {
		shows: kinds(KindServer, KindPrimaryIP, KindFloatingIP, KindLoadBalancer), usual: 500 * time.Millisecond,
		effects: effects(dnsPtrChange{}),
	},
	"create_volume": {locks: kinds(KindVolume), shows: kinds(KindServer), usual: time.Second, effects: effects(volumeCreation{})},
	"attach_volume": {locks: kinds(KindServer, KindVolume), usual: time.Second, effects: effects(volumeChange{})},
	"detach_volume": {locks: kinds(KindServer, KindVolume), usual: time.Second, effects: effects(volumeChange{})},
	"resize_volume": {locks: kinds(KindVolume), usual: time.Second, effects: effects(volumeGrowth{})},
	// The server, too: csi-driver issue 418; changelog of the Ansible collection, 5.3.0.
	"assign_floating_ip":   {locks: kinds(KindServer, KindFloatingIP), usual: time.Second, effects: effects(floatingIPChange{})},
	"unassign_floating_ip": {locks: kinds(KindServer, KindFloatingIP), usual: time.Second, effects: effects(floatingIPChange{})},
	"assign_primary_ip":    {locks: kinds(KindServer, KindPrimaryIP), usual: time.Second, effects: effects(assignment{})},
	"unassign_primary_ip":  {locks: kinds(KindServer, KindPrimaryIP), usual: time.Second, effects: effects(assignment{})},
	"add_subnet":           {locks: kinds(KindNetwork), usual: time.Second, effects: effects(subnetAddition{})},
	"delete_subnet":        {locks: kinds(KindNetwork), usual: time.Second, effects: effects(subnetChange{})},
	"add_route":            {locks: kinds(KindNetwork), usual: time.Second, effects: effects(routeChange{})},
	"delete_route":         {locks: kinds(KindNetwork), usual: time.Second, effects: effects(routeChange{})},
	"change_ip_range":      {locks: kinds(KindNetwork), effects: effects(rangeChange{})},
	"set_firewall_rules":   {locks: kinds(KindFirewall), effects: effects(ruleChange{})},
	"apply_firewall": {
		locks: kinds(KindServer), shows: kinds(KindFirewall), usual: time.Second, effects: effects(targetChange{}, selection{}),
	},
	"remove_firewall":      {locks: kinds(KindServer), shows: kinds(KindFirewall), usual: time.Second, effects: effects(targetChange{})},
	"create_load_balancer": {locks: kinds(KindLoadBalancer), usual: 2 * time.Second, effects: effects(loadBalancerCreation{})},
	"delete_load_balancer": {locks: kinds(KindLoadBalancer), usual: time.Second, effects: effects(loadBalancerRemoval{})},
	"change_load_balancer_type": {
		locks: kinds(KindLoadBalancer), usual: 4 * time.Second, effects: effects(ofLoadBalancer[loadBalancerTypeChange]{}),
	},
	"add_service":    {locks: kinds(KindLoadBalancer), usual: 500 * time.Millisecond, effects: effects(ofLoadBalancer[serviceAddition]{})},
	"update_service": {locks: kinds(KindLoadBalancer), usual: 500 * time.Millisecond, effects: effects(ofLoadBalancer[servicePatch]{})},
	"delete_service": {locks: kinds(KindLoadBalancer), usual: 500 * time.Millisecond, effects: effects(ofLoadBalancer[serviceRemoval]{})},
	"add_target":     {locks: kinds(KindLoadBalancer), usual: 500 * time.Millisecond, effects: effects(ofLoadBalancer[targetAddition]{})},
	"remove_target":  {locks: kinds(KindLoadBalancer), usual: 500 * time.Millisecond, effects: effects(ofLoadBalancer[targetRemoval]{})},
	"change_algorithm": {
		locks: kinds(KindLoadBalancer), usual: 500 * time.Millisecond, effects: effects(ofLoadBalancer[algorithmChange]{}),
	},
	"enable_public_interface":    {locks: kinds(KindLoadBalancer), usual: time.Second, effects: effects(ofLoadBalancer[publicInterface]{})},
	"disable_public_interface":   {locks: kinds(KindLoadBalancer), usual: time.Second, effects: effects(ofLoadBalancer[publicInterface]{})},
	"create_certificate":         {locks: kinds(KindCertificate), usual: 10 * time.Second, effects: effects(issuance{})},
	"issue_certificate":          {locks: kinds(KindCertificate), usual: 10 * time.Second, effects: effects(issuance{})},
	"delete_zone":                {locks: kinds(KindZone), usual: time.Second, effects: effects(zoneRemoval{})},
	"create_zone":                published,
	"import_zonefile":            published,
	"change_ttl":                 published,
	"change_primary_nameservers": published,
	"create_rrset":               published,
	"delete_rrset":               published,
	"change_rrset_ttl":           published,
	"change_rrset_protection":    published,
	"add_rrset_records":          published,
	"remove_rrset_records":       published,
	"set_rrset_records":          published,
	"update_rrset_records":       published,
}

// published is an action that brings a change, made at once, to the name servers.
var published = command{
	shows: kinds(KindZone), usual: time.Second, effects: effects(publication{}),
}

func kinds(k ...store.Kind) []store.Kind { return k }
func effects(e ...effect) []effect       { return e }

// timers are the zero values of all types of work that is due at a time. The timeline shows their names.
var timers = map[string]timer{
	"action_ends":           actionEnds{},
	"backup":                backupDue{},
	"delegation_check":      delegationCheck{},
	"guest_off":             guestOff{},
	"hypervisor_grace_ends": graceEnds{},
	"load_balancer_health":  allHealth{},
	"renewal":               renewalDue{},
	"renewal_scheduled":     renewalScheduled{},
	"rescue_ends":           rescueEnds{},
	"scenario_step":         scenarioStep{},
	"server_health":         serverHealth{},
	"task_deadline":         taskDeadline{},
}
