package requestlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// Limits of the bodies that a log keeps, so that they take at most 32 MiB.
const (
	MaxBody   = 16 << 10 // bytes of one body; the rest is cut off
	maxBodies = 1000     // requests
)

// Details are what a log knows of a request in addition to its entry.
type Details struct {
	Request, Response []byte        // bodies, at most MaxBody bytes each; they have the client's secrets
	Took              time.Duration // of the machine's time

	seq uint64
}

// Remove replaces a secret in the bodies.
func (d *Details) Remove(secret string) {
	for _, body := range []*[]byte{&d.Request, &d.Response} {
		if bytes.Contains(*body, []byte(secret)) {
			*body = bytes.ReplaceAll(*body, []byte(secret), []byte("REDACTED"))
		}
	}
}

// details are the optional part of a log.
type details struct {
	ring    [maxBodies]atomic.Pointer[Details]
	observe func(*journal.Entry, time.Duration)
}

// Observe makes the log keep the bodies of the latest 1,000 requests from now on, and call observe for each request. Until it is
// called, requests do not pay for that.
func (j *Log) Observe(observe func(*journal.Entry, time.Duration)) {
	j.details.Store(&details{observe: observe})
}

// Observed reports whether Add needs details.
func (j *Log) Observed() bool { return j.details.Load() != nil }

// add keeps the details of an entry that has its Seq.
func (d *details) add(e *journal.Entry, of *Details) {
	of.seq = e.Seq
	d.ring[e.Seq%maxBodies].Store(of)
	d.observe(e, of.Took)
}

// Bodies returns an entry with the bodies of its request and its answer, without secrets. kept is false if the log does not keep the bodies
// any more. The error is ErrNotFound if the entry does not exist.
func (j *Log) Bodies(seq uint64) (e journal.Entry, request, response string, kept bool, err error) {
	j.init()
	found := (*journal.Entry)(nil)
	if seq > 0 {
		found = j.slot(seq).Load()
	}
	if found == nil || found.Seq != seq {
		return e, "", "", false, ErrNotFound
	}
	if d := j.details.Load(); d != nil {
		if b := d.ring[seq%maxBodies].Load(); b != nil && b.seq == seq {
			return j.shown(found), j.withoutSecrets(b.Request), j.withoutSecrets(b.Response), true, nil
		}
	}
	return j.shown(found), "", "", false, nil
}

// ErrNotFound is the error if an entry is not in the log, or not any more.
var ErrNotFound = errors.New("is not in the journal; it keeps the latest requests only")

const redacted = `"REDACTED"`

// secretField matches the fields of the API that hold a secret, and those that a client may send by mistake.
var secretField = regexp.MustCompile(`(?i)token|secret|passw|pwd|credential|bearer|private_?key|tsig|user_?data|wss_url|authorization`)

// secretText matches values that are secrets in any field: a client may put a private key into the wrong one.
var secretText = regexp.MustCompile(`PRIVATE KEY`)

// The places in JSON where a token may be.
const (
	inList  = 'l'
	atName  = 'n' // of a member of an object
	atValue = 'v'
)

// withoutSecrets returns a JSON object or list with a marker instead of its secrets. From the place on where the body was cut off or
// is not JSON, it returns nothing: a secret could be there.
func (j *Log) withoutSecrets(body []byte) string {
	body = bytes.TrimSpace(body)
	if len(body) == 0 || body[0] != '{' && body[0] != '[' {
		return ""
	}
	var out bytes.Buffer
	dec := json.NewDecoder(bytes.NewReader(body))
	places := []byte{inList} // of the open values, the outermost first
	copied := int64(0)
	for {
		from := dec.InputOffset()
		token, err := dec.Token()
		if err != nil {
			out.Write(body[copied:from])
			if !errors.Is(err, io.EOF) {
				out.WriteString(" … the rest is not kept")
			}
			return out.String()
		}
		place := &places[len(places)-1]
		text, isText := token.(string)
		isSecret := isText && (secretText.MatchString(text) || j.Redact != nil && j.Redact(text) != text)
		if isSecret { // also as a name, such as that of a label
			start := from + int64(bytes.IndexByte(body[from:], '"'))
			out.Write(body[copied:start])
			out.WriteString(redacted)
			copied = dec.InputOffset()
		}
		switch {
		case *place == atName && isText && secretField.MatchString(text):
			out.Write(body[copied:dec.InputOffset()])
			out.WriteString(":" + redacted)
			if dec.Decode(new(json.RawMessage)) != nil {
				return out.String()
			}
			copied = dec.InputOffset()
		case *place == atName && isText:
			*place = atValue
		case token == json.Delim('}'), token == json.Delim(']'):
			places = places[:len(places)-1]
		default:
			if *place == atValue {
				*place = atName
			}
			switch token {
			case json.Delim('{'):
				places = append(places, atName)
			case json.Delim('['):
				places = append(places, inList)
			}
		}
	}
}
