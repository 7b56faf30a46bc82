package speclist

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Details are a run's data about a spec beyond its result. The report page shows them.
type Details struct {
	// Source is where the spec is declared: file:line, from the root of its module.
	Source string `json:"source,omitempty"`
	// Container is where the innermost container of the spec is declared. That of an entry is its table.
	Container string `json:"container,omitempty"`
	// Begin is when the spec began. Other times are seconds after it.
	Begin   time.Time `json:"begin,omitzero"`
	Steps   []Step    `json:"steps,omitempty"`
	Figures []Figure  `json:"figures,omitempty"`
	// Notes are the spec's short report entries.
	Notes   []Note   `json:"notes,omitempty"`
	Failure *Failure `json:"failure,omitempty"`
}

// Step is a part of the spec, with the time of its beginning.
type Step struct {
	At   float64 `json:"at"`
	Text string  `json:"text"`
}

// Note is a report entry of a spec.
type Note struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Failure says why a spec failed.
type Failure struct {
	At      float64 `json:"at"`
	Place   string  `json:"place"`
	Message string  `json:"message"`
	// State is the cloud's at that time, as its driver shows it.
	State string `json:"state,omitempty"`
	// Timeline has the spec's logs, requests and events, by time.
	Timeline []Line `json:"timeline,omitempty"`
	// LeftOut is how many lines the timeline lacks.
	LeftOut int `json:"left_out,omitempty"`
}

// Lane is where a line of a timeline comes from.
type Lane string

// The lanes.
const (
	Log      Lane = "log"      // of the CCM
	Requests Lane = "requests" // to the cloud
	Events   Lane = "events"   // of the cluster
)

// Line is one line of a timeline. In JSON it is a text, such as "1.250 requests GET /v1/servers → 200".
type Line struct {
	At   float64
	Lane Lane
	Text string
}

// MarshalText implements encoding.TextMarshaler.
func (l Line) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%.3f %s %s", l.At, l.Lane, l.Text), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *Line) UnmarshalText(text []byte) error {
	at, rest, _ := strings.Cut(string(text), " ")
	lane, rest, ok := strings.Cut(rest, " ")
	seconds, err := strconv.ParseFloat(at, 64)
	if err != nil || !ok {
		return fmt.Errorf("the line %.60q: must be seconds, a lane and a text, with a space between", text)
	}
	*l = Line{At: seconds, Lane: Lane(lane), Text: rest}
	return nil
}

// Figure is something that a spec has measured.
type Figure struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Value float64 `json:"value"`
}

// FigureEntry is the name of report entries with figures.
const FigureEntry = "figure"

// The figures that the report page lists for every run, measured or not.
const (
	RequestsAtRest       = "requests in an hour at rest"
	RequestsNewService   = "requests to create a Service"
	RequestsSyncService  = "requests to sync a Service without a change"
	RequestsDropService  = "requests to delete a Service"
	RequestsNewNode      = "requests for each of four new nodes, without routes"
	TimeToFirstTraffic   = "time from the creation of a Service to its first answer"
	LostInARollingChange = "requests lost during a rolling change"
)

// RequestsOfTheSpec is the figure that says how many requests the CCM sent during a spec.
const RequestsOfTheSpec = "requests of the CCM"

// Budgets returns the names of the figures that the report page lists for every run.
func Budgets() []string {
	return []string{RequestsAtRest, RequestsNewService, RequestsSyncService, RequestsDropService, RequestsNewNode, TimeToFirstTraffic,
		LostInARollingChange}
}
