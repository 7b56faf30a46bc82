package dns

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/dns"
)

// kinds are the numbers of the types of records.
var kinds = map[string]dnsmessage.Type{
	"A": dnsmessage.TypeA, "AAAA": dnsmessage.TypeAAAA, "CAA": 257, "CNAME": dnsmessage.TypeCNAME, "DS": 43,
	"HINFO": dnsmessage.TypeHINFO, "HTTPS": dnsmessage.TypeHTTPS, "MX": dnsmessage.TypeMX, "NS": dnsmessage.TypeNS,
	"PTR": dnsmessage.TypePTR, "RP": 17, "SOA": dnsmessage.TypeSOA, "SRV": dnsmessage.TypeSRV, "SVCB": dnsmessage.TypeSVCB, "TLSA": 52,
	"TXT": dnsmessage.TypeTXT,
}

// encode returns the data of a record in the form of messages. value is what the API has, and was checked there, except for parameters.
func encode(kind, value, zone string) (data []byte, err error) {
	fields, problem := dns.SplitRecord(value)
	if problem != "" {
		return nil, errors.New(problem)
	}
	forms := dns.RData[kind]
	values := map[int][]byte{} // of parameters, by key
	for i, f := range fields {
		form := forms[min(i, len(forms)-1)]
		if form == "..." {
			form = forms[len(forms)-2]
		}
		switch {
		case form == "param":
			err = addParam(values, f)
		case form == "text" && kind == "CAA": // is the rest of the data (RFC 8659, section 4.1)
			data, err = appendField(data, "bytes", f, zone)
		default:
			data, err = appendField(data, form, f, zone)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(values)) { // RFC 9460, section 2.2
		data = append16(append16(data, key), len(values[key])) // if it is too long, the record is too long for a message
		data = append(data, values[key]...)
	}
	return data, nil
}

func append16(data []byte, n int) []byte { return binary.BigEndian.AppendUint16(data, uint16(n)) } //nolint:gosec // see the callers

// appendField appends a field in the form of messages.
func appendField(data []byte, form, f, zone string) ([]byte, error) {
	switch form {
	case "uint8", "uint16", "uint32":
		bits, _ := strconv.Atoi(form[len("uint"):])
		n, err := strconv.ParseUint(f, 10, bits)
		return append(data, binary.BigEndian.AppendUint32(nil, uint32(n))[4-bits/8:]...), err
	case "ipv4", "ipv6":
		a, err := netip.ParseAddr(f)
		if err == nil && a.Is4() != (form == "ipv4") {
			err = fmt.Errorf("%v is not an address of the type %s", a, form)
		}
		return append(data, a.AsSlice()...), err
	case "host":
		return appendName(data, absolute(f, zone))
	case "hex":
		digest, err := hex.DecodeString(f)
		return append(data, digest...), err
	case "base64":
		text, err := base64.StdEncoding.DecodeString(f)
		return append(data, text...), err
	case "key":
		if key := paramKey(f); key >= 0 {
			return append16(data, key), nil
		}
		return nil, fmt.Errorf("parameter %.64q is not known", f)
	case "tag", "quoted", "text":
		text := unquote(f)
		if len(text) > 255 {
			return nil, fmt.Errorf("a text has %d bytes", len(text))
		}
		data = append(data, byte(len(text)))
	}
	return append(data, unquote(f)...), nil
}

// unquote returns a text without its quotes and escapes (RFC 1035, section 5.1).
func unquote(f string) (text []byte) {
	if len(f) >= 2 && f[0] == '"' && f[len(f)-1] == '"' {
		f = f[1 : len(f)-1]
	}
	for i := 0; i < len(f); i++ {
		if f[i] != '\\' || i+1 == len(f) {
			text = append(text, f[i])
			continue
		}
		if i+3 < len(f) {
			if n, err := strconv.ParseUint(f[i+1:i+4], 10, 8); err == nil {
				text = append(text, byte(n))
				i += 3
				continue
			}
		}
		i++
		text = append(text, f[i])
	}
	return text
}

// absolute returns a name of a record's value with its zone and a dot at the end.
func absolute(name, zone string) string {
	switch {
	case name == "@":
		return zone + "."
	case strings.HasSuffix(name, "."):
		return name
	}
	return name + "." + zone + "."
}

// appendName appends a name in the form of messages, without compression: not all types allow it.
func appendName(b []byte, name string) ([]byte, error) {
	start := len(b)
	for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		switch {
		case label == "" && name != ".", len(label) > 63:
			return nil, fmt.Errorf("name %.64q has a label of %d bytes", name, len(label))
		case label != "":
			b = append(append(b, byte(len(label))), label...)
		}
	}
	if b = append(b, 0); len(b)-start > 255 {
		return nil, fmt.Errorf("name %.64q has more than 255 bytes", name)
	}
	return b, nil
}

// params are the parameters of SVCB and HTTPS records, by key, and the form of each part of their values (RFC 9460, sections 7 and 14.3.2;
// RFC 9461).
var params = []struct{ name, form string }{
	{"mandatory", "key"}, {"alpn", "text"}, {"no-default-alpn", "bytes"}, {"port", "uint16"}, {"ipv4hint", "ipv4"}, {"ech", "base64"},
	{"ipv6hint", "ipv6"}, {"dohpath", "bytes"},
}

// paramKey returns the key of a parameter, or -1.
func paramKey(name string) int {
	for key, p := range params {
		if p.name == name {
			return key
		}
	}
	number, ok := strings.CutPrefix(name, "key")
	if n, err := strconv.ParseUint(number, 10, 16); ok && err == nil {
		return int(n) //nolint:gosec // has 16 bits
	}
	return -1
}

// addParam adds the value of a parameter of an SVCB or HTTPS record.
func addParam(values map[int][]byte, text string) error {
	name, text, _ := strings.Cut(text, "=")
	text = string(unquote(text))
	key := paramKey(name)
	if _, twice := values[key]; twice || key < 0 {
		return fmt.Errorf("parameter %.64q is there twice, or is not known", name)
	}
	form, parts := "bytes", []string{text}
	if key < len(params) && params[key].form != form {
		form, parts = params[key].form, strings.Split(text, ",")
	}
	if form == "key" {
		slices.SortFunc(parts, func(a, b string) int { return paramKey(a) - paramKey(b) })
	}
	values[key] = []byte{}
	for _, part := range parts {
		var err error
		if values[key], err = appendField(values[key], form, part, ""); err != nil {
			return fmt.Errorf("parameter %s: %w", name, err)
		}
	}
	return nil
}
