package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// The values of --shell.
const (
	shellPOSIX      = "sh"
	shellFish       = "fish"
	shellPowerShell = "powershell"
)

// export prints what to paste into a shell.
func (s *server) export(out io.Writer, shell string) error {
	var err error
	if shell == shellPOSIX || shell == "bash" || shell == "zsh" {
		_, err = fmt.Fprintf(out, "export HCLOUD_ENDPOINT=%s HCLOUD_TOKEN=%s\n", s.Endpoint, quote(s.Token))
		if s.CA != "" && err == nil {
			_, err = fmt.Fprintf(out, "export SSL_CERT_FILE=%s\n", quote(s.CA))
		}
	} else {
		set := [][2]string{{"HCLOUD_ENDPOINT", s.Endpoint}, {"HCLOUD_TOKEN", s.Token}}
		if s.CA != "" {
			set = append(set, [2]string{"SSL_CERT_FILE", s.CA})
		}
		err = exportAll(out, shell, set, nil)
	}
	if s.Control != "" && err == nil {
		_, err = fmt.Fprintf(out, "%s%s\n", controlLine, s.Control)
	}
	return err
}

// exportDoor prints lines for a shell with programs that know only api.hetzner.cloud.
func (s *server) exportDoor(out io.Writer, shell string, lookup func(string) (string, bool)) error {
	if s.Door == nil {
		return errors.New("--as-hetzner: the server has no proxy; start it with fakecloud start --proxy 127.0.0.1:4245")
	}
	s.Door.Token = s.Token
	set, remove := s.Door.Variables(func(name string) string { v, _ := lookup(name); return v })
	return exportAll(out, shell, set, remove)
}

// controlLine begins the last line that a server with a control API prints. Its page has the same address.
const controlLine = "# the page, for a browser, and the control API, for curl: "

// exportAll prints the lines that set and remove variables.
func exportAll(out io.Writer, shell string, set [][2]string, remove []string) error {
	var form, removal string
	escape := quote
	switch shell {
	case shellPOSIX, "bash", "zsh":
		form, removal = "export %s=%s\n", "unset %s\n"
	case shellFish:
		form, removal, escape = "set -gx %s '%s'\n", "set -e %s\n", strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace
	case shellPowerShell:
		form, removal, escape = "$env:%s = '%s'\n", "Remove-Item -ErrorAction Ignore Env:%s\n", strings.NewReplacer(`'`, `''`).Replace
	default:
		return wrongUsage(fmt.Errorf("--shell %q: must be one of sh, bash, zsh, %s, %s", shell, shellFish, shellPowerShell))
	}
	var text strings.Builder
	for _, name := range remove {
		fmt.Fprintf(&text, removal, name)
	}
	for _, v := range set {
		fmt.Fprintf(&text, form, v[0], escape(v[1]))
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// quote returns a text quoted for a shell, if it has to be.
func quote(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !strings.ContainsRune("/._-+=:,@%", r) && !letterOrDigit(r) }) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func letterOrDigit(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}

// looksReal reports whether a token looks like one of the real cloud.
func looksReal(token string) bool {
	return len(token) == len(fakecloud.DefaultToken) && token != fakecloud.DefaultToken &&
		!strings.ContainsFunc(token, func(r rune) bool { return !letterOrDigit(r) })
}

// warnRealToken warns if the environment has what looks like a token of the real cloud, and says what that means.
func (s *server) warnRealToken(w io.Writer, lookup func(string) (string, bool), means string) {
	if token, _ := lookup("HCLOUD_TOKEN"); looksReal(token) && token != s.Token {
		fmt.Fprintln(w, "fakecloud: warning: HCLOUD_TOKEN looks like a token of the real cloud.", means)
	}
}

const replacedToken = "The lines for the shell replace it, but what runs without them, and has this token, talks to the real cloud, and " +
	"so does a program that ignores HCLOUD_ENDPOINT. Unset the token first."
