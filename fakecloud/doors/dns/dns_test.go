package dns

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	records "github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/dns"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/testhook"
)

// start returns a name server for a cloud with the zone example.com, and its first project.
func start(t testing.TB) (*Server, cloud.Project) {
	t.Helper()
	c := fakecloud.New(fakecloud.Options{})
	t.Cleanup(c.Close)
	p, _ := testhook.Core(c).Project(cloud.FirstProject)
	addZone(t, p, "example.com", testdata(t, "example.com.zone"))
	addZone(t, p, "second.example", "")
	set(t, p, "second.example", "www", "A", "198.51.100.77")
	s, err := Start(t.Context(), c, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, p
}

func addZone(t testing.TB, p cloud.Project, name, file string) {
	t.Helper()
	if _, _, _, err := p.CreateZone(cloud.CreateZone{Name: name, Mode: cloud.ZonePrimary, Zonefile: file}); err != nil {
		t.Fatal(err)
	}
}

func set(t testing.TB, p cloud.Project, zone, name, kind string, values ...string) {
	t.Helper()
	s := cloud.RRSet{Name: name, Type: kind}
	for _, v := range values {
		s.Records = append(s.Records, records.Record{Value: v})
	}
	if _, _, err := p.CreateRRSet(zone, s); err != nil {
		t.Fatal(err)
	}
}

// query returns a question in the form of messages. size is that of EDNS, or 0 for none.
func query(t testing.TB, name string, kind dnsmessage.Type, size int) []byte {
	t.Helper()
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true}, Questions: []dnsmessage.Question{
		{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET},
	}}
	if size > 0 {
		m.Additionals = []dnsmessage.Resource{{Body: &dnsmessage.OPTResource{}}}
		_ = m.Additionals[0].Header.SetEDNS0(size, 0, false)
	}
	message, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return message
}

// exchange sends a message over UDP or TCP and returns the answer.
func exchange(t testing.TB, s *Server, network string, message []byte) []byte {
	t.Helper()
	conn, err := net.Dial(network, s.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	answer, n := make([]byte, maxMessage), 0
	if network == "udp" {
		_, _ = conn.Write(message)
		n, err = conn.Read(answer)
	} else if _, err = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...)); err == nil {
		if _, err = io.ReadFull(conn, answer[:2]); err == nil {
			n, err = io.ReadFull(conn, answer[:binary.BigEndian.Uint16(answer)])
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return answer[:n]
}

// ask returns the description of the answer over UDP.
func ask(t testing.TB, s *Server, name string, kind dnsmessage.Type, size int) string {
	t.Helper()
	return strings.Join(describe(t, exchange(t, s, "udp", query(t, name, kind, size))), "\n")
}

// describe returns an answer as lines: the code and the flags, and the records of each section.
func describe(t testing.TB, message []byte) (lines []string) {
	t.Helper()
	var m dnsmessage.Message
	if err := m.Unpack(message); err != nil {
		t.Fatalf("%v: %x", err, message)
	}
	head := strings.TrimPrefix(m.RCode.String(), "RCode")
	if m.Authoritative {
		head += " aa"
	}
	if m.Truncated {
		head += " tc"
	}
	if !m.Response || m.ID != 7 || m.RecursionAvailable {
		t.Errorf("header %+v", m.Header)
	}
	lines = append(lines, head)
	for i, section := range [][]dnsmessage.Resource{m.Answers, m.Authorities, m.Additionals} {
		for _, r := range section {
			data := strings.Trim(fmt.Sprint(r.Body), "&{}")
			switch b := r.Body.(type) {
			case *dnsmessage.OPTResource:
				continue
			case *dnsmessage.AAAAResource:
				data = netip.AddrFrom16(b.AAAA).String()
			case *dnsmessage.AResource:
				data = netip.AddrFrom4(b.A).String()
			case *dnsmessage.SOAResource:
				data = fmt.Sprint(b.NS, " ", b.MBox, " ", b.MinTTL) // the serial number is a day's
			case *dnsmessage.UnknownResource:
				data = hex.EncodeToString(b.Data)
			}
			lines = append(lines, fmt.Sprintf("%s %s %d %s %s", []string{"answer", "authority", "additional"}[i],
				r.Header.Name, r.Header.TTL, strings.TrimPrefix(r.Header.Type.String(), "Type"), data))
		}
	}
	return lines
}

// testdata returns the text of a file.
func testdata(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestAnswers asks the questions of answers.txt.
func TestAnswers(t *testing.T) {
	t.Parallel()
	s, _ := start(t)
	asked := 0
	for c := range strings.SplitSeq(testdata(t, "answers.txt"), "\n\n") {
		question, want, ok := strings.Cut(strings.TrimSpace(c), "\n")
		fields := strings.Fields(question)
		if !ok || fields[0] != "?" {
			continue
		}
		kind, ok := kinds[fields[2]]
		if !ok {
			kind = map[string]dnsmessage.Type{"AXFR": dnsmessage.TypeAXFR, "IXFR": 251}[fields[2]]
		}
		asked++
		if got := ask(t, s, fields[1], kind, 1232); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", question, got, want)
		}
	}
	all := describe(t, exchange(t, s, "tcp", query(t, "example.com.", dnsmessage.TypeALL, 0)))
	if len(all) != 1+7 || asked < 50 {
		t.Errorf("%d questions; ANY: %q", asked, all)
	}
}

// TestAChangeIsVisibleAtOnce asks while the action runs, and after the zone is gone.
func TestAChangeIsVisibleAtOnce(t *testing.T) {
	t.Parallel()
	c := fakecloud.New(fakecloud.Options{Actions: "1h"})
	defer c.Close()
	s, err := Start(t.Context(), c, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p, _ := testhook.Core(c).Project(cloud.FirstProject)
	expect := func(want string) {
		t.Helper()
		got, _, _ := strings.Cut(ask(t, s, "_acme-challenge.example.com.", dnsmessage.TypeTXT, 0), "\n")
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	expect("Refused")
	addZone(t, p, "example.com", "")
	expect("NameError aa")
	set(t, p, "example.com", "_acme-challenge", "TXT", `"token"`)
	expect("Success aa")
	if _, _, err := p.DeleteRRSet("example.com", "_acme-challenge", "TXT"); err != nil {
		t.Fatal(err)
	}
	expect("NameError aa")
	p.Reset()
	expect("Refused")
}

// TestZonesOfSeveralProjects has the same name twice, a zone below another project's, and a secondary zone.
func TestZonesOfSeveralProjects(t *testing.T) {
	t.Parallel()
	s, first := start(t)
	second := s.cloud.AddProject("second")
	addZone(t, second, "example.com", "")
	set(t, second, "example.com", "www", "A", "203.0.113.1")
	addZone(t, second, "below.www.example.com", "")
	set(t, second, "below.www.example.com", "@", "A", "203.0.113.2")
	if _, _, _, err := second.CreateZone(cloud.CreateZone{Name: "copy.example", Mode: cloud.ZoneSecondary}); err != nil {
		t.Fatal(err)
	}
	addZone(t, second, "older.example", "") // than that of the first project
	set(t, second, "older.example", "www", "A", "203.0.113.3")
	addZone(t, first, "older.example", "")
	set(t, first, "example.com", "copy", "CNAME", "www.copy.example.")
	expect := func(name, want string) {
		t.Helper()
		if got := ask(t, s, name, dnsmessage.TypeA, 0); got != want {
			t.Errorf("%s: %s\nwant %s", name, got, want)
		}
	}
	expect("www.example.com.", "Success aa\nanswer www.example.com. 60 A 198.51.100.2\nanswer www.example.com. 60 A 198.51.100.3")
	expect("below.www.example.com.", "Success aa\nanswer below.www.example.com. 3600 A 203.0.113.2")
	expect("www.copy.example.", "ServerFailure")
	expect("copy.example.com.", "Success aa\nanswer copy.example.com. 3600 CNAME www.copy.example.")
	expect("www.older.example.", "Success aa\nanswer www.older.example. 3600 A 203.0.113.3")
	first.Reset()
	expect("www.example.com.", "Success aa\nanswer www.example.com. 3600 A 203.0.113.1")
}

func TestReverseNames(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	home := cloud.CreatePrimaryIP{Type: cloud.IPv4, Location: "fsn1"}
	primary, _, _, err1 := p.CreatePrimaryIP(home)
	floating, _, _, err2 := p.CreateFloatingIP(cloud.CreateFloatingIP{Type: cloud.IPv6, HomeLocation: "fsn1"})
	lb, _, _, err3 := p.CreateLoadBalancer(cloud.CreateLoadBalancer{Name: "lb", Type: "lb11", Location: "fsn1"})
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	ptr := func(a netip.Addr) string { return ask(t, s, reverseName(a), dnsmessage.TypePTR, 0) }
	v4, v6 := primary.IP.Addr(), floating.IP.Addr().Next()
	if got := ptr(v4); !strings.Contains(got, "PTR static.") || !strings.HasSuffix(got, ".clients.your-server.de.") {
		t.Errorf("the default of %v: %s", v4, got)
	}
	if got := ptr(v6); !strings.HasPrefix(got, "NameError aa\nauthority ip6.arpa.") {
		t.Errorf("%v: %s", v6, got)
	}
	name := "mail.example.com"
	lb, _ = p.View().LoadBalancers.Get(lb.ID)
	_, _, err1 = p.ChangePrimaryIPDNSPtr(primary.ID, cloud.ChangeDNSPtr{IP: v4, Ptr: &name})
	_, _, err2 = p.ChangeFloatingIPDNSPtr(floating.ID, cloud.ChangeDNSPtr{IP: v6, Ptr: &name})
	_, _, err3 = p.ChangeLoadBalancerDNSPtr(lb.ID, cloud.ChangeDNSPtr{IP: lb.IPv4.Addr, Ptr: &name})
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	for _, a := range []netip.Addr{v4, v6, lb.IPv4.Addr} {
		if got := ptr(a); got != "Success aa\nanswer "+reverseName(a)+" 3600 PTR mail.example.com." {
			t.Errorf("%v: %s", a, got)
		}
	}
	// A zone of the cloud is asked first.
	b := v4.As4()
	addZone(t, p, fmt.Sprintf("%d.%d.%d.in-addr.arpa", b[2], b[1], b[0]), "")
	if got := ptr(v4); !strings.HasPrefix(got, "NameError aa\nauthority "+fmt.Sprint(b[2])) {
		t.Errorf("%v: %s", v4, got)
	}
}

func reverseName(a netip.Addr) string {
	if a.Is4() {
		b := a.As4()
		return fmt.Sprintf("%d.%d.%d.%d.in-addr.arpa.", b[3], b[2], b[1], b[0])
	}
	digits := strings.Split(hex.EncodeToString(a.AsSlice()), "")
	slices.Reverse(digits)
	return strings.Join(digits, ".") + ".ip6.arpa."
}

// TestALongAnswerIsAskedForAgain has an answer of about 2,500 bytes.
func TestALongAnswerIsAskedForAgain(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	var values []string
	for i := range 10 {
		values = append(values, fmt.Sprintf("%q", strings.Repeat(fmt.Sprint(i), 250)))
	}
	set(t, p, "example.com", "long", "TXT", values...)
	set(t, p, "example.com", "medium", "TXT", values[:3]...)
	// No message holds this one.
	huge := `"` + strings.Repeat("x", 250) + `" `
	set(t, p, "example.com", "huge", "TXT", strings.Repeat(huge, 130), strings.Repeat(huge, 131), strings.Repeat(huge, 132))
	for _, c := range []struct {
		name, network string
		size          int
		want          string
		records       int
	}{
		{"long.example.com.", "udp", 0, "Success aa tc", 0}, {"long.example.com.", "udp", 4096, "Success aa tc", 0},
		{"medium.example.com.", "udp", 0, "Success aa tc", 0}, {"medium.example.com.", "udp", 4096, "Success aa", 3},
		{"medium.example.com.", "udp", 700, "Success aa tc", 0}, {"long.example.com.", "tcp", 0, "Success aa", 10},
		{"long.example.com.", "tcp", 512, "Success aa", 10}, {"huge.example.com.", "tcp", 0, "ServerFailure", 0},
		{"huge.example.com.", "udp", 0, "Success aa tc", 0},
	} {
		got := describe(t, exchange(t, s, c.network, query(t, c.name, dnsmessage.TypeTXT, c.size)))
		if got[0] != c.want || len(got) != 1+c.records {
			t.Errorf("%+v: %s and %d records", c, got[0], len(got)-1)
		}
	}
}

// TestOtherMessages has what is not a question for a name.
func TestOtherMessages(t *testing.T) {
	t.Parallel()
	s, _ := start(t)
	good := query(t, "www.example.com.", dnsmessage.TypeA, 1232)
	change := func(at int, to ...byte) []byte {
		m := slices.Clone(good)
		copy(m[at:], to)
		return m
	}
	version := slices.Clone(good)
	version[len(version)-5] = 1 // of the 8 bytes: extended code, version, flags, length
	for name, c := range map[string]struct {
		message []byte
		want    string // "" for no answer
	}{
		"empty": {nil, ""}, "a header's part": {good[:11], ""}, "an answer": {change(2, 0x80), ""},
		"no question": {change(4, 0, 0)[:12], "FormatError"}, "one of two questions": {change(4, 0, 2), "FormatError"},
		"two questions": {slices.Insert(change(4, 0, 2), 33, good[12:33]...), "FormatError"},
		"EDNS twice":    {append(change(10, 0, 2), good[33:]...), "FormatError"},
		"cut off":       {good[:20], "FormatError"}, "a pointer to itself": {change(12, 0xc0, 12), "FormatError"},
		"an update": {change(2, 5<<3), "NotImplemented"}, "class CH": {change(len("xxxxxxxxxxxx")+17+2, 0, 3), "Refused"},
		"a later EDNS": {version, "Success"},
	} {
		got := ""
		if answer := s.reply(c.message, true); answer != nil {
			got = describe(t, answer)[0]
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	var m dnsmessage.Message
	err := m.Unpack(s.reply(version, true))
	if err != nil || len(m.Additionals) != 1 || m.Additionals[0].Header.ExtendedRCode(0) != rcodeBadVersion {
		t.Errorf("a later EDNS: %v, %+v", err, m.Additionals)
	}
}

// TestConnectionsAreLimited has clients that ask nothing. One of them is a web page; each that ends makes room for another one.
func TestConnectionsAreLimited(t *testing.T) {
	t.Parallel()
	s, _ := start(t)
	dial := func() *net.TCPConn {
		conn, err := net.Dial("tcp", s.Address())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn.(*net.TCPConn)
	}
	var page *net.TCPConn
	for range maxConnections {
		page = dial()
	}
	await := func(n int) {
		for open := -1; open != n; time.Sleep(time.Millisecond) {
			s.mu.Lock()
			open = len(s.conns)
			s.mu.Unlock()
		}
	}
	await(maxConnections)
	if n, err := dial().Read(make([]byte, 1)); err == nil {
		t.Errorf("one connection too many reads %d bytes", n)
	}
	// The first two bytes are the length of a question. The rest does not come.
	_, _ = io.WriteString(page, "GET / HTTP/1.1\r\n\r\n")
	_ = page.CloseWrite()
	if text, err := io.ReadAll(page); err != nil || len(text) > 0 {
		t.Errorf("%q, %v", text, err)
	}
	await(maxConnections - 1)
	if got := describe(t, exchange(t, s, "tcp", query(t, "www.example.com.", dnsmessage.TypeA, 0)))[0]; got != "Success aa" {
		t.Error(got)
	}
}

// FuzzReply sends any bytes. The server does not crash, and each answer is a message of the right size.
func FuzzReply(f *testing.F) {
	s, _ := start(f)
	for _, name := range []string{"www.example.com.", "x.wild.example.com.", "sub.example.com.", "loop-1.example.com.", ".",
		"8.8.8.8.in-addr.arpa.", "1.0.0.0.ip6.arpa."} {
		f.Add(query(f, name, dnsmessage.TypeA, 1232), true)
		f.Add(query(f, name, dnsmessage.TypeALL, 0), false)
	}
	f.Add([]byte("\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c"), true)
	f.Fuzz(func(t *testing.T, message []byte, udp bool) {
		answer := s.reply(message, udp)
		if answer == nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(answer); err != nil || !m.Response || udp && len(answer) > maxUDP {
			t.Errorf("%d bytes, %v, %+v", len(answer), err, m.Header)
		}
	})
}
