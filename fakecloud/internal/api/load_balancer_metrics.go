package api

import (
	"net/http"
)

func getLoadBalancerMetrics(r *Request, id int64) (Response, error) {
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
