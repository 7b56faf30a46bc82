package control

import (
	"fmt"
	"net/http"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/catalogue"
)

func getCatalogue(c *Controller, _ *http.Request) (any, error) {
	return map[string]any{"time": c.Cloud.Now(), "server_types": c.API.ServerTypes()}, nil
}

func addServerType(c *Controller, _ *http.Request, in catalogue.NewServerType) (any, error) {
	return done, c.Cloud.AddServerType(in)
}

// offerServerType changes a server type in the location of the path, or in all if the path has none.
func offerServerType(c *Controller, r *http.Request, in catalogue.Offer) (any, error) {
	return done, c.Cloud.OfferServerType(pathParam(r, "type"), pathParam(r, "location"), in)
}

func resetCatalogue(c *Controller, _ *http.Request) (any, error) {
	c.Cloud.ResetCatalogue()
	return done, nil
}

func getLimits(c *Controller, _ *http.Request, id int64) (any, error) {
	return c.Limits(id)
}

func setLimits(c *Controller, _ *http.Request, id int64, limits map[string]int) (any, error) {
	if limits == nil {
		return nil, fmt.Errorf(`limits of project %d: are required, such as {"server": 10}; {} removes all`, id)
	}
	if err := c.SetLimits(id, limits); err != nil {
		return nil, err
	}
	return c.Limits(id)
}
