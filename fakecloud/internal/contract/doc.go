// Package contract proves that answers conform to the official Hetzner Cloud API document.
//
// It reads the OpenAPI document (a file beside the repository, see [Find]), adds the changes that
// the API saw after the document was written (see [Amendments]), and checks with it:
//
//   - responses: [Document.ValidateResponse] takes an operation, a status, headers and a body, and
//     tells everything that a client of the real API would not have met;
//   - requests: [Document.ValidateRequest] tells whether a body is one that the document allows;
//   - whole conversations: a [Recorder] sits between a client and a server, validates each exchange,
//     and writes down which operations and which answers were seen.
//
// Schemas are read more strictly than OpenAPI asks for: an object which lists properties has no
// others, since a field that the real API does not send is as wrong in a fake as one that is missing.
//
// From the same schemas the package makes instances ([Synthesize]), and instances that are wrong in
// one place ([Mutations], [Document.InvalidBodies]), for tests of the checker and of the server.
//
// What the document does not say is not checked: which of several documented codes a situation
// calls for, the spelling of messages, the formats of addresses (the document types them as plain
// strings), and descriptions in prose, except those few that consistency.go names.
package contract
