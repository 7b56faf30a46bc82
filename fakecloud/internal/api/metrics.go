package api

import (
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

type metricsJSON struct {
	Start      timeJSON                  `json:"start"`
	End        timeJSON                  `json:"end"`
	Step       float64                   `json:"step"`
	TimeSeries map[string]timeSeriesJSON `json:"time_series"`
}

type timeSeriesJSON struct {
	Values []sampleJSON `json:"values"`
}

// sampleJSON is encoded as [timestamp, "value"].
type sampleJSON struct {
	at    time.Time
	value float64
}

// MarshalJSON implements json.Marshaler.
func (s sampleJSON) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "[%s,%q]",
		strconv.FormatFloat(float64(s.at.UnixMilli())/1000, 'f', -1, 64),
		strconv.FormatFloat(s.value, 'f', -1, 64)), nil
}

// metricTypes reads the parameter type. It may be repeated, and may have several types, separated by commas.
func metricTypes(q url.Values, allowed ...string) ([]string, error) {
	var types []string
	for _, v := range q["type"] {
		for t := range strings.SplitSeq(v, ",") {
			if !slices.Contains(allowed, t) {
				return nil, cloud.ErrField("type", "must be one of "+strings.Join(allowed, ", "))
			}
			if !slices.Contains(types, t) {
				types = append(types, t)
			}
		}
	}
	if len(types) == 0 {
		return nil, cloud.ErrField("type", "is required")
	}
	return types, nil
}

// metricRange reads start, end and step.
func metricRange(q url.Values) (cloud.MetricRange, error) {
	var times [2]time.Time
	var wrong []cloud.FieldError
	for i, name := range []string{"start", "end"} {
		text := q.Get(name)
		if text == "" {
			return cloud.MetricRange{}, cloud.ErrField(name, "is required")
		}
		// If a client does not escape the + of an offset, it arrives as a space.
		t, err := time.Parse(time.RFC3339, strings.Replace(text, " ", "+", 1))
		if err != nil {
			// wacken89/hetzner-load-balancer-prometheus-exporter pull request 26
			wrong = append(wrong, cloud.FieldError{Name: name, Messages: []string{"Not an RFC 3339 date."}})
		}
		times[i] = t.UTC()
	}
	if len(wrong) > 0 {
		return cloud.MetricRange{}, cloud.ErrInvalidInput(wrong...)
	}
	var step time.Duration
	if text := q.Get("step"); text != "" {
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil || !(seconds > 0) || seconds > 1e9 {
			return cloud.MetricRange{}, cloud.ErrField("step", "must be a positive number of seconds")
		}
		step = time.Duration(math.Ceil(seconds)) * time.Second
	}
	return cloud.NewMetricRange(times[0], times[1], step)
}

// metricsPart returns the member `metrics` of a response.
func metricsPart(r cloud.MetricRange, series []cloud.MetricSeries) Part {
	out := metricsJSON{
		Start: timeJSON(r.Start), End: timeJSON(r.End), Step: r.Step.Seconds(),
		TimeSeries: make(map[string]timeSeriesJSON, len(series)),
	}
	for _, s := range series {
		values := make([]sampleJSON, len(s.Times))
		for i, t := range s.Times {
			values[i] = sampleJSON{t, s.Values[i]}
		}
		out.TimeSeries[s.Name] = timeSeriesJSON{values}
	}
	return Part{Key: "metrics", Value: compact(marshal(out))}
}

// getMetrics answers GET …/metrics. types are the values that the parameter type may have.
func getMetrics(read func(cloud.Project, int64, []string, cloud.MetricRange) ([]cloud.MetricSeries, error),
	types ...string) func(*Request, int64) (Response, error) {
	return func(r *Request, id int64) (Response, error) {
		wanted, err := metricTypes(r.Query(), types...)
		if err != nil {
			return Response{}, err
		}
		period, err := metricRange(r.Query())
		if err != nil {
			return Response{}, err
		}
		series, err := read(r.Project, id, wanted, period)
		if err != nil {
			return Response{}, err
		}
		return object(http.StatusOK, metricsPart(period, series)), nil
	}
}
