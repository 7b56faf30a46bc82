package cloud

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// CreateServer is the input of POST /servers. Types, locations, images and SSH keys are ids or names.
type CreateServer struct {
	Name       string
	ServerType string
	Image      string
	Location   string // "" for one that the cloud chooses
	SSHKeys    []string
	Networks   []int64
	Labels     map[string]string
	UserData   string
	// PlacementGroup is an id, 0 for none.
	PlacementGroup   int64
	StartAfterCreate bool
	IPv4, IPv6       ServerPublicIP
	// Volumes are ids of volumes to attach. The input field automount has no effect: see Volume.
	Volumes   []int64
	Firewalls []int64
}

// ServerPublicIP is the public address of one version for a new server.
type ServerPublicIP struct {
	Enabled bool
	// PrimaryIP is the id of an existing Primary IP. With 0, the server gets a new one with auto_delete.
	PrimaryIP int64
}

// CreatedServer is the result of the creation of a server.
type CreatedServer struct {
	Server      *Server // at the end of the request
	Action      int64
	NextActions []int64
	// RootPassword is "" if the server has SSH keys.
	RootPassword string
}

// serverPlan is a CreateServer with the resources that it names.
type serverPlan struct {
	CreateServer
	serverType *ServerType
	location   *Location
	image      *Image
	sshKeys    []int64
	ipv4, ipv6 *PrimaryIP // existing ones, or nil
	volumes    []*Volume
}

// CreateServer creates a server. A refused request leaves nothing behind.
//
// The server is initializing until the end of create_server. The next actions are apply_firewall, attach_volume, start_server
// and attach_to_network. They lock the server until the last one ends. Firewalls are applied while the server is created;
// the others follow it one after the other. Volumes are there when the server starts (terraform-provider-hcloud issue 647). A
// server without a public interface needs its networks to start, so it is attached first. If
// create_server fails, the server stays and is off. The client must delete it.
//
// Errors: invalid_input, uniqueness_error, resource_limit_exceeded, resource_unavailable,
// placement_group_member_limit_reached, primary_ip_version_mismatch, primary_ip_assigned,
// primary_ip_datacenter_mismatch, volume_already_attached, service_error (a volume in another location),
// limit_exceeded_error, locked (a volume), and those of attaching to a network.
func (p Project) CreateServer(in CreateServer) (CreatedServer, *State, error) {
	var out CreatedServer
	plan := &serverPlan{CreateServer: in}
	st, err := p.update(func(tx *Tx) error {
		if err := tx.planServer(plan); err != nil {
			return err
		}
		s, err := tx.putServer(plan)
		if err != nil {
			return err
		}
		out = tx.startServerCreation(s, plan)
		if len(plan.sshKeys) == 0 {
			out.RootPassword = tx.newPassword()
			tx.Servers.Update(s.ID, func(s *Server) { s.PasswordHash = hashOf(out.RootPassword) })
		}
		tx.followServer(s.ID)
		out.Server, _ = tx.Servers.Get(s.ID)
		return nil
	})
	return out, st, err
}

// planServer finds what a CreateServer names.
func (tx *Tx) planServer(plan *serverPlan) error {
	if err := cmp.Or(
		ValidateLabels(plan.Labels),
		checkUserData(plan.UserData),
		tx.checkLimit(&tx.Servers),
		RequireUniqueName(&tx.Servers, plan.Name, 0),
	); err != nil {
		return err
	}
	var ok bool
	if plan.serverType, ok = tx.Catalogue.ServerType(plan.ServerType); !ok {
		return ErrField("server_type", fmt.Sprintf("server type '%s' not found", plan.ServerType))
	} else if plan.serverType.Retired(tx.now) {
		return errInput(fmt.Sprintf("server type %d is deprecated", plan.serverType.ID)) // claffin/cloudproxy issue 102
	}
	for _, step := range []func(*Tx) error{
		plan.findSSHKeys, plan.findPrimaryIPs, plan.findNetworks, plan.findVolumes, plan.findLocation, plan.findImage, plan.checkPlacement,
		plan.findFirewalls,
	} {
		if err := step(tx); err != nil {
			return err
		}
	}
	return nil
}

func (s *serverPlan) findSSHKeys(tx *Tx) error {
	for _, idOrName := range s.SSHKeys {
		k, ok := tx.SSHKeys.ByName(idOrName)
		if id, isID := ParseID(idOrName); isID && !ok {
			k, ok = tx.SSHKeys.Get(id)
		}
		if !ok {
			return ErrField("ssh_keys", fmt.Sprintf("SSH key '%s' not found", idOrName))
		}
		if !slices.Contains(s.sshKeys, k.ID) {
			s.sshKeys = append(s.sshKeys, k.ID)
		}
	}
	return nil
}

func (s *serverPlan) findPrimaryIPs(tx *Tx) error {
	for _, want := range []struct {
		field string
		in    ServerPublicIP
		t     IPType
		dst   **PrimaryIP
	}{
		{"public_net.ipv4", s.IPv4, IPv4, &s.ipv4},
		{"public_net.ipv6", s.IPv6, IPv6, &s.ipv6},
	} {
		if want.in.PrimaryIP == 0 || !want.in.Enabled { // API document: if false, no address is attached
			continue
		}
		ip, ok := tx.PrimaryIPs.Get(want.in.PrimaryIP)
		switch {
		case !ok:
			return ErrOperation("primary_ip_not_found", "primary ip not found") // terraform-provider-hcloud issue 1093
		case ip.Type != want.t:
			return ErrPrecondition("primary_ip_version_mismatch", fmt.Sprintf("Primary IP %d is not of type %s", ip.ID, want.t))
		case ip.Assignee != Ref{}:
			return ErrOperation("primary_ip_assigned", "primary ip already assigned to another server")
		}
		if err := tx.RequireUnlocked(ip.Ref()); err != nil {
			return err
		}
		*want.dst = ip
	}
	if !s.IPv4.Enabled && !s.IPv6.Enabled && len(s.Networks) == 0 && s.StartAfterCreate {
		// ansible-collections/hetzner.hcloud issues 172 and 356
		return errInput("invalid input: server must be attached to at least one of: primary_ipv4, primary_ipv6, private_network")
	}
	return nil
}

// findNetworks and its siblings name a list's field without an index, as the real API does (docker-machine-driver-hetzner issue
// 126, ansible-collections/hetzner.hcloud issue 585).
func (s *serverPlan) findNetworks(tx *Tx) error {
	for _, id := range s.Networks {
		n, ok := tx.Networks.Get(id)
		if !ok {
			return ErrField("networks", fmt.Sprintf("network with ID %d not found", id))
		} else if len(n.Subnets) == 0 {
			return ErrField("networks", "networks must have at least one subnetwork")
		}
	}
	return nil
}

// findVolumes finds the volumes; one that is named twice counts once. Each must be free: neither attached nor locked.
func (s *serverPlan) findVolumes(tx *Tx) error {
	s.Volumes = dedupe(s.Volumes)
	for _, id := range s.Volumes {
		v, ok := tx.Volumes.Get(id)
		switch {
		case !ok:
			return ErrField("volumes", fmt.Sprintf("volume with ID %d not found", id))
		case v.Server != 0:
			return errVolumeAttached()
		}
		if err := tx.RequireUnlocked(v.Ref()); err != nil {
			return err
		}
		s.volumes = append(s.volumes, v)
	}
	return checkVolumesPerServer(len(s.Volumes))
}

// findFirewalls finds the firewalls; one that is named twice counts once. A server with firewalls needs a public interface
// (mysticaltech/terraform-hcloud-kube-hetzner gives none to the others for that reason).
func (s *serverPlan) findFirewalls(tx *Tx) error {
	s.Firewalls = dedupe(s.Firewalls)
	if n := len(s.Firewalls); n > MaxFirewallsPerServer {
		return errTooManyFirewalls("the server", n)
	}
	for _, id := range s.Firewalls {
		const field = "firewalls"
		_, ok := tx.Firewalls.Get(id)
		switch {
		case !ok:
			return ErrField(field, fmt.Sprintf("firewall with ID %d not found", id))
		case !s.IPv4.Enabled && !s.IPv6.Enabled:
			return ErrField(field, "a firewall needs a public interface")
		}
	}
	return nil
}

// findLocation checks the wanted location. If the request names none, it picks the first possible location of the catalogue.
func (s *serverPlan) findLocation(tx *Tx) error {
	if s.Location == "" {
		for _, l := range tx.Catalogue.Locations {
			if orderable(s.serverType, l, tx.now) == nil && s.fit(tx, l) == nil {
				s.location = l
				return nil
			}
		}
		return errPlacement()
	}
	l, ok := tx.Catalogue.Location(s.Location)
	if !ok {
		return errInput(fmt.Sprintf("location '%s' not found", s.Location)) // terraform-provider-hcloud issue 493
	}
	s.location = l
	return cmp.Or(s.fit(tx, l), orderable(s.serverType, l, tx.now))
}

// fit returns an error if a Primary IP, volume or network of the request cannot be used in a location.
func (s *serverPlan) fit(tx *Tx, l *Location) error {
	for _, ip := range []*PrimaryIP{s.ipv4, s.ipv6} {
		if ip != nil && ip.Location.ID != l.ID {
			return ErrOperation("primary_ip_datacenter_mismatch",
				fmt.Sprintf("Primary IP %d is in location %s, the server would be in %s", ip.ID, ip.Location.Name, l.Name))
		}
	}
	for _, v := range s.volumes {
		if v.Location.ID != l.ID {
			return errOtherLocation()
		}
	}
	for _, id := range s.Networks {
		if n, _ := tx.Networks.Get(id); n.Subnets[0].NetworkZone != l.NetworkZone { // findNetworks has refused one without a subnet
			return errNoFreeIP(id)
		}
	}
	return nil
}

// errNoFreeIP has the message of the real API (csi-driver issue 492). attach_to_network has another one.
func errNoFreeIP(network int64) error {
	return errInput(fmt.Sprintf("network %d has no free IP available or is in a different network zone", network))
}

// orderable returns nil if a server of the type can be created in the location now.
func orderable(t *ServerType, l *Location, now time.Time) error {
	in, ok := t.In(l.Name)
	switch {
	case !ok || t.Retired(now) || in.Deprecation.Retired(now): // also the latter: karpenter-provider-hetzner issue 16
		return errInput("unsupported location for server type") // scripts match it: autobase-tech/autobase issue 1403
	case !in.Available:
		return errPlacement()
	}
	return nil
}

// errPlacement has the message of the real API: hcloud-k8s/terraform-hcloud-kubernetes issue 126, packer-plugin-hcloud issue 198.
func errPlacement() error { return ErrResourceUnavailable("error during placement") }

func (s *serverPlan) findImage(tx *Tx) error {
	image, err := tx.findImage(s.Image, s.serverType.Architecture)
	if err != nil {
		return err
	}
	if image.DiskSize > float64(s.serverType.Disk) {
		return errInput("image disk is bigger than server type disk") // OpenRouterLabs/spawn pull request 3176
	}
	s.image = image
	return nil
}

func (s *serverPlan) checkPlacement(tx *Tx) error {
	if s.PlacementGroup == 0 {
		return nil
	}
	g, ok := tx.PlacementGroups.Get(s.PlacementGroup)
	if !ok {
		return ErrField("placement_group", fmt.Sprintf("placement group with ID %d not found", s.PlacementGroup))
	}
	return g.checkRoom()
}

// findImage finds an image by id or name for a server of an architecture. Images of different
// architectures may have the same name. The messages: hetzner-k3s issue 681, terraform-provider-hcloud issues 74 (an image that is
// not available yet) and 1255.
func (tx *Tx) findImage(idOrName, arch string) (*Image, error) {
	image, ok := tx.Catalogue.ImageByName(idOrName, arch)
	if id, isID := ParseID(idOrName); isID && !ok {
		image, ok = tx.Image(id)
	}
	if !ok {
		if slices.ContainsFunc(tx.Catalogue.Images, func(i *Image) bool { return i.Name == idOrName }) {
			return nil, errInput("image has wrong architecture")
		}
		return nil, errInput("image not found")
	}
	switch {
	case !image.Deleted.IsZero() || image.Deprecation.Retired(tx.now), image.Status != "available":
		return nil, errInput("image not found")
	case image.Architecture != arch:
		return nil, errInput("image has wrong architecture")
	}
	return image, nil
}

// putServer stores the server with its addresses, placement group and reserved places in networks.
func (tx *Tx) putServer(plan *serverPlan) (*Server, error) {
	s := &Server{
		Meta: tx.NewMeta(plan.Name, plan.Labels), Status: ServerInitializing,
		Type: plan.serverType, Location: plan.location, Image: plan.image,
		PrimaryDisk: plan.serverType.Disk, SSHKeys: plan.sshKeys, UserData: plan.UserData,
	}
	tx.Servers.Put(s)
	for _, want := range []struct {
		in ServerPublicIP
		ip *PrimaryIP
		t  IPType
	}{{plan.IPv4, plan.ipv4, IPv4}, {plan.IPv6, plan.ipv6, IPv6}} {
		if !want.in.Enabled {
			continue
		}
		if want.ip != nil {
			tx.PrimaryIPs.Update(want.ip.ID, func(p *PrimaryIP) { p.Assignee = s.Ref() })
		} else {
			var err error
			if want.ip, err = tx.newPrimaryIP(CreatePrimaryIP{Type: want.t, AutoDelete: true}, plan.location, s.Ref()); err != nil {
				return nil, err
			}
		}
		s.setPrimaryIP(want.t, want.ip.ID) // no reader has the server yet
	}
	if plan.PlacementGroup != 0 {
		tx.joinPlacementGroup(s.ID, plan.PlacementGroup)
	}
	for _, network := range plan.Networks {
		err := tx.joinNetwork(Join{Member: s.Ref(), Zone: plan.location.NetworkZone, Network: network})
		if e, ok := errors.AsType[*Error](err); ok && e.Code == "no_subnet_available" {
			return nil, errNoFreeIP(network)
		} else if err != nil {
			return nil, err
		}
	}
	return s, nil
}

// startServerCreation starts create_server and the next actions.
func (tx *Tx) startServerCreation(s *Server, plan *serverPlan) CreatedServer {
	ref := []Ref{s.Ref()}
	out := CreatedServer{Action: tx.Start(ActionSpec{ // the image: hetznercloud/cli issue 1092
		Command: "create_server", Resources: []Ref{s.Ref(), plan.image.Ref()}, Guest: &GuestWork{Server: s.ID},
		Does: serverCreation{serverWas{s.ID, ServerOff}, plan.StartAfterCreate},
	}).ID}
	out.NextActions = tx.applyToNewServer(s.ID, plan.Firewalls)
	last := out.Action
	next := func(spec ActionSpec) {
		spec.After = last
		last = tx.Start(spec).ID
		out.NextActions = append(out.NextActions, last)
	}
	start := func() {
		if plan.StartAfterCreate {
			next(startServerSpec(s.ID, ServerOff, ref))
		}
	}
	for _, v := range plan.volumes {
		next(attachVolumeSpec(v.ID, s.ID))
	}
	public := plan.IPv4.Enabled || plan.IPv6.Enabled
	if public {
		start()
	}
	for _, network := range plan.Networks {
		next(attachToNetwork(s.Ref(), network))
	}
	if !public {
		start()
	}
	return out
}

// serverCreation ends the creation of a server. Its start, if wanted, is another action.
type serverCreation struct {
	serverWas
	Starts bool
}

func (e serverCreation) end(tx *Tx) {
	if !e.Starts {
		tx.setServerStatus(e.Server, ServerOff)
	}
}
