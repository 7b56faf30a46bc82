package api

import (
	"net/http"
	"net/url"
	"slices"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/bind"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

type volumeJSON struct {
	ID          int64              `json:"id"`
	Created     timeJSON           `json:"created"`
	Name        string             `json:"name"`
	Server      *int64             `json:"server"`
	Location    locationJSON       `json:"location"`
	Size        int                `json:"size"`
	LinuxDevice string             `json:"linux_device"`
	Protection  protectionJSON     `json:"protection"`
	Labels      map[string]string  `json:"labels"`
	Status      cloud.VolumeStatus `json:"status"`
	Format      *string            `json:"format"`
}

var volumes = &resource[*cloud.Volume]{
	singular: "volume", plural: "volumes", kind: cloud.KindVolume,
	table: func(st *cloud.State) *store.Table[*cloud.Volume] { return &st.Volumes },
	encode: func(_ Date, _ *cloud.State, v *cloud.Volume) any {
		return volumeJSON{
			v.ID, timeJSON(v.Created), v.Name, nullable(v.Server), encodeLocation(v.Location), v.Size, v.LinuxDevice(),
			protectionJSON{v.DeleteProtection}, v.Labels, v.Status, nullable(v.Format),
		}
	},
	filter: func(q url.Values) (func(*cloud.State, *cloud.Volume) bool, error) {
		status, err := oneOf(q, "status", string(cloud.VolumeAvailable), string(cloud.VolumeCreating))
		if err != nil || len(q["status"]) == 0 {
			return nil, err
		}
		return func(_ *cloud.State, v *cloud.Volume) bool { return status(string(v.Status)) }, nil
	},
	sort: map[string]func(a, b *cloud.Volume) int{
		"id": compareID[*cloud.Volume], "name": compareName[*cloud.Volume], "created": compareCreated[*cloud.Volume],
	},
}

func volumeRoutes() []Route {
	return slices.Concat([]Route{
		{http.MethodGet, "/volumes", "list_volumes", volumes.list},
		{http.MethodPost, "/volumes", "create_volume", withBody(createVolume)},
		{http.MethodGet, "/volumes/{id}", "get_volume", volumes.get},
		{http.MethodPut, "/volumes/{id}", "update_volume", volumes.update(cloud.Project.UpdateVolume)},
		{http.MethodDelete, "/volumes/{id}", "delete_volume", volumes.remove(cloud.Project.DeleteVolume)},
		{http.MethodPost, "/volumes/{id}/actions/attach", "attach_volume", withIDAndBody(cloud.KindVolume, attachVolume)},
		{http.MethodPost, "/volumes/{id}/actions/detach", "detach_volume", startedOn(cloud.KindVolume, cloud.Project.DetachVolume)},
		{http.MethodPost, "/volumes/{id}/actions/resize", "resize_volume", withIDAndBody(cloud.KindVolume, resizeVolume)},
		{http.MethodPost, "/volumes/{id}/actions/change_protection", "change_volume_protection",
			changeProtection(cloud.KindVolume, cloud.Project.ChangeVolumeProtection)},
	}, actionRoutesOf(volumes))
}

func createVolume(r *Request, body struct {
	Name      string            `json:"name" check:"required"`
	Size      int               `json:"size" check:"required"`
	Location  bind.IDOrName     `json:"location"`
	Server    *int64            `json:"server" check:"min=1"`
	Automount bool              `json:"automount"`
	Format    string            `json:"format" check:"oneof=xfs|ext4"`
	Labels    map[string]string `json:"labels"`
}) (Response, error) {
	out, st, err := r.Project.CreateVolume(cloud.CreateVolume{
		Name: body.Name, Size: body.Size, Location: string(body.Location), Server: deref(body.Server, 0),
		Automount: body.Automount, Format: body.Format, Labels: body.Labels,
	})
	if err != nil {
		return Response{}, err
	}
	return created(out.Volume.ID, volumes.part(r, st, out.Volume.ID, out.Volume), actionPart(st, out.Action),
		startedPart("next_actions", st, out.NextActions)), nil
}

func attachVolume(r *Request, id int64, body struct {
	Server    int64 `json:"server" check:"required,min=1"`
	Automount bool  `json:"automount"` // see cloud.Volume
}) (Response, error) {
	return started(r.Project.AttachVolume(id, body.Server))
}

func resizeVolume(r *Request, id int64, body struct {
	Size int `json:"size" check:"required"`
}) (Response, error) {
	return started(r.Project.ResizeVolume(id, body.Size))
}
