package api

import (
	"net/url"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

type sshKeyJSON struct {
	ID          int64             `json:"id"`
	Name        string            `json:"name"`
	Fingerprint string            `json:"fingerprint"`
	PublicKey   string            `json:"public_key"`
	Labels      map[string]string `json:"labels"`
	Created     timeJSON          `json:"created"`
}

var sshKeys = &resource[*cloud.SSHKey]{
	singular: "ssh_key", plural: "ssh_keys", kind: cloud.KindSSHKey,
	table: func(st *cloud.State) *store.Table[*cloud.SSHKey] { return &st.SSHKeys.Table },
	encode: func(_ Date, _ *cloud.State, k *cloud.SSHKey) any {
		return sshKeyJSON{k.ID, k.Name, k.Fingerprint, k.PublicKey, k.Labels, timeJSON(k.Created)}
	},
	sort: orders[*cloud.SSHKey]("id", "name"),
	lookup: func(st *cloud.State, q url.Values) ([]int64, bool) {
		fingerprint := q.Get("fingerprint")
		if fingerprint == "" {
			return nil, false
		}
		if k, ok := st.SSHKeys.ByFingerprint(fingerprint); ok {
			return []int64{k.ID}, true
		}
		return nil, true
	},
}

func sshKeyRoutes() []Route {
	return sshKeys.routes(withBody(createSSHKey), sshKeys.update(cloud.Project.UpdateSSHKey), sshKeys.remove(cloud.Project.DeleteSSHKey))
}

func createSSHKey(r *Request, body struct {
	Name      string            `json:"name" check:"required,notblank"`
	PublicKey string            `json:"public_key" check:"required,notblank"`
	Labels    map[string]string `json:"labels"`
}) (Response, error) {
	key, st, err := r.Project.CreateSSHKey(cloud.CreateSSHKey{
		Name: body.Name, PublicKey: body.PublicKey, Labels: body.Labels,
	})
	return sshKeys.created(r, key, st, err)
}
