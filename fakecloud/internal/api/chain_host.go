package api

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// checkHost refuses requests to a loopback address under a foreign name. Otherwise, a web page could use the API with the default token, by
// rebinding its name to that address.
func (a *API) checkHost(next Handler) Handler {
	return func(w http.ResponseWriter, r *Request) {
		if onLoopback, ok := HostAllowed(r.HTTP, a.allowedHosts); !ok && onLoopback {
			writeError(w, r, cloud.ErrForbidden(HostRefused(r.HTTP)))
			return
		}
		next(w, r)
	}
}

// HostAllowed reports whether the connection's address is a loopback address, and whether a request's Host is allowed: a
// loopback name or address, the connection's address, or one of the allowed names. Without a connection, every Host is
// allowed.
func HostAllowed(r *http.Request, allowed []string) (onLoopback, ok bool) {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if local == nil {
		return false, true
	}
	onLoopback = local.IP.IsLoopback()
	host := HostName(r)
	if ip, isIP := HostAddress(r); isIP {
		at, _ := netip.AddrFromSlice(local.IP)
		ok = ip.IsLoopback() || ip.Unmap() == at.Unmap()
	}
	return onLoopback, ok || strings.EqualFold(host, "localhost") ||
		slices.ContainsFunc(allowed, func(name string) bool { return strings.EqualFold(name, host) })
}

// HostName returns a request's Host without port, brackets and the dot at the end.
func HostName(r *http.Request) string {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.TrimSuffix(strings.Trim(host, "[]"), ".")
}

// HostAddress returns a request's Host if it is an IP address. One with a zone is none: zones mean something on one machine only.
func HostAddress(r *http.Request) (netip.Addr, bool) {
	ip, err := netip.ParseAddr(HostName(r))
	return ip, err == nil && ip.Zone() == ""
}

// HostRefused returns the message for a request with a Host that is not allowed.
func HostRefused(r *http.Request) string {
	return fmt.Sprintf("host %.100q is not allowed, to protect the cloud from web pages (DNS rebinding): use localhost or the address "+
		"that the cloud listens on, or add the name to --allowed-hosts (Options.AllowedHosts)", HostName(r))
}
