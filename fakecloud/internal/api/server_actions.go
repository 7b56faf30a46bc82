package api

import (
	"net/http"
	"net/netip"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/bind"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// serverActionRoutes are the actions of a server, except for those of serverNetworkRoutes.
func serverActionRoutes() []Route {
	post := func(name, operation string, handle func(*Request) (Response, error)) Route {
		return Route{http.MethodPost, "/servers/{id}/actions/" + name, operation, handle}
	}
	return []Route{
		post("poweron", "poweron_server", startedOn(cloud.KindServer, cloud.Project.PowerOnServer)),
		post("poweroff", "poweroff_server", startedOn(cloud.KindServer, cloud.Project.PowerOffServer)),
		post("shutdown", "shutdown_server", startedOn(cloud.KindServer, cloud.Project.ShutdownServer)),
		post("reboot", "reboot_server", startedOn(cloud.KindServer, cloud.Project.RebootServer)),
		post("reset", "reset_server", startedOn(cloud.KindServer, cloud.Project.ResetServer)),
		post("reset_password", "reset_server_password", withID(cloud.KindServer, resetServerPassword)),
		post("enable_rescue", "enable_server_rescue", withIDAndBody(cloud.KindServer, enableServerRescue)),
		post("disable_rescue", "disable_server_rescue", startedOn(cloud.KindServer, cloud.Project.DisableServerRescue)),
		post("enable_backup", "enable_server_backup", startedOn(cloud.KindServer, cloud.Project.EnableServerBackup)),
		post("disable_backup", "disable_server_backup", startedOn(cloud.KindServer, cloud.Project.DisableServerBackup)),
		post("create_image", "create_server_image", withIDAndBody(cloud.KindServer, createServerImage)),
		post("rebuild", "rebuild_server", withIDAndBody(cloud.KindServer, rebuildServer)),
		post("change_type", "change_server_type", withIDAndBody(cloud.KindServer, changeServerType)),
		post("change_protection", "change_server_protection", withIDAndBody(cloud.KindServer, changeServerProtection)),
		post("change_dns_ptr", "change_server_dns_ptr", withIDAndBody(cloud.KindServer, changeServerDNSPtr)),
		post("attach_iso", "attach_server_iso", withIDAndBody(cloud.KindServer, attachServerISO)),
		post("detach_iso", "detach_server_iso", startedOn(cloud.KindServer, cloud.Project.DetachServerISO)),
		post("request_console", "request_server_console", withID(cloud.KindServer, requestServerConsole)),
		post("add_to_placement_group", "add_server_to_placement_group", withIDAndBody(cloud.KindServer, addServerToPlacementGroup)),
		post("remove_from_placement_group", "remove_server_from_placement_group",
			startedOn(cloud.KindServer, cloud.Project.RemoveServerFromPlacementGroup)),
	}
}

// startedWith answers an operation that started an action with 201, the action and other parts.
func startedWith(st *cloud.State, action int64, err error, parts ...Part) (Response, error) {
	if err != nil {
		return Response{}, err
	}
	return object(http.StatusCreated, append(parts, actionPart(st, action))...), nil
}

func resetServerPassword(r *Request, id int64) (Response, error) {
	password, action, st, err := r.Project.ResetServerPassword(id)
	return startedWith(st, action, err, rootPassword(password))
}

func enableServerRescue(r *Request, id int64, body struct {
	Type    string  `json:"type" check:"oneof=linux64"`
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

// dnsPtrRequest is the body of the actions change_dns_ptr. An absent dns_ptr counts as null: the default again.
type dnsPtrRequest struct {
	IP     netip.Addr `json:"ip" check:"required"`
	DNSPtr *string    `json:"dns_ptr"`
}

func (b dnsPtrRequest) change() cloud.ChangeDNSPtr {
	return cloud.ChangeDNSPtr{IP: b.IP, Ptr: b.DNSPtr}
}

func changeServerDNSPtr(r *Request, id int64, body dnsPtrRequest) (Response, error) {
	return started(r.Project.ChangeServerDNSPtr(id, body.change()))
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
