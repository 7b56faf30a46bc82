package main

import (
	"encoding/json"
	"testing"

	"github.com/spf13/pflag"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
)

// FuzzAFlagWinsOverJSON checks that no text of a rule crashes the program, and that a flag that was given stays.
func FuzzAFlagWinsOverJSON(f *testing.F) {
	f.Add(`{"name": "b", "first": 1, "effect": {"kind": "drop", "latency": "2s"}}`)
	f.Add(`{"name": null} {}`)
	f.Add(`[`)
	f.Fuzz(func(t *testing.T, text string) {
		var rule fault.Rule
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		addRule(flags, &rule)
		check(t, flags.Parse([]string{"--name=a", "--latency=3s"}))
		if err := readRule(text, &rule, flags); err != nil {
			return
		}
		if rule.Name != "a" || rule.Effect.Latency != fault.Duration(3e9) {
			t.Errorf("%s: %+v", text, rule)
		}
		if _, err := json.Marshal(rule); err != nil {
			t.Error(err)
		}
	})
}
