package fault

import "time"

// APIError answers with an error of the API. The code is one of the API document's, such as "conflict" or "locked";
// a rule with another one is refused with an error that lists them.
func APIError(code string) Effect { return Effect{Kind: KindAPIError, Code: code} }

// HTTPStatus answers with a status and an HTML page, as a proxy in front of the API would.
func HTTPStatus(status int) Effect { return Effect{Kind: KindHTTPStatus, Status: status} }

// Latency delays the answer on the cloud's clock. The field Latency of other effects does it, too.
func Latency(d time.Duration) Effect { return Effect{Kind: KindLatency, Latency: Duration(d)} }

// DropConnection closes the connection and does not carry the request out.
func DropConnection() Effect { return Effect{Kind: KindDrop} }

// ResetConnection is DropConnection with a TCP reset.
func ResetConnection() Effect { return Effect{Kind: KindReset} }

// LoseAnswer carries the request out and then closes the connection. The client does not learn whether the write
// happened.
func LoseAnswer() Effect { return Effect{Kind: KindDrop, After: true} }

// CutBody carries the request out and sends only the first n bytes of the answer's body, or half of it if n is 0.
func CutBody(n int) Effect { return Effect{Kind: KindCutBody, Bytes: n} }

// FailAction makes the actions that the request starts fail with a code and a message. If empty, the code is
// action_failed.
func FailAction(code, message string) Effect {
	return Effect{Kind: KindFailAction, Code: code, Message: message}
}

// SlowAction makes the actions that the request starts take d each, on the cloud's clock. A hypervisor that has the server's guest decides
// itself how long its part takes.
func SlowAction(d time.Duration) Effect { return Effect{Kind: KindSlowAction, Duration: Duration(d)} }

// SlowActionTimes makes the actions that the request starts take n times as long as they would.
func SlowActionTimes(n int) Effect { return Effect{Kind: KindSlowAction, Times: n} }

// HangAction makes the actions that the request starts run until ResumeActions is called.
func HangAction() Effect { return Effect{Kind: KindHangAction} }

// SlowGuest makes the guest of a server take d to shut down, on the cloud's clock, after the end of the action. It is for the operation
// shutdown_server. A guest that a hypervisor runs decides itself, also about the two effects below.
func SlowGuest(d time.Duration) Effect { return Effect{Kind: KindSlowGuest, Duration: Duration(d)} }

// IgnoreShutdown makes the guest of a server ignore the request of shutdown_server.
func IgnoreShutdown() Effect { return Effect{Kind: KindIgnoreShutdown} }

// StayOff lets a server stay off although the actions that the request starts succeed. It is for create_server and poweron_server.
func StayOff() Effect { return Effect{Kind: KindStayOff} }

// Empty makes reads see a project that owns nothing: lists are empty, and no resource is found, although all are there.
func Empty() Effect { return Effect{Kind: KindEmpty} }

// Hide makes reads see a project without a server, by name or id, which is still there. Other resources show it as before.
func Hide(server string) Effect { return Effect{Kind: KindHide, Server: server} }

// ExhaustRateLimit uses up the project's rate limit and answers 429.
func ExhaustRateLimit() Effect { return Effect{Kind: KindExhaustRateLimit} }
