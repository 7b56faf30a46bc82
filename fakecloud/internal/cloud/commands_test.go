package cloud

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

var update = flag.Bool("update", false, "write the page of actions instead of comparing it")

// actionsPage is made of the table of commands. Its last two columns are written by hand.
const actionsPage = "../../ACTIONS.md"

var actionRow = regexp.MustCompile("(?m)^\\| `(\\w+)` \\|.*\\| ([^|]+ \\| [^|]+) \\|$")

func TestThePageOfActionsIsTheTableOfCommands(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(actionsPage)
	check(t, err)
	does := map[string]string{}
	for _, row := range actionRow.FindAllStringSubmatch(string(page), -1) {
		does[row[1]] = row[2]
	}
	var b strings.Builder
	b.WriteString("# The actions of fakecloud\n\n" +
		"What each action locks, how long it takes with the profile `realistic`, and what it does. `make actions` takes all columns " +
		"but the\n" +
		"last two from the table `commands` ([commands.go](internal/cloud/commands.go)). Where no source stands beside an effect, the " +
		"API\n" +
		"document says so. A time without a source is `ours`: so long that a program has to wait for the end.\n\n" +
		"| command | locks | shows, too | takes | source of the time | effect |\n|---|---|---|--:|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(commands)) {
		c := commands[name]
		if does[name] == "" {
			t.Errorf("%s does not say what %s does: add a row", actionsPage, name)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %v | %s |\n", name, kindNames(c.locks), kindNames(c.shows), c.usual, does[name])
	}
	if *update {
		check(t, os.WriteFile(actionsPage, []byte(b.String()), 0o644))
	} else if string(page) != b.String() {
		t.Errorf("%s is not that of the table of commands: run make actions", actionsPage)
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
