package api

import (
	"net/http"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

func getLoadBalancerMetrics(r *Request) (Response, error) {
	id, err := r.ID(cloud.KindLoadBalancer)
	if err != nil {
		return Response{}, err
	}
	types, err := metricTypes(r.Query(), "open_connections", "connections_per_second", "requests_per_second", "bandwidth")
	if err != nil {
		return Response{}, err
	}
	period, err := metricRange(r.Query())
	if err != nil {
		return Response{}, err
	}
	series, err := r.Project.LoadBalancerMetrics(id, types, period)
	if err != nil {
		return Response{}, err
	}
	return object(http.StatusOK, metricsPart(period, series)), nil
}
