package control

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
)

// streamed is an answer that is written item by item, because the whole could be too large for the machine's memory. It
// writes from a snapshot: a client that reads slowly blocks nothing.
type streamed func(*listWriter)

func (s streamed) send(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// If the client is gone, all further writes do nothing.
	out := listWriter{w: bufio.NewWriterSize(w, 32<<10)}
	s(&out)
	_ = out.w.WriteByte('\n')
	_ = out.w.Flush()
}

// listWriter writes JSON with one line for each item of a list.
type listWriter struct {
	w    *bufio.Writer
	more bool // the open list has an item
	item bytes.Buffer
}

// open writes the beginning of an object or a list: its parts are text and values by turns.
func (l *listWriter) open(parts ...any) {
	for i, p := range parts {
		if text, ok := p.(string); ok && i%2 == 0 {
			_, _ = l.w.WriteString(text)
			continue
		}
		l.value(p)
	}
	l.more = false
}

// next begins an item.
func (l *listWriter) next() {
	if l.more {
		_ = l.w.WriteByte(',')
	}
	_ = l.w.WriteByte('\n')
	l.more = true
}

func (l *listWriter) raw(b []byte) { _, _ = l.w.Write(b) }

func (l *listWriter) value(v any) {
	l.item.Reset()
	enc := json.NewEncoder(&l.item)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // a value of this program can be encoded
	l.raw(bytes.TrimSuffix(l.item.Bytes(), []byte("\n")))
}

// close writes the end of an object or a list.
func (l *listWriter) close(text string) {
	_, _ = l.w.WriteString("\n" + text)
	l.more = true
}
