package api

import (
	"net/http"
	"net/netip"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/bind"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// serverActionRoutes are the actions of a server, except for those of serverNetworkRoutes.
func serverActionRoutes() []Route {
	post := func(name, operation string, handle func(*Request) (Response, error)) Route {
		return Route{http.MethodPost, "/servers/{id}/actions/" + name, operation, handle}
	}
	return []Route{
		post("poweron", "poweron_server", serverAction(cloud.Project.PowerOnServer)),
		post("poweroff", "poweroff_server", serverAction(cloud.Project.PowerOffServer)),
		post("shutdown", "shutdown_server", serverAction(cloud.Project.ShutdownServer)),
		post("reboot", "reboot_server", serverAction(cloud.Project.RebootServer)),
		post("reset", "reset_server", serverAction(cloud.Project.ResetServer)),
		post("reset_password", "reset_server_password", resetServerPassword),
		post("enable_rescue", "enable_server_rescue", enableServerRescue),
		post("disable_rescue", "disable_server_rescue", serverAction(cloud.Project.DisableServerRescue)),
		post("enable_backup", "enable_server_backup", serverAction(cloud.Project.EnableServerBackup)),
		post("disable_backup", "disable_server_backup", serverAction(cloud.Project.DisableServerBackup)),
		post("create_image", "create_server_image", createServerImage),
		post("rebuild", "rebuild_server", rebuildServer),
		post("change_type", "change_server_type", changeServerType),
		post("change_protection", "change_server_protection", changeServerProtection),
		post("change_dns_ptr", "change_server_dns_ptr", changeServerDNSPtr),
		post("attach_iso", "attach_server_iso", attachServerISO),
		post("detach_iso", "detach_server_iso", serverAction(cloud.Project.DetachServerISO)),
		post("request_console", "request_server_console", requestServerConsole),
		post("add_to_placement_group", "add_server_to_placement_group", addServerToPlacementGroup),
		post("remove_from_placement_group", "remove_server_from_placement_group",
			serverAction(cloud.Project.RemoveServerFromPlacementGroup)),
	}
}

// serverAction answers an action that takes no body.
func serverAction(do func(cloud.Project, int64) (int64, *cloud.State, error)) func(*Request) (Response, error) {
	return func(r *Request) (Response, error) {
		id, err := r.ID(cloud.KindServer)
		if err != nil {
			return Response{}, err
		}
		action, st, err := do(r.Project, id)
		return started(st, action, err)
	}
}

// startedWith answers an operation that started an action with 201, the action and other parts.
func startedWith(st *cloud.State, action int64, err error, parts ...Part) (Response, error) {
	if err != nil {
		return Response{}, err
	}
	return object(http.StatusCreated, append(parts, actionPart(st, action))...), nil
}

// bindWithID reads the path's id and the body.
func bindWithID(r *Request, kind store.Kind, body any) (int64, error) {
	id, err := r.ID(kind)
	if err != nil {
		return 0, err
	}
	return id, r.Bind(body)
}

func resetServerPassword(r *Request) (Response, error) {
	id, err := r.ID(cloud.KindServer)
	if err != nil {
		return Response{}, err
	}
	password, action, st, err := r.Project.ResetServerPassword(id)
	return startedWith(st, action, err, rootPassword(password))
}

func enableServerRescue(r *Request) (Response, error) {
	var body struct {
		Type    string  `json:"type" check:"oneof=linux64"`
		SSHKeys []int64 `json:"ssh_keys" check:"each.min=1"`
	}
	id, err := bindWithID(r, cloud.KindServer, &body)
	if err != nil {
		return Response{}, err
	}
	password, action, st, err := r.Project.EnableServerRescue(id, body.SSHKeys)
	return startedWith(st, action, err, rootPassword(password))
}

func createServerImage(r *Request) (Response, error) {
	var body struct {
		Description string            `json:"description"`
		Type        *string           `json:"type" check:"oneof=snapshot|backup"`
		Labels      map[string]string `json:"labels"`
	}
	id, err := bindWithID(r, cloud.KindServer, &body)
	if err != nil {
		return Response{}, err
	}
	image, action, st, err := r.Project.CreateServerImage(id, cloud.CreateServerImage{
		Type: deref(body.Type, "snapshot"), Description: body.Description, Labels: body.Labels,
	})
	if err != nil {
		return Response{}, err
	}
	return startedWith(st, action, nil, images.part(r, st, image.ID, image))
}

func rebuildServer(r *Request) (Response, error) {
	var body struct {
		Image    bind.IDOrName `json:"image" check:"required"`
		UserData *string       `json:"user_data" check:"len=0:32768"`
	}
	id, err := bindWithID(r, cloud.KindServer, &body)
	if err != nil {
		return Response{}, err
	}
	password, action, st, err := r.Project.RebuildServer(id, cloud.RebuildServer{Image: string(body.Image), UserData: body.UserData})
	return startedWith(st, action, err, rootPassword(password))
}

func changeServerType(r *Request) (Response, error) {
	var body struct {
		ServerType  bind.IDOrName `json:"server_type" check:"required"`
		UpgradeDisk bool          `json:"upgrade_disk" check:"required"`
	}
	id, err := bindWithID(r, cloud.KindServer, &body)
	if err != nil {
		return Response{}, err
	}
	action, st, err := r.Project.ChangeServerType(id, string(body.ServerType), body.UpgradeDisk)
	return started(st, action, err)
}

func changeServerProtection(r *Request) (Response, error) {
	var body struct {
		Delete  *bool `json:"delete"`
		Rebuild *bool `json:"rebuild"`
	}
	id, err := bindWithID(r, cloud.KindServer, &body)
	if err != nil {
		return Response{}, err
	}
	action, st, err := r.Project.ChangeServerProtection(id, body.Delete, body.Rebuild)
	return started(st, action, err)
}

// dnsPtrRequest is the body of the actions change_dns_ptr. An absent dns_ptr counts as null: the default again.
type dnsPtrRequest struct {
	IP     netip.Addr `json:"ip" check:"required"`
	DNSPtr *string    `json:"dns_ptr"`
}

func (b dnsPtrRequest) change() cloud.ChangeDNSPtr {
	return cloud.ChangeDNSPtr{IP: b.IP, Ptr: b.DNSPtr}
}

func changeServerDNSPtr(r *Request) (Response, error) {
	var body dnsPtrRequest
	id, err := bindWithID(r, cloud.KindServer, &body)
	if err != nil {
		return Response{}, err
	}
	action, st, err := r.Project.ChangeServerDNSPtr(id, body.change())
	return started(st, action, err)
}

func attachServerISO(r *Request) (Response, error) {
	var body struct {
		ISO bind.IDOrName `json:"iso" check:"required"`
	}
	id, err := bindWithID(r, cloud.KindServer, &body)
	if err != nil {
		return Response{}, err
	}
	action, st, err := r.Project.AttachServerISO(id, string(body.ISO))
	return started(st, action, err)
}

func requestServerConsole(r *Request) (Response, error) {
	id, err := r.ID(cloud.KindServer)
	if err != nil {
		return Response{}, err
	}
	console, action, st, err := r.Project.RequestServerConsole(id)
	return startedWith(st, action, err, Part{Key: "wss_url", JSON: marshal(console.URL)},
		Part{Key: "password", JSON: marshal(console.Password)})
}

func addServerToPlacementGroup(r *Request) (Response, error) {
	var body struct {
		PlacementGroup int64 `json:"placement_group" check:"required,min=1"`
	}
	id, err := bindWithID(r, cloud.KindServer, &body)
	if err != nil {
		return Response{}, err
	}
	action, st, err := r.Project.AddServerToPlacementGroup(id, body.PlacementGroup)
	return started(st, action, err)
}
