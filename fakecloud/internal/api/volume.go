package api

import (
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
	filter: filterBy("status", func(v *cloud.Volume) string { return string(v.Status) },
		string(cloud.VolumeAvailable), string(cloud.VolumeCreating)),
	sort: orders[*cloud.Volume]("id", "name", "created"),
}

func volumeRoutes() []Route {
	const kind = cloud.KindVolume
	return slices.Concat(volumes.routes(
		withBody(createVolume), volumes.update(cloud.Project.UpdateVolume), volumes.remove(cloud.Project.DeleteVolume),
	), []Route{
		volumes.action("attach", withIDAndBody(kind, attachVolume)),
		volumes.action("detach", startedOn(kind, cloud.Project.DetachVolume)),
		volumes.action("resize", withIDAndBody(kind, resizeVolume)),
		volumes.action("change_protection", changeProtection(kind, cloud.Project.ChangeVolumeProtection)),
	}, actionRoutesOf(volumes))
}

func createVolume(r *Request, body struct {
	Name      string            `json:"name" check:"required"`
	Size      int               `json:"size" check:"required,text"`
	Location  bind.IDOrName     `json:"location"`
	Server    *int64            `json:"server" check:"min=1"`
	Automount bool              `json:"automount" check:"text"`
	Format    string            `json:"format" check:"oneof=xfs|ext4"`
	Labels    map[string]string `json:"labels"`
}) (Response, error) {
	out, st, err := r.Project.CreateVolume(cloud.CreateVolume{
		Name: body.Name, Size: body.Size, Location: string(body.Location), Server: deref(body.Server, 0),
		Automount: body.Automount, Format: body.Format, Labels: body.Labels,
	})
	return volumes.created(r, out.Volume, st, err, actionPart(st, out.Action), startedPart("next_actions", st, out.NextActions))
}

func attachVolume(r *Request, id int64, body struct {
	Server    int64 `json:"server" check:"required,min=1"`
	Automount bool  `json:"automount" check:"text"` // see cloud.Volume
}) (Response, error) {
	return started(r.Project.AttachVolume(id, body.Server))
}

func resizeVolume(r *Request, id int64, body struct {
	Size int `json:"size" check:"required,text"`
}) (Response, error) {
	return started(r.Project.ResizeVolume(id, body.Size))
}
