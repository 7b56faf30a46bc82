package control

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/api"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// selection selects projects and kinds of resources. Empty fields select all.
type selection struct {
	projects []int64
	kinds    []cloud.Kind
	snapshot bool
}

func (s *selection) project(id int64) bool {
	return len(s.projects) == 0 || slices.Contains(s.projects, id)
}

func (s *selection) kind(k cloud.Kind) bool {
	return len(s.kinds) == 0 || slices.Contains(s.kinds, k)
}

func parseSelection(kinds []cloud.Kind, q url.Values, more ...string) (selection, error) {
	var s selection
	for key, values := range q {
		for _, v := range values {
			switch {
			case key == "project":
				id, err := strconv.ParseInt(v, 10, 64)
				if err != nil {
					return s, fmt.Errorf("parameter project=%.64q: must be the id of a project", v)
				}
				s.projects = append(s.projects, id)
			case key == "kind":
				if !slices.Contains(kinds, cloud.Kind(v)) {
					return s, fmt.Errorf("parameter kind=%.64q: must be one of %v", v, kinds)
				}
				s.kinds = append(s.kinds, cloud.Kind(v))
			case key == "snapshot" && slices.Contains(more, key):
				b, err := strconv.ParseBool(v)
				if err != nil {
					return s, fmt.Errorf("parameter snapshot=%.64q: must be true or false", v)
				}
				s.snapshot = b
			default:
				return s, fmt.Errorf("unknown parameter %.64q: must be one of %s", key, strings.Join(append([]string{"project", "kind"}, more...), ", "))
			}
		}
	}
	return s, nil
}

// eventJSON is one line of the event stream.
type eventJSON struct {
	// Type is created, updated or deleted. Before these events, the stream has existing for each resource of a snapshot,
	// and then one synced. After synced, the stream has every change.
	Type    string     `json:"type"`
	Seq     uint64     `json:"seq,omitempty"`
	Time    time.Time  `json:"time"`
	Project int64      `json:"project,omitempty"`
	Kind    cloud.Kind `json:"kind,omitempty"`
	ID      int64      `json:"id,omitempty"`
	// Resource is the resource right after the change. It is absent for deleted.
	Resource json.RawMessage `json:"resource,omitempty"`
}

// writeTimeout ends the stream of a client that does not read, so that its events do not fill the memory. It is in the
// machine's time, like all times of the network.
const writeTimeout = 30 * time.Second

// events streams changes until the client leaves or the cloud is closed.
func events(c *Controller, w http.ResponseWriter, r *http.Request) {
	sel, err := parseSelection(c.kinds(), r.URL.Query(), "snapshot")
	if err != nil {
		writeJSON(w, http.StatusBadRequest, errorBody{err.Error()})
		return
	}
	s := newStream(w, r)
	sub, states := c.Cloud.Subscribe()
	defer sub.Close()
	shown := map[cloud.Kind]api.Shown{}
	for _, sh := range c.API.ShownResources() {
		shown[sh.Kind()] = sh
	}
	if sel.snapshot {
		for _, project := range slices.Sorted(maps.Keys(states)) {
			if !sel.project(project) {
				continue
			}
			if s.existing(c, &sel, project, states[project]) != nil {
				return
			}
		}
	}
	if s.send(eventJSON{Type: "synced", Time: c.Cloud.Now()}) != nil {
		return
	}
	for {
		e, err := sub.Next(r.Context())
		if err != nil {
			return
		}
		sh, ok := shown[e.Kind]
		if !ok || !sel.project(e.Project) || !sel.kind(e.Kind) {
			continue
		}
		line := eventJSON{Type: string(e.Type), Seq: e.Seq, Time: e.Time, Project: e.Project, Kind: e.Kind, ID: e.ID}
		line.Resource, _ = sh.One(e.State, e.ID) // nil for a deletion
		if s.send(line) != nil {
			return
		}
	}
}

// stream writes JSON lines or server-sent events.
type stream struct {
	w   http.ResponseWriter
	rc  *http.ResponseController
	sse bool
}

func newStream(w http.ResponseWriter, r *http.Request) *stream {
	s := &stream{w: w, rc: http.NewResponseController(w)}
	s.sse = strings.Contains(r.Header.Get("Accept"), "text/event-stream")
	contentType := "application/x-ndjson"
	if s.sse {
		contentType = "text/event-stream"
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	return s
}

func (s *stream) send(e eventJSON) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if s.sse {
		line = fmt.Appendf(nil, "event: %s\nid: %d\ndata: %s\n", e.Type, e.Seq, line)
	}
	return s.write(line)
}

// write sends a line at once.
func (s *stream) write(line []byte) error {
	// A writer without a connection has no deadline, but does not block.
	_ = s.rc.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := s.w.Write(append(line, '\n')); err != nil {
		return err
	}
	return s.rc.Flush()
}

// existing sends a project's resources.
func (s *stream) existing(c *Controller, sel *selection, project int64, st *cloud.State) error {
	for _, sh := range c.API.ShownResources() {
		if !sel.kind(sh.Kind()) {
			continue
		}
		for id, resource := range sh.All(st) {
			if err := s.send(eventJSON{
				Type: "existing", Time: c.Cloud.Now(), Project: project, Kind: sh.Kind(), ID: id, Resource: resource,
			}); err != nil {
				return err
			}
		}
	}
	return nil
}
