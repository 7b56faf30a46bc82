package guests

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/term"
)

// Limits of a guest's listener. The times are in the machine's time.
const (
	maxConnections = 32 // at a time, of a guest; others wait
	maxSessions    = 10 // at a time, of a connection
	maxLine        = 64 << 10
	loginTimeout   = 30 * time.Second
	acceptPause    = 10 * time.Millisecond // after an error
	authorizedKeys = home + "/.ssh/authorized_keys"
)

var errRefused = errors.New("permission denied")

// publicKey looks for a key in the file of authorized keys. Whoever is in the guest can change that file, as in a real one.
func (r *run) publicKey(c ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
	text, err := r.disk.read(authorizedKeys)
	for c.User() == "root" && err == nil && len(text) > 0 {
		var allowed ssh.PublicKey
		if allowed, _, _, text, err = ssh.ParseAuthorizedKey(text); err == nil && bytes.Equal(allowed.Marshal(), key.Marshal()) {
			return nil, nil
		}
	}
	return nil, errRefused
}

// accept serves connections until the listener is closed.
func (d *Door) accept(g *guest, r *run, l net.Listener) {
	config := &ssh.ServerConfig{PublicKeyCallback: r.publicKey, ServerVersion: "SSH-2.0-fakecloud",
		PasswordCallback: func(c ssh.ConnMetadata, password []byte) (*ssh.Permissions, error) {
			d.mu.Lock()
			hash := r.hash
			d.mu.Unlock()
			if sum := sha256.Sum256(password); subtle.ConstantTimeCompare(sum[:], hash) != 1 || c.User() != "root" {
				return nil, errRefused
			}
			return nil, nil
		}}
	config.AddHostKey(d.hostKey(g.id))
	for r.ctx.Err() == nil {
		conn, err := l.Accept()
		if err != nil { // such as too many open files
			select {
			case <-time.After(acceptPause):
			case <-r.ctx.Done():
			}
			continue
		}
		d.wg.Go(func() { d.serve(g, r, conn, config) })
	}
}

// serve serves one connection. It forwards no ports and no agents.
func (d *Door) serve(g *guest, r *run, conn net.Conn, config *ssh.ServerConfig) {
	defer context.AfterFunc(r.ctx, func() { _ = conn.Close() })()
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(loginTimeout))
	_, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return
	}
	_ = conn.SetDeadline(time.Time{})
	d.wg.Go(func() { ssh.DiscardRequests(requests) })
	sessions := make(chan struct{}, maxSessions)
	for wanted := range channels {
		if wanted.ChannelType() != "session" || len(sessions) == maxSessions {
			_ = wanted.Reject(ssh.Prohibited, fmt.Sprintf("fakecloud forwards nothing; open at most %d sessions", maxSessions))
			continue
		}
		sessions <- struct{}{}
		d.wg.Go(func() {
			defer func() { <-sessions }()
			if channel, requests, err := wanted.Accept(); err == nil {
				d.session(g, r, channel, requests)
			}
		})
	}
}

// session serves a channel until its command and its client have ended.
func (d *Door) session(g *guest, r *run, channel ssh.Channel, requests <-chan *ssh.Request) {
	ctx, cancel := context.WithCancel(r.ctx)
	p := &process{ctx: ctx, door: d, guest: g, run: r, in: channel, out: channel, err: channel.Stderr(), env: map[string]string{
		"HOME": home, "USER": "root", "SHELL": "/bin/bash", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}}
	done := make(chan struct{})
	var start func()
	var terminal *term.Terminal
	for request := range requests {
		var payload struct {
			Text string // a command, a subsystem, the name of a variable, or the type of a terminal
			Rest []byte `ssh:"rest"`
		}
		err := ssh.Unmarshal(request.Payload, &payload)
		ok := request.Type == "window-change" || start == nil && (err == nil || request.Type == "shell")
		begin := false
		switch {
		case !ok || request.Type == "window-change": // nothing shows the size
		case request.Type == "env":
			var value struct{ Value string }
			ok = ssh.Unmarshal(payload.Rest, &value) == nil && p.set(payload.Text+"="+value.Value)
		case request.Type == "pty-req":
			terminal = term.NewTerminal(channel, fmt.Sprintf("root@%s:~# ", r.name))
			p.set("TERM=" + payload.Text)
		case request.Type == "exec":
			begin, start = true, func() { p.line("exec", payload.Text) }
		case request.Type == "shell":
			begin, start = true, func() { p.lines(terminal) }
		case request.Type == "subsystem" && payload.Text == "sftp":
			begin, start = true, p.sftp
		default:
			ok = false
		}
		_ = request.Reply(ok, nil) // the client may be gone, or want none
		if !begin {
			continue
		}
		if terminal != nil {
			p.out, p.err = terminal, terminal
		}
		d.wg.Go(func() {
			defer close(done)
			start()
			_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(p.status)}))
			_ = channel.Close()
		})
	}
	cancel()
	if start != nil { // the client has the answer, and has closed its side
		<-done
		d.power(g, r, p.power)
	}
}

// lines runs the lines of a shell. With a terminal, they are shown as they are typed.
func (p *process) lines(terminal *term.Terminal) {
	next := func() (string, error) { return terminal.ReadLine() }
	if terminal == nil {
		lines := bufio.NewScanner(p.in)
		lines.Buffer(nil, maxLine)
		next = func() (string, error) {
			if !lines.Scan() {
				return "", io.EOF
			}
			return lines.Text(), nil
		}
	}
	p.in = bytes.NewReader(nil) // the shell reads all
	for !p.stop && p.power == "" && p.ctx.Err() == nil {
		line, err := next()
		if line != "" {
			p.line("shell", line)
		}
		if err != nil {
			return
		}
	}
}
