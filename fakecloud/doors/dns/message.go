package dns

import (
	"errors"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	minUDP = 512  // bytes of a message over UDP without EDNS (RFC 1035, section 4.2.1)
	maxUDP = 1232 // is not fragmented by any network (DNS flag day 2020)

	rcodeBadVersion dnsmessage.RCode = 16        // of a question with a later version of EDNS (RFC 6891, section 9)
	noAnswer        dnsmessage.RCode = 1<<16 - 1 // of a message that gets no answer
)

// request is a question as it came.
type request struct {
	header   dnsmessage.Header
	question dnsmessage.Question
	edns     bool
	size     int // of the largest answer over UDP
}

// parse reads a message. The code is RCodeSuccess if it is a question.
func parse(message []byte) (q request, code dnsmessage.RCode) {
	var p dnsmessage.Parser
	var err error
	q.size = minUDP
	if q.header, err = p.Start(message); err != nil || q.header.Response {
		return q, noAnswer
	}
	if q.header.OpCode != 0 {
		return q, dnsmessage.RCodeNotImplemented
	}
	question, err := p.Question()
	if _, more := p.Question(); err != nil || !errors.Is(more, dnsmessage.ErrSectionDone) ||
		errors.Join(p.SkipAllAnswers(), p.SkipAllAuthorities()) != nil {
		return q, dnsmessage.RCodeFormatError
	}
	for {
		h, err := p.AdditionalHeader()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			q.question = question
			return q, dnsmessage.RCodeSuccess
		}
		if err != nil || p.SkipAdditional() != nil || h.Type == dnsmessage.TypeOPT && q.edns { // RFC 6891, section 6.1.1
			return q, dnsmessage.RCodeFormatError
		}
		if h.Type == dnsmessage.TypeOPT {
			q.edns, q.size = true, min(max(int(h.Class), minUDP), maxUDP)
			if h.TTL>>16&0xff != 0 {
				return q, rcodeBadVersion
			}
		}
	}
}

// reply returns the answer to a message, or nil if it gets none. Over UDP, an answer that is too long is empty and says so: the client
// asks again over TCP.
func (s *Server) reply(message []byte, udp bool) []byte {
	q, code := parse(message)
	switch code {
	case noAnswer:
		return nil
	case dnsmessage.RCodeSuccess:
	default:
		return q.pack(answer{rcode: code}, false)
	}
	a := s.resolve(q.question)
	packed := q.pack(a, false)
	switch {
	case udp && len(packed) > q.size:
		return q.pack(answer{rcode: a.rcode, authoritative: a.authoritative}, true)
	case packed == nil || len(packed) > maxMessage:
		return q.pack(answer{rcode: dnsmessage.RCodeServerFailure}, false)
	}
	return packed
}

// pack returns a message, or nil if the answer does not fit into any.
func (q *request) pack(a answer, truncated bool) []byte {
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{
		ID: q.header.ID, Response: true, OpCode: q.header.OpCode, Authoritative: a.authoritative, Truncated: truncated,
		RecursionDesired: q.header.RecursionDesired, RCode: a.rcode & 0xf,
	})
	b.EnableCompression()
	errs := []error{b.StartQuestions()}
	if q.question.Name.Length > 0 {
		errs = append(errs, b.Question(q.question))
	}
	add := func(records []record) {
		for _, r := range records {
			name, err := dnsmessage.NewName(r.name)
			errs = append(errs, err, b.UnknownResource(dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET, TTL: r.ttl},
				dnsmessage.UnknownResource{Type: r.kind, Data: r.data}))
		}
	}
	errs = append(errs, b.StartAnswers())
	add(a.answers)
	errs = append(errs, b.StartAuthorities())
	add(a.authorities)
	errs = append(errs, b.StartAdditionals())
	add(a.additionals)
	if q.edns {
		var h dnsmessage.ResourceHeader
		errs = append(errs, h.SetEDNS0(maxUDP, a.rcode, false), b.OPTResource(h, dnsmessage.OPTResource{}))
	}
	packed, err := b.Finish()
	if errors.Join(append(errs, err)...) != nil {
		return nil
	}
	return packed
}
