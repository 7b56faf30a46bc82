package dataplane

import (
	"strings"
	"time"
)

// stickyCookie is the value of the cookie that binds a client to a target.
//
// It has the format of HAProxy's dated cookies, "name|last|first": the target, and the times of the
// client's last and first request. Each time is five digits of base 64, in units of four seconds.
// Cookies of Hetzner load balancers in public repositories have this format, for example
// HCLBSTICKY=b2649158ba9efc6f9b7d3455005dd927|aN4h8|aN4h7, with dates of 2 October 2025. In all of
// them, last and first differ by less than the default lifetime of 300 seconds; so this package assumes
// that the lifetime starts at the first date. Path is the only attribute that HAProxy sets by default;
// for the browser it is a session cookie.
type stickyCookie struct {
	target      string
	last, first time.Time // zero if absent
}

const (
	cookieDigits   = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	cookieDateLen  = 5
	cookieDateUnit = 4 // seconds
)

func (c stickyCookie) String() string {
	return c.target + "|" + formatCookieDate(c.last) + "|" + formatCookieDate(c.first)
}

// parseStickyCookie parses a cookie's value. Missing or invalid dates are zero; the cookie then counts
// as expired.
func parseStickyCookie(value string) stickyCookie {
	target, dates, _ := strings.Cut(value, "|")
	last, first, _ := strings.Cut(dates, "|")
	return stickyCookie{target: target, last: parseCookieDate(last), first: parseCookieDate(first)}
}

// valid reports whether the cookie is valid at the given time. Because dates are rounded, a first date
// slightly in the future is valid too.
func (c stickyCookie) valid(now time.Time, lifetime time.Duration) bool {
	if c.first.IsZero() {
		return false
	}
	age := now.Sub(c.first)
	return age > -2*cookieDateUnit*time.Second && age < lifetime
}

func formatCookieDate(t time.Time) string {
	n := t.Unix() / cookieDateUnit
	var digits [cookieDateLen]byte
	for i := range digits {
		digits[cookieDateLen-1-i] = cookieDigits[n&63]
		n >>= 6
	}
	return string(digits[:])
}

func parseCookieDate(s string) time.Time {
	if len(s) != cookieDateLen {
		return time.Time{}
	}
	var n int64
	for i := range len(s) {
		d := strings.IndexByte(cookieDigits, s[i])
		if d < 0 {
			return time.Time{}
		}
		n = n<<6 | int64(d)
	}
	return time.Unix(n*cookieDateUnit, 0)
}
