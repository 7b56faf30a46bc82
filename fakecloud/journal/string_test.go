package journal

import (
	"testing"
	"time"
)

func TestARequestIsALine(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 25, 12, 0, 0, 5e6, time.FixedZone("", 3600))
	for want, e := range map[string]Entry{
		"2026-11-25T11:00:00.005Z GET /v1/servers?name=a 200 12.35ms": {Time: at, Method: "GET", Path: "/v1/servers", Query: "name=a",
			Status: 200, Duration: 12345678},
		"2026-11-25T11:00:00.005Z POST /v1/servers no answer 0s fault=a,b": {Time: at, Method: "POST", Path: "/v1/servers", Fault: "a,b",
			Handled: 201},
		"2026-11-25T11:00:00.005Z DELETE /v1/servers/1 423 locked 0s": {Time: at, Method: "DELETE", Path: "/v1/servers/1", Status: 423,
			ErrorCode: "locked"},
	} {
		if got := e.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
