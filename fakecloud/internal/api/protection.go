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
func changeProtection(kind store.Kind, do func(cloud.Project, int64, *bool) (int64, *cloud.State, error)) handler {
	return withIDAndBody(kind, func(r *Request, id int64, body struct {
		Delete *bool `json:"delete"`
	}) (Response, error) {
		return started(do(r.Project, id, body.Delete))
	})
}

// setProtection answers the action change_protection of such a resource, if the field delete is required.
func setProtection(kind store.Kind, do func(cloud.Project, int64, bool) (int64, *cloud.State, error)) handler {
	return withIDAndBody(kind, func(r *Request, id int64, body struct {
		Delete bool `json:"delete" check:"required"`
	}) (Response, error) {
		return started(do(r.Project, id, body.Delete))
	})
}
