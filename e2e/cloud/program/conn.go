package program

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
)

// longest is the most bytes that an answer may have.
const longest = 64 << 20

// question is a line that a program reads.
type question struct {
	ID     uint64 `json:"id"`
	Method string `json:"method"`
	Params any    `json:"params"`
}

// reply is a line that a program writes.
type reply struct {
	ID     uint64          `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *problem        `json:"error"`
}

// problem is the error of a reply.
type problem struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// The codes of problems.
const (
	codeNotFound    = "not-found"
	codeUnsupported = "unsupported"
	codeFailed      = "failed"
)

// decodeReply decodes a line. An error explains the mistake in it.
func decodeReply(line []byte) (reply, error) {
	var r reply
	if err := json.Unmarshal(line, &r); err != nil {
		return r, fmt.Errorf("is not JSON: %w", err)
	}
	if r.ID == 0 {
		return r, errors.New(`has no "id": copy that of the question`)
	}
	if r.Error == nil {
		if r.Result == nil {
			r.Result = json.RawMessage("null") // of a method without a result
		}
		return r, nil
	}
	if r.Result != nil {
		return r, errors.New(`has "result" and "error": write one of them`)
	}
	switch r.Error.Code {
	case codeNotFound, codeUnsupported, codeFailed:
		return r, nil
	}
	return r, fmt.Errorf(`has the error code %q: must be one of %s, %s, %s`, r.Error.Code, codeNotFound, codeUnsupported, codeFailed)
}

// err returns the error of a reply in the terms of package cloud.
func (r reply) err() error {
	if r.Error == nil {
		return nil
	}
	switch r.Error.Code {
	case codeNotFound:
		return fmt.Errorf("%s: %w", r.Error.Message, cloud.ErrNotFound)
	case codeUnsupported:
		return fmt.Errorf("%s: %w", r.Error.Message, errors.ErrUnsupported)
	}
	return errors.New(r.Error.Message)
}

// conn asks a program and gets its answers, several at a time and in any order.
type conn struct {
	write sync.Mutex // one line at a time
	to    io.Writer

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan reply // nil: who has asked does not wait any more
	failure error                 // why nothing more can be asked
	failed  chan struct{}         // closed with failure
	read    chan struct{}         // closed when all answers are read
}

// newConn makes a connection and reads answers until they end. Then end says why they do.
func newConn(to io.Writer, from io.Reader, end func() error) *conn {
	c := &conn{to: to, waiting: map[uint64]chan reply{}, failed: make(chan struct{}), read: make(chan struct{})}
	go func() {
		err := c.readAll(from)
		if err != nil {
			c.fail(err)
			_, _ = io.Copy(io.Discard, from) // so that the program can still write, and end
		}
		close(c.read)
		c.fail(end())
	}()
	return c
}

// fail ends the connection: all calls that wait, and all later ones, return the first error.
func (c *conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure == nil {
		c.failure = err
		close(c.failed)
	}
}

// readAll takes answers until one is wrong or they end.
func (c *conn) readAll(from io.Reader) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, longest)
	for lines.Scan() {
		r, err := decodeReply(lines.Bytes())
		if err == nil {
			err = c.deliver(r)
		}
		if err != nil {
			return fmt.Errorf("it wrote a line that %w: %s; write only answers to the standard output, and logs to the standard error",
				err, shorten(lines.Text()))
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("it wrote a line of more than %d bytes: end each answer with a new line", longest)
	}
	return nil // the end, also if the pipe was closed
}

// deliver gives an answer to the waiting call.
func (c *conn) deliver(r reply) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	answer, asked := c.waiting[r.ID]
	switch {
	case r.ID > c.last:
		return fmt.Errorf("answers %d, which was not asked", r.ID)
	case !asked:
		return fmt.Errorf("answers %d a second time", r.ID)
	}
	delete(c.waiting, r.ID)
	if answer != nil {
		answer <- r // has room for it
	}
	return nil
}

// ask sends a question, waits for the answer, and decodes it into result unless result is nil.
func (c *conn) ask(ctx context.Context, method string, params, result any) error {
	answer := make(chan reply, 1)
	c.mu.Lock()
	if err := c.failure; err != nil {
		c.mu.Unlock()
		return err
	}
	c.last++
	id := c.last
	c.waiting[id] = answer
	c.mu.Unlock()

	line, err := json.Marshal(question{id, method, params})
	if err != nil {
		return fmt.Errorf("cannot encode the parameters: %w", err)
	}
	go c.send(append(line, '\n')) // a program that reads nothing does not hold up the caller
	select {
	case r := <-answer:
		return decodeResult(r, result)
	case <-c.failed:
		select {
		case r := <-answer: // before it ended
			return decodeResult(r, result)
		default:
			return c.failure
		}
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		if _, waits := c.waiting[id]; waits {
			c.waiting[id] = nil
		}
		return fmt.Errorf("it has not answered: %w", ctx.Err())
	}
}

func (c *conn) send(line []byte) {
	c.write.Lock()
	defer c.write.Unlock()
	if _, err := c.to.Write(line); err != nil {
		c.fail(fmt.Errorf("it does not read its standard input: %w", err))
	}
}

// decodeResult decodes the result of an answer, or returns its error.
func decodeResult(r reply, result any) error {
	if err := r.err(); err != nil || result == nil {
		return err
	}
	if string(r.Result) == "null" {
		return errors.New("it has answered without a result: write what README.md says, such as [] for an empty list")
	}
	if err := json.Unmarshal(r.Result, result); err != nil {
		return fmt.Errorf("its result %s is not what the protocol says: %w", shorten(string(r.Result)), err)
	}
	return nil
}

// shorten quotes the beginning of a text.
func shorten(text string) string {
	if len(text) > 200 {
		text = text[:200] + "…"
	}
	return fmt.Sprintf("%q", text)
}
