// Package recording stores what a client and a Hetzner Cloud API said to each other, and compares a simulated cloud with it.
//
// [NewRecorder] is an http.Handler between a client and an API, real or simulated. It writes one line of JSON for each exchange
// (see [Exchange]) after a first line about the recording (see [Header]). Before that, a [Redactor] takes out private data: only
// fields that the API document names pass, and their values only if they are words of the API or of its catalogue, plain numbers,
// or times. All others are replaced by pseudonyms. Secrets are replaced by a marker.
//
// [Read] reads a recording, and [Verify] replays it against a simulated cloud. It reports each difference of the answers.
//
// The names of the fields are in fields.tsv. A test makes that file from the API document. The meaning of a value decides its
// class: see [class].
package recording
