// Package contract checks that answers conform to the official Hetzner Cloud API document.
//
// It reads the OpenAPI document (a file outside the repository, see [Find]) and adds the later changes of the API (see
// [Amendments]). With the result, it checks:
//
//   - responses: [Document.ValidateResponse] returns everything in a status, headers and body that the document does not
//     allow for an operation;
//   - requests: [Document.ValidateRequest] returns everything in a body that the document does not allow;
//   - whole conversations: a [Recorder] between a client and a server validates each exchange, and records which
//     operations and answers were seen.
//
// It reads schemas more strictly than OpenAPI: an object with a list of properties must not have others. In a fake, a
// field that the real API does not send is as wrong as a missing one.
//
// From the same schemas, the package makes valid instances ([Synthesize]) and instances with one mistake ([Mutations],
// [Document.InvalidBodies]), for tests of the checker and of the server. From a valid body it makes those with one field at
// the edge of what is allowed ([Operation.Edges]), beyond it ([Operation.Breaks]), and with its default
// ([Operation.Defaults]).
//
// Not checked: which of several documented codes fits a situation, the text of messages, and the document's prose, except
// for the rules in consistency.go.
package contract
