package cloud

import (
	"slices"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// command describes the actions of one command of the API. ACTIONS.md is made of it.
type command struct {
	// locks are the kinds of the action's resources that refuse other actions while it runs.
	locks []store.Kind
	// shows are the kinds of its resources that it does not lock.
	shows []store.Kind
	// usual is how long it takes with ProfileRealistic.
	usual time.Duration
	// does is its effect in one sentence, follows the actions that begin at its end. source is the origin of both, if not the API document.
	does, follows, source string
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
		locks: kinds(KindServer), usual: 7 * time.Second, effects: effects(serverCreation{}),
		does:    "the server is installed; it is off if it was not to be started",
		follows: "attach_volume, start_server, attach_to_network; apply_firewall begins with it",
	},
	"start_server": {
		locks: kinds(KindServer), usual: 2 * time.Second, effects: effects(powerOn{}),
		does: "the server is starting, then running; rescue mode ends",
	},
	"stop_server": {
		locks: kinds(KindServer), usual: 2 * time.Second, effects: effects(powerOff{}), does: "the server is stopping, then off",
	},
	"shutdown_server": {
		locks: kinds(KindServer), usual: time.Second, effects: effects(shutdown{}),
		does: "the guest gets the request; the server is stopping, and off when the guest has shut down (usually after 5 s)",
	},
	"reboot_server": {
		locks: kinds(KindServer), usual: 5 * time.Second, effects: effects(reboot{}),
		does: "a running server boots again; rescue mode ends",
	},
	"reset_server": {
		locks: kinds(KindServer), usual: 3 * time.Second, effects: effects(powerCycle{}), does: "the server is starting, then running",
	},
	"delete_server": {
		locks: kinds(KindServer), usual: 2 * time.Second, effects: effects(serverRemoval{}),
		does: "the server is deleted with its backups and its Primary IPs with auto_delete; all others let it go",
	},
	"rebuild_server": {
		locks: kinds(KindServer), usual: 15 * time.Second, effects: effects(rebuild{}), does: "the server boots from the new image",
	},
	"change_server_type": {
		locks: kinds(KindServer), usual: 30 * time.Second, effects: effects(typeChange{}),
		does: "the server has the new type and boots", source: "clients of the real API have observed the boot",
	},
	"create_image": {
		locks: kinds(KindServer, KindImage), usual: 30 * time.Second, effects: effects(imageCreation{}),
		does: "the image is available; a backup replaces the oldest one if all slots are in use",
	},
	"enable_backup": {
		locks: kinds(KindServer), usual: 500 * time.Millisecond, effects: effects(backupsOn{}), does: "the server has a backup window",
		follows: "create_image each day",
	},
	"disable_backup": {
		locks: kinds(KindServer), usual: time.Second, effects: effects(backupsOff{}), does: "the server's backups are deleted",
	},
	"enable_rescue": {
		locks: kinds(KindServer), usual: time.Second, effects: effects(rescueOn{}), does: "rescue mode is on for an hour, or until a boot",
	},
	"disable_rescue": {
		locks: kinds(KindServer), usual: time.Second, effects: effects(rescueOff{}), does: "rescue mode is off",
	},
	"attach_iso": {
		locks: kinds(KindServer), usual: time.Second, effects: effects(isoChange{}), does: "the server has the ISO",
	},
	"detach_iso": {
		locks: kinds(KindServer), usual: time.Second, effects: effects(isoChange{}),
		does: "the server has no ISO; if it had none, the action ends at once",
	},
	"reset_password":  {locks: kinds(KindServer), usual: 2 * time.Second, does: "nothing is simulated: the answer has the password"},
	"request_console": {locks: kinds(KindServer), does: "nothing is simulated: the answer has the address"},
	"add_to_placement_group": {
		locks: kinds(KindServer), usual: time.Second, effects: effects(placement{}), does: "the server is in the group and boots",
		source: "clients of the real API have observed the boot",
	},
	"remove_from_placement_group": {
		locks: kinds(KindServer), usual: time.Second, effects: effects(placementEnd{}), does: "the server is in no group",
	},
	"attach_to_network": {
		locks: kinds(KindServer, KindLoadBalancer), shows: kinds(KindNetwork), usual: 3 * time.Second, effects: effects(attaching{}),
		does: "the address, reserved at once, is shown; targets follow",
	},
	"detach_from_network": {
		locks: kinds(KindServer, KindLoadBalancer), shows: kinds(KindNetwork), usual: 2 * time.Second, effects: effects(detaching{}),
		does: "the address is free; private targets go",
	},
	"change_alias_ips": {
		locks: kinds(KindServer), shows: kinds(KindNetwork), usual: time.Second, effects: effects(aliasChange{}),
		does: "the new alias IPs replace the old ones; until then, both are reserved",
	},
	"change_protection": {
		locks: kinds(KindServer, KindLoadBalancer, KindVolume, KindFloatingIP, KindPrimaryIP, KindImage),
		shows: kinds(KindNetwork, KindZone), effects: effects(protection{}, publication{}), does: "the protections are as asked for",
	},
	"change_dns_ptr": {
		shows: kinds(KindServer, KindPrimaryIP, KindFloatingIP, KindLoadBalancer), usual: 500 * time.Millisecond,
		effects: effects(dnsPtrChange{}), does: "the reverse DNS entry is as asked for; several may change at the same time",
	},
	"create_volume": {
		locks: kinds(KindVolume), shows: kinds(KindServer), usual: time.Second, effects: effects(volumeCreation{}),
		does: "the volume is available", follows: "attach_volume",
	},
	"attach_volume": {
		locks: kinds(KindServer, KindVolume), usual: time.Second, effects: effects(volumeChange{}), does: "the server has the volume",
	},
	"detach_volume": {
		locks: kinds(KindServer, KindVolume), usual: time.Second, effects: effects(volumeChange{}), does: "the volume has no server",
	},
	"resize_volume": {
		locks: kinds(KindVolume), usual: time.Second, effects: effects(volumeGrowth{}), does: "the volume has the new size",
	},
	"assign_floating_ip": {
		locks: kinds(KindFloatingIP), shows: kinds(KindServer), usual: time.Second, effects: effects(floatingIPChange{}),
		does:   "the address is the server's; it fails if the server was deleted",
		source: "hcloud-fip-controller issue 36: it moves from another server",
	},
	"unassign_floating_ip": {
		locks: kinds(KindFloatingIP), shows: kinds(KindServer), usual: time.Second, effects: effects(floatingIPChange{}),
		does: "the address has no server",
	},
	"assign_primary_ip": {
		locks: kinds(KindServer, KindPrimaryIP), usual: time.Second, effects: effects(assignment{}), does: "the address is the server's",
	},
	"unassign_primary_ip": {
		locks: kinds(KindServer, KindPrimaryIP), usual: time.Second, effects: effects(assignment{}), does: "the address has no server",
	},
	"add_subnet": {
		locks: kinds(KindNetwork), usual: time.Second, effects: effects(subnetChange{}), does: "the network has the subnet",
	},
	"delete_subnet": {
		locks: kinds(KindNetwork), usual: time.Second, effects: effects(subnetChange{}), does: "the network lacks the subnet",
	},
	"add_route": {
		locks: kinds(KindNetwork), usual: time.Second, effects: effects(routeChange{}), does: "the network has the route",
	},
	"delete_route": {
		locks: kinds(KindNetwork), usual: time.Second, effects: effects(routeChange{}), does: "the network lacks the route",
	},
	"change_ip_range": {
		locks: kinds(KindNetwork), usual: time.Second, effects: effects(rangeChange{}), does: "the network has the larger range",
	},
	"set_firewall_rules": {
		locks: kinds(KindFirewall), usual: time.Second, effects: effects(ruleChange{}),
		does: "the rules, shown at once, are in force", follows: "apply_firewall for each server",
	},
	"apply_firewall": {
		locks: kinds(KindServer), shows: kinds(KindFirewall), usual: time.Second, effects: effects(targetChange{}, selection{}),
		does: "the firewall filters the packets of the server", source: "packer-plugin-hcloud pull request 209: the server is locked",
	},
	"remove_firewall": {
		locks: kinds(KindServer), shows: kinds(KindFirewall), usual: time.Second, effects: effects(targetChange{}),
		does: "the firewall filters nothing of the server",
	},
	"create_load_balancer": {
		locks: kinds(KindLoadBalancer), usual: 2 * time.Second, effects: effects(loadBalancerCreation{}),
		does: "the addresses are shown, also that in its network", source: "hcloud-go issue 153",
	},
	"delete_load_balancer": {
		locks: kinds(KindLoadBalancer), usual: time.Second, effects: effects(loadBalancerRemoval{}), does: "the load balancer is deleted",
	},
	"change_load_balancer_type": {
		locks: kinds(KindLoadBalancer), usual: 4 * time.Second, effects: effects(ofLoadBalancer[loadBalancerTypeChange]{}),
		does: "the load balancer has the new type, if all it has fits",
	},
	"add_service": {
		locks: kinds(KindLoadBalancer), usual: 500 * time.Millisecond, effects: effects(ofLoadBalancer[serviceAddition]{}),
		does: "the service listens",
	},
	"update_service": {
		locks: kinds(KindLoadBalancer), usual: 500 * time.Millisecond, effects: effects(ofLoadBalancer[servicePatch]{}),
		does: "the service has the new settings",
	},
	"delete_service": {
		locks: kinds(KindLoadBalancer), usual: 500 * time.Millisecond, effects: effects(ofLoadBalancer[serviceRemoval]{}),
		does: "the service listens no more",
	},
	"add_target": {
		locks: kinds(KindLoadBalancer), usual: 500 * time.Millisecond, effects: effects(ofLoadBalancer[targetAddition]{}),
		does: "the load balancer has the target; its health is unknown",
	},
	"remove_target": {
		locks: kinds(KindLoadBalancer), usual: 500 * time.Millisecond, effects: effects(ofLoadBalancer[targetRemoval]{}),
		does: "the load balancer lacks the target",
	},
	"change_algorithm": {
		locks: kinds(KindLoadBalancer), usual: 500 * time.Millisecond, effects: effects(ofLoadBalancer[algorithmChange]{}),
		does: "connections are spread by the new algorithm",
	},
	"enable_public_interface": {
		locks: kinds(KindLoadBalancer), usual: time.Second, effects: effects(ofLoadBalancer[publicInterface]{}),
		does: "the public addresses are in use",
	},
	"disable_public_interface": {
		locks: kinds(KindLoadBalancer), usual: time.Second, effects: effects(ofLoadBalancer[publicInterface]{}),
		does: "the public addresses are not in use; they stay allocated",
	},
	"create_certificate": {
		locks: kinds(KindCertificate), usual: 10 * time.Second, effects: effects(issuance{}),
		does: "the certificate is issued, or shows the error", follows: "issue_certificate, 30 days before it expires",
	},
	"issue_certificate": {
		locks: kinds(KindCertificate), usual: 10 * time.Second, effects: effects(issuance{}),
		does: "the certificate is issued anew, or shows the error", follows: "issue_certificate, 30 days before it expires",
	},
	"delete_zone": {
		locks: kinds(KindZone), usual: time.Second, effects: effects(zoneRemoval{}), does: "the zone is deleted with its records",
	},
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
	does: "the name servers have the change, which the API shows at once; several may run at the same time",
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
