package example

import (
	"fmt"
	"net/http"
)

// Error is an error of the API.
type Error struct {
	Status  int    `json:"-"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return fmt.Sprintf("%s (%d %s)", e.Message, e.Status, e.Code) }

// fail returns a constructor of errors with a status and a code.
func fail(status int, code string) func(format string, args ...any) *Error {
	return func(format string, args ...any) *Error {
		return &Error{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
	}
}

// The errors of the API.
var (
	badRequest           = fail(http.StatusBadRequest, "bad_request")
	unauthorized         = fail(http.StatusUnauthorized, "unauthorized")
	forbidden            = fail(http.StatusForbidden, "forbidden")
	limitReached         = fail(http.StatusForbidden, "limit_reached")
	unknownPath          = fail(http.StatusNotFound, "unknown_path")
	instanceNotFound     = fail(http.StatusNotFound, "instance_not_found")
	loadBalancerNotFound = fail(http.StatusNotFound, "load_balancer_not_found")
	listenerNotFound     = fail(http.StatusNotFound, "listener_not_found")
	routeNotFound        = fail(http.StatusNotFound, "route_not_found")
	nameTaken            = fail(http.StatusConflict, "name_taken")
	portTaken            = fail(http.StatusConflict, "port_taken")
	loadBalancerInUse    = fail(http.StatusConflict, "load_balancer_in_use")
	noAddressLeft        = fail(http.StatusConflict, "no_address_left")
	// Only faults answer these.
	busy        = fail(http.StatusConflict, "busy")
	rateLimited = fail(http.StatusTooManyRequests, "rate_limited")
	internal    = fail(http.StatusInternalServerError, "internal")
	unavailable = fail(http.StatusServiceUnavailable, "unavailable")
)
