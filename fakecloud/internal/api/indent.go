package api

import (
	"bytes"
	"strings"
)

// The real API indents its answers, and scripts cut values out of their lines. Each level has two spaces (jenkinsci/hetzner-cloud-plugin
// issue 21, testflows/TestFlows-GitHub-Hetzner-Runners issue 31), or four in answers about networks and zones (vitobotta/hetzner-k3s
// issue 426, opnsense/plugins issue 5243). Events have JSON without spaces. A resource is indented once for all answers about it.

// refusesServer reports whether the answer is an error about the creation of a server, which has a form of its own: hetzner-k3s issue 681,
// Cyclenerd/hcloud-github-runner issue 22, frappe/press issue 5857.
func (r *Request) refusesServer() bool {
	return r.ErrorCode != "" && r.Route.OperationID == "create_server"
}

// level returns how many spaces each level of the answer has.
func (r *Request) level() int {
	if r.refusesServer() {
		return 1
	}
	if p := r.Route.Pattern; strings.HasPrefix(p, "/networks") || strings.HasPrefix(p, "/zones") {
		return 4
	}
	return 2
}

// appendLine appends a line break and the spaces before the text of the next line.
func appendLine(b []byte, spaces int) []byte {
	const most = "\n                                                                "
	b = append(b, most[:1+min(spaces, len(most)-1)]...)
	for range spaces - (len(most) - 1) {
		b = append(b, ' ')
	}
	return b
}

// appendIndented appends valid JSON without spaces, indented. spaces is how many there are before the first line of the JSON.
func appendIndented(b, compact []byte, spaces, level int) []byte {
	start := 0
	for i := 0; i < len(compact); i++ {
		switch c := compact[i]; c {
		case '"':
			for i++; compact[i] != '"'; i++ {
				if compact[i] == '\\' {
					i++
				}
			}
		case ':':
			b = append(append(b, compact[start:i+1]...), ' ')
			start = i + 1
		case '{', '[':
			if compact[i+1] == c+2 { // the end of an empty object or list
				i++
				continue
			}
			spaces += level
			fallthrough
		case ',':
			b = appendLine(append(b, compact[start:i+1]...), spaces)
			start = i + 1
		case '}', ']':
			spaces -= level
			b = appendLine(append(b, compact[start:i]...), spaces)
			start = i
		}
	}
	return append(b, compact[start:]...)
}

// appendShifted appends indented JSON with more spaces at the start of each line but the first. A text in JSON has no line break.
func appendShifted(b, indented []byte, spaces int) []byte {
	for {
		end := bytes.IndexByte(indented, '\n')
		if end < 0 {
			return append(b, indented...)
		}
		b = appendLine(append(b, indented[:end]...), spaces)
		indented = indented[end+1:]
	}
}

// member returns what a function appends, indented as a member of an answer. The function appends JSON without spaces.
func (r *Request) member(appendTo func(b []byte) []byte) []byte {
	level := r.level()
	return collect(func(b []byte) []byte { return appendAsMember(b, appendTo, level) })
}

// value returns a value of this program as member does.
func (r *Request) value(v any) []byte { return r.member(compact(marshal(v)).appendJSON) }

// appendAsMember appends what a function appends, indented as a member of an answer.
func appendAsMember(b []byte, appendTo func(b []byte) []byte, level int) []byte {
	buffer := bodies.Get().(*[]byte)
	compact := appendTo((*buffer)[:0])
	b = appendIndented(b, compact, level, level)
	keepBody(buffer, compact)
	return b
}

// compact is JSON without spaces.
type compact []byte

func (c compact) appendJSON(b []byte) []byte { return append(b, c...) }
