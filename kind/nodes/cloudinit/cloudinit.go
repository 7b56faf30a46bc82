// Package cloudinit runs the parts of a server's user data that joining a cluster needs, at the first boot. [Compile] turns
// user data into one shell script that a node runs; nothing of cloud-init has to be installed there.
//
// Honoured:
//
//   - a script that begins with #!: the program that it names runs it
//   - #cloud-config with bootcmd, write_files (content, encoding, owner, permissions, append) and
//     runcmd, each command a text for sh or a list of words
//   - ## template: jinja before it, for variables alone: {{ ds.meta_data.local_hostname }},
//     {{ v1.region }} and their like, without filters and statements
//   - MIME multipart messages of such parts, as cloud-init's make-mime writes them
//
// The order is cloud-init's: bootcmd, write_files, then scripts, then runcmd. A command that fails
// does not keep the next from running. Their output is in /var/log/cloud-init-output.log, the user data and
// its scripts in /var/lib/cloud/instance. The file boot-finished there marks the end.
//
// Left out: every other module (packages, users, ssh_authorized_keys, ntp, …; Script.Notes names
// those that the user data has); that bootcmd runs at every boot, not just the first; the merging of keys that are in
// several parts (lists are appended); #include, boothooks, part handlers, compressed user data.
package cloudinit

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Instance has the server's data for user data, and the folders for its script.
type Instance struct {
	ID               int64
	Hostname         string
	AvailabilityZone string // the location and a number at Hetzner, such as fsn1-dc14
	Region           string // the network zone, such as eu-central
	// Dir is where user data and scripts are put. "" is /var/lib/cloud/instance.
	Dir string
	// Log is the file that output goes to. "" is /var/log/cloud-init-output.log.
	Log string
}

// Script is user data made ready.
type Script struct {
	// Text is for sh. It does its work once: run again on the same node it does nothing and
	// succeeds. It fails when something in it failed.
	Text []byte
	// Notes name the parts of the user data that are not honoured.
	Notes []string
}

// plan is the combined content of all parts of user data.
type plan struct {
	bootcmd, runcmd []command
	files           []file
	scripts         [][]byte
	notes           []string
}

// Compile makes a script of user data. It returns an error for user data that it cannot read. cloud-init would only log that.
func Compile(userData string, i Instance) (Script, error) {
	i.Dir, i.Log = cmp.Or(i.Dir, "/var/lib/cloud/instance"), cmp.Or(i.Log, "/var/log/cloud-init-output.log")
	var p plan
	if err := p.add(part{body: userData}, i); err != nil {
		return Script{}, fmt.Errorf("user data: %w", err)
	}
	return Script{Text: p.script(userData, i), Notes: p.notes}, nil
}

const (
	configHeader = "#cloud-config"
	jinjaHeader  = "## template: jinja"
)

// part is user data or a part of it.
type part struct {
	contentType string // "" where the first line says it
	body        string
}

func (p *plan) add(in part, i Instance) error {
	body := strings.TrimLeft(in.body, "\r\n")
	first, rest, _ := strings.Cut(body, "\n")
	first = strings.TrimSpace(first)
	switch {
	case strings.TrimSpace(body) == "":
		return nil
	case first == jinjaHeader:
		filled, err := i.fill(rest)
		if err != nil {
			return err
		}
		return p.add(part{body: filled}, i)
	case in.contentType == "text/x-shellscript" || in.contentType == "" && strings.HasPrefix(body, "#!"):
		p.scripts = append(p.scripts, []byte(body))
		return nil
	case in.contentType == "text/cloud-config" || in.contentType == "" && first == configHeader:
		return p.addConfig(body)
	case in.contentType == "" && isMessage(body):
		return p.addMessage(body, i)
	case in.contentType == "" || strings.HasPrefix(in.contentType, "text/plain"):
		return fmt.Errorf("its first line, %.60q, is neither #! nor %s nor the header of a MIME message", first, configHeader)
	}
	p.notes = append(p.notes, fmt.Sprintf("a part of type %.60q is left out", in.contentType))
	return nil
}

var variable = regexp.MustCompile(`\{\{-?\s*([a-zA-Z0-9_.-]+)\s*-?\}\}`)

// fill replaces a template's variables by their values.
func (i Instance) fill(template string) (string, error) {
	var unknown error
	out := variable.ReplaceAllStringFunc(template, func(m string) string {
		name := variable.FindStringSubmatch(m)[1]
		value, ok := i.variable(name)
		if !ok && unknown == nil {
			unknown = fmt.Errorf("template: there is no variable %.60q", name)
		}
		return value
	})
	if unknown != nil {
		return "", unknown
	}
	for _, sign := range []string{"{{", "{%", "{#"} {
		if at := strings.Index(out, sign); at >= 0 {
			line, _, _ := strings.Cut(out[at:], "\n")
			return "", fmt.Errorf("template: %.60q: variables are filled in, filters and statements are not known", line)
		}
	}
	return out, nil
}

func (i Instance) variable(name string) (string, bool) {
	name = strings.ReplaceAll(name, "-", "_")
	for _, prefix := range []string{"ds.meta_data.", "v1."} {
		name = strings.TrimPrefix(name, prefix)
	}
	switch name {
	case "local_hostname", "hostname":
		return i.Hostname, true
	case "instance_id":
		return strconv.FormatInt(i.ID, 10), true
	case "availability_zone":
		return i.AvailabilityZone, true
	case "region":
		return i.Region, true
	case "cloud_name", "platform", "cloud_id":
		return "hetzner", true
	}
	return "", false
}

// script writes everything as one script for sh.
func (p *plan) script(userData string, i Instance) []byte {
	var b bytes.Buffer
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Written by kind/nodes: user data of server %d, at its first boot.", i.ID)
	line("dir=%s log=%s failed=0", quote(i.Dir), quote(i.Log))
	line(`mkdir -p "$dir/scripts" "${log%%/*}" && mkdir "$dir/started" 2>/dev/null || exit 0`)
	line(`exec </dev/null >>"$log" 2>&1`)
	line(`cd /`)
	line(`fail() { echo "cloud-init: $1 failed"; failed=1; }`)
	line(`put() { mkdir -p "$(dirname "$1")" && printf %%s "$3" | base64 -d >"$1" && chmod "$2" "$1"; }`)
	line(`add() { mkdir -p "$(dirname "$1")" && printf %%s "$3" | base64 -d >>"$1" && chmod "$2" "$1"; }`)
	line(`put "$dir/user-data.txt" 600 %s || fail user-data`, encode([]byte(userData)))
	p.commands(line, "bootcmd", p.bootcmd)
	for _, f := range p.files {
		f.write(line)
	}
	for n, s := range p.scripts {
		name := fmt.Sprintf("part-%03d", n+1)
		line(`put "$dir/scripts/%s" 700 %s && "$dir/scripts/%[1]s" || fail %[1]s`, name, encode(s))
	}
	p.commands(line, "runcmd", p.runcmd)
	line(`: >"$dir/boot-finished"`)
	line(`exit $failed`)
	return b.Bytes()
}

// commands writes a list of commands as one script. The last command of the script says whether it failed.
func (p *plan) commands(line func(string, ...any), name string, commands []command) {
	if len(commands) == 0 {
		return
	}
	var script strings.Builder
	script.WriteString("#!/bin/sh\n")
	for _, c := range commands {
		script.WriteString(c.text + "\n")
	}
	line(`put "$dir/scripts/%s" 700 %s && "$dir/scripts/%[1]s" || fail %[1]s`, name, encode([]byte(script.String())))
}

// encode makes bytes a word for sh.
func encode(b []byte) string { return "'" + base64.StdEncoding.EncodeToString(b) + "'" }

// quote makes text one word for sh.
func quote(text string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=,@+", r)
	}
	if text != "" && !slices.ContainsFunc([]rune(text), func(r rune) bool { return !plain(r) }) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
