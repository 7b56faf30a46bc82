package browser

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
)

func TestIncidentsAreStartedAndEnded(t *testing.T) {
	ctx := t.Context()
	s := open(t, fakecloud.Options{})
	s.Click("Incidents")
	s.Await("offer the locations", "document.querySelector('[aria-label=\"location of sold-out\"]')?.options.length > 3")
	s.Fill("location of sold-out", "hel1")
	s.Sees("Server type cx23 is sold out in hel1.")
	s.Fill("for of token-revoked", "3h")
	s.Sees("valid again after 3h.")
	s.Await("name no variables", "!document.getElementById('main').innerText.includes('$')")
	s.Await("have a label above each field", `[...document.querySelectorAll('.fields input, .fields select')].every(f =>
		f.labels[0]?.innerText && f.labels[0].getBoundingClientRect().top < f.getBoundingClientRect().top - 10)`)
	s.order(ctx, "victim")
	s.Sees("Server victim is in no list")
	s.Click("Start sold-out")
	s.Await("show it in the header", "document.querySelector('header').innerText.includes('Server type cx23 is sold out in hel1.')")
	running, err := s.cloud.Scenarios().List(ctx)
	if err != nil || len(running) != 1 || running[0].Parameters["location"] != "hel1" {
		t.Fatalf("running: %+v, %v", running, err)
	}
	s.Look("incidents")
	s.Click("Map")
	s.Sees("Server type cx23 is sold out in hel1.") // on each page
	s.Click(fmt.Sprintf("End sold-out %d", running[0].ID))
	s.Sees("sold-out has ended")
	if running, _ = s.cloud.Scenarios().List(ctx); len(running) != 0 {
		t.Errorf("still running: %+v", running)
	}
	s.Misses("sold out in hel1")

	s.Click("Incidents")
	s.Fill("Operation", "list_servers")
	s.Fill("Effect", "api_error")
	s.Await("list the codes", "[...document.querySelectorAll('.fields')].at(-1).querySelectorAll('select')[1]?.options.length > 5")
	s.Fill("Code", "maintenance")
	s.Fill("First", "2")
	s.Click("Add a fault rule")
	s.Sees("api error maintenance")
	if _, err := s.client.Server.All(ctx); !hcloud.IsError(err, hcloud.ErrorCode("maintenance")) {
		t.Errorf("the rule is not in force: %v", err)
	}
	rules, err := s.cloud.Faults().List(ctx)
	if err != nil || len(rules) != 1 || rules[0].First != 2 || rules[0].Effect.Kind != fault.KindAPIError {
		t.Fatalf("%+v, %v", rules, err)
	}
	s.Click("Remove " + rules[0].Name)
	s.Sees("is removed")
	if rules, _ = s.cloud.Faults().List(ctx); len(rules) != 0 {
		t.Errorf("still in force: %+v", rules)
	}
	s.Fill("Operation", "no_such_operation")
	s.Click("Add a fault rule")
	s.Sees("no_such_operation") // and why that is wrong
	s.Await("tell it as an error", "document.querySelector('#message.bad')")
	// The browser reports the refused request, too.
	s.mu.Lock()
	s.problems = slices.DeleteFunc(s.problems, func(text string) bool { return strings.Contains(text, "400 (Bad Request)") })
	s.mu.Unlock()
}
