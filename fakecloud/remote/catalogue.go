package remote

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/catalogue"
)

// Catalogue returns the server types as the API shows them: see fakecloud.Cloud.Catalogue.
func (c *Client) Catalogue(ctx context.Context) (json.RawMessage, error) {
	var out []byte
	err := c.call(ctx, http.MethodGet, "/catalogue", nil, nil, &out)
	return out, err
}

// OfferServerType changes how a server type is offered: see fakecloud.Cloud.OfferServerType.
func (c *Client) OfferServerType(ctx context.Context, serverType, location string, o catalogue.Offer) error {
	path := "/catalogue/server_types/" + url.PathEscape(serverType)
	if location != "" {
		path += "/locations/" + url.PathEscape(location)
	}
	return catalogueError(c.call(ctx, http.MethodPut, path, nil, o, nil))
}

// AddServerType adds a server type: see fakecloud.Cloud.AddServerType.
func (c *Client) AddServerType(ctx context.Context, t catalogue.NewServerType) error {
	return catalogueError(c.call(ctx, http.MethodPost, "/catalogue/server_types", nil, t, nil))
}

// ResetCatalogue restores the catalogue that the cloud began with: see fakecloud.Cloud.ResetCatalogue.
func (c *Client) ResetCatalogue(ctx context.Context) error {
	return c.call(ctx, http.MethodDelete, "/catalogue", nil, nil, nil)
}

// catalogueError adds the error of package catalogue that an answer stands for.
func catalogueError(err error) error {
	return as(as(err, http.StatusNotFound, catalogue.ErrNotFound), http.StatusConflict, catalogue.ErrExists)
}

// Limits returns how many resources of each kind a project may own: see fakecloud.Cloud.Limits.
func (c *Client) Limits(ctx context.Context, project int64) (map[string]int, error) {
	var out map[string]int
	err := c.call(ctx, http.MethodGet, projectPath(project)+"/limits", nil, nil, &out)
	return out, err
}

// SetLimits replaces the limits of a project: see fakecloud.Cloud.SetLimits.
func (c *Client) SetLimits(ctx context.Context, project int64, limits map[string]int) error {
	if limits == nil {
		limits = map[string]int{}
	}
	return c.call(ctx, http.MethodPut, projectPath(project)+"/limits", nil, limits, nil)
}
