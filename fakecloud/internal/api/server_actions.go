package api

import (
	"net/http"
	"net/netip"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/bind"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// serverActionRoutes are the actions of a server.
func serverActionRoutes() []Route {
	const kind = cloud.KindServer
	return []Route{
		servers.action("poweron", startedOn(kind, cloud.Project.PowerOnServer)),
		servers.action("poweroff", startedOn(kind, cloud.Project.PowerOffServer)),
		servers.action("shutdown", startedOn(kind, cloud.Project.ShutdownServer)),
		servers.action("reboot", startedOn(kind, cloud.Project.RebootServer)),
		servers.action("reset", startedOn(kind, cloud.Project.ResetServer)),
		servers.action("reset_password", withID(kind, resetServerPassword)),
		servers.action("enable_rescue", withIDAndBody(kind, enableServerRescue)),
		servers.action("disable_rescue", startedOn(kind, cloud.Project.DisableServerRescue)),
		servers.action("enable_backup", startedOn(kind, cloud.Project.EnableServerBackup)),
		servers.action("disable_backup", startedOn(kind, cloud.Project.DisableServerBackup)),
		servers.action("create_image", withIDAndBody(kind, createServerImage)),
		servers.action("rebuild", withIDAndBody(kind, rebuildServer)),
		servers.action("change_type", withIDAndBody(kind, changeServerType)),
		servers.action("change_protection", withIDAndBody(kind, changeServerProtection)),
		servers.action("change_dns_ptr", changeDNSPtr(kind, cloud.Project.ChangeServerDNSPtr)),
		servers.action("attach_iso", withIDAndBody(kind, attachServerISO)),
		servers.action("detach_iso", startedOn(kind, cloud.Project.DetachServerISO)),
		servers.action("request_console", withID(kind, requestServerConsole)),
		servers.action("add_to_placement_group", withIDAndBody(kind, addServerToPlacementGroup)),
		servers.action("remove_from_placement_group", startedOn(kind, cloud.Project.RemoveServerFromPlacementGroup)),
		servers.action("attach_to_network", withIDAndBody(kind, attachServerToNetwork)),
		servers.action("detach_from_network", detachFromNetwork(kind, cloud.Project.DetachServerFromNetwork)),
		servers.action("change_alias_ips", withIDAndBody(kind, changeServerAliasIPs)),
	}
}

// startedWith answers an operation that started an action with 201, the action and other parts.
func startedWith(st *cloud.State, action int64, err error, parts ...Part) (Response, error) {
	return object(http.StatusCreated, append(parts, actionPart(st, action))...), err
}

func resetServerPassword(r *Request, id int64) (Response, error) {
	password, action, st, err := r.Project.ResetServerPassword(id)
	return startedWith(st, action, err, rootPassword(password))
}

func enableServerRescue(r *Request, id int64, body struct {
	Type    string  `json:"type" check:"choice=linux64"`
	SSHKeys []int64 `json:"ssh_keys" check:"each.min=1"`
}) (Response, error) {
	password, action, st, err := r.Project.EnableServerRescue(id, body.SSHKeys)
	return startedWith(st, action, err, rootPassword(password))
}

func createServerImage(r *Request, id int64, body struct {
	Description string            `json:"description"`
	Type        *string           `json:"type" check:"oneof=snapshot|backup"`
	Labels      map[string]string `json:"labels"`
}) (Response, error) {
	image, action, st, err := r.Project.CreateServerImage(id, cloud.CreateServerImage{
		Type: deref(body.Type, "snapshot"), Description: body.Description, Labels: body.Labels,
	})
	if err != nil {
		return Response{}, err
	}
	return startedWith(st, action, nil, images.part(r, st, image.ID, image))
}

func rebuildServer(r *Request, id int64, body struct {
	Image    bind.IDOrName `json:"image" check:"required"`
	UserData *string       `json:"user_data" check:"len=0:32768"`
}) (Response, error) {
	password, action, st, err := r.Project.RebuildServer(id, cloud.RebuildServer{Image: string(body.Image), UserData: body.UserData})
	return startedWith(st, action, err, rootPassword(password))
}

func changeServerType(r *Request, id int64, body struct {
	ServerType  bind.IDOrName `json:"server_type" check:"required"`
	UpgradeDisk bool          `json:"upgrade_disk" check:"required"`
}) (Response, error) {
	return started(r.Project.ChangeServerType(id, string(body.ServerType), body.UpgradeDisk))
}

func changeServerProtection(r *Request, id int64, body struct {
	Delete  *bool `json:"delete"`
	Rebuild *bool `json:"rebuild"`
}) (Response, error) {
	return started(r.Project.ChangeServerProtection(id, body.Delete, body.Rebuild))
}

// changeDNSPtr answers the actions change_dns_ptr. An absent dns_ptr counts as null: the default again.
func changeDNSPtr(kind store.Kind, do func(cloud.Project, int64, cloud.ChangeDNSPtr) (int64, *cloud.State, error)) handler {
	return withIDAndBody(kind, func(r *Request, id int64, body struct {
		IP  netip.Addr `json:"ip" check:"required"`
		Ptr *string    `json:"dns_ptr"`
	}) (Response, error) {
		return started(do(r.Project, id, cloud.ChangeDNSPtr(body)))
	})
}

func attachServerISO(r *Request, id int64, body struct {
	ISO bind.IDOrName `json:"iso" check:"required"`
}) (Response, error) {
	return started(r.Project.AttachServerISO(id, string(body.ISO)))
}

func requestServerConsole(r *Request, id int64) (Response, error) {
	console, action, st, err := r.Project.RequestServerConsole(id)
	return startedWith(st, action, err, Part{Key: "wss_url", JSON: marshal(console.URL)},
		Part{Key: "password", JSON: marshal(console.Password)})
}

func addServerToPlacementGroup(r *Request, id int64, body struct {
	PlacementGroup int64 `json:"placement_group" check:"required,min=1"`
}) (Response, error) {
	return started(r.Project.AddServerToPlacementGroup(id, body.PlacementGroup))
}
