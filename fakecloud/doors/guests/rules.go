package guests

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
)

// Limits of rules.
const (
	maxRules     = 1000
	maxRulesText = 1 << 20
	maxDelay     = time.Hour
)

// Rule says what a command answers. The first rule that matches a line, or one of its commands, answers instead of the guest.
type Rule struct {
	// Match is a regular expression that a part of the command has to match. Write ^apt-get to mean its beginning.
	Match string `yaml:"match"`
	// Server is a regular expression for the server's name. "" means all servers.
	Server   string `yaml:"server"`
	Output   string `yaml:"output"`
	Stderr   string `yaml:"stderr"`
	ExitCode int    `yaml:"exit_code"`
	// Delay is how long the command takes, on the cloud's clock.
	Delay fault.Duration `yaml:"delay"`

	match, server *regexp.Regexp
}

// ParseRules reads rules from YAML, at most 1 MiB:
//
//   - match: ^nginx -v$
//     stderr: "nginx version: nginx/1.26.3\n"
//   - match: ^apt-get install
//     server: ^web-
//     delay: 20s
//     exit_code: 100
func ParseRules(text []byte) ([]Rule, error) {
	if len(text) > maxRulesText {
		return nil, fmt.Errorf("rules: %d bytes are more than %d; shorten them", len(text), maxRulesText)
	}
	var rules []Rule
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&rules); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("rules: %w; write a list of match, server, output, stderr, exit_code and delay", err)
	}
	return rules, compile(rules)
}

// compile checks rules, and makes them ready to match.
func compile(rules []Rule) (err error) {
	if len(rules) > maxRules {
		return fmt.Errorf("rules: %d are more than %d; remove some", len(rules), maxRules)
	}
	for i := range rules {
		r := &rules[i]
		if r.match, err = regexp.Compile(r.Match); err == nil {
			r.server, err = regexp.Compile(r.Server)
		}
		switch {
		case err != nil:
			return fmt.Errorf("rule %d: %w; see https://pkg.go.dev/regexp/syntax", i+1, err)
		case r.Match == "":
			return fmt.Errorf("rule %d: match is missing; write a regular expression for the command", i+1)
		case r.ExitCode < 0 || r.ExitCode > 255:
			return fmt.Errorf("rule %d: exit_code %d: must be 0 to 255", i+1, r.ExitCode)
		case r.Delay < 0 || time.Duration(r.Delay) > maxDelay:
			return fmt.Errorf("rule %d: delay %v: must be 0 to %v", i+1, time.Duration(r.Delay), maxDelay)
		}
	}
	return nil
}

// answer returns the rule for a command on a server, or nil.
func answer(rules []Rule, server, command string) *Rule {
	for i := range rules {
		if rules[i].match.MatchString(command) && rules[i].server.MatchString(server) {
			return &rules[i]
		}
	}
	return nil
}
