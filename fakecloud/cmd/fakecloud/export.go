package main

import (
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
	switch shell {
	case shellPOSIX, "bash", "zsh":
		_, err = fmt.Fprintf(out, "export HCLOUD_ENDPOINT=%s HCLOUD_TOKEN=%s\n", s.Endpoint, quote(s.Token))
		if s.CA != "" && err == nil {
			_, err = fmt.Fprintf(out, "export SSL_CERT_FILE=%s\n", quote(s.CA))
		}
	case shellFish:
		escaped := strings.NewReplacer(`\`, `\\`, `'`, `\'`)
		err = s.exportEach(out, "set -gx %s '%s'\n", escaped)
	case shellPowerShell:
		err = s.exportEach(out, "$env:%s = '%s'\n", strings.NewReplacer(`'`, `''`))
	default:
		return wrongUsage(fmt.Errorf("--shell %q: must be one of sh, bash, zsh, %s, %s", shell, shellFish, shellPowerShell))
	}
	if s.Control != "" && err == nil {
		_, err = fmt.Fprintf(out, "%s%s\n", controlLine, s.Control)
	}
	return err
}

// controlLine begins the last line that a server with a control API prints. Its page has the same address.
const controlLine = "# the page, for a browser, and the control API, for curl: "

// exportEach prints a line for each variable.
func (s *server) exportEach(out io.Writer, format string, escape *strings.Replacer) error {
	for _, v := range [][2]string{{"HCLOUD_ENDPOINT", s.Endpoint}, {"HCLOUD_TOKEN", s.Token}, {"SSL_CERT_FILE", s.CA}} {
		if v[1] == "" {
			continue
		}
		if _, err := fmt.Fprintf(out, format, v[0], escape.Replace(v[1])); err != nil {
			return err
		}
	}
	return nil
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

// warnRealToken warns if the environment has what looks like a token of the real cloud, which the lines of export replace.
func (s *server) warnRealToken(w io.Writer, lookup func(string) (string, bool)) {
	if token, _ := lookup("HCLOUD_TOKEN"); !looksReal(token) || token == s.Token {
		return
	}
	fmt.Fprintln(w, "fakecloud: warning: HCLOUD_TOKEN looks like a token of the real cloud. The lines for the shell replace it, but "+
		"what runs without them, and has this token, talks to the real cloud, and so does a program that ignores HCLOUD_ENDPOINT. "+
		"Unset the token first.")
}
