package dns

import (
	"strings"
	"testing"
)

func texts(octet string, n int) string { return `"` + strings.Repeat(octet, n) + `"` }

func TestValuesOfRecords(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ kind, value, want string }{ // want is "" if the value is wrong, or "!" and why
		{"A", "198.51.100.1", "198.51.100.1"}, {"A", "2001:db8::1", ""}, {"A", "198.51.100", ""}, {"A", "", ""},
		{"A", "198.51.100.1 198.51.100.2", ""}, {"AAAA", "2001:0DB8:0::1", "2001:db8::1"}, {"AAAA", "198.51.100.1", ""},
		{"AAAA", "fe80::1%eth0", ""}, {"CAA", `0 issue "ca.example.net"`, `0 issue "ca.example.net"`}, {"CAA", `256 issue "x"`, ""},
		{"CAA", "0 issue", ""}, {"CNAME", "www", "www"}, {"CNAME", "www.example.net.", "www.example.net."}, {"CNAME", "@", "@"},
		{"CNAME", "a..b", ""}, {"CNAME", "a b", ""}, {"DS", "1 13 2 abcd", "1 13 2 abcd"}, {"DS", "1 13 2 xyz", ""},
		{"HINFO", `"PC" "Linux"`, `"PC" "Linux"`}, {"HTTPS", "1 . alpn=h2,h3 ech", "1 . alpn=h2,h3 ech"}, {"HTTPS", "1 .", "1 ."},
		{"HTTPS", "1", ""}, {"SVCB", "0 svc.example.net.", "0 svc.example.net."}, {"MX", "010   mail", "10 mail"}, {"MX", "mail", ""},
		{"MX", "65536 mail", ""}, {"NS", "ns.example.net.", "ns.example.net."}, {"PTR", "host", "host"},
		{"RP", "admin.example.net. .", "admin.example.net. ."}, {"SRV", "0 5 5060 sip", "0 5 5060 sip"}, {"SRV", "0 5 sip", ""},
		{"SOA", "ns. mail. 1 2 3 4 5", "ns. mail. 1 2 3 4 5"}, {"SOA", "ns. mail. 1 2 3 4", ""}, {"TLSA", "3 1 1 abcd", "3 1 1 abcd"},
		{"TLSA", "3 1 1", ""}, {"TXT", `"a b" "c;d"`, `"a b" "c;d"`}, {"TXT", `"say \"a\""`, `"say \"a\""`}, {"TXT", `"open`, ""},
		{"TXT", "\"two\nlines\"", ""}, {"TXT", "bare", "!TXT records must be fully escaped with double quotes"}, {"TXT", `"a"b`, ""},
		{"TXT", `"a"b"`, ""}, {"TXT", texts(`\195`, 255), texts(`\195`, 255)}, {"TXT", texts("x", 255), texts("x", 255)},
		{"TXT", texts("x", 256), "!a TXT string exceeds 255 characters"}, {"TXT", texts(`\"`, 255), texts(`\"`, 255)},
		{"TXT", texts(`\\`, 256), ""}, {"HINFO", texts(`\"`, 255) + " x", texts(`\"`, 255) + " x"}, {"HINFO", texts(`x`, 256) + " x", ""},
	} {
		got, problem := Canonical(tc.kind, tc.value)
		if tc.want == "" && problem == "" || tc.want != "" && strings.TrimSuffix(got+"!"+problem, "!") != tc.want {
			t.Errorf("%s %q: %q, problem %q, want %q", tc.kind, tc.value, got, problem, tc.want)
		}
	}
}
