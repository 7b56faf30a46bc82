package api

import (
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// protectionJSON is the protection of resources that can only be protected against deletion.
type protectionJSON struct {
	Delete bool `json:"delete"`
}

// changeProtection answers the action change_protection of such a resource, if the field delete is optional.
func changeProtection(kind store.Kind, do func(cloud.Project, int64, *bool) (int64, *cloud.State, error)) func(*Request) (Response, error) {
	return func(r *Request) (Response, error) {
		var body struct {
			Delete *bool `json:"delete"`
		}
		id, err := bindWithID(r, kind, &body)
		if err != nil {
			return Response{}, err
		}
		action, st, err := do(r.Project, id, body.Delete)
		return started(st, action, err)
	}
}

// setProtection answers the action change_protection of such a resource, if the field delete is required.
func setProtection(kind store.Kind, do func(cloud.Project, int64, bool) (int64, *cloud.State, error)) func(*Request) (Response, error) {
	return func(r *Request) (Response, error) {
		var body struct {
			Delete bool `json:"delete" check:"required"`
		}
		id, err := bindWithID(r, kind, &body)
		if err != nil {
			return Response{}, err
		}
		action, st, err := do(r.Project, id, body.Delete)
		return started(st, action, err)
	}
}
