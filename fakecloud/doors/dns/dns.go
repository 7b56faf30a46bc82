// Package dns answers DNS questions from the zones of a simulated cloud, authoritatively, over UDP and TCP:
//
//	names, err := dns.Start(ctx, cloud, "127.0.0.1:5300")
//
// A change of a zone is visible at once, while its action runs. Reproduced: all types of records that the API has, wildcards (RFC
// 4592), empty non-terminals, negative answers (RFC 2308), delegations with glue, CNAMEs through all zones of the cloud, and the
// reverse names that the API shows as dns_ptr. DOORS.md says what a zone in secondary mode and zones of the same name
// answer, and what others can do with the listener. Left out: zone transfers, DNSSEC, updates, recursion.
//
// A question costs at most a look at each project and at each name of eight zones.
package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/testhook"
)

const (
	udpWorkers     = 8                // questions that are answered at a time over UDP; others wait in the socket
	maxConnections = 64               // over TCP, at a time; others are closed
	maxQuestions   = 1000             // of a connection
	idleTimeout    = 10 * time.Second // of a connection, in the machine's time
	maxMessage     = 1<<16 - 1
)

// Server is a running name server. Close it after use, and before the cloud.
type Server struct {
	cloud *cloud.Cloud
	udp   net.PacketConn
	tcp   net.Listener
	wg    sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
}

// Start starts a name server for the zones of all projects of a cloud, at an address such as 127.0.0.1:5300, over UDP and TCP. Port 0 is
// any free one.
func Start(ctx context.Context, c *fakecloud.Cloud, address string) (*Server, error) {
	s := &Server{cloud: testhook.Core(c), conns: map[net.Conn]bool{}}
	if err := s.listen(ctx, address); err != nil {
		return nil, fmt.Errorf("DNS address %s: %w; choose another port (0 is any free one)", address, err)
	}
	for range udpWorkers {
		s.wg.Go(s.serveUDP)
	}
	s.wg.Go(s.serveTCP)
	return s, nil
}

// listen opens both sockets at the same port. Of ten free ports of UDP, one is free for TCP.
func (s *Server) listen(ctx context.Context, address string) (err error) {
	var config net.ListenConfig
	for range 10 {
		if s.udp, err = config.ListenPacket(ctx, "udp", address); err != nil {
			return err
		}
		if s.tcp, err = config.Listen(ctx, "tcp", s.udp.LocalAddr().String()); err == nil {
			return nil
		}
		_ = s.udp.Close()
	}
	return err
}

// Address returns where the server listens, such as 127.0.0.1:5300.
func (s *Server) Address() string { return s.udp.LocalAddr().String() }

// Close ends all connections and waits for them.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	err := errors.Join(s.udp.Close(), s.tcp.Close())
	for conn := range s.conns {
		_ = conn.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
	return err
}

func (s *Server) serveUDP() {
	question := make([]byte, maxMessage)
	for {
		n, from, err := s.udp.ReadFrom(question)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as of a client that is gone
			continue
		}
		if answer := s.reply(question[:n], true); answer != nil {
			_, _ = s.udp.WriteTo(answer, from)
		}
	}
}

func (s *Server) serveTCP() {
	for {
		conn, err := s.tcp.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // there are no files left; one is soon
			continue
		}
		s.mu.Lock()
		if s.closed || len(s.conns) >= maxConnections {
			_ = conn.Close()
		} else {
			s.conns[conn] = true
			s.wg.Go(func() { s.serveConn(conn) })
		}
		s.mu.Unlock()
	}
}

// serveConn answers the questions of a connection in their order (RFC 7766). Anything else ends it.
func (s *Server) serveConn(conn net.Conn) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, conn)
		_ = conn.Close()
	}()
	var length [2]byte
	for range maxQuestions {
		_ = conn.SetDeadline(time.Now().Add(idleTimeout))
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			return
		}
		question := make([]byte, binary.BigEndian.Uint16(length[:]))
		if _, err := io.ReadFull(conn, question); err != nil {
			return
		}
		answer := s.reply(question, false)
		if answer == nil {
			return
		}
		if _, err := conn.Write(append(append16(nil, len(answer)), answer...)); err != nil {
			return
		}
	}
}
