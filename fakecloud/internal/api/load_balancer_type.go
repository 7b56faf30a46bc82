package api

import (
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

type loadBalancerTypeJSON struct {
	ID                      int64               `json:"id"`
	Name                    string              `json:"name"`
	Description             string              `json:"description"`
	MaxConnections          int                 `json:"max_connections"`
	MaxServices             int                 `json:"max_services"`
	MaxTargets              int                 `json:"max_targets"`
	MaxAssignedCertificates int                 `json:"max_assigned_certificates"`
	Deprecated              timeJSON            `json:"deprecated"`
	Deprecation             *deprecationJSON    `json:"deprecation"`
	Prices                  []locationPriceJSON `json:"prices"`
}

func encodeLoadBalancerType(t *cloud.LoadBalancerType) loadBalancerTypeJSON {
	return loadBalancerTypeJSON{
		ID: t.ID, Name: t.Name, Description: t.Description,
		MaxConnections: t.MaxConnections, MaxServices: t.MaxServices, MaxTargets: t.MaxTargets,
		MaxAssignedCertificates: t.MaxAssignedCertificates,
		Deprecated:              deprecatedSince(t.Deprecation), Deprecation: encodeDeprecation(t.Deprecation),
		Prices: encodeLocationPrices(t.Prices),
	}
}

var loadBalancerTypes = &staticList[cloud.LoadBalancerType]{
	singular: "load_balancer_type", plural: "load_balancer_types",
	items:   func(c *cloud.Catalogue) []*cloud.LoadBalancerType { return c.LoadBalancerTypes },
	id:      func(t *cloud.LoadBalancerType) int64 { return t.ID },
	name:    func(t *cloud.LoadBalancerType) string { return t.Name },
	encode:  func(_ Date, t *cloud.LoadBalancerType) any { return encodeLoadBalancerType(t) },
	retired: func(t *cloud.LoadBalancerType, now time.Time) bool { return t.Deprecation.Retired(now) },
}
