package control

import (
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
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// selection selects projects and kinds of resources. Empty fields select all.
type selection struct {
	projects []int64
	kinds    []store.Kind
	snapshot bool
}

func (s *selection) project(id int64) bool {
	return len(s.projects) == 0 || slices.Contains(s.projects, id)
}

func (s *selection) kind(k store.Kind) bool {
	return len(s.kinds) == 0 || slices.Contains(s.kinds, k)
}

func parseSelection(kinds []store.Kind, q url.Values, more ...string) (selection, error) {
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
				if !slices.Contains(kinds, store.Kind(v)) {
					return s, fmt.Errorf("parameter kind=%.64q: must be one of %v", v, kinds)
				}
				s.kinds = append(s.kinds, store.Kind(v))
			case key == "snapshot" && slices.Contains(more, key):
				b, err := strconv.ParseBool(v)
				if err != nil {
					return s, fmt.Errorf("parameter snapshot=%.64q: must be true or false", v)
				}
				s.snapshot = b
			default:
				return s, fmt.Errorf("unknown parameter %.64q: must be one of %s", key,
					strings.Join(append([]string{"project", "kind"}, more...), ", "))
			}
		}
	}
	return s, nil
}

// writeTimeout ends the stream of a client that has not read, in this time, what had happened before: its events would fill the
// memory. It is in the machine's time, like all times of the network.
const writeTimeout = 30 * time.Second

// maxWrite is how many bytes of lines a stream collects before it writes them. With 100 clients, most of a change's cost is that
// of the writes.
const maxWrite = 256 << 10

// idleLines is how many bytes a stream keeps for lines while it waits for a change: most streams wait most of the time.
const idleLines = 4 << 10

// writeInterval is the least time between two writes of a stream, in the machine's time. A change after a quiet time is written at
// once.
const writeInterval = 20 * time.Millisecond

// events streams changes until the client leaves or the cloud is closed. A line is the JSON of an [api.EventJSON] with the resource
// right after the change. Before the changes, the stream has the type existing for each resource of a snapshot, and then one synced.
// After synced, the stream has every change. An update of a load balancer or firewall has the form of [api.API.Event].
func events(c *Controller, w http.ResponseWriter, r *http.Request) {
	sel, err := parseSelection(c.kinds(), r.URL.Query(), "snapshot")
	for _, id := range sel.projects { // a stream of nothing would not tell the client that the id is wrong
		if _, ok := c.Cloud.Project(id); !ok && err == nil {
			err = fmt.Errorf("parameter project=%d: must be the id of a project; GET /projects lists them", id)
		}
	}
	if err != nil {
		writeJSON(w, http.StatusBadRequest, errorBody{err.Error()})
		return
	}
	s := newStream(w, r)
	sub, states := c.API.Subscribe()
	defer sub.Close()
	if sel.snapshot {
		for _, project := range slices.Sorted(maps.Keys(states)) {
			if sel.project(project) {
				s.existing(c, &sel, project, states[project])
			}
		}
	}
	synced := api.EventJSON{Type: "synced", Time: c.Cloud.Now()}
	s.add(synced.Type, 0, synced.WithResource(nil))
	s.flush()
	for s.err == nil {
		batch, more, err := sub.NextBatch(r.Context())
		if err != nil {
			return
		}
		for i := range batch {
			if e := &batch[i]; sel.project(e.Project) && sel.kind(e.Kind) {
				s.add(string(e.Type), e.Seq, c.API.Event(e))
			}
		}
		if more {
			continue
		}
		s.flush()
		select {
		case <-time.After(writeInterval):
		case <-r.Context().Done():
			return
		}
	}
}

// stream writes JSON lines or server-sent events.
type stream struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	sse   bool
	lines []byte    // not yet written
	limit time.Time // when the client must have read what is to be written now; zero if nothing is
	err   error     // of the first write that failed: then the client is gone
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
	w.Header().Set("Transfer-Encoding", "identity") // chunks would take three writes to the connection instead of one
	w.WriteHeader(http.StatusOK)
	return s
}

// add adds an event to what the next write sends.
func (s *stream) add(eventType string, seq uint64, line []byte) {
	if s.sse {
		s.lines = append(append(s.lines, "event: "...), eventType...)
		s.lines = strconv.AppendUint(append(s.lines, "\nid: "...), seq, 10)
		s.lines = append(append(append(s.lines, "\ndata: "...), line...), '\n')
	} else {
		s.lines = append(s.lines, line...)
	}
	s.lines = append(s.lines, '\n')
	if len(s.lines) >= maxWrite {
		s.write()
	}
}

// flush sends what was added. The client has caught up then, and may take writeTimeout for what follows.
func (s *stream) flush() {
	s.write()
	if s.err == nil {
		s.err = s.rc.Flush()
	}
	s.limit = time.Time{}
	if cap(s.lines) > idleLines {
		s.lines = nil
	}
}

func (s *stream) write() {
	if len(s.lines) > 0 && s.err == nil {
		if s.limit.IsZero() {
			s.limit = time.Now().Add(writeTimeout)
		}
		// A writer without a connection has no deadline, but does not block.
		_ = s.rc.SetWriteDeadline(s.limit)
		_, s.err = s.w.Write(s.lines)
	}
	s.lines = s.lines[:0]
}

// existing adds a project's resources.
func (s *stream) existing(c *Controller, sel *selection, project int64, st *cloud.State) {
	for _, sh := range c.API.ShownResources() {
		if !sel.kind(sh.Kind()) {
			continue
		}
		for id, resource := range sh.All(st, c.Cloud.Now()) {
			if s.err != nil {
				return
			}
			e := api.EventJSON{Type: "existing", Time: c.Cloud.Now(), Project: project, Kind: sh.Kind(), ID: id}
			s.add(e.Type, 0, e.WithResource(resource))
			s.limit = time.Time{} // the snapshot does not grow
		}
	}
}
