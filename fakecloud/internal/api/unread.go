package api

import (
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/bind"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/wire"
)

// What nothing reads of a request is named, since it is mostly a mistake: user-data gives a server without user data. The real API is known
// to refuse it in create_image only (cloudpanel-ce issues 659 and 662).

// UnknownFieldsHeader is the header of an answer that names the fields and query parameters that nothing reads.
const UnknownFieldsHeader = "X-Fakecloud-Unknown-Fields"

// listParameters are the query parameters of lists, and ownParameters those of some operations.
const listParameters = "page per_page sort name label_selector"

var ownParameters = map[string]string{
	"get_actions": "id status", "list_certificates": "type", "list_placement_groups": "type", "list_zone_rrsets": "type",
	"list_servers": "status", "list_volumes": "status", "list_images": "architecture bound_to include_deprecated status type",
	"list_isos": "architecture include_architecture_wildcard", "list_primary_ips": "ip", "list_ssh_keys": "fingerprint",
	"list_zones": "mode", "list_network_members": "type status subnet",
	"get_server_metrics": "type start end step", "get_load_balancer_metrics": "type start end step",
}

// unreadParameters returns the names in the query that the operation does not read.
func (r *Request) unreadParameters() (names []string) {
	id := r.Route.OperationID
	known := ownParameters[id]
	if strings.HasPrefix(id, "list_") || id == "get_actions" {
		known += " " + listParameters
	}
	if strings.HasSuffix(id, "_actions") {
		known += " id status"
	}
	for name := range r.query {
		if !slices.Contains(strings.Fields(known), name) {
			names = append(names, abbreviate(name))
		}
	}
	slices.Sort(names)
	return names[:min(len(names), bind.MaxUnread)]
}

// readAll notes the names that nothing reads. It returns an error if the API refuses them.
func (r *Request) readAll(unread []string) error {
	if len(unread) == 0 {
		return nil
	}
	for i, name := range unread {
		unread[i] = r.api.cloud.WithoutTokens(r.withoutToken(wire.Printable(name)))
	}
	r.unread = append(r.unread, unread...)
	r.writer.Header().Set(UnknownFieldsHeader, strings.Join(r.unread, ", "))
	r.api.logUnread(r)
	if r.Route.OperationID == "create_server_image" {
		err := cloud.ErrField(unread[0], "unknown field name")
		err.Message = "invalid input: unknown field name '" + unread[0] + "'"
		return err
	}
	if !r.api.refuseUnknown {
		return nil
	}
	var fields []cloud.FieldError
	for _, name := range unread {
		const message = "is unknown, and --unknown-fields refuse is set; remove it"
		fields = append(fields, cloud.FieldError{Name: name, Messages: []string{message}})
	}
	return cloud.ErrInvalidInput(fields...)
}

// unreadLog logs each kind of request with unread fields once, and at most maxLogged of them: a program that repeats its mistake must not
// fill the log.
type unreadLog struct {
	*slog.Logger
	n    atomic.Int64
	seen sync.Map
}

const maxLogged = 100

func (a *API) logUnread(r *Request) {
	if a.log.Logger == nil || a.log.n.Load() >= maxLogged {
		return
	}
	if _, logged := a.log.seen.LoadOrStore(r.Route.OperationID+" "+strings.Join(r.unread, " "), true); logged {
		return
	}
	a.log.n.Add(1)
	a.log.Warn("a request has fields that nothing reads; see its names, or refuse them with --unknown-fields refuse",
		"operation", r.Route.OperationID, "fields", strings.Join(r.unread, ", "), "correlation_id", r.CorrelationID,
		"client", a.cloud.WithoutTokens(wire.Printable(first(r.HTTP.Header["User-Agent"]))))
}

// takeNoBody are the operations with POST that take no body. Those with GET and DELETE take none, either.
const takeNoBody = "retry_certificate unassign_floating_ip disable_load_balancer_public_interface detach_server_iso detach_volume " +
	"enable_load_balancer_public_interface unassign_primary_ip disable_server_backup disable_server_rescue enable_server_backup " +
	"poweroff_server poweron_server reboot_server remove_server_from_placement_group request_server_console reset_server " +
	"reset_server_password shutdown_server"

// checkParameters is readAll for the query, and for the body of an operation that takes none. Such a body need not be JSON.
func (r *Request) checkParameters() error {
	if len(r.query) > 0 && r.HTTP.Method != http.MethodHead {
		if err := r.readAll(r.unreadParameters()); err != nil {
			return err
		}
	}
	none := r.HTTP.Method == http.MethodGet || r.HTTP.Method == http.MethodDelete
	if r.HTTP.ContentLength != 0 && (none || slices.Contains(strings.Fields(takeNoBody), r.Route.OperationID)) {
		if err, ok := errors.AsType[*cloud.Error](r.Bind(new(struct{}))); ok && r.api.refuseUnknown && err.Code == "invalid_input" {
			return err
		}
	}
	return nil
}
