package cloud

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

var update = flag.Bool("update", false, "write the page of actions instead of comparing it")

// actionsPage is made of the table of commands.
const actionsPage = "../../ACTIONS.md"

func TestThePageOfActionsIsTheTableOfCommands(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("# The actions of fakecloud\n\n" +
		"What each action locks, how long it takes with the profile `realistic`, and what it does. A test makes this page of the\n" +
		"table `commands` ([commands.go](internal/cloud/commands.go)): `make actions`. Where no source stands, the API document says\n" +
		"so. Durations are rounded observations of users.\n\n" +
		"| command | locks | shows, too | takes | effect |\n|---|---|---|--:|---|\n")
	for _, name := range slices.Sorted(maps.Keys(commands)) {
		c := commands[name]
		text := c.does
		if c.follows != "" {
			text += "; then " + c.follows
		}
		if c.source != "" {
			text += " (" + c.source + ")"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %v | %s |\n", name, kindNames(c.locks), kindNames(c.shows), c.usual, text)
	}
	if *update {
		check(t, os.WriteFile(actionsPage, []byte(b.String()), 0o644))
	}
	if page, err := os.ReadFile(actionsPage); err != nil || string(page) != b.String() {
		t.Errorf("%s is not that of the table of commands: run make actions (%v)", actionsPage, err)
	}
}

func kindNames(kinds []store.Kind) string {
	var names []string
	for _, k := range kinds {
		names = append(names, words(k))
	}
	return strings.Join(names, ", ")
}

// checkCommands fails the test if an action is not as the table of commands says.
func checkCommands(t *testing.T, st *State) {
	t.Helper()
	for a := range st.Actions.All() {
		c, ok := commands[a.Command]
		if !ok {
			t.Errorf("command %s is not in the table", a.Command)
		}
		for _, r := range a.Resources {
			if !slices.Contains(c.locks, r.Kind) && !slices.Contains(c.shows, r.Kind) {
				t.Errorf("command %s has a resource of the kind %s, which the table lacks", a.Command, r.Kind)
			}
		}
		if a.plan == nil || a.plan.Does == nil {
			continue
		}
		if !slices.ContainsFunc(c.effects, func(e effect) bool { return reflect.TypeOf(e) == reflect.TypeOf(a.plan.Does) }) {
			t.Errorf("command %s has the effect %T, which the table lacks", a.Command, a.plan.Does)
		}
	}
}
