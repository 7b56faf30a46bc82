package journal

// Filter selects entries. Empty fields match everything.
type Filter struct {
	Method string
	// Route is a pattern of the API such as /servers/{id}. With a * at its end it is a prefix: /servers/* .
	Route string
	// Path is the path of the request with its ids, such as /v1/servers/42.
	Path string
	// Operation is an operationId of the API document, such as create_server.
	Operation string
	// ResourceID is the id in the path of the request, or of the resource that the request created.
	ResourceID int64
	Status     int
	ErrorCode  string
	// Client is a part of the User-Agent.
	Client string
	// Fault is the name of the fault rule that took the request.
	Fault   string
	Project int64
	// Since selects entries with a greater Seq.
	Since uint64
	// Writes selects all methods except GET and HEAD.
	Writes bool
	// Errors selects the requests that failed for the client: with a status of at least 400, or without an answer.
	Errors bool
	// Dropped selects the requests whose connection was dropped without an answer.
	Dropped bool
}
