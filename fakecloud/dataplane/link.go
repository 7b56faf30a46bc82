package dataplane

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// The limits of HAProxy for the head of a request or an answer: the size of its buffer (tune.bufsize) less the space for changes
// (tune.maxrewrite), and its number of header fields (tune.http.maxhdr). HAProxy counts some additional bytes for each field, so that its
// limit is a little lower.
const (
	maxHeaderBytes  = 15 << 10
	maxHeaderFields = 100
)

var errHeadTooLarge = fmt.Errorf("the head is larger than %d bytes or has more than %d fields", maxHeaderBytes, maxHeaderFields)

// peekHead waits until in has a whole head of a request or an answer, and returns it. If its buffer is too small, it returns another reader
// for the rest of the connection. The head is valid until the next read.
func peekHead(in *bufio.Reader, c io.Reader) (*bufio.Reader, []byte, error) {
	for seen := 0; ; {
		_, err := in.Peek(seen + 1)
		head, _ := in.Peek(in.Buffered())
		if end := headEnd(head, seen); end > 0 {
			if end > maxHeaderBytes || bytes.Count(head[:end], []byte{'\n'}) > maxHeaderFields+2 {
				return in, nil, errHeadTooLarge
			}
			return in, head[:end], nil
		}
		seen = len(head)
		switch {
		case seen > maxHeaderBytes:
			return in, nil, errHeadTooLarge
		case seen == in.Size():
			in = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(bytes.Clone(head)), c), maxHeaderBytes+1)
			seen = 0
		case err != nil:
			return in, nil, err
		}
	}
}

// headEnd returns the length of the head, or 0 if head lacks its end. No end is before seen.
func headEnd(head []byte, seen int) int {
	for at := max(0, seen-2); ; {
		i := bytes.IndexByte(head[at:], '\n')
		if i < 0 {
			return 0
		}
		at += i + 1
		if rest := head[at:]; bytes.HasPrefix(rest, []byte{'\n'}) {
			return at + 1
		} else if bytes.HasPrefix(rest, []byte("\r\n")) {
			return at + 2
		}
	}
}

// link is a connection to a target that takes requests, one after the other.
type link struct {
	net.Conn
	address string
	in      *bufio.Reader
	out     *bufio.Writer
	spared  time.Time // since when it waits for a request; zero for the first
	stale   bool      // it waited, and ended before the answer began
}

func newLink(c net.Conn, address string) *link {
	return &link{Conn: c, address: address, in: bufio.NewReader(c), out: bufio.NewWriter(c)}
}

func (t *link) stop() { closeQuietly(t.Conn) }

// NetConn returns the connection.
func (t *link) NetConn() net.Conn { return t.Conn }

// Read reads the data after an answer.
func (t *link) Read(p []byte) (int, error) { return t.in.Read(p) }

// CloseWrite tells the target that no more data follow.
func (t *link) CloseWrite() error { return closeWrite(t.Conn) }

// writeHead writes the head of a request. The buffer keeps an error.
func (t *link) writeHead(r *http.Request) {
	w := t.out
	_, _ = w.WriteString(r.Method)
	_ = w.WriteByte(' ')
	_, _ = w.WriteString(r.RequestURI)
	if r.ProtoAtLeast(1, 1) {
		_, _ = w.WriteString(" HTTP/1.1\r\n")
	} else {
		_, _ = w.WriteString(" HTTP/1.0\r\nConnection: keep-alive\r\n")
	}
	if r.Host != "" {
		_, _ = w.WriteString("Host: " + r.Host + "\r\n")
	}
	writeFields(w, r.Header, r.ContentLength < 0, r.Trailer)
}

// writeFields writes the fields of a head and the empty line.
func writeFields(w *bufio.Writer, h http.Header, chunked bool, trailer http.Header) {
	if chunked {
		_, _ = w.WriteString("Transfer-Encoding: chunked\r\n")
	}
	if len(trailer) > 0 { // net/http has moved this field
		_, _ = w.WriteString("Trailer: " + strings.Join(slices.Sorted(maps.Keys(trailer)), ", ") + "\r\n")
	}
	_ = h.Write(w)
	_, _ = w.WriteString("\r\n")
}

// readHead reads the head of the answer to a request.
func (t *link) readHead(r *http.Request) (*http.Response, error) {
	var err error
	if t.in, _, err = peekHead(t.in, t.Conn); err != nil {
		t.stale = !t.spared.IsZero() && t.in.Buffered() == 0
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	resp, err := http.ReadResponse(t.in, r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 100 {
		return nil, fmt.Errorf("%q is not an HTTP status", resp.Status)
	}
	if resp.StatusCode == http.StatusSwitchingProtocols && !isUpgrade(r) {
		return nil, errUpgrade
	}
	return resp, nil
}

// spareLinks are the links of a load balancer that wait for a request.
type spareLinks struct {
	mu     sync.Mutex
	links  map[*backend][]*link
	closed bool
}

// maxSpare is the maximum number of spare links to one target of a service.
const maxSpare = 64

// take returns the link that was used last, or nil. With checked it is one that the target has not closed.
func (s *spareLinks) take(b *backend, address string, checked bool) *link {
	for {
		t := s.pop(b)
		if t == nil {
			return nil
		}
		if t.address == address && (!checked || alive(t.Conn)) {
			return t
		}
		closeQuietly(t) // the target's server has moved, or it has closed the link
	}
}

func (s *spareLinks) pop(b *backend) *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	links := s.links[b]
	if len(links) == 0 {
		return nil
	}
	last := len(links) - 1
	t := links[last]
	links[last] = nil
	s.links[b] = links[:last]
	return t
}

// put keeps a link for further requests.
func (s *spareLinks) put(b *backend, t *link, now time.Time) {
	t.spared = now
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.links[b]) >= maxSpare {
		closeQuietly(t)
		return
	}
	s.links[b] = append(s.links[b], t)
}

// drop closes the spare links to a backend.
func (s *spareLinks) drop(b *backend) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.links[b] {
		closeQuietly(t)
	}
	delete(s.links, b)
}

// sweep closes the links that have waited for too long.
func (s *spareLinks) sweep(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for b, links := range s.links {
		i := 0
		for ; i < len(links) && now.Sub(links[i].spared) >= defaultIdleTimeout; i++ {
			closeQuietly(links[i])
		}
		if i == len(links) {
			delete(s.links, b)
		} else {
			s.links[b] = slices.Delete(links, 0, i)
		}
	}
}

// close closes all links, and those that are put later.
func (s *spareLinks) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, links := range s.links {
		for _, t := range links {
			closeQuietly(t)
		}
	}
	clear(s.links)
}
