package recording

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/api"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/strictjson"
)

// Version is the version of the format that this program writes, and the only one that it reads.
const Version = 1

const format = "fakecloud-recording"

// FileName is the name of a recording in its folder.
const FileName = "recording.jsonl"

// BasePath begins the paths of an API.
const BasePath = api.Prefix

// RealHost is the host of the real API. A recording names no other host.
const RealHost = "api.hetzner.cloud"

// Limits of a recording that is read. A longer line is refused, so that a damaged file does not fill the memory.
const (
	maxLine      = 16 << 20
	maxExchanges = 1_000_000
)

// Header is the first line of a recording.
type Header struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	// Target is RealHost, or "other".
	Target string `json:"target"`
	// Started is when the recorder started.
	Started time.Time `json:"started"`
}

// Exchange is a request and its answer, without what is private.
type Exchange struct {
	// Seq counts the requests as they begin, from 1. Lines are in the order of the answers' ends.
	Seq int `json:"seq"`
	// At and End are when the request began and when its answer ended, in milliseconds since the first request.
	At  int64 `json:"at_ms"`
	End int64 `json:"end_ms"`

	Method string `json:"method"`
	// Path is without the base path, such as /servers/6400.
	Path           string              `json:"path"`
	Query          map[string][]string `json:"query,omitempty"`
	RequestHeaders map[string]string   `json:"request_headers,omitempty"`
	// Request is the body; absent for a request without one.
	Request json.RawMessage `json:"request,omitempty"`

	// Status is 0 if no answer came.
	Status          int               `json:"status"`
	ResponseHeaders map[string]string `json:"response_headers,omitempty"`
	Response        json.RawMessage   `json:"response,omitempty"`
}

// Recording is a recording that was read.
type Recording struct {
	Header
	// Exchanges are in the order of the requests' beginnings.
	Exchanges []Exchange
	// CutOff is set if the last line is not complete: the recorder was killed while it wrote. That line is left out.
	CutOff bool
}

// ErrDamaged is wrapped by the errors of [Read] about the contents of the file.
var ErrDamaged = errors.New("the recording is damaged")

// ErrNothing is the error of [Verify] about a recording of which it could replay nothing.
var ErrNothing = errors.New("nothing could be replayed, so the recording proves nothing; record again while a client uses the API")

// Read reads a recording. An error about a line has its number and wraps [ErrDamaged]. A recording that ends in the middle of a
// line is not damaged, see [Recording.CutOff].
func Read(r io.Reader) (*Recording, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	rec := &Recording{}
	for number := 1; ; number++ {
		line, err := readLine(in)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		ended := err != nil // the line has no line feed
		if ended && len(line) == 0 {
			if number == 1 {
				return nil, fmt.Errorf("line 1: %w: it is empty; record again", ErrDamaged)
			}
			break
		}
		err = rec.line(number, line)
		if err != nil && ended && number > 1 && !json.Valid(line) {
			rec.CutOff = true
			break
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w: %w; remove that line, or record again", number, ErrDamaged, err)
		}
		if ended {
			break
		}
	}
	slices.SortStableFunc(rec.Exchanges, func(a, b Exchange) int { return a.Seq - b.Seq })
	return rec, rec.check()
}

// readLine returns a line without its line feed. The error is io.EOF if the input ends before one.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if len(line)+len(part) > maxLine {
			return nil, fmt.Errorf("%w: it is longer than %d MiB; remove that line, or record again", ErrDamaged, maxLine>>20)
		}
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimSuffix(line, []byte("\n")), err
		}
	}
}

// line reads one line.
func (rec *Recording) line(number int, line []byte) error {
	if number == 1 {
		return rec.header(line)
	}
	if len(rec.Exchanges) == maxExchanges {
		return fmt.Errorf("more than %d exchanges", maxExchanges)
	}
	var e Exchange
	if err := strictjson.Decode(line, &e); err != nil {
		return err
	}
	switch {
	case e.Seq < 1:
		return fmt.Errorf("seq %d: must be at least 1", e.Seq)
	case e.At < 0 || e.End < e.At || e.End > int64(maxLength/time.Millisecond):
		return fmt.Errorf("at_ms %d, end_ms %d: must ascend from 0", e.At, e.End)
	case !slices.Contains(methods, e.Method):
		return fmt.Errorf("method %.20q: must be one of %s", e.Method, strings.Join(methods, ", "))
	case !strings.HasPrefix(e.Path, "/") || strings.ContainsAny(e.Path, " ?#"):
		return fmt.Errorf("path %.60q: must begin with / and have no query", e.Path)
	case e.Status != 0 && (e.Status < 100 || e.Status > 599):
		return fmt.Errorf("status %d: must be 0 or an HTTP status", e.Status)
	}
	rec.Exchanges = append(rec.Exchanges, e)
	return nil
}

// maxLength is how long a recording may be. The simulated clock is stepped over it.
const maxLength = 366 * 24 * time.Hour

// methods are those of the API, and others that clients send by mistake. All others are recorded as OTHER.
var methods = []string{"GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "OTHER"}

func (rec *Recording) header(line []byte) error {
	// A later version may have fields that this one does not know.
	var begin struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
	}
	if err := json.Unmarshal(line, &begin); err != nil || begin.Format != format {
		return fmt.Errorf("it does not begin a recording: \"format\" must be %q", format)
	}
	if begin.Version != Version {
		return fmt.Errorf("version %d: this program reads version %d only", begin.Version, Version)
	}
	if err := strictjson.Decode(line, &rec.Header); err != nil {
		return err
	}
	if year := rec.Started.Year(); year < 2020 || year > 2200 {
		return fmt.Errorf("started %v: must be a time of this century", rec.Started)
	}
	return nil
}

// check compares the lines with each other.
func (rec *Recording) check() error {
	for i := 1; i < len(rec.Exchanges); i++ {
		before, e := &rec.Exchanges[i-1], &rec.Exchanges[i]
		if before.Seq == e.Seq {
			return fmt.Errorf("%w: two lines have \"seq\":%d; remove one of them", ErrDamaged, e.Seq)
		}
		if e.At < before.At {
			return fmt.Errorf("%w: at_ms of \"seq\":%d is less than that of \"seq\":%d; record again", ErrDamaged, e.Seq, before.Seq)
		}
	}
	return nil
}

// decode returns a JSON value with numbers as json.Number.
func decode(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return v, nil
}

// encode returns the JSON of a value, in one line and without escapes of HTML.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // all values come from decode, or are structs of this package
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
