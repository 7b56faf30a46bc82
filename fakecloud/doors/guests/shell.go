package guests

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits of a session.
const (
	maxScripts   = 8       // that run each other
	maxCommands  = 100_000 // of a session
	maxText      = 1 << 20 // of a script
	maxVariables = 256     // of a session
	maxValue     = 32 << 10
)

// process runs the commands of a session, and of the scripts that they run: those share the variables.
type process struct {
	ctx      context.Context //nolint:containedctx // it ends with the client or with the guest
	door     *Door
	guest    *guest
	run      *run
	env      map[string]string
	in       io.Reader
	out, err io.Writer
	status   int // of the last command
	scripts  int // that run now
	commands int
	errexit  bool
	stop     bool   // the script or the shell ends
	power    string // reboot or poweroff, as soon as the client has the answer
}

// line runs a line of a client, and logs it.
func (p *process) line(kind, text string) {
	rule := answer(p.door.o.Rules, p.run.name, text)
	if rule != nil {
		p.follow(rule)
	} else {
		p.list(text)
	}
	p.log(kind, text, p.status, rule != nil)
}

// log adds an entry to the log of the door.
func (p *process) log(kind, text string, status int, rule bool) {
	p.door.add(Entry{Time: p.door.core.Now(), Server: p.guest.id, Name: p.run.name, Kind: kind,
		Command: p.door.core.WithoutTokens(text), ExitCode: status, Rule: rule})
}

// follow answers as a rule says.
func (p *process) follow(r *Rule) {
	p.status = r.ExitCode
	if r.Delay > 0 {
		timer := p.door.core.Clock().NewTimer(time.Duration(r.Delay))
		defer timer.Stop()
		select {
		case <-timer.C():
		case <-p.ctx.Done():
			p.status = 255
			return
		}
	}
	_, _ = io.WriteString(p.out, r.Output) // the client may be gone
	_, _ = io.WriteString(p.err, r.Stderr)
}

// list runs commands with the operators between them.
func (p *process) list(text string) {
	whole := strings.TrimSpace(text)
	for operator := ";"; text != "" && p.ctx.Err() == nil && !p.stop && p.power == ""; {
		p.env["?"] = strconv.Itoa(p.status)
		c, rest, err := parse(text, p.env)
		if p.commands++; err == nil && p.commands > maxCommands {
			err = fmt.Errorf("a session has at most %d commands", maxCommands)
		}
		if err != nil {
			p.stop = p.scripts > 0
			p.complain(127, "%.200s: fakecloud runs no shell: %v; let a rule of --guests-rules answer", strings.TrimSpace(text), err)
			return
		}
		if len(c.words) > 0 && (operator == ";" || (operator == "&&") == (p.status == 0)) {
			p.simple(c, p.scripts > 0 || c.text != whole)
			p.stop = p.stop || p.errexit && p.status != 0 && c.end != "&&" && c.end != "||"
		}
		text, operator = rest, c.end
	}
}

// simple runs one command. apart is set if it is not a whole line, for which there was no rule.
func (p *process) simple(c simple, apart bool) {
	for p.status = 0; len(c.words) > 0; c.words = c.words[1:] {
		if !p.set(c.words[0]) {
			break
		}
	}
	var rule *Rule
	if apart {
		rule = answer(p.door.o.Rules, p.run.name, c.text)
	}
	switch {
	case rule != nil:
		p.follow(rule)
	case len(c.words) > 0:
		p.execute(c.words)
	}
	if p.scripts > 0 {
		p.log("script", c.text, p.status, rule != nil)
	}
}

// set sets a variable, and returns false if a word does not say so.
func (p *process) set(word string) bool {
	v := assignment.FindStringSubmatch(word)
	if v == nil {
		return false
	}
	if _, ok := p.env[v[1]]; (ok || len(p.env) < maxVariables) && len(word) < maxValue {
		p.env[v[1]] = v[2]
	}
	return true
}

// complain sets the status, and writes a line to the error output.
func (p *process) complain(status int, format string, a ...any) {
	p.status = status
	fmt.Fprintf(p.err, "bash: "+format+"\n", a...)
}

// check says why a command could not do something to a file, in the words of the system.
func (p *process) check(command, name string, err error) {
	if err != nil {
		p.status = 1
		fmt.Fprintf(p.err, "%s: %s: %s\n", command, name, capital(err))
	}
}

func capital(err error) string { return strings.ToUpper(err.Error()[:1]) + err.Error()[1:] }

// execute runs a command that the guest answers by itself, or a script.
func (p *process) execute(words []string) {
	name := words[0]
	if dir, base := path.Split(name); strings.HasSuffix(dir, "bin/") {
		name = base
	}
	if p.builtin(name, words[1:]) {
		return
	}
	switch i, err := p.run.disk.stat(name); {
	case !strings.Contains(name, "/") || err != nil:
		p.complain(127, "%s: command not found (fakecloud runs nothing: let a rule of --guests-rules answer)", name)
	case i.IsDir() || i.Mode()&0o111 == 0:
		p.complain(126, "%s: Permission denied", name)
	default:
		p.script(name)
	}
}

// script runs the commands of a file.
func (p *process) script(name string) {
	text, err := p.run.disk.read(name)
	if p.check("bash", name, err); err == nil {
		first, _, _ := strings.Cut(string(text), "\n")
		p.sub(string(text), strings.HasPrefix(first, "#!") && strings.HasSuffix(first, " -e"))
	}
}

// sub runs the commands of a script.
func (p *process) sub(text string, errexit bool) {
	if p.scripts == maxScripts || len(text) > maxText {
		p.complain(126, "at most %d scripts of %d bytes run each other", maxScripts, maxText)
		return
	}
	before := p.errexit
	p.scripts++
	p.status, p.errexit = 0, errexit
	p.list(text)
	p.scripts--
	p.stop, p.errexit = false, before
}

// builtin runs a command that needs no rule. It returns false if there is no such command.
func (p *process) builtin(name string, args []string) bool {
	p.status = 0
	switch name {
	case "true", ":":
	case "false":
		p.status = 1
	case "export":
		for _, a := range args {
			p.set(a)
		}
	case "exit":
		p.stop = true
		n, _ := strconv.Atoi(strings.Join(args, ""))
		p.status = n & 0xff
	case "sh", "bash":
		p.shell(args)
	case "echo":
		fmt.Fprintln(p.out, strings.Join(args, " "))
	case "env":
		for _, name := range slices.Sorted(maps.Keys(p.env)) {
			if name != "?" {
				fmt.Fprintf(p.out, "%s=%s\n", name, p.env[name])
			}
		}
	case "cat":
		p.cat(args)
	case "hostname":
		p.cat([]string{"/etc/hostname"})
	case "uname":
		p.uname(strings.Join(args, ""))
	case "cloud-init": // there is nothing to wait for: a guest runs no user data
		fmt.Fprintln(p.out, "status: done")
	case "chmod":
		p.chmod(args)
	case "rm":
		for _, name := range args {
			if err := p.run.disk.remove(name); args[0] != "-f" {
				p.check("rm", name, err)
			}
		}
	case "scp":
		p.scp(args)
	case "reboot", "poweroff", "halt", "shutdown": // at once, whatever the arguments say
		p.power = "poweroff"
		if name == "reboot" || slices.Contains(args, "-r") {
			p.power = "reboot"
		}
	default:
		return false
	}
	return true
}

// shell runs -c COMMAND, a file, or the commands of the input.
func (p *process) shell(args []string) {
	errexit := len(args) > 0 && strings.HasPrefix(args[0], "-") && strings.Contains(args[0], "e")
	switch {
	case len(args) > 1 && strings.HasPrefix(args[0], "-") && strings.HasSuffix(args[0], "c"):
		p.sub(args[1], errexit)
	case len(args) > 0 && !strings.HasPrefix(args[0], "-"):
		p.script(args[0])
	default:
		text, _ := io.ReadAll(io.LimitReader(p.in, maxText+1))
		p.sub(string(text), errexit)
	}
}

// cat prints files, or the input.
func (p *process) cat(names []string) {
	if len(names) == 0 {
		_, _ = io.Copy(p.out, p.in)
	}
	for _, name := range names {
		text, err := p.run.disk.read(name)
		p.check("cat", name, err)
		_, _ = p.out.Write(text)
	}
}

// uname answers as a Linux does, with a version that is made up.
func (p *process) uname(letters string) {
	machine := "x86_64"
	if p.run.architecture == "arm" {
		machine = "aarch64"
	}
	var out []string
	for i, part := range []string{"Linux", p.run.name, "6.12.0-fakecloud", "#1 SMP", machine, "GNU/Linux"} {
		if strings.ContainsAny(letters, "a"+"snrvmo"[i:i+1]) || i == 0 && letters == "" {
			out = append(out, part)
		}
	}
	fmt.Fprintln(p.out, strings.Join(out, " "))
}

// chmod takes modes such as 0755. Any other, such as +x, is 0755.
func (p *process) chmod(args []string) {
	for i, name := range args {
		mode, err := strconv.ParseUint(args[0], 8, 12)
		if err != nil {
			mode = 0o755
		}
		if i > 0 {
			p.check("chmod", name, p.run.disk.chmod(name, fs.FileMode(mode)))
		}
	}
}
