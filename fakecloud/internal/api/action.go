package api

import (
	"cmp"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

type refJSON struct {
	ID   int64      `json:"id"`
	Type store.Kind `json:"type"`
}

type actionErrorJSON struct {
	Code    cloud.Code `json:"code"`
	Message string     `json:"message"`
}

// encodeAction returns the JSON of an action as Request.member does. It keeps the JSON unless the action is running, since that of a
// running action changes.
func encodeAction(r *Request, e *store.Entry[*cloud.Action]) []byte {
	encode := func(a *cloud.Action) []byte {
		return r.member(func(b []byte) []byte { return appendAction(b, a, r.arrived) })
	}
	if e.Value.Status == cloud.ActionRunning {
		return encode(e.Value)
	}
	return e.Encoded(r.level(), encode)
}

func appendAction(b []byte, a *cloud.Action, now time.Time) []byte {
	b = appendInt(b, `{"id":`, a.ID)
	b = appendText(b, `,"command":`, a.Command)
	b = appendText(b, `,"status":`, a.Status)
	b = appendInt(b, `,"progress":`, a.Progress(now))
	b = appendTime(b, `,"started":`, a.Created)
	b = appendTime(b, `,"finished":`, a.Finished)
	b = appendList(b, `,"resources":`, a.Resources, func(b []byte, r cloud.Ref) []byte {
		return append(appendText(appendInt(b, `{"id":`, r.ID), `,"type":`, r.Kind), '}')
	})
	var failure *actionErrorJSON
	if a.Status == cloud.ActionFailed {
		failure = &actionErrorJSON{a.ErrorCode, a.ErrorMessage}
	}
	return append(appendNullable(b, `,"error":`, failure), '}')
}

// actionAt is an action of a state at a time. The JSON of a missing action is null.
type actionAt struct {
	st  *cloud.State
	id  int64
	now time.Time
}

// appendJSON does not keep the JSON: it is larger than the action, and most actions are never read.
func (a actionAt) appendJSON(b []byte) []byte {
	action, ok := a.st.Actions.Get(a.id)
	if !ok {
		return append(b, "null"...)
	}
	return appendAction(b, action, a.now)
}

// actionsAt is several actions of a state at a time.
type actionsAt struct {
	st  *cloud.State
	ids []int64
	now time.Time
}

func (a actionsAt) appendJSON(b []byte) []byte {
	return appendList(b, "", a.ids, func(b []byte, id int64) []byte { return actionAt{a.st, id, a.now}.appendJSON(b) })
}

// actionPart returns an action that has just started as the member `action` of a response.
func actionPart(st *cloud.State, id int64) Part {
	return Part{Key: "action", Value: actionAt{st: st, id: id}}
}

// startedPart returns several actions that have just started as a member of a response.
func startedPart(key string, st *cloud.State, ids []int64) Part {
	return Part{Key: key, Value: actionsAt{st: st, ids: ids}}
}

// started answers an operation that started one action: 201.
func started(action int64, st *cloud.State, err error) (Response, error) {
	return object(http.StatusCreated, actionPart(st, action)), err
}

// startedOn answers an operation without a body that starts an action.
func startedOn(kind store.Kind, do func(cloud.Project, int64) (int64, *cloud.State, error)) handler {
	return withID(kind, func(r *Request, id int64) (Response, error) { return started(do(r.Project, id)) })
}

var actionSort = map[string]func(a, b *cloud.Action) int{
	"id":       compareID[*cloud.Action],
	"command":  func(a, b *cloud.Action) int { return cmp.Compare(a.Command, b.Command) },
	"status":   func(a, b *cloud.Action) int { return cmp.Compare(a.Status, b.Status) },
	"started":  compareCreated[*cloud.Action],
	"finished": func(a, b *cloud.Action) int { return a.Finished.Compare(b.Finished) },
}

// actionList is the actions that one operation lists.
type actionList struct {
	all func(running bool) iter.Seq[*store.Entry[*cloud.Action]] // by id; if running is set, it may leave out others
	has func(*cloud.Action) bool
	// kind, if set, is the kind of resource that all these actions belong to. The list then has pages.
	kind store.Kind
}

// actionsOfKind returns the actions that target any resource of a kind.
func actionsOfKind(st *cloud.State, kind store.Kind) actionList {
	all := func(running bool) iter.Seq[*store.Entry[*cloud.Action]] { return st.Actions.OfKind(kind, running) }
	return actionList{all: all, has: targetsKind(kind), kind: kind}
}

// allActions returns the actions of a project.
func allActions(st *cloud.State) actionList {
	all := func(bool) iter.Seq[*store.Entry[*cloud.Action]] { return st.Actions.Entries() }
	return actionList{all: all, has: func(*cloud.Action) bool { return true }}
}

func targetsKind(kind store.Kind) func(*cloud.Action) bool {
	return func(a *cloud.Action) bool {
		return slices.ContainsFunc(a.Resources, func(r cloud.Ref) bool { return r.Kind == kind })
	}
}

// actionsOf returns the actions that target one resource.
func actionsOf(st *cloud.State, ref cloud.Ref) actionList {
	all := func(bool) iter.Seq[*store.Entry[*cloud.Action]] { return st.Actions.Of(ref) }
	return actionList{all: all, has: func(a *cloud.Action) bool { return slices.Contains(a.Resources, ref) }}
}

// listActions answers with one page of actions.
func listActions(r *Request, st *cloud.State, list actionList) (Response, error) {
	q := r.Query()
	p, keys, err := pageAndOrder(q, MaxPerPage, actionSort)
	if err != nil {
		return Response{}, err
	}
	status, err := oneOf(q, "status", "running", "success", "error")
	if err != nil {
		return Response{}, err
	}
	ids, err := actionIDs(q)
	if err != nil {
		return Response{}, err
	}
	_, desc, ordered := indexed(keys)
	running := status("running") && !status("success") && !status("error")
	if list.kind != "" && len(ids) == 0 && ordered && (running || len(q["status"]) == 0) {
		total := st.Actions.CountOfKind(list.kind, running)
		first := p.first(total)
		entries := st.Actions.PageOfKind(list.kind, running, store.Page{Desc: desc, First: first, N: p.size})
		return listResponse(r, "actions", p, total, func(i int) []byte { return encodeAction(r, entries[i-first]) }), nil
	}
	var entries []*store.Entry[*cloud.Action]
	all := list.all(running)
	if len(ids) > 0 {
		all = withIDs(st, ids)
	}
	for e := range all {
		if list.has(e.Value) && status(string(e.Value.Status)) {
			entries = append(entries, e)
		}
	}
	sortEntries(entries, keys, actionSort)
	return listResponse(r, "actions", p, len(entries), func(i int) []byte { return encodeAction(r, entries[i]) }), nil
}

// withIDs yields the actions with some ids, in their order.
func withIDs(st *cloud.State, ids []int64) iter.Seq[*store.Entry[*cloud.Action]] {
	return func(yield func(*store.Entry[*cloud.Action]) bool) {
		for _, id := range ids {
			if e, ok := st.Actions.Entry(id); ok && !yield(e) {
				return
			}
		}
	}
}

// maxID is the largest id (API document).
const maxID = 1<<53 - 1

// actionIDs reads the parameter id. The ids are sorted, without duplicates.
func actionIDs(q url.Values) ([]int64, error) {
	var ids []int64
	for _, s := range q["id"] {
		id, ok := cloud.ParseID(s)
		if !ok || id > maxID {
			return nil, cloud.ErrField("id", "must be the id of an action")
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// getActions answers GET /actions. It needs at least one id and has no pages. The answer has those actions that exist.
func getActions(r *Request) (Response, error) {
	ids, err := actionIDs(r.Query())
	if err != nil {
		return Response{}, err
	}
	st := r.Project.View()
	if len(ids) == 0 && r.date.Before(ActionsNeedIDs) {
		return listActions(r, st, allActions(st))
	}
	if len(ids) == 0 {
		return Response{}, cloud.ErrField("id", "at least one id is required")
	}
	ids = slices.DeleteFunc(ids, func(id int64) bool {
		_, ok := st.Actions.Entry(id)
		return !ok
	})
	return object(http.StatusOK, Part{Key: "actions", Value: actionsAt{st, ids, r.arrived}}), nil
}

func getAction(r *Request) (Response, error) {
	return oneAction(r, "id", func(*cloud.Action) bool { return true })
}

func oneAction(r *Request, param string, allowed func(*cloud.Action) bool) (Response, error) {
	id, err := r.pathID(cloud.KindAction, param)
	if err != nil {
		return Response{}, err
	}
	e, ok := r.Project.View().Actions.Entry(id)
	if !ok || !allowed(e.Value) {
		return Response{}, cloud.ErrNotFound(cloud.KindAction, id)
	}
	return object(http.StatusOK, Part{Key: "action", JSON: encodeAction(r, e)}), nil
}

// actions are only shown: clients cannot create or change them.
var actions = &resource[*cloud.Action]{
	plural: "actions", kind: cloud.KindAction,
	table:  func(st *cloud.State) *store.Table[*cloud.Action] { return &st.Actions.Table },
	append: func(b []byte, r version[*cloud.Action]) []byte { return appendAction(b, r.v, r.now) },
}

func actionRoutes() []Route {
	return []Route{
		{http.MethodGet, "/actions", "get_actions", getActions},
		{http.MethodGet, "/actions/{id}", "get_action", getAction},
	}
}

// actionRoutesOf returns the four routes of the actions of a kind of resource. The operationIds have its plural and its
// singular: list_servers_actions, get_server_action.
func actionRoutesOf[T store.Object[T]](d *resource[T]) []Route {
	base := "/" + d.plural
	return []Route{
		{http.MethodGet, base + "/actions", "list_" + d.plural + "_actions", func(r *Request) (Response, error) {
			st := r.Project.View()
			return listActions(r, st, actionsOfKind(st, d.kind))
		}},
		{http.MethodGet, base + "/actions/{id}", "get_" + d.plural + "_action", func(r *Request) (Response, error) {
			return oneAction(r, "id", targetsKind(d.kind))
		}},
		{http.MethodGet, d.path() + "/actions", "list_" + d.singular + "_actions", func(r *Request) (Response, error) {
			st := r.Project.View()
			id, err := d.idOf(r, st)
			if err != nil {
				return Response{}, err
			}
			if _, err := cloud.Find(d.table(st), id); err != nil {
				return Response{}, err
			}
			return listActions(r, st, actionsOf(st, cloud.Ref{Kind: d.kind, ID: id}))
		}},
		{http.MethodGet, d.path() + "/actions/{action_id}", "get_" + d.singular + "_action", func(r *Request) (Response, error) {
			id, err := d.idOf(r, r.Project.View())
			if err != nil {
				return Response{}, err
			}
			return oneAction(r, "action_id", func(a *cloud.Action) bool {
				return slices.Contains(a.Resources, cloud.Ref{Kind: d.kind, ID: id})
			})
		}},
	}
}
