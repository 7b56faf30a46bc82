package journal

import (
	"fmt"
	"time"
)

// String describes the request in a line: time, method, path, status, error code, duration, fault rules and unknown fields.
func (e Entry) String() string {
	path, status := e.Path, "no answer"
	if e.Query != "" {
		path += "?" + e.Query
	}
	if e.Status != 0 {
		status = fmt.Sprint(e.Status)
	}
	text := fmt.Sprintf("%s %s %s %s", e.Time.UTC().Format("2006-01-02T15:04:05.000Z"), e.Method, path, status)
	if e.ErrorCode != "" {
		text += " " + e.ErrorCode
	}
	text += " " + e.Duration.Round(10*time.Microsecond).String()
	if e.Fault != "" {
		text += " fault=" + e.Fault
	}
	if e.UnknownFields != "" {
		text += " unknown=" + e.UnknownFields
	}
	return text
}
